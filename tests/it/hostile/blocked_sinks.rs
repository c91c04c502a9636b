//! The sinks of the log and the audit when they accept no data: a full device, an unread pipe, a
//! file of the largest size that the system allows.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};
use weir_testkit::{MockServer, RawClient};

use crate::audit::{AuditFolder, assert_chain_whole, call, client, of_kind, records, verify};
use crate::auth::api_key;
use crate::harness::{Bystander, Weir, wait_until, wait_until_async};

const FULL: &[&str] = &["sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full"];

fn one(upstream: &MockServer) -> Value {
    json!({ "upstreams": { "one": { "url": upstream.url() } } })
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_on_a_full_device_ends_nothing_and_is_counted() {
    let upstream = MockServer::modern().tools(1).start().await;
    let mut weir = Weir::start_with_wrapper(FULL, one(&upstream));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    assert!(call(&client(&weir), json!({})).await);
    assert!(weir.metric("weir_log_dropped_total", &["reason=\"failed\""]) >= 1.0);
    weir.process.stop_gracefully();
}

// Proves F13.
#[test]
fn a_start_that_fails_on_a_full_device_says_so_by_its_exit_code() {
    let folder = AuditFolder::new("full-start");
    let file = folder.0.file("weir.json");
    std::fs::write(&file, json!({ "upstreems": {} }).to_string()).unwrap();
    let start = |program: &[&str]| {
        let mut command = Command::new("sh");
        command
            .args(&FULL[1..])
            .arg(crate::harness::weir_binary())
            .args(program)
            .arg(&file);
        command.status().unwrap().code()
    };
    assert_eq!(start(&["serve", "--config"]), Some(2));
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_not_read_holds_up_no_request_and_no_end() {
    let folder = AuditFolder::new("unread");
    let pipe = folder.0.file("stderr");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // Open at both ends, so that the shell's open does not wait; and never read.
    let unread = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let filling = std::thread::spawn({
        let mut end = OpenOptions::new().write(true).open(&pipe).unwrap();
        // It ends with an error when the reader is gone.
        move || while end.write(&[b'x'; 1024]).is_ok() {}
    });
    let upstream = MockServer::modern().tools(1).start().await;
    let into = format!("exec \"$0\" \"$@\" 2>{}", pipe.display());
    let mut weir = Weir::start_with_wrapper(&["sh", "-c", &into], one(&upstream));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    for _ in 0..20 {
        assert!(call(&client(&weir), json!({})).await);
    }
    assert!(weir.get_admin_page("/healthz").contains("200"));
    weir.process.stop_gracefully();
    drop(unread);
    filling.join().unwrap();
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_the_largest_size_allowed_is_a_full_disk_and_no_signal() {
    let folder = AuditFolder::new("largest");
    let upstream = MockServer::modern().tools(1).start().await;
    let mut config = one(&upstream);
    config["audit"] =
        json!({ "file": { "path": folder.file() }, "on_failure": "closed", "queue": 64 });
    config["upstreams"]["child"] = json!({ "command": "sleep", "args": ["1000"] });
    // 512 bytes a block: some records.
    let weir =
        Weir::start_with_wrapper(&["sh", "-c", "ulimit -S -f 8; exec \"$0\" \"$@\""], config);
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    wait_until_async("calls to be refused", async || {
        (!call(&client(&weir), json!({})).await).then_some(())
    })
    .await;
    assert!((weir.metric("weir_audit_failing", &[]) - 1.0).abs() < 0.1);
    assert!(weir.get_admin_page("/healthz").contains("200"));
    let status =
        |id: u32| std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let mask = |status: &str, name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim();
        u64::from_str_radix(line, 16).unwrap()
    };
    // SIGXFSZ is number 25.
    let bit = 1 << 24;
    let own = status(weir.process.id());
    assert_eq!(
        (mask(&own, "SigCgt:") & bit, mask(&own, "SigIgn:") & bit),
        (bit, 0),
        "it is caught"
    );
    let child = wait_until("the child", || child_named("sleep", weir.process.id()));
    let child = status(child);
    assert_eq!(
        (mask(&child, "SigCgt:") & bit, mask(&child, "SigIgn:") & bit),
        (0, 0),
        "a child has the usual end"
    );
    let limit = [
        "--pid",
        &weir.process.id().to_string(),
        "--fsize=unlimited:unlimited",
    ];
    assert!(
        Command::new("prlimit")
            .args(limit)
            .status()
            .unwrap()
            .success()
    );
    wait_until_async("calls to be served", async || {
        call(&client(&weir), json!({})).await.then_some(())
    })
    .await;
    let mut weir = weir;
    weir.process.stop_gracefully();
    assert_chain_whole(&[&folder.file()]);
    assert_eq!(
        of_kind(&folder.file(), "call").len(),
        upstream.executions("tool_0000")
    );
}

/// Returns a process of this name below another one.
fn child_named(name: &str, ancestor: u32) -> Option<u32> {
    let listed = Command::new("ps")
        .args(["-e", "-o", "pid=,ppid=,comm="])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let rows: Vec<(u32, u32, &str)> = listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
                words.next()?,
            ))
        })
        .collect();
    let below = |mut id: u32| {
        while let Some((_, parent, _)) = rows.iter().find(|row| row.0 == id) {
            if *parent == ancestor {
                return true;
            }
            id = *parent;
        }
        false
    };
    rows.iter()
        .find(|(id, _, comm)| *comm == name && below(*id))
        .map(|row| row.0)
}

