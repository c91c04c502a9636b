//! A full disk, an unread pipe, a collector that does not answer: requests do not wait for them.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::mock_server::RecordedRequest;
use weir_testkit::{MockBehaviour, MockServer};

use super::{AuditFolder, assert_chain_whole, call, client, config, of_kind, records, verify};
use crate::harness::{Weir, wait_until, wait_until_async};

/// Limits the length of every file of the process from now on. The system reports EFBIG then, as it
/// reports ENOSPC.
fn limit_files(weir: &Weir, bytes: &str) {
    let limit = format!("--fsize={bytes}:unlimited");
    let set = Command::new("prlimit")
        .args(["--pid", &weir.process.id().to_string(), &limit])
        .status()
        .unwrap();
    assert!(set.success());
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_calls_until_there_is_room_again() {
    let folder = AuditFolder::new("full");
    let upstream = MockServer::modern().tools(1).start().await;
    let audit = json!({ "file": { "path": folder.file() }, "on_failure": "closed", "queue": 64 });
    // A write beyond the limit then fails with an error instead of a signal.
    let weir = Weir::start_with_wrapper(
        &["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""],
        config(&upstream, audit),
    );
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let client = client(&weir);
    // Until the first record is on the disk, calls are refused.
    wait_until("a synchronized record", || {
        let synced = weir.metric("weir_audit_sync_seconds_count", &[]) >= 1.0;
        (synced && weir.metric("weir_audit_failing", &[]) < 0.5).then_some(())
    });
    assert!(call(&client, json!({})).await);
    wait_until("the record of it", || {
        (of_kind(&folder.file(), "call").len() == 1).then_some(())
    });
    // The limit lies in the middle of the next record.
    let length = std::fs::metadata(folder.file()).unwrap().len();
    limit_files(&weir, &(length + 100).to_string());
    wait_until_async("calls to be refused", async || {
        (!call(&client, json!({})).await).then_some(())
    })
    .await;
    let ran = upstream.executions("tool_0000");
    for _ in 0..20 {
        let answer = client.call("one__tool_0000", json!({})).await.unwrap();
        assert!(
            !answer
                .last()
                .to_string()
                .contains(&*folder.file().to_string_lossy()),
            "C19: it is weir's own affair"
        );
    }
    assert_eq!(
        upstream.executions("tool_0000"),
        ran,
        "no call without a record"
    );
    assert!((weir.metric("weir_audit_failing", &[]) - 1.0).abs() < 0.1);
    assert!(weir.metric("weir_audit_refused_total", &[]) >= 20.0);
    assert!(
        weir.get_admin_page("/readyz").contains("200"),
        "lists and streams are served on"
    );
    limit_files(&weir, "unlimited");
    wait_until_async("calls to be served", async || {
        call(&client, json!({})).await.then_some(())
    })
    .await;
    let mut weir = weir;
    weir.process.stop_gracefully();
    let text = assert_chain_whole(&[&folder.file()]);
    assert!(
        !text.contains("crashed"),
        "what was cut is whole again: {text}"
    );
    assert_eq!(
        of_kind(&folder.file(), "call").len(),
        upstream.executions("tool_0000"),
        "each call that ran is there"
    );
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_device_holds_up_no_call_where_the_audit_is_open() {
    let upstream = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config(
        &upstream,
        json!({ "file": { "path": "/dev/full" }, "queue": 64 }),
    ));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let client = client(&weir);
    for _ in 0..1000 {
        assert!(call(&client, json!({})).await);
    }
    assert!(weir.metric("weir_audit_dropped_total", &["queue"]) >= 300.0);
    assert!((weir.metric("weir_audit_failing", &[]) - 1.0).abs() < 0.1);
    assert!(weir.process.output().contains("audit write failed"));
}

// Proves F13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_audit_pipe_blocks_no_request() {
    let folder = AuditFolder::new("pipe");
    for (on_failure, served) in [("open", true), ("closed", false)] {
        let pipe = folder.0.file(on_failure);
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let upstream = MockServer::modern().tools(1).start().await;
        let audit = json!({ "file": { "path": pipe }, "queue": 64, "on_failure": on_failure });
        let mut weir = Weir::with_config(config(&upstream, audit));
        weir.wait_until_listed("/mcp", &["one__tool_0000"]);
        let client = client(&weir);
        let mut refused = 0;
        // A pipe holds 64 KiB, the queue 64 records.
        for _ in 0..1000 {
            let made =
                tokio::time::timeout(Duration::from_secs(30), call(&client, json!({}))).await;
            refused += usize::from(!made.expect("no request waits for the pipe"));
        }
        assert_eq!(
            refused == 0,
            served,
            "{refused} of 1,000 refused where it is {on_failure}"
        );
        assert_eq!(upstream.executions("tool_0000"), 1000 - refused);
        weir.process.signal("TERM");
        assert_eq!(
            weir.process.wait_for_exit(),
            Some(0),
            "it ends, and says what it lost"
        );
        assert!(
            weir.process.final_output().contains("disk hangs"),
            "{}",
            weir.process.output()
        );
    }
}

// Proves F13, F18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_go_to_standard_output_and_to_a_collector() {
    let folder = AuditFolder::new("copies");
    let upstream = MockServer::modern().tools(1).start().await;
    let collector = MockServer::modern().start().await;
    // Accepted; then the collector fails one attempt, and the batch is sent again.
    collector.add_rule("POST", 1, MockBehaviour::status(503, "text/plain", "later"));
    collector.add_rule(
        "POST",
        1000,
        MockBehaviour::status(200, "application/json", "{}"),
    );
    let address = collector.address();
    let otlp = json!({ "url": format!("http://{address}"), "headers": { "Authorization": "Bearer SECRET-collector" } });
    let audit = json!({ "file": { "path": folder.file() }, "stdout": true, "otlp": otlp });
    let mut weir = Weir::with_config(config(&upstream, audit));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    for n in 0..50 {
        assert!(call(&client(&weir), json!({ "n": n })).await);
    }
    // Only the last records depend on the time that the end of a process has for them.
    wait_until("the copies of the calls", || {
        let records = |request: &RecordedRequest| {
            request
                .message
                .to_string()
                .matches("\\\"kind\\\":\\\"call\\\"")
                .count()
        };
        let attempts = collector.requests_of("POST");
        (attempts.iter().skip(1).map(records).sum::<usize>() == 50).then_some(())
    });
    weir.process.stop_gracefully();
    let kept = std::fs::read_to_string(folder.file()).unwrap();
    let said = wait_until("the copies", || {
        let said = weir.process.output();
        said.contains("\"kind\":\"stopped\"").then_some(said)
    });
    // The copies are of both chains.
    let (mut sent, mut refusals) = (String::new(), String::new());
    for request in collector.requests_of("POST").iter().skip(1) {
        assert_eq!(
            (request.path.as_str(), request.header("authorization")),
            ("/v1/logs", Some("Bearer SECRET-collector"))
        );
        for record in request.message["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
            .as_array()
            .unwrap()
        {
            let line = record["body"]["stringValue"].as_str().unwrap();
            let chain = if line.contains("\"chain\":\"refusals\"") {
                &mut refusals
            } else {
                &mut sent
            };
            chain.push_str(line);
            chain.push('\n');
        }
    }
    assert_eq!(sent, kept, "a collector has the very lines");
    assert_eq!(
        refusals,
        std::fs::read_to_string(folder.0.file("audit.jsonl.refusals")).unwrap()
    );
    assert!(
        kept.lines().all(|line| said.contains(line)),
        "so has standard output"
    );
    assert!(!kept.contains("SECRET") && !said.contains("SECRET"), "F15");
}

// Proves F14, R283.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_text_cannot_break_audit_lines_and_arguments_are_not_recorded() {
    let folder = AuditFolder::new("hostile");
    let upstream = MockServer::modern().tools(1).start().await;
    let audit = json!({ "file": { "path": folder.file() }, "show": ["/shown"] });
    let mut weir = Weir::with_config(config(&upstream, audit));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let client = client(&weir).with_canary_credentials();
    let hostile = [
        "a\r\n{\"seq\":1}",
        "\u{1b}[2J",
        "x\",\"decision\":\"allowed",
        "\u{2028}\u{202e}",
        "\u{9b}m\u{0}",
    ];
    for text in hostile {
        // Unknown tools are refused under the name that was asked for.
        client
            .call(text, json!({ "password": "SECRET-argument", text: 1 }))
            .await
            .unwrap();
        let arguments = json!({ "password": "SECRET-argument", "shown": text });
        assert!(call(&client, arguments).await);
    }
    let batch =
        json!({ "requestState": "SECRET-state", "name": "one__tool_0000", "arguments": {} });
    client.ask("tools/call", batch).await.unwrap();
    weir.process.stop_gracefully();
    let text = std::fs::read_to_string(folder.file()).unwrap();
    // The credentials that one upstream alone gets, and the values of the client's headers.
    assert!(
        !text.contains("SECRET") && !text.contains("CANARY"),
        "{text}"
    );
    assert!(
        !text
            .chars()
            .any(|c| c != '\n' && (c.is_control() || matches!(c, '\u{2028}' | '\u{202e}')))
    );
    assert_eq!(
        records(&folder.file()).len(),
        text.lines().count(),
        "each line is a record"
    );
    let calls = of_kind(&folder.file(), "call");
    let refused: Vec<&Value> = calls
        .iter()
        .filter(|record| record["decision"] == "refused")
        .collect();
    for (record, text) in refused.iter().zip(hostile) {
        assert_eq!(record["tool"], text);
        assert_eq!(record["reason"], "invalid_params");
    }
    let shown: Vec<&Value> = calls
        .iter()
        .map(|record| &record["arguments"]["shown"]["shown"])
        .filter(|v| v.is_string())
        .collect();
    assert_eq!(shown, hostile.map(Value::from).iter().collect::<Vec<_>>());
    assert_chain_whole(&[&folder.file()]);
}

