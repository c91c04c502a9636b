//! The life of a weir process: start, reload, signals, the commands of its CLI.

use std::process::Command;

use serde_json::json;
use weir_testkit::{MockServer, RawClient};
use weir_testkit::{TestFolder, mock_server::MockTool};

use crate::harness::{ForeignServer, TestProcess, Weir, wait_until, wait_until_async, weir_binary};

// Proves G01.
#[test]
fn a_good_reload_is_taken_and_a_bad_one_changes_nothing() {
    let (_shop, url) = ForeignServer::RmcpModern.over_http();
    let weir = Weir::with_upstreams(json!({ "one": { "url": url } }));
    weir.wait_until_listed("/mcp", &["one__sum"]);
    weir.rewrite_config(json!({ "upstreams": { "one": { "url": url }, "two": { "url": url } } }));
    wait_until("the second upstream", || {
        weir.list_tools("/mcp")
            .contains(&"two__sum".to_owned())
            .then_some(())
    });
    weir.rewrite_config(json!({ "upstreams": { "one": { "url": url } }, "upstream": {} }));
    wait_until("the refusal to be counted", || {
        weir.get_admin_page("/metrics")
            .contains(r#"result="error""#)
            .then_some(())
    });
    let tools = weir.list_tools("/mcp");
    assert!(
        tools.contains(&"one__sum".to_owned()) && tools.contains(&"two__sum".to_owned()),
        "{tools:?}"
    );
}

#[test]
fn each_ordered_reload_of_a_bad_config_is_answered() {
    let upstreams = json!({ "one": { "url": "http://127.0.0.1:1/mcp" } });
    let weir = Weir::with_upstreams(upstreams.clone());
    let wait_for_refusals = |count: f64| {
        wait_until("the refusal to be counted", || {
            let refused = weir.metric("weir_config_reloads_total", &[r#"result="error""#]);
            (refused >= count).then_some(())
        });
    };
    weir.rewrite_config(json!({ "upstreams": upstreams, "upstream": {} }));
    wait_for_refusals(1.0);
    for count in [2.0, 3.0] {
        weir.process.signal("HUP");
        wait_for_refusals(count);
    }
    for words in ["config reload failed: errors in the config", "unknown key"] {
        wait_until("the log of each", || {
            (weir.process.output().matches(words).count() == 3).then_some(())
        });
    }
}

// Proves G02.
#[test]
fn an_upstream_that_a_reload_removes_is_gone_from_the_list() {
    let (_shop, url) = ForeignServer::RmcpLegacy.over_http();
    let weir = Weir::with_upstreams(json!({ "one": { "url": url }, "two": { "url": url } }));
    weir.wait_until_listed("/mcp", &["two__sum"]);
    weir.rewrite_config(json!({ "upstreams": { "one": { "url": url } } }));
    wait_until("the upstream to go", || {
        (!weir.list_tools("/mcp").contains(&"two__sum".to_owned())).then_some(())
    });
    let refused = Weir::run_cli(&["call", &weir.url("/mcp"), "two__sum", "{}"]);
    assert!(!refused.status.success());
}

#[test]
fn check_warns_of_expired_keys() {
    let folder = TestFolder::new("expired");
    let digests = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ];
    let expiries = ["2020-01-31", "9999-01-31"];
    let key = |id: &str, nth: usize| json!({ "id": id, "sha256": digests[nth], "subject": "build", "expires": expiries[nth] });
    let token = |name: &str, nth: usize| json!({ "name": name, "sha256": digests[nth], "expires": expiries[nth] });
    let config = json!({
        "upstreams": {},
        "auth": {
            "mode": "required",
            "api_keys": [key("old", 0), key("new", 1)],
        },
        "admin": {
            "listen": "127.0.0.1:0",
            "auth": { "tokens": [token("ada", 0), token("bob", 1)] },
        },
    });
    let file = folder.write("weir.yaml", &config.to_string());
    let file = file.to_str().unwrap();
    let checked = Weir::run_cli(&["check", file]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        told.contains("weir.yaml:1: warning: auth.api_keys.0"),
        "{told}"
    );
    let warnings: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_once(": warning: ").map(|(_, text)| text))
        .filter(|text| text.contains("expired"))
        .collect();
    assert_eq!(
        warnings,
        [
            "admin.auth.tokens.0.expires: the token of `ada` has expired (remove the entry, or replace it)",
            "auth.api_keys.0.expires: the key `old` has expired (remove the entry, or replace it)"
        ]
    );
    let strict = Weir::run_cli(&["check", file, "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
}

// Proves G05.
#[test]
fn a_bad_config_ends_with_a_clear_text() {
    let folder = TestFolder::new("bad");
    let text = "upstreams:\n  files: { urll: http://127.0.0.1:1/mcp }\n";
    let file = folder.write("weir.yaml", text);
    let checked = Weir::run_cli(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2));
    let told = String::from_utf8_lossy(&checked.stderr).into_owned()
        + &String::from_utf8_lossy(&checked.stdout);
    assert!(
        told.contains("urll") && told.contains('2'),
        "names the key and its line: {told}"
    );
    let served = Weir::run_cli(&["serve", "--config", file.to_str().unwrap()]);
    assert!(!served.status.success());
}

// Proves G05.
#[test]
fn a_port_in_use_ends_with_a_clear_text() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = TestFolder::new("port");
    let config = json!({ "listen": address, "upstreams": {} });
    let file = folder.write("weir.json", &config.to_string());
    let served = Weir::run_cli(&["serve", "--config", file.to_str().unwrap()]);
    assert!(!served.status.success());
    let told = String::from_utf8_lossy(&served.stderr).into_owned()
        + &String::from_utf8_lossy(&served.stdout);
    assert!(told.contains(&address.to_string()), "{told}");
}

#[test]
fn an_address_file_has_the_addresses_and_one_that_cannot_be_written_ends_the_start() {
    let folder = TestFolder::new("addresses");
    let text =
        json!({ "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "upstreams": {} });
    let config = folder.write("weir.json", &text.to_string());
    let file = folder.file("addresses.json");
    let mut command = Command::new(weir_binary());
    command
        .arg("serve")
        .arg("--config")
        .arg(&config)
        .arg("--address-file")
        .arg(&file);
    let mut weir = TestProcess::start(command);
    let written = wait_until("the file", || std::fs::read(&file).ok());
    let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
    let alive = format!("http://{}", written["operators"].as_str().unwrap());
    assert!(
        Weir::run_cli(&["health", "--admin", &alive, "--alive"])
            .status
            .success()
    );
    assert!(std::net::TcpStream::connect(written["clients"].as_str().unwrap()).is_ok());
    // The health check of a container, after an edit that breaks the config of the running weir.
    std::fs::write(&config, "admin: [").unwrap();
    let checked = |more: &[&str]| {
        let words = ["health", "--alive", "--config", config.to_str().unwrap()];
        Weir::run_cli(&[&words[..], more].concat()).status.code()
    };
    assert_eq!(checked(&[]), Some(2));
    assert_eq!(
        checked(&["--address-file", file.to_str().unwrap()]),
        Some(0)
    );
    std::fs::write(&config, text.to_string()).unwrap();
    weir.stop_gracefully();
    let nowhere = folder.file("missing/addresses.json");
    let words = [
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--address-file",
        nowhere.to_str().unwrap(),
    ];
    let refused = Weir::run_cli(&words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && said.contains("--address-file"),
        "{refused:?}"
    );
}

// Proves G06.
#[test]
fn sigterm_ends_it_with_code_0() {
    let (_shop, url) = ForeignServer::RmcpModern.over_http();
    let mut weir = Weir::with_upstreams(json!({ "one": { "url": url } }));
    weir.process.stop_gracefully();
}

/// Starts `weir quickstart` on any free port.
fn quickstart() -> TestProcess {
    let mut command = Command::new(weir_binary());
    command.args(["quickstart", "--listen", "127.0.0.1:0"]);
    TestProcess::start(command)
}

// Proves R004.
#[test]
fn the_quickstart_lists_calls_and_shows_a_tool_come_and_go() {
    let mut quickstart = quickstart();
    let url = quickstart.wait_for_line("  weir tools ");
    wait_until("the quickstart to serve", || {
        Weir::run_cli(&["tools", &url])
            .status
            .success()
            .then_some(())
    });
    let mut watching = Command::new(weir_binary());
    watching.args(["tools", &url, "--watch"]);
    let watching = TestProcess::start(watching);
    let called = Weir::run_cli(&[
        "call",
        &url,
        "desk__calculate",
        r#"{"expression":"2 * (3 + 4)"}"#,
    ]);
    assert!(
        String::from_utf8_lossy(&called.stdout).contains("14"),
        "{called:?}"
    );
    let added = Weir::run_cli(&["call", &url, "notes__add_note", r#"{"text":"buy milk"}"#]);
    assert!(added.status.success(), "{added:?}");
    let told = |line: &str| wait_until(line, || watching.output().contains(line).then_some(()));
    told("+ desk__coin_flip");
    told("- desk__coin_flip");
    // A client that begins to watch later sees a change as well.
    let mut later = Command::new(weir_binary());
    later.args(["tools", &url, "--watch"]);
    let later = TestProcess::start(later);
    wait_until("a change", || {
        later.output().contains(" desk__coin_flip").then_some(())
    });
    let said = quickstart.output();
    for how in [
        format!("claude mcp add --transport http weir {url}"),
        format!("codex mcp add weir --url {url}"),
        format!("weir connect cursor {url} --write"),
    ] {
        assert!(said.contains(&how), "{how}: {said}");
    }
}

#[test]
fn readyz_healthz_and_metrics_answer() {
    let (_shop, url) = ForeignServer::RmcpModern.over_http();
    let weir = Weir::with_upstreams(
        json!({ "one": { "url": url }, "gone": { "url": "http://127.0.0.1:9/mcp" } }),
    );
    assert!(weir.get_admin_page("/healthz").starts_with("HTTP/1.1 200"));
    weir.call_tool("/mcp", "one__sum", &json!({ "a": 1, "b": 2 }));
    let metrics = weir.get_admin_page("/metrics");
    for series in [
        "mcp_server_operation_duration_seconds",
        "mcp_client_operation_duration_seconds",
        "weir_upstream_up",
        "weir_catalog_items",
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
    let down = r#"weir_upstream_up{upstream="gone"} 0"#;
    wait_until("the dead upstream to show", || {
        weir.get_admin_page("/metrics").contains(down).then_some(())
    });
    assert!(
        weir.get_admin_page("/metrics")
            .contains(r#"weir_upstream_up{upstream="one"} 1"#)
    );
}

// Proves F10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_memory_is_short_calls_wait_outside_and_streams_and_operators_go_on() {
    // Lists large enough to stand out from the memory of an idle process.
    let long = "x".repeat(20_000);
    let tools =
        (0..1000).map(|n| MockTool::new(&format!("tool_{n:04}")).with("description", json!(long)));
    let upstream = tools
        .fold(MockServer::modern().page_size(100), |server, tool| {
            server.with(tool)
        })
        .start()
        .await;
    let config = |memory: Option<usize>| {
        let limits = memory.map(|bytes| json!({ "memory": format!("{}KiB", bytes / 1024) }));
        json!({ "upstreams": { "one": { "url": upstream.url() } }, "limits": limits.unwrap_or(json!({})) })
    };
    let weir = Weir::with_config(config(None));
    let client = RawClient::new(&weir.url("/mcp")).modern();
    let call = async || {
        client
            .call("one__tool_0999", json!({ "n": 1 }))
            .await
            .unwrap()
    };
    wait_until_async("the list", async || {
        (call().await.last()["result"]["content"][0]["text"] == r#"{"n":1}"#).then_some(())
    })
    .await;
    let mut stream = client
        .listen(json!({ "toolsListChanged": true }))
        .await
        .unwrap();
    assert_eq!(
        stream.next_message().await.unwrap().unwrap()["method"],
        "notifications/subscriptions/acknowledged"
    );
    // Far less than it uses: memory that the allocator gives back in the meantime does not end the
    // shortage.
    weir.rewrite_config(config(Some(weir.memory() / 2)));
    wait_until("the shortage", || {
        (weir.metric("weir_memory_shortage", &[]) == 2.0).then_some(())
    });
    let before = upstream.total_executions();
    let refused = call().await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(upstream.total_executions(), before);
    assert!(weir.get_admin_page("/readyz").starts_with("HTTP/1.1 200"));
    tokio::select! {
        biased;
        ended = stream.next_message() => panic!("{ended:?}"),
        () = std::future::ready(()) => {}
    }
    weir.rewrite_config(config(Some(weir.memory() * 4)));
    wait_until("the end of it", || {
        (weir.metric("weir_memory_shortage", &[]) == 0.0).then_some(())
    });
    assert_eq!(call().await.text(), r#"{"n":1}"#);
    upstream.set_tools([MockTool::new("tool_0999")]);
    upstream.notify_list_changed();
    let heard = stream.next_message().await.unwrap().unwrap();
    assert_eq!(
        heard["method"], "notifications/tools/list_changed",
        "the stream was there all the time"
    );
}
