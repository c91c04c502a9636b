//! Formats responses of the admin API as tables. Control characters from upstreams and clients are
//! removed.

use serde_json::Value;
use weir_text::{count, one_line, plain};

use crate::admin_command::admin_request::AdminCommand;

/// The columns of a table: their heads, and the JSON pointers of their values in a row.
type TableColumns = [(&'static str, &'static str)];

const UPSTREAMS: &TableColumns = &[
    ("UPSTREAM", "/id"),
    ("STATE", "/state"),
    ("SINCE", "/since"),
    ("PROTOCOL", "/protocol"),
    ("SECOND", "/second_protocol"),
    ("P50 MS", "/calls/p50_ms"),
    ("P99 MS", "/calls/p99_ms"),
    ("NOW", "/calls/in_flight"),
    ("FAILED", "/calls/failed"),
    ("TOOLS", "/catalog/tools"),
    ("LAST ERROR", "/last_error"),
];

/// The upstreams that one replica runs for all.
const OWNERS: &TableColumns = &[
    ("UPSTREAM", "/id"),
    ("RUNS AT", "/owner/replica"),
    ("THIS ONE", "/owner/is_own"),
    ("EPOCH", "/owner/epoch"),
];

const URLS: &TableColumns = &[
    ("UPSTREAM", "/upstream"),
    ("URL", "/url"),
    ("WEIGHT", "/weight"),
    ("BREAKER", "/breaker"),
    ("LISTS", "/watched"),
    ("NOW", "/in_flight"),
    ("SESSIONS", "/sessions"),
    ("LATENCY MS", "/latency_ms"),
    ("LAST ERROR", "/last_error"),
];

const ITEMS: &TableColumns = &[
    ("EXPOSED", "/exposed"),
    ("UPSTREAM", "/upstream"),
    ("NATIVE", "/native"),
    ("TOKENS", "/tokens_estimated"),
    ("ARGUMENTS", "/input_validation"),
];

const SESSIONS: &TableColumns = &[
    ("SESSION", "/id"),
    ("PRINCIPAL", "/principal/subject"),
    ("PROGRAM", "/software/name"),
    ("PROTOCOL", "/protocol"),
    ("SINCE", "/since"),
    ("CALLS", "/calls"),
    ("STREAM", "/stream"),
    ("SUBSCRIBED TO", "/subscriptions"),
];

const CLIENTS: &TableColumns = &[
    ("PROGRAM", "/software/name"),
    ("VERSION", "/software/version"),
    ("SUBJECT", "/principal/subject"),
    ("ISSUER", "/principal/issuer"),
    ("PROTOCOL", "/protocol"),
    ("STREAMS", "/streams"),
    ("CALLS", "/calls"),
    ("SEEN", "/last_seen"),
];

const LIMITS: &TableColumns = &[
    ("LIMIT", "/limit"),
    ("OF", "/of/name"),
    ("ALLOWS", "/allows"),
    ("WAIT MS", "/wait_ms"),
];

const REPLICAS: &TableColumns = &[
    ("REPLICA", "/id"),
    ("OWN", "/own"),
    ("ADDRESS", "/address"),
    ("VERSION", "/version"),
    ("CONFIG", "/config"),
    ("KEYS", "/keys"),
    ("SEALS", "/sealing_key"),
    ("OPENS ALL", "/opens_all"),
    ("DRAINING", "/draining"),
    ("AGE MS", "/age_ms"),
];

const CALLS: &TableColumns = &[
    ("CALL", "/id"),
    ("TOOL", "/tool"),
    ("UPSTREAM", "/upstream"),
    ("PRINCIPAL", "/principal/subject"),
    ("PHASE", "/phase"),
    ("AGE MS", "/age_ms"),
    ("REQUEST", "/request"),
];

const PARKED: &TableColumns = &[
    ("PARKED", "/id"),
    ("TOOL", "/tool"),
    ("UPSTREAM", "/upstream"),
    ("PRINCIPAL", "/principal/subject"),
    ("WAITS FOR", "/waits_for"),
    ("SINCE", "/since"),
    ("UNTIL", "/until"),
    ("REQUEST", "/request"),
];

