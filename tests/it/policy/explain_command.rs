//! `weir explain` and its route: the explanation agrees with the answers that clients get.

use std::process::Command;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{ClosedPort, MockServer};

use super::{KeyedMachine, WeirWithRules, is_made};
use crate::admin::OperatorClient;
use crate::audit::{AuditFolder, of_kind};
use crate::harness::{Weir, wait_until, wait_until_async, weir_binary};

/// Runs `weir explain --json`; returns its exit code and its output.
fn explain(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = Weir::run_cli(&[&["explain", "--json"], arguments].concat());
    let told = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), told)
}

fn of(
    office: &WeirWithRules,
    machine: &KeyedMachine,
    tool: &str,
    arguments: &str,
) -> (Option<i32>, Value) {
    let file = office.weir.config_with_addresses();
    let asked = [
        "--config",
        file.to_str().unwrap(),
        "--as",
        &machine.claims(),
        "--tool",
        tool,
        "--arguments",
        arguments,
    ];
    explain(&asked)
}

/// Returns the stage of the first cause.
fn cause(told: &Value) -> &str {
    let first = &told["steps"][0];
    if ["hides", "refuses"].contains(&first["effect"].as_str().unwrap()) {
        first["stage"].as_str().unwrap()
    } else {
        ""
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_agrees_with_actual_lists_and_calls() {
    let office = WeirWithRules::with(json!({})).await;
    let table = [
        ("one__read", "{}", ["", "policy"]),
        ("one__write", r#"{"path":"/tmp/x"}"#, ["", "policy"]),
        ("one__write", r#"{"path":"/etc/x"}"#, ["policy", "policy"]),
        ("one__write", "{}", ["policy", "policy"]),
        ("one__strict", r#"{"path":"/x"}"#, ["", "policy"]),
        ("one__strict", r#"{"path":5}"#, ["arguments", "policy"]),
        ("one__hidden", "{}", ["toolset", "toolset"]),
        ("one__wipe", "{}", ["scope", "policy"]),
        ("one__nothing", "{}", ["name", "name"]),
        ("read", "{}", ["", ""]),
    ];
    for (tool, arguments, causes) in table {
        for (machine, expected) in office.machines().into_iter().zip(causes) {
            let expected = if tool.ends_with("read") { "" } else { expected };
            let (code, told) = of(&office, machine, tool, arguments);
            let answer = office
                .client(machine)
                .call(tool, serde_json::from_str(arguments).unwrap())
                .await
                .unwrap();
            let case = format!("{tool} {arguments}: {told:#}\n{answer:?}");
            assert_eq!(told["callable"], json!(is_made(&answer)), "{case}");
            assert_eq!(code, Some(i32::from(!is_made(&answer))), "{case}");
            assert_eq!(cause(&told), expected, "{case}");
            if tool.starts_with("one__") {
                let is_listed = office.listed(machine).await.iter().any(|name| name == tool);
                assert_eq!(told["listed"], json!(is_listed), "{case}");
            }
            assert_eq!(told["live"], json!(true), "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_current_limits_and_a_down_upstream_as_first_cause() {
    let rates = json!({ "tools": { "one/read": { "rate": "3/h", "burst": 3 } } });
    let mut office = WeirWithRules::with(json!({ "rates": rates })).await;
    let [writer, reader] = office.machines();
    for number in 0..5 {
        let told = of(&office, writer, "one__read", "{}").1;
        let limits: Vec<_> = told["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| step["stage"] == "limit")
            .collect();
        assert!(
            limits
                .iter()
                .any(|step| step["text"].as_str().unwrap().contains("one/read")),
            "{told:#}"
        );
        let answer = office
            .client(writer)
            .call("one__read", json!({}))
            .await
            .unwrap();
        assert_eq!(
            (told["callable"].clone(), is_made(&answer)),
            (json!(number < 3), number < 3),
            "{told:#}"
        );
        assert_eq!(cause(&told), if number < 3 { "" } else { "limit" });
        assert_eq!(told["listed"], json!(true));
    }
    assert_eq!(
        cause(&of(&office, reader, "one__read", "{}").1),
        "",
        "each has a budget of its own"
    );
    office.upstream.stop().await;
    wait_until("the fall", || {
        let told = of(&office, office.machines()[1], "one__read", "{}").1;
        (cause(&told) == "upstream").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_follows_reloads_and_uses_the_config_file_without_a_running_weir() {
    let office = WeirWithRules::with(json!({})).await;
    let [_, reader] = office.machines();
    assert_eq!(
        cause(&of(&office, reader, "one__write", r#"{"path":"/tmp/x"}"#).1),
        "policy"
    );
    let mut config = office.config.clone();
    config["policy"]["inline"] = json!("permit(principal, action, resource);");
    office.weir.rewrite_config(config);
    wait_until("the reload", || {
        let told = of(&office, reader, "one__write", r#"{"path":"/tmp/x"}"#).1;
        (told["live"] == json!(true) && cause(&told).is_empty()).then_some(())
    });
    let claims = reader.claims();
    let file = office.weir.config_file().with_extension("copy");
    std::fs::copy(office.weir.config_file(), &file).unwrap();
    let closed = ClosedPort::new();
    let mut alone: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    alone["admin"]["listen"] = json!(closed.address());
    std::fs::write(&file, alone.to_string()).unwrap();
    let (code, told) = explain(&[
        "--config",
        file.to_str().unwrap(),
        "--as",
        &claims,
        "--tool",
        "one__anything",
    ]);
    assert_eq!(
        (code, &told["live"], &told["callable"]),
        (Some(0), &json!(false), &json!(true)),
        "{told:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_action_is_the_first_cause_with_actor_and_expiry() {
    let office = WeirWithRules::with(
        json!({ "admin": { "auth": { "token": "weir_0123456789_of-the-operators" } } }),
    )
    .await;
    let ops = OperatorClient::of(&office.weir)
        .with("authorization", "Bearer weir_0123456789_of-the-operators");
    let file = office.weir.config_with_addresses();
    let [writer, _] = office.machines();
    let asked = [
        "explain",
        "--json",
        "--config",
        file.to_str().unwrap(),
        "--as",
        &writer.claims(),
        "--tool",
        "one__read",
    ];
    let ask = || {
        let mut command = Command::new(weir_binary());
        let output = command
            .args(asked)
            .env("WEIR_ADMIN_TOKEN", "weir_0123456789_of-the-operators")
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    // Without the token there is no partial answer.
    let refused = Weir::run_cli(&asked);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(3) && said.contains("WEIR_ADMIN_TOKEN"),
        "{said}"
    );
    assert_eq!(cause(&ask()), "");

    let first = |told: &Value| {
        assert_eq!(
            (cause(told), &told["listed"], &told["callable"]),
            ("operator", &json!(false), &json!(false)),
            "{told:#}"
        );
        told["steps"][0]["text"].as_str().unwrap().to_owned()
    };
    for (act, word) in [("disable", "disabled"), ("drain", "drained")] {
        let path = format!("/admin/upstreams/one/{act}");
        ops.change(&path, json!({ "ttl": "1h", "reason": "it is slow" }))
            .await;
        let told = ask();
        let text = first(&told);
        assert!(
            text.starts_with(&format!("`one` is {word} by token since 2")),
            "{text}"
        );
        assert!(
            text.contains(", until 2") && text.ends_with(": it is slow"),
            "{text}"
        );
        let causes = told["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| step["effect"] == "hides");
        assert_eq!(causes.count(), 1, "nothing else is wrong: {told:#}");
    }
    ops.change("/admin/upstreams/one/enable", json!({})).await;
    wait_until_async("it back", async || {
        office
            .listed(writer)
            .await
            .contains(&"one__read".to_owned())
            .then_some(())
    })
    .await;
    let principal = ops.get_json("/admin/clients").await["clients"][0]["principal"].clone();
    ops.change("/admin/principals/block", principal.clone())
        .await;
    let text = first(&ask());
    assert!(
        text.starts_with("it is blocked by token since 2") && text.contains("until an operator"),
        "{text}"
    );
    assert_eq!(
        office
            .client(writer)
            .call("one__read", json!({}))
            .await
            .unwrap()
            .status,
        403
    );
    ops.change("/admin/principals/unblock", principal).await;
    assert_eq!(cause(&ask()), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_route_validates_its_query_and_is_admin_only() {
    let office = WeirWithRules::with(json!({})).await;
    for (query, status) in [
        ("tool=one__read", 200),
        ("", 400),
        ("tool=a&tool=b", 400),
        ("tool=a&as=nonsense", 400),
        ("tool=a&arguments=7", 400),
        ("tool=a&principal=root", 400),
    ] {
        let answer = office
            .weir
            .get_admin_page(&format!("/admin/explain?{query}"));
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{query}: {answer}"
        );
    }
    // The route is not on the clients' port.
    let answer = crate::auth::get(&office.weir.url("/admin/explain?tool=one__read")).await;
    assert_eq!(answer.status, 404);
    assert_eq!(office.upstream.total_executions(), 0);
}

/// Tools that a list dropped, and the stage that dropped each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_is_lost_on_its_way_is_found_where_it_was_lost() {
    let long = MockServer::modern().tools(30).start().await;
    // One name twice; and a schema that refers elsewhere.
    let vague = MockTool::new("vague").with(
        "inputSchema",
        json!({ "$ref": "http://127.0.0.1:1/schema" }),
    );
    let odd = ["a", "b", "a"]
        .map(MockTool::new)
        .into_iter()
        .chain([vague]);
    let odd = odd
        .fold(MockServer::modern(), |server, tool| server.with(tool))
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": {
            "long": { "url": long.url(), "walk": { "items": 20 } },
            "odd": { "url": odd.url() },
            "gone": { "url": "http://127.0.0.1:1/mcp" },
        },
        "endpoints": {
            "/mcp": { "upstreams": ["long", "odd", "gone"] },
            "/one": { "upstream": "odd", "tools": { "alias": { "a": "b" } } },
        },
    }));
    weir.wait_until_listed("/mcp", &["long__tool_0000", "odd__a"]);
    let admin = weir.admin_url();
    let ask = |endpoint: &str, tool: &str| {
        explain(&["--admin", &admin, "--endpoint", endpoint, "--tool", tool]).1
    };
    let stages = |told: &Value, effects: &[&str]| -> Vec<String> {
        let steps = told["steps"].as_array().unwrap().iter();
        let fitting = steps.filter(|step| effects.contains(&step["effect"].as_str().unwrap()));
        fitting
            .map(|step| step["stage"].as_str().unwrap().to_owned())
            .collect()
    };
    for (endpoint, tool, causes) in [
        ("/mcp", "long__tool_0029", vec!["page guard", "name"]),
        ("/mcp", "odd__nameless", vec!["definition", "name"]),
        ("/mcp", "gone__tool", vec!["upstream", "name"]),
        ("/mcp", "odd__vague", vec![]),
        ("/mcp", "odd/a", vec![]),
        // The operator gave its name to another tool.
        ("/one", "odd/b", vec!["name"]),
        ("/one", "b", vec![]),
    ] {
        let told = ask(endpoint, tool);
        assert_eq!(
            stages(&told, &["hides", "refuses"]),
            causes,
            "{endpoint} {tool}: {told:#}"
        );
    }
    assert!(stages(&ask("/mcp", "odd__vague"), &["notes"]).contains(&"schema".to_owned()));
    assert!(stages(&ask("/mcp", "long__tool_0001"), &["notes"]).contains(&"page guard".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_denied_call_names_the_rule_and_the_client_does_not_hear_it() {
    let folder = AuditFolder::new("denied");
    let rules = format!(
        "{}\n@id(\"never\") forbid(principal, action, resource == Tool::\"one/strict\");",
        super::RULES
    );
    let more =
        json!({ "audit": { "file": { "path": folder.file() } }, "policy": { "inline": rules } });
    let office = WeirWithRules::with(more).await;
    let [writer, _] = office.machines();
    let client = office.client(writer);
    for (tool, rule, text) in [
        ("one__write", "tmp-only", "only /tmp may be"),
        ("one__strict", "never", "Unknown tool"),
    ] {
        let answer = client.call(tool, json!({ "path": "/etc" })).await.unwrap();
        let heard = answer.last().to_string();
        assert!(heard.contains(text) && !heard.contains(rule), "{heard}");
        wait_until("the record", || {
            let records = of_kind(&folder.file(), "call");
            records
                .iter()
                .any(|record| record["tool"] == tool && record["rule"] == rule)
                .then_some(())
        });
    }
}
