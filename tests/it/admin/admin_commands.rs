//! The log level and the reload of a running process, and the commands of `weir admin`.

use std::process::{Command, Output};

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};

use super::{OperatorClient, body, config_over};
use crate::harness::{Weir, wait_until, weir_binary};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_level_changes_and_comes_back() {
    let one = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_log_filter(config_over(&[("one", &one)]), "warn");
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    assert!(!weir.process.output().contains("\"DEBUG\""));
    let ops = OperatorClient::of(&weir);
    assert_eq!(
        ops.try_change("/admin/log", &json!({ "level": "weir=nonsense" }))
            .await
            .status,
        400
    );
    ops.change(
        "/admin/log",
        json!({ "level": "debug", "reason": "to see" }),
    )
    .await;
    weir.call_tool("/mcp", "one__tool_0000", &json!({}));
    wait_until("debug lines", || {
        weir.process.output().contains("\"DEBUG\"").then_some(())
    });
    assert_eq!(
        ops.get_json("/admin/config").await["changes"][0]["kind"],
        "log"
    );
    ops.change("/admin/log", json!({})).await;
    assert_eq!(ops.get_json("/admin/config").await["changes"], json!([]));
    weir.call_tool("/mcp", "one__tool_0000", &json!({ "n": "MARK" }));
    let lines = weir
        .process
        .output()
        .lines()
        .filter(|line| line.contains("\"DEBUG\""))
        .count();
    weir.call_tool("/mcp", "one__tool_0000", &json!({}));
    assert_eq!(
        weir.process
            .output()
            .lines()
            .filter(|line| line.contains("\"DEBUG\""))
            .count(),
        lines
    );
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_is_asked_for_says_how_it_went() {
    let (one, two) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    let ops = OperatorClient::of(&weir);
    let before = ops.get_json("/admin/config").await;
    assert_eq!(before["last_reload"], Value::Null);
    ops.change("/admin/reload", json!({ "reason": "a drill" }))
        .await;
    let mut bad = config_over(&[("one", &one)]);
    bad["upstreems"] = json!({});
    weir.rewrite_config(bad);
    let refused = ops.try_change("/admin/reload", &json!({})).await;
    assert_eq!(refused.status, 409);
    assert!(
        body(&refused).contains("upstreems"),
        "it says which key: {}",
        body(&refused)
    );
    let page = body(&ops.get("/").await);
    assert!(
        page.contains("config files were refused") && page.contains("upstreems"),
        "{page}"
    );
    // The runbook's remedy: restore the old file. Then the failure clears by itself.
    weir.rewrite_config(config_over(&[("one", &one)]));
    let newer = || {
        let at = |result: &str| {
            weir.metric(
                "weir_config_last_reload_seconds",
                &[&format!("result=\"{result}\"")],
            )
        };
        (at("ok") > at("error")).then_some(())
    };
    wait_until("the file that is in force again to be noticed", newer);
    let page = body(&ops.get("/").await);
    assert!(!page.contains("config files were refused"), "{page}");
    weir.rewrite_config(config_over(&[("one", &one), ("two", &two)]));
    ops.change("/admin/reload", json!({})).await;
    let after = ops.get_json("/admin/config").await;
    assert_eq!(
        (&after["last_reload"]["result"], &after["upstreams"]),
        (&json!("ok"), &json!(["one", "two"]))
    );
    assert_ne!(before["digest"], after["digest"]);
}

/// Runs `weir admin`.
fn admin(weir: &Weir, words: &[&str]) -> Output {
    let mut command = Command::new(weir_binary());
    command
        .args(["admin", "--admin", &weir.admin_url()])
        .args(words);
    command
        .env("WEIR_ADMIN_TOKEN", "weir_0123456789_of-the-operators")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_weir_admin_command_works_as_documented() {
    let hostile = "x\u{1b}[2J<b>";
    let one = MockServer::modern()
        .named(hostile)
        .tools(2)
        .tool("hang", MockBehaviour::hang())
        .start()
        .await;
    let mut config = config_over(&[("one", &one)]);
    config["admin"] = json!({ "auth": { "token": "weir_0123456789_of-the-operators" } });
    let weir = Weir::with_config(config);
    weir.wait_until_listed("/mcp", &["one__hang"]);
    let table = said(&admin(&weir, &["upstreams"]));
    assert!(
        table.starts_with("UPSTREAM") && table.contains("one") && table.contains("up"),
        "{table}"
    );
    assert!(said(&admin(&weir, &["upstreams", "one"])).contains("catalog.tools"));
    let catalog = said(&admin(&weir, &["catalog"]));
    assert!(
        catalog.contains("one__tool_0000") && catalog.contains("3 in all, about"),
        "{catalog}"
    );
    let seen: Value = serde_json::from_str(&said(&admin(
        &weir,
        &["--json", "catalog", "--upstream", "one"],
    )))
    .unwrap();
    assert_eq!(seen["items"][0]["definition"]["name"], "tool_0000");
    for words in [
        ["catalog", "--upstream", "none"],
        ["calls", "--upstream", "none"],
    ] {
        let output = admin(&weir, &words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("there is no upstream `none`"), "{error}");
    }
    for words in [
        &["sessions"][..],
        &["clients"],
        &["limits"],
        &["calls"],
        &["config"],
    ] {
        assert!(!said(&admin(&weir, words)).contains('\u{1b}'), "{words:?}");
    }
    let disabled = said(&admin(
        &weir,
        &["disable", "one", "--reason", "a drill", "--ttl", "1h"],
    ));
    assert!(
        disabled.starts_with("disable, 0 calls ended, until 2"),
        "{disabled}"
    );
    assert!(said(&admin(&weir, &["upstreams"])).contains("disabled"));
    assert!(said(&admin(&weir, &["enable", "one"])).starts_with("enable"));
    assert!(said(&admin(&weir, &["drain", "one"])).starts_with("drain"));
    assert!(said(&admin(&weir, &["enable", "one"])).starts_with("enable"));
    assert!(said(&admin(&weir, &["refresh", "one"])).starts_with("refresh"));
    assert!(
        said(&admin(
            &weir,
            &["block", "eve", "--issuer", "https://id.example.com"]
        ))
        .starts_with("block")
    );
    assert!(
        said(&admin(
            &weir,
            &["unblock", "eve", "--issuer", "https://id.example.com"]
        ))
        .starts_with("unblock")
    );
    assert!(said(&admin(&weir, &["log", "debug"])).starts_with("log"));
    assert!(said(&admin(&weir, &["log"])).starts_with("log"));
    assert!(said(&admin(&weir, &["reload"])).starts_with("reload"));
    for (words, code, why) in [
        (&["cancel", "c999"][..], 1, "there is no call"),
        (&["end", "00"], 1, "there is no session"),
        (&["disable", "none"], 1, "there is no upstream"),
        (&["upstreams", "../x"], 1, "there is no upstream"),
    ] {
        let output = admin(&weir, words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?} {told}");
        assert!(told.contains(why), "{words:?} {told}");
    }
    let mut bare = Command::new(weir_binary());
    bare.args(["admin", "--admin", &weir.admin_url(), "calls"])
        .env_remove("WEIR_ADMIN_TOKEN");
    let output = bare.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("WEIR_ADMIN_TOKEN"),
        "{output:?}"
    );
}