// Proves F18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_are_on_record_and_move_it() {
    let folder = AuditFolder::new("reload");
    let upstream = MockServer::modern().tools(1).start().await;
    let (first, second) = (folder.file(), folder.0.file("second.jsonl"));
    let mut weir = Weir::with_config(config(&upstream, json!({ "file": { "path": first } })));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    assert!(call(&client(&weir), json!({})).await);
    weir.rewrite_config(json!({ "upstreams": 7 }));
    wait_until("the refused reload", || {
        of_kind(&first, "admin")
            .iter()
            .any(|record| record["done"] == false)
            .then_some(())
    });
    weir.rewrite_config(config(
        &upstream,
        json!({ "file": { "path": second }, "on_failure": "closed" }),
    ));
    wait_until("the move", || second.exists().then_some(()));
    wait_until_async("a call", async || {
        call(&client(&weir), json!({})).await.then_some(())
    })
    .await;
    weir.process.stop_gracefully();
    assert_chain_whole(&[&second, &first]);
    // The record of the reload may be at the end of the one file or at the beginning of the other.
    let taken = [of_kind(&first, "admin"), of_kind(&second, "admin")];
    assert!(
        taken
            .iter()
            .flatten()
            .any(|record| record["what"] == "reload"
                && record["who"] == "config"
                && record["done"] == true)
    );
    let (code, text) = verify(&["--from-start"], &[&second]);
    assert_eq!(code, 1, "{text}");
}

// Proves F18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_moved_away_is_left_at_a_sighup() {
    let folder = AuditFolder::new("moved");
    let upstream = MockServer::modern().tools(1).start().await;
    let (file, moved) = (folder.file(), folder.0.file("moved.jsonl"));
    let mut weir = Weir::with_config(config(&upstream, json!({ "file": { "path": file } })));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    assert!(call(&client(&weir), json!({})).await);
    wait_until("the first record", || {
        (!of_kind(&file, "call").is_empty()).then_some(())
    });
    std::fs::rename(&file, &moved).unwrap();
    weir.process.signal("HUP");
    wait_until("a new file", || file.exists().then_some(()));
    assert!(call(&client(&weir), json!({})).await);
    weir.process.stop_gracefully();
    assert_eq!(
        [of_kind(&moved, "call").len(), of_kind(&file, "call").len()],
        [1, 1]
    );
    assert_chain_whole(&[&file, &moved]);
}