/// Formats a response for people.
pub(crate) fn show(command: &AdminCommand, answer: &Value) -> String {
    match command {
        AdminCommand::Upstreams { id: None } => {
            let all = &answer["upstreams"];
            table(&upstreams(all), UPSTREAMS) + &urls(all) + &owners(all)
        }
        AdminCommand::Catalog { .. } => {
            let total = format!(
                "{} in all, about {} tokens\n",
                answer["total"], answer["tokens_estimated"]
            );
            let own = answer["sessions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|own| {
                    let upstream = plain(own["upstream"].as_str().unwrap_or_default());
                    let sessions = count(own["differing"].as_u64().unwrap_or_default(), "session");
                    format!(
                        "{upstream} has other items in {sessions}, visible in these sessions only\n"
                    )
                });
            let next = answer["next"].as_str().map(|next| {
                let word = one_line(next).replace('\'', r"'\''");
                format!("the list continues with --after '{word}'\n")
            });
            let (next, own) = (next.unwrap_or_default(), own.collect::<String>());
            table(&answer["items"], ITEMS) + &next + &total + &own
        }
        AdminCommand::Sessions => page(&answer["sessions"], &answer["total"], SESSIONS),
        AdminCommand::Clients => page(&answer["clients"], &answer["total"], CLIENTS),
        AdminCommand::Limits => page(&answer["refusing"], &answer["total"], LIMITS),
        AdminCommand::Replicas => replicas(answer),
        AdminCommand::Calls { .. } => calls(answer),
        AdminCommand::Upstreams { .. } | AdminCommand::Config => format_members(answer, ""),
        AdminCommand::Disable { .. }
        | AdminCommand::Enable { .. }
        | AdminCommand::Drain { .. }
        | AdminCommand::Refresh { .. }
        | AdminCommand::Cancel { .. }
        | AdminCommand::End { .. }
        | AdminCommand::Block { .. }
        | AdminCommand::Unblock { .. }
        | AdminCommand::Log { .. }
        | AdminCommand::Reload { .. } => format_change(answer),
    }
}

/// Formats the answers of all replicas for people, each below the name of its replica.
pub(crate) fn show_all(command: &AdminCommand, answer: &Value) -> String {
    let mut out = String::new();
    for replica in answer["replicas"].as_array().into_iter().flatten() {
        let own = if replica["own"] == true {
            ", the one asked"
        } else {
            ""
        };
        let (id, address) = (cell(&replica["id"]), cell(&replica["address"]));
        out.push_str(&format!("replica {id} at {address}{own}:\n"));
        match replica["error"].as_str() {
            Some(error) => out.push_str(&format!("failed: {}\n", one_line(error))),
            None => out.push_str(&show(command, &replica["answer"])),
        }
        out.push('\n');
    }
    let failed = answer["failed"].as_u64().unwrap_or_default();
    if failed > 0 {
        out.push_str(&format!("{} failed\n", count(failed, "replica")));
    }
    out
}

/// Returns the upstreams. One that is starting has its last output in place of an error.
fn upstreams(all: &Value) -> Value {
    let mut all = all.clone();
    for upstream in all
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter(|upstream| upstream["last_error"].is_null())
    {
        if let Some(seconds) = upstream["starting"]["seconds"].as_u64() {
            let says = upstream["starting"]["says"].as_str().unwrap_or("none yet");
            upstream["last_error"] =
                format!("starting for {seconds} s, last output: {says}").into();
        }
    }
    all
}

/// Formats the URLs of upstreams that have several, below the upstreams.
fn urls(all: &Value) -> String {
    let mut rows = Vec::new();
    for upstream in all.as_array().into_iter().flatten() {
        for url in upstream["urls"].as_array().into_iter().flatten() {
            let mut row = url.clone();
            row["upstream"] = upstream["id"].clone();
            row["watched"] = if url["watched"] == true { "here" } else { "" }.into();
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(&Value::Array(rows), URLS))
}

/// Formats the replicas that run an upstream for all, below the upstreams.
fn owners(all: &Value) -> String {
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    let owned = all.iter().filter(|upstream| upstream["owner"].is_object());
    let rows: Vec<Value> = owned.cloned().collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(&Value::Array(rows), OWNERS))
}

/// Formats the running calls, and below them those that wait for their clients.
fn calls(answer: &Value) -> String {
    let running = page(&answer["calls"], &answer["total"], CALLS);
    if answer["parked"].as_array().is_none_or(Vec::is_empty) {
        return running;
    }
    let parked = page(&answer["parked"], &answer["total_parked"], PARKED);
    format!("{running}\n{parked}")
}