// Proves A12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_refusals_writes_a_hundred_lines_a_second_and_their_count() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = api_key("somebody");
    let mut config = one(&upstream);
    config["auth"] = json!({ "mode": "required", "api_keys": [entry] });
    let weir = Weir::with_log_filter(config, "info");
    let known = client(&weir).with_header("X-API-Key", &key);
    wait_until_async("a call", async || {
        call(&known, json!({})).await.then_some(())
    })
    .await;
    let bystander = Bystander::calling(&weir, known, "one__tool_0000", None);
    let stranger = RawClient::new(&weir.url("/mcp")).modern();
    let mut requests = 0;
    let left_out = || weir.metric("weir_log_dropped_total", &["reason=\"rate\""]);
    wait_until_async("lines to be left out", async || {
        for _ in 0..300 {
            requests += 1;
            assert_eq!(
                stranger.ask("tools/list", json!({})).await.unwrap().status,
                401
            );
        }
        (left_out() > 0.0).then_some(())
    })
    .await;
    bystander
        .finish("refusals without credentials")
        .await
        .assert_none_refused();
    // Lines with the count come after their second: until then some are missing.
    let (written, counted) = wait_until("all refusals to be accounted for", || {
        let said = weir.process.output();
        let written = said
            .lines()
            .filter(|line| line.contains("\"message\":\"request rejected\""))
            .count();
        let counts = said
            .lines()
            .filter(|line| line.contains("log rate limited"));
        let counts = counts.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let left_out: u64 = counts
            .filter(|count| count["source"] == "audit")
            .filter_map(|count| count["lines"].as_u64())
            .sum();
        (written + left_out as usize == requests).then_some((written, left_out))
    });
    assert!(
        (100..requests).contains(&written),
        "{written} lines of {requests}"
    );
    assert!((left_out() - counted as f64).abs() < 0.1);
}

// Proves A12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_refusals_leaves_the_records_of_calls_where_they_are() {
    let folder = AuditFolder::new("flood");
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = api_key("somebody");
    let mut config = one(&upstream);
    config["auth"] = json!({ "mode": "required", "api_keys": [entry] });
    config["audit"] =
        json!({ "file": { "path": folder.file(), "rotate": { "size": "64KiB", "keep": 2 } } });
    let mut weir = Weir::with_config(config);
    let known = client(&weir).with_header("X-API-Key", &key);
    wait_until_async("a call", async || {
        call(&known, json!({})).await.then_some(())
    })
    .await;
    let calls = upstream.executions("tool_0000");
    let stranger = RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_header("X-API-Key", "nonsense");
    // As records of their own these would fill the file five times over.
    const REFUSED: u64 = 1000;
    for _ in 0..REFUSED {
        assert_eq!(
            stranger.ask("tools/list", json!({})).await.unwrap().status,
            401
        );
    }
    weir.process.stop_gracefully();
    let refusals = folder.0.file("audit.jsonl.refusals");
    assert_eq!(of_kind(&folder.file(), "call").len(), calls);
    assert!(
        records(&folder.file())
            .iter()
            .all(|record| record["decision"] != "refused")
    );
    let counts = of_kind(&refusals, "refusals");
    assert_eq!(
        counts
            .iter()
            .map(|count| count["count"].as_u64().unwrap())
            .sum::<u64>(),
        REFUSED
    );
    assert!(
        counts
            .iter()
            .all(|count| count["network"] == "127.0.0.0/24" && count["endpoint"] == "/mcp")
    );
    let listed: Vec<_> = std::fs::read_dir(folder.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(listed.len(), 2, "no file was full: {listed:?}");
    let (code, said) = verify(&["--from-start"], &[&folder.file(), &refusals]);
    assert!(
        code == 0 && said.contains("of the chain `refusals`"),
        "{said}"
    );
    let last = said
        .lines()
        .find_map(|line| line.strip_prefix("last: refusals:"))
        .unwrap();
    // `--expect` needs the name of the chain, and a changed record is found.
    assert_eq!(
        verify(&["--expect", &format!("refusals:{last}")], &[&refusals]).0,
        0
    );
    assert_eq!(verify(&["--expect", last], &[&refusals]).0, 1);
    let text = std::fs::read_to_string(&refusals).unwrap();
    std::fs::write(&refusals, text.replacen("\"reason\"", "\"Reason\"", 1)).unwrap();
    assert_eq!(verify(&[], &[&folder.file(), &refusals]).0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_with_all_its_sessions_open_gets_429_and_another_has_room() {
    let upstream = MockServer::modern().tools(1).start().await;
    let ((ada, adas), (bob, bobs)) = (api_key("ada"), api_key("bob"));
    let mut config = one(&upstream);
    config["auth"] = json!({ "mode": "required", "api_keys": [adas, bobs] });
    config["limits"] = json!({ "sessions_per_principal": 3 });
    let weir = Weir::with_config(config);
    let open = async |key: &str| {
        let client = RawClient::new(&weir.url("/mcp")).with_header("X-API-Key", key);
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
        client.ask("initialize", params).await.unwrap()
    };
    for _ in 0..3 {
        assert_eq!(open(&ada).await.status, 200);
    }
    let refused = open(&ada).await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("retry-after")),
        (429, Some("60"))
    );
    assert_eq!(open(&bob).await.status, 200);
}
