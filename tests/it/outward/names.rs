//! Config keys, commands and options, exit codes, metrics, error reasons, members of audit records
//! and of the admin API's answers.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::compare;
use crate::admin::OperatorClient;
use crate::audit::{AuditFolder, records};
use crate::harness::{Weir, wait_until_async};
use crate::tenant_isolation::TENANTS;

/// The standard output of `weir` with these arguments.
fn printed(arguments: &[&str]) -> String {
    String::from_utf8(Weir::run_cli(arguments).stdout).unwrap()
}

/// Adds every property under `schema` as a path of keys. Definitions are followed once a path.
fn config_keys(
    root: &Value,
    schema: &Value,
    path: &str,
    within: &[&str],
    keys: &mut BTreeSet<String>,
) {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|at| at.strip_prefix("#/$defs/"))
    {
        if within.contains(&name) {
            return;
        }
        let within = [within, &[name]].concat();
        config_keys(root, &root["$defs"][name], path, &within, keys);
    }
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        config_keys(root, value, &path, within, keys);
        keys.insert(path);
    }
    for (member, mark) in [("additionalProperties", ".*"), ("items", "[]")] {
        if schema[member].is_object() {
            config_keys(
                root,
                &schema[member],
                &format!("{path}{mark}"),
                within,
                keys,
            );
        }
    }
    for member in ["anyOf", "oneOf", "allOf"] {
        for one in schema[member].as_array().into_iter().flatten() {
            config_keys(root, one, path, within, keys);
        }
    }
    let words = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(schema.get("const"));
    keys.extend(words.map(|word| format!("{path} = {word}")));
}

#[test]
fn config_keys_are_those_of_the_record() {
    let schema: Value = serde_json::from_str(&printed(&["schema"])).unwrap();
    let mut keys = BTreeSet::new();
    config_keys(&schema, &schema, "", &[], &mut keys);
    assert!(keys.len() > 200, "{}", keys.len());
    compare("config_keys.txt", &lines(keys));
}

fn lines(set: BTreeSet<String>) -> String {
    set.into_iter().map(|line| line + "\n").collect()
}

/// Adds commands, options, arguments, values and variables of a command's help.
fn commands(command: &[&str], names: &mut BTreeSet<String>) {
    let at = command.join(" ");
    let help = printed(&[command, &["--help"]].concat());
    let mut section = "";
    for line in help.lines() {
        if let Some(title) = line.strip_suffix(':')
            && !line.starts_with(' ')
        {
            section = title;
        }
        let word = line.split_whitespace().next().unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        match section {
            "Commands" if indent == 2 && word != "help" => {
                names.insert(format!("weir {at} {word}"));
                commands(&[command, &[word]].concat(), names);
            }
            "Options" | "Arguments"
                if (2..=6).contains(&indent) && word.starts_with(['-', '<', '[']) =>
            {
                // What follows two spaces is the text of the help.
                let names_of_option = line.trim().split("  ").next().unwrap_or_default();
                names.insert(format!("weir {at} {names_of_option}"));
            }
            _ if word == "-" && line.contains(':') => {
                let value = line.trim().split(':').next().unwrap_or_default();
                names.insert(format!("weir {at} value {value}"));
            }
            _ => {}
        }
    }
    // A mark may be broken over two lines, which depends on the text before it.
    let joined = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for mark in ["[env: ", "[default: ", "[possible values: "] {
        for rest in joined.split(mark).skip(1) {
            let inner = rest.split([']', '=']).next().unwrap_or_default();
            names.insert(format!("weir {at} {mark}{inner}"));
        }
    }
}

#[test]
fn commands_options_and_exit_codes_are_those_of_the_record() {
    let mut names = BTreeSet::new();
    commands(&[], &mut names);
    assert!(names.len() > 100, "{}", names.len());
    for (arguments, about) in [
        (&["--version"][..], "a command that works"),
        (&["no-such-command"], "an unknown command"),
        (&["check", "/no/such/file"], "a config that is absent"),
        (
            &["tools", "http://127.0.0.1:1/mcp"],
            "a server that does not listen",
        ),
        (
            &["health", "--url", "http://127.0.0.1:1"],
            "health of no weir",
        ),
        (
            &["audit", "verify", "/no/such/file"],
            "an audit file that is absent",
        ),
        (
            &["import", "/no/such/file"],
            "a file to import that is absent",
        ),
    ] {
        let code = Weir::run_cli(arguments).status.code().unwrap();
        names.insert(format!("exit code {code}: {about}"));
    }
    compare("commands.txt", &lines(names));
}

/// The cells of a table of the documentation, without the columns that are sentences.
fn table(page: &str, columns: &[usize]) -> String {
    // Rows begin with a name or a status; heads do not.
    let rows = page.lines().filter(|line| {
        let first = line.strip_prefix("| ").and_then(|rest| rest.chars().next());
        first.is_some_and(|first| first == '`' || first.is_ascii_digit())
    });
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let kept: Vec<&str> = columns.iter().map(|column| cells[*column]).collect();
        kept.join(" | ") + "\n"
    })
    .collect()
}

#[test]
fn metrics_and_error_reasons_are_those_of_the_record() {
    let metrics = table(&printed(&["docs", "metrics"]), &[0, 1, 2, 3, 4]);
    let errors = printed(&["docs", "errors"]);
    let (before, failures) = errors.split_once("## Failures of requests").unwrap();
    let (refusals, messages) = before
        .split_once("## Before a message is carried out")
        .unwrap();
    let refusals = table(refusals, &[0, 1, 2, 3]);
    assert!(metrics.lines().count() > 40 && refusals.lines().count() > 30);
    compare("metrics.txt", &metrics);
    compare("refusals.txt", &refusals);
    compare("refused_messages.txt", &table(messages, &[0, 1, 2]));
    compare("error_reasons.txt", &table(failures, &[0, 2, 3, 4, 5]));
}