/// Formats the replicas, and below them the state of their store.
fn replicas(answer: &Value) -> String {
    let store = plain(answer["store"].as_str().unwrap_or_default());
    let status = &answer["status"];
    if status.is_null() {
        return format!("store: {store}; no other replicas\n");
    }
    let state = match status["connected"] == Value::Bool(true) {
        true => "connected",
        false => "not connected",
    };
    let pending = count(
        status["pending_writes"].as_u64().unwrap_or_default(),
        "write",
    );
    let mut out = table(&answer["replicas"], REPLICAS);
    out.push_str(&format!(
        "\nstore: {store}, {state}, latency {} ms, {pending} pending\n",
        cell(&status["latency_ms"])
    ));
    if let Some(error) = status["last_error"].as_str() {
        out.push_str(&format!("last error: {}\n", one_line(error)));
    }
    for warning in status["warnings"].as_array().into_iter().flatten() {
        out.push_str(&format!("warning: {}\n", cell(warning)));
    }
    if let Some(next) = answer["next_key"]["id"].as_u64() {
        let missing = match cell(&answer["next_key"]["waits_for"]) {
            names if names.is_empty() => "none any more".to_owned(),
            names => names,
        };
        out.push_str(&format!(
            "key {next} seals once every replica has it; without it: {missing}\n"
        ));
    }
    if let Some([_, ..]) = answer["differences"].as_array().map(Vec::as_slice) {
        out.push_str(&format!(
            "warning: replicas differ in: {}\n",
            cell(&answer["differences"])
        ));
    }
    out
}

/// Formats the result of a change.
fn format_change(answer: &Value) -> String {
    let mut out = plain(answer["done"].as_str().unwrap_or("done"));
    if answer["changed"] == Value::Bool(false) {
        out.push_str(": no change");
    }
    for (member, what) in [("ended_calls", "call"), ("ended_streams", "stream")] {
        if let Some(ended) = answer[member].as_u64() {
            out.push_str(&format!(", {} ended", count(ended, what)));
        }
    }
    if let Some(expires) = answer["expires"].as_str() {
        out.push_str(&format!(", until {}", plain(expires)));
    }
    if answer["replicas"] == "pending" {
        out.push_str("; the shared store does not answer: other replicas follow later");
    }
    out.push('\n');
    out
}

/// Formats every member on a line of its own.
fn format_members(value: &Value, name: &str) -> String {
    let under = |key: &str| {
        if name.is_empty() {
            key.to_owned()
        } else {
            format!("{name}.{key}")
        }
    };
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format_members(value, &under(key)))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(n, item)| format_members(item, &under(&n.to_string())))
            .collect(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            format!("{:<28} {}\n", plain(name), cell(value))
        }
    }
}

/// Formats rows, and says if there are more than these.
fn page(rows: &Value, total: &Value, columns: &TableColumns) -> String {
    let mut out = table(rows, columns);
    let shown = rows.as_array().map_or(0, Vec::len);
    if let Some(total) = total.as_u64()
        && total > shown as u64
    {
        out.push_str(&format!("{shown} of {total} are shown\n"));
    }
    out
}