/// Adds the path of each member of a JSON value; `under` opens it.
fn members(value: &Value, under: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = format!("{under}.{key}");
                paths.insert(path.clone());
                members(value, &path, paths);
            }
        }
        Value::Array(array) => {
            for value in array {
                members(value, &format!("{under}[]"), paths);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The name and the labels of each series, without values.
fn series(page: &str, names: &mut BTreeSet<String>) {
    for line in page
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(' '))
    {
        let (name, labels) = line.split_once('{').unwrap_or((line, ""));
        let name = name.split(' ').next().unwrap_or_default();
        let keys: BTreeSet<&str> = labels
            .split('"')
            .filter_map(|part| part.strip_suffix('='))
            .map(|key| key.trim_start_matches(',').trim())
            .collect();
        let keys: Vec<&str> = keys.into_iter().collect();
        names.insert(format!("{name} {}", keys.join(",")));
    }
}

/// Returns requests to the admin API: a path, and the body of a change.
fn admin_requests() -> Vec<(&'static str, Option<Value>)> {
    vec![
        ("/admin/upstreams", None),
        ("/admin/upstreams/one", None),
        ("/admin/catalog", None),
        ("/admin/calls", None),
        ("/admin/config", None),
        ("/admin/sessions", None),
        ("/admin/clients", None),
        ("/admin/limits", None),
        ("/admin/replicas", None),
        (
            "/admin/explain?endpoint=/mcp&tool=one__tool_0000&anonymous=true",
            None,
        ),
        (
            "/admin/upstreams/two/disable",
            Some(json!({ "why": "a test" })),
        ),
        ("/admin/upstreams/two/enable", Some(json!({}))),
        ("/admin/upstreams/none/enable", Some(json!({}))),
        ("/admin/calls/none/cancel", Some(json!({}))),
        ("/admin/sessions/none/end", Some(json!({}))),
        (
            "/admin/principals/block",
            Some(json!({ "issuer": "weir:api-key", "subject": "other", "for": "1m" })),
        ),
        ("/admin/log", Some(json!({ "filter": "info", "for": "1m" }))),
        ("/admin/reload", Some(json!({}))),
    ]
}

/// Answers, refusals, failures and changes by an operator leave the records, series and views that
/// dashboards and scripts read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_records_series_and_admin_answers_have_the_members_of_the_record() {
    let one = MockServer::modern()
        .tools(2)
        .tool("fails", MockBehaviour::error(-32000, "no", json!(null)))
        .start()
        .await;
    let two = MockServer::legacy(Revision::V2025_06_18)
        .tools(1)
        .with_library()
        .start()
        .await;
    let folder = AuditFolder::new("outward");
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": one.url() }, "two": { "url": two.url() } },
        "auth": { "mode": "required", "api_keys": [TENANTS[0].api_key()] },
        "admin": { "auth": { "token": "an-operators-token-of-32-characters" } },
        "audit": { "file": { "path": folder.file() } },
        "rates": { "principal": { "rate": "1000/s" } },
    }));
    let url = weir.url("/mcp");
    for revision in [Revision::V2026_07_28, Revision::V2025_11_25] {
        let client = TENANTS[0].client(&url, revision).await;
        for method in ["tools/list", "prompts/list", "resources/list"] {
            client.ask(method, json!({})).await;
        }
        for tool in [
            "one__tool_0000",
            "one__fails",
            "two__tool_0000",
            "one__absent",
        ] {
            client.call(tool, json!({ "n": 1 })).await;
        }
        client.ask("no/such", json!({})).await;
    }
    let stranger = RawClient::new(&url).modern();
    assert_eq!(
        stranger.ask("tools/list", json!({})).await.unwrap().status,
        401
    );
    let operator = OperatorClient::of(&weir).with(
        "authorization",
        "Bearer an-operators-token-of-32-characters",
    );
    let stranger = OperatorClient::of(&weir).with("authorization", "Bearer wrong");
    assert_eq!(stranger.get("/admin/config").await.status, 401);
    let mut paths = BTreeSet::new();
    for (path, change) in admin_requests() {
        let answer = match &change {
            None => operator.get(path).await,
            Some(wish) => operator.try_change(path, wish).await,
        };
        let method = if change.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        let under = format!("{method} {path} {}", answer.status.as_u16());
        paths.insert(under.clone());
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        members(&value, &under, &mut paths);
    }
    compare("admin_members.txt", &lines(paths));

    let page = operator.get("/metrics").await;
    let mut names = BTreeSet::new();
    series(&String::from_utf8_lossy(&page.body), &mut names);
    assert!(names.len() > 50, "{names:?}");
    compare("series.txt", &lines(names));

    let mut config = weir.config();
    config["audit"]["sync"] = json!("200ms");
    weir.rewrite_config(config);
    // Records are written by a thread of its own.
    wait_until_async("the records of the last changes", async || {
        let records = records(&folder.file());
        let count = |kind| {
            records
                .iter()
                .filter(|record| record["kind"] == kind)
                .count()
        };
        (count("admin") >= 5 && count("changed") >= 1).then_some(())
    })
    .await;
    let mut paths = BTreeSet::new();
    for record in records(&folder.file()) {
        let kind = record["kind"].as_str().unwrap_or_default();
        members(&record, kind, &mut paths);
    }
    compare("audit_members.txt", &lines(paths));
}