fn table(rows: &Value, columns: &TableColumns) -> String {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |row: &Value| {
        columns
            .iter()
            .map(|(_, at)| cell(row.pointer(at).unwrap_or(&Value::Null)))
            .collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    super::super::table::table(&heads, &rows, weir_terminal::width())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => one_line(text),
        Value::Array(items)
            if items
                .iter()
                .all(|item| item.is_string() || item.is_number()) =>
        {
            items.iter().map(cell).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_its_columns_under_their_heads_and_steers_nothing() {
        let rows =
            json!([{ "a": "x\u{1b}[2Jy", "b": { "c": 5 } }, { "a": "long\nname", "b": null }]);
        let shown = table(&rows, &[("A", "/a"), ("B", "/b/c")]);
        assert_eq!(shown, "A          B\nx[2Jy      5\nlong name  -\n");
        let long = "y".repeat(100);
        assert!(
            table(&json!([{ "a": long }]), &[("A", "/a")]).contains(&long),
            "a pipe gets all of it"
        );
    }

    #[test]
    fn incomplete_lists_say_so() {
        let commands = [
            (AdminCommand::Sessions, "sessions"),
            (AdminCommand::Clients, "clients"),
            (AdminCommand::Limits, "refusing"),
            (AdminCommand::Calls { upstream: None }, "calls"),
        ];
        for (command, rows) in commands {
            let shown = |total: u64| show(&command, &json!({ rows: [{}, {}], "total": total }));
            assert!(shown(3).ends_with("\n2 of 3 are shown\n"), "{rows}");
            assert_eq!(shown(2).lines().count(), 3, "{rows}");
        }
        let catalog = AdminCommand::Catalog {
            endpoint: "/mcp".to_owned(),
            upstream: None,
            kind: "resources".to_owned(),
            after: None,
        };
        let answer = |next: Value| json!({ "items": [{}], "total": 3, "tokens_estimated": 9, "sessions": [], "next": next });
        let shown = show(&catalog, &answer("file:///it's".into()));
        assert!(
            shown.contains("\nthe list continues with --after 'file:///it'\\''s'\n3 in all"),
            "{shown}"
        );
        assert!(!show(&catalog, &answer(Value::Null)).contains("continues"));
    }

    #[test]
    fn urls_of_an_upstream_stand_below_the_upstreams() {
        let mut upstream = json!({ "id": "shop", "state": "up", "urls": [] });
        let all = |upstream: &Value| {
            let answer = json!({ "upstreams": [upstream] });
            show(&AdminCommand::Upstreams { id: None }, &answer)
        };
        assert_eq!(all(&upstream).lines().count(), 2);
        upstream["urls"] = json!([
            { "url": "http://a/mcp", "weight": 90, "breaker": "closed", "watched": true },
            { "url": "http://b/mcp", "weight": 10, "breaker": "open", "watched": false },
        ]);
        let shown = all(&upstream);
        let urls: Vec<_> = shown.lines().skip(3).collect();
        assert!(urls[0].starts_with("UPSTREAM") && urls[0].contains("BREAKER"));
        assert!(urls[1].starts_with("shop") && urls[1].contains("here"));
        assert!(urls[2].contains("http://b/mcp") && urls[2].contains("open"));
        assert!(!urls[2].contains("here"), "{shown}");
    }

    #[test]
    fn calls_that_wait_stand_below_those_that_run() {
        let none = calls(&json!({ "calls": [], "parked": [] }));
        assert_eq!(none.lines().count(), 1, "{none}");
        let one = json!({ "id": "p1", "waits_for": ["roots/list", "elicitation/create"] });
        let shown = calls(&json!({ "calls": [], "parked": [one] }));
        assert!(
            shown.contains("\nPARKED") && shown.contains("roots/list, elicitation/create"),
            "{shown}"
        );
    }

    #[test]
    fn replicas_stand_above_their_store() {
        let none = json!({ "store": "memory", "status": null, "differences": [], "replicas": [] });
        assert_eq!(replicas(&none), "store: memory; no other replicas\n");
        let shown = replicas(&json!({
            "store": "redis",
            "status": {
                "connected": false, "last_error": "timed out", "latency_ms": 0.3,
                "pending_writes": 1, "warnings": ["appendonly is no"],
            },
            "next_key": { "id": 2, "waits_for": ["0b", "0c"] },
            "differences": ["config", "keys"],
            "replicas": [{ "id": "0a", "own": true, "keys": [2, 1], "config": "ab" }],
        }));
        assert!(
            shown.starts_with("REPLICA") && shown.contains(" 2, 1 "),
            "{shown}"
        );
        let below = "\nstore: redis, not connected, latency 0.3 ms, 1 write pending\n\
                     last error: timed out\nwarning: appendonly is no\n\
                     key 2 seals once every replica has it; without it: 0b, 0c\n\
             warning: replicas differ in: config, keys\n";
        assert!(shown.ends_with(below), "{shown}");
    }

    #[test]
    fn answers_of_all_replicas_stand_below_their_names() {
        let log = AdminCommand::Log {
            level: None,
            why: super::super::admin_request::OverrideOptions::default(),
        };
        let shown = show_all(
            &log,
            &json!({
                "replicas": [
                    { "id": "0a", "own": true, "address": "10.0.0.1:8082", "answer": { "done": "log", "changed": true }, "error": null },
                    { "id": "0b", "own": false, "address": "10.0.0.2:8082", "answer": null, "error": "unreachable\nnow" },
                ],
                "failed": 1,
            }),
        );
        assert_eq!(
            shown,
            "replica 0a at 10.0.0.1:8082, the one asked:\nlog\n\n\
             replica 0b at 10.0.0.2:8082:\nfailed: unreachable now\n\n1 replica failed\n"
        );
    }

    #[test]
    fn change_is_summarised_in_one_line() {
        let answer = json!({ "done": "disable", "changed": false, "expires": "2026-01-01T00:00:00Z", "ended_calls": 2 });
        assert_eq!(
            format_change(&answer),
            "disable: no change, 2 calls ended, until 2026-01-01T00:00:00Z\n"
        );
    }
}
