//! Graceful restarts: one process after another at the same sockets, by SIGUSR2 and by a service
//! manager that holds them; and reloads of the config in the same process. No call is lost
//! meanwhile.

mod handover_bench;
mod handover_clients;
mod handover_http_sse;
mod handover_kept_tasks;
mod handover_late_requests;
mod handover_load;
mod handover_parked_calls;
mod handover_running_tasks;
mod handover_session_lists;
mod handover_sessions;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_testkit::mock_server::{CallGate, MockTool};
use weir_testkit::{MockBehaviour, MockServer, RawClient, TestFolder};

use crate::admin::{OperatorClient, body, with_two};
use crate::audit::{AuditFolder, of_kind, records, verify};
use crate::auth::api_key;
use crate::harness::{TestProcess, Weir, signal, wait_until, wait_until_async, weir_binary};

use handover_load::{HandoverLoad, ListWatchers};

/// Returns the ids of the processes that took over, in turn.
pub fn successors(weir: &Weir) -> Vec<u32> {
    let said = weir.process.output();
    let ids = said
        .lines()
        .filter(|line| line.contains("graceful restart: new process serves"));
    ids.map(|line| {
        let (_, id) = line
            .split_once("process")
            .and_then(|(_, rest)| rest.split_once("process"))
            .unwrap();
        id.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .unwrap()
    })
    .collect()
}

/// Returns true if a process has ended.
pub fn is_gone(id: u32) -> bool {
    // A zombie is gone too: its parent is the test's own child, and may have ended without reaping
    // it.
    let status = std::fs::read_to_string(format!("/proc/{id}/stat"));
    status.map_or(true, |stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    })
}

/// Runs this many hand-overs under load: no call is lost and none runs twice.
async fn hand_over(times: usize) {
    let gate = CallGate::new();
    let held = MockTool::new("held").does(MockBehaviour::gated(&gate));
    let upstream = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .with(held)
        .start()
        .await;
    let records = AuditFolder::new("handover");
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "endpoints": { "/mcp": { "upstreams": ["one"], "page": { "items": 1 } } },
        "audit": { "file": { "path": records.file(), "rotate": { "keep": 100 } } },
        // One call lasts over all hand-overs.
        "drain": "120s",
    }));
    let client = RawClient::new(&weir.url("/mcp")).modern();
    wait_until_async("the list", async || {
        client
            .call("one__echo", json!({ "n": "first" }))
            .await
            .ok()
            .filter(is_ok)
    })
    .await;
    let page = client.ask("tools/list", json!({})).await.unwrap();
    let cursor = page.last()["result"]["nextCursor"]
        .as_str()
        .unwrap()
        .to_owned();
    let slow = tokio::spawn(async move { client.call("one__held", json!({})).await });
    wait_until_async("the long call", async || {
        (upstream.executions("held") == 1).then_some(())
    })
    .await;

    let (load, watchers) = (
        HandoverLoad::start(&weir.url("/mcp")),
        ListWatchers::start(&weir.url("/mcp")).await,
    );
    let mut processes = vec![weir.process.id()];
    for at in 0..times {
        load.wait_for_more_calls(20).await;
        signal(processes[at], "USR2");
        let id = wait_until_async("the next process", async || {
            successors(&weir).get(at).copied()
        })
        .await;
        processes.push(id);
    }
    load.wait_for_more_calls(50).await;
    let calls = load.stop().await;
    upstream.set_tools([
        MockTool::new("echo"),
        MockTool::new("held"),
        MockTool::new("late"),
    ]);
    upstream.notify_list_changed();
    let ends = watchers.finish().await;

    // State that the first process sealed opens in the last one.
    let fresh = RawClient::new(&weir.url("/mcp")).modern();
    let page = fresh
        .ask("tools/list", json!({ "cursor": cursor }))
        .await
        .unwrap();
    assert_eq!(
        page.last()["result"]["tools"].as_array().map(Vec::len),
        Some(1),
        "{:?}",
        page.last()
    );
    // A call that began in the first process ends there, while its connection lasts.
    gate.open();
    assert!(is_ok(&slow.await.unwrap().unwrap()));
    for id in &processes[..times] {
        wait_until("an old process to end", || is_gone(*id).then_some(()));
    }
    assert_eq!(upstream.executions("echo"), calls + 1, "each call ran once");
    signal(processes[times], "TERM");
    wait_until("the last process to end", || {
        is_gone(processes[times]).then_some(())
    });
    println!(
        "{times} hand-overs, {calls} calls, 0 lost, 0 twice; streams ended {ends} times, the last change heard by all"
    );
    let files: Vec<_> = std::fs::read_dir(records.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(
        files.len(),
        2 * (times + 1),
        "of calls and of refusals: {files:?}"
    );
    verified(&files);
}

fn is_ok(answer: &weir_testkit::ClientAnswer) -> bool {
    answer.last()["result"]["content"].is_array()
}

/// Asserts that the two chains go through the files of all processes, and are whole; returns the
/// output of `verify`.
fn verified(files: &[PathBuf]) -> String {
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (code, said) = verify(&["--from-start"], &files);
    assert_eq!(code, 0, "{said}");
    said
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_takes_over_and_nothing_is_lost() {
    hand_over(2).await;
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn forty_processes_take_over_one_after_another() {
    hand_over(40).await;
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_that_cannot_start_changes_nothing() {
    let upstream = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({ "upstreams": { "one": { "url": upstream.url() } } });
    let weir = Weir::with_config(config.clone());
    weir.wait_until_listed("/mcp", &["one__echo"]);
    weir.rewrite_config(json!({ "upstreams": { "one": { "urll": "x" } } }));
    weir.process.signal("USR2");
    wait_until("the refusal", || {
        weir.process
            .output()
            .contains("graceful restart failed")
            .then_some(())
    });
    assert_eq!(
        weir.call_tool("/mcp", "one__echo", &json!({ "n": 1 }))["content"][0]["text"],
        r#"{"n":1}"#
    );
    // With a good config the hand-over succeeds.
    weir.rewrite_config(config);
    weir.process.signal("USR2");
    let id = wait_until("the next process", || successors(&weir).first().copied());
    assert_eq!(
        weir.call_tool("/mcp", "one__echo", &json!({ "n": 2 }))["content"][0]["text"],
        r#"{"n":2}"#
    );
    assert!(
        weir.get_admin_page("/readyz").starts_with("HTTP/1.1 200"),
        "operators meet the new one at once"
    );
    signal(id, "TERM");
    wait_until("its end", || is_gone(id).then_some(()));
}

/// The pipe had a reader at the start, and has none when the next process starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_process_takes_over_although_nobody_reads_its_addresses() {
    let folder = TestFolder::new("piped-addresses");
    let pipe = folder.file("addresses");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let config =
        json!({ "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "upstreams": {} });
    let file = folder.write("weir.json", &config.to_string());
    let mut command = std::process::Command::new(weir_binary());
    command.arg("serve").arg(&file);
    command.arg("--address-file").arg(&pipe);
    // Open at both ends, so that the open does not wait for weir.
    let mut both = std::fs::OpenOptions::new();
    let reader = both.read(true).write(true).open(pipe).unwrap();
    let mut serving = TestProcess::start(command);
    let mut addresses = String::new();
    BufReader::new(reader).read_line(&mut addresses).unwrap();
    assert!(addresses.starts_with(r#"{"clients":"#), "{addresses}");
    serving.signal("USR2");
    wait_until("the next process", || {
        let said = serving.output();
        said.contains("graceful restart: new process serves")
            .then_some(())
    });
    assert!(
        serving
            .output()
            .contains("addresses not written to the address file")
    );
    assert_eq!(serving.wait_for_exit(), Some(0));
}

/// The file of the program is replaced by one that never serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_process_that_hangs_at_its_start_holds_up_no_stop() {
    for (stops, code) in [(1, 0), (2, 130)] {
        let folder = TestFolder::new("hanging-program");
        let program = folder.file("weir");
        std::fs::copy(weir_binary(), &program).unwrap();
        let mut weir = Weir::start_program(&program, json!({ "upstreams": {} }));
        let hanging = folder.write("hanging", "#!/bin/sh\nexec sleep 300\n");
        let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&hanging, may_run).unwrap();
        std::fs::rename(&hanging, &program).unwrap();
        weir.process.signal("USR2");
        for text in ["graceful restart begins", "shutdown waits for the new"]
            .into_iter()
            .take(stops)
        {
            wait_until(text, || weir.process.output().contains(text).then_some(()));
            weir.process.signal("TERM");
        }
        assert_eq!(weir.process.wait_for_exit(), Some(code));
        let said = weir.process.final_output();
        assert!(
            said.contains("the new process did not serve before weir was to stop"),
            "{said}"
        );
    }
}

// Proves G05, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_stop_during_graceful_restart_cuts_no_call_and_a_second_one_does() {
    for (more, cut) in [(0, false), (1, false), (2, true)] {
        stops(more, cut).await;
    }
}

/// Stops weir while it hands over, or `stops` times afterwards, under a running call, which is then
/// `cut` off.
async fn stops(stops: usize, cut: bool) {
    let gate = CallGate::new();
    let held = MockTool::new("held").does(MockBehaviour::gated(&gate));
    let upstream = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .with(held)
        .start()
        .await;
    let weir = Weir::with_config(json!({ "upstreams": { "one": { "url": upstream.url() } } }));
    weir.wait_until_listed("/mcp", &["one__echo"]);
    let client = RawClient::new(&weir.url("/mcp")).modern();
    let slow = tokio::spawn(async move { client.call("one__held", json!({})).await });
    wait_until_async("the long call", async || {
        (upstream.executions("held") == 1).then_some(())
    })
    .await;
    weir.process.signal("USR2");
    wait_until("the hand-over", || {
        weir.process
            .output()
            .contains("SIGUSR2 received")
            .then_some(())
    });
    if stops == 0 {
        weir.process.signal("TERM");
    }
    let id = wait_until("the next process", || successors(&weir).first().copied());
    wait_until("the end to begin", || {
        weir.process
            .output()
            .contains("shutdown: draining")
            .then_some(())
    });
    if stops > 0 {
        weir.process.signal("TERM");
    }
    wait_until("the stop to be heard", || {
        weir.process
            .output()
            .contains("shutdown already in progress")
            .then_some(())
    });
    if stops > 1 {
        weir.process.signal("TERM");
    }
    assert_eq!(
        weir.call_tool("/mcp", "one__echo", &json!({ "n": 1 }))["content"][0]["text"],
        r#"{"n":1}"#
    );
    if !cut {
        gate.open();
    }
    assert_eq!(
        slow.await.unwrap().is_ok_and(|answer| is_ok(&answer)),
        !cut,
        "after {stops} signals"
    );
    gate.open();
    wait_until("the first process to end", || {
        is_gone(weir.process.id()).then_some(())
    });
    signal(id, "TERM");
    wait_until("its end", || is_gone(id).then_some(()));
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_restart_keeps_operator_overrides_and_the_audit_chain() {
    let (one, two) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let folder = AuditFolder::new("handed-over");
    let (mut config, [ada, bob]) = with_two(&[("one", &one), ("two", &two)]);
    config["audit"] = json!({ "file": { "path": folder.file() } });
    let weir = Weir::with_config(config);
    let listed = async |who: &str| {
        let client = RawClient::new(&weir.url("/mcp"))
            .modern()
            .with_header("authorization", who);
        let answer = client.ask("tools/list", json!({})).await.unwrap();
        (answer.status.as_u16(), body(&answer))
    };
    wait_until_async("the lists", async || {
        listed(&bob)
            .await
            .1
            .contains("two__tool_0000")
            .then_some(())
    })
    .await;
    let ops = OperatorClient::of(&weir);
    let issuer = ops.get_json("/admin/clients").await["clients"][0]["principal"]["issuer"].clone();
    ops.change(
        "/admin/upstreams/one/disable",
        json!({ "ttl": "1h", "reason": "it is slow" }),
    )
    .await;
    ops.change(
        "/admin/principals/block",
        json!({ "issuer": issuer, "subject": "ada" }),
    )
    .await;
    ops.change("/admin/log", json!({ "level": "debug" })).await;
    let changes = ops.get_json("/admin/config").await["changes"].clone();
    assert_eq!(changes.as_array().map(Vec::len), Some(3), "{changes}");

    weir.process.signal("USR2");
    let id = wait_until("the next process", || successors(&weir).first().copied());
    wait_until("the old one to end", || {
        is_gone(weir.process.id()).then_some(())
    });
    assert_eq!(
        ops.get_json("/admin/config").await["changes"],
        changes,
        "as they were, with their ends"
    );
    assert_eq!(listed(&ada).await.0, 403);
    let (status, list) = wait_until_async("the lists", async || {
        Some(listed(&bob).await).filter(|(_, list)| list.contains("two"))
    })
    .await;
    assert!(status == 200 && !list.contains("one__"), "{list}");
    assert_eq!(
        ops.get_json("/admin/upstreams/one").await["state"],
        "disabled"
    );
    ops.change("/admin/upstreams/one/enable", json!({})).await;
    wait_until_async("it back", async || {
        listed(&bob)
            .await
            .1
            .contains("one__tool_0000")
            .then_some(())
    })
    .await;
    wait_until("the word of the old one", || {
        of_kind(&folder.file(), "predecessor").pop()
    });
    signal(id, "TERM");
    wait_until("its end", || is_gone(id).then_some(()));

    let taken: Vec<_> = records(&folder.file())
        .into_iter()
        .filter(|record| record["what"] == "take over")
        .collect();
    assert_eq!(taken.len(), 3, "{taken:?}");
    let files: Vec<_> = std::fs::read_dir(folder.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(
        files.len() == 4 && verified(&files).lines().count() == 4,
        "{}",
        verified(&files)
    );
    let is_of_calls = |file: &PathBuf| !file.to_string_lossy().contains(".refusals");
    let files: Vec<_> = files.into_iter().filter(is_of_calls).collect();
    // The end of the old process's records cannot be cut off unnoticed.
    let old = files.iter().find(|file| **file != folder.file()).unwrap();
    let text = std::fs::read_to_string(old).unwrap();
    let (kept, _) = text.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(old, format!("{kept}\n")).unwrap();
    let (code, said) = verify(&[], &[&files[0], &files[1]]);
    assert!(code == 1 && said.contains("its end was cut off"), "{said}");
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_restart_leaves_refusals_of_the_old_process_as_an_audit_branch() {
    let gate = CallGate::new();
    let held = MockTool::new("held").does(MockBehaviour::gated(&gate));
    let upstream = MockServer::modern().with(held).start().await;
    let folder = AuditFolder::new("refused-over");
    let (key, entry) = api_key("somebody");
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "auth": { "mode": "required", "api_keys": [entry] },
        "audit": { "file": { "path": folder.file() } },
    }));
    let url = weir.url("/mcp");
    let refuse = async |count: usize| {
        let stranger = RawClient::new(&url).modern();
        for _ in 0..count {
            assert_eq!(
                stranger.ask("tools/list", json!({})).await.unwrap().status,
                401
            );
        }
    };
    let known = RawClient::new(&url).modern().with_header("X-API-Key", &key);
    wait_until_async("the tool", async || {
        let listed = known.ask("tools/list", json!({})).await.unwrap();
        body(&listed).contains("one__held").then_some(())
    })
    .await;
    refuse(3).await;
    // A running call keeps the old process alive, so that its branch is open meanwhile.
    let slow = tokio::spawn(async move { known.call("one__held", json!({})).await });
    wait_until_async("the long call", async || {
        (upstream.executions("held") == 1).then_some(())
    })
    .await;
    weir.process.signal("USR2");
    let id = wait_until("the next process", || successors(&weir).first().copied());
    refuse(5).await;
    let refusals = || -> Vec<PathBuf> {
        let all = std::fs::read_dir(folder.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        all.filter(|file| file.to_string_lossy().contains(".refusals"))
            .collect()
    };
    wait_until("two files of refusals", || {
        (refusals().len() == 2).then_some(())
    });
    gate.open();
    assert!(slow.await.unwrap().is_ok_and(|answer| is_ok(&answer)));
    wait_until("the old one to end", || {
        is_gone(weir.process.id()).then_some(())
    });
    let own = PathBuf::from(format!("{}.refusals", folder.file().display()));
    wait_until("the word of the old one", || {
        of_kind(&own, "predecessor").pop()
    });
    signal(id, "TERM");
    wait_until("its end", || is_gone(id).then_some(()));

    let files = refusals();
    let branch = files.iter().find(|file| **file != own).unwrap();
    let both: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let last = |file: &Path| {
        let (code, said) = verify(&[], &[file]);
        assert_eq!(code, 0, "{said}");
        said.lines()
            .find_map(|line| line.strip_prefix("last: "))
            .unwrap()
            .to_owned()
    };
    let (of_branch, of_chain) = (last(branch), last(&own));
    assert!(
        of_branch.starts_with("refusals:")
            && of_chain.starts_with("refusals:")
            && of_branch != of_chain
    );
    for expected in [&of_branch, &of_chain] {
        let (code, said) = verify(&["--expect", expected, "--from-start"], &both);
        assert_eq!(code, 0, "{expected}: {said}");
    }
    // A record of the branch that is missing, or is another one, is found; so is the chain without
    // the branch.
    let (number, _) = of_branch
        .trim_start_matches("refusals:")
        .split_once(':')
        .unwrap();
    let forged = format!("refusals:{number}:{}", "0".repeat(64));
    for (expected, files) in [(&forged, &both[..]), (&of_branch, &[&*own][..])] {
        let (code, said) = verify(&["--expect", expected], files);
        assert!(
            code == 1 && said.contains("expected record"),
            "{expected}: {code} {said}"
        );
    }
    let count = |file: &Path| -> u64 {
        of_kind(file, "refusals")
            .iter()
            .map(|record| record["count"].as_u64().unwrap())
            .sum()
    };
    // The first connections after the new process is ready may still reach the old one.
    let (old, new) = (count(branch), count(&own));
    assert!(
        old >= 3 && new > 0 && old + new == 8,
        "each counts what it refused: {old} and {new}"
    );
}

/// Plays a service manager: listens at the config's addresses, and starts the program with the
/// sockets.
const MANAGER: &str = r#"
import json, os, socket, sys
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
places = [("operators", config["admin"]["listen"]), ("clients", config["listen"])]
held = []
for _, place in places:
    host, port = place.rsplit(":", 1)
    held.append(socket.create_server((host, int(port))))
for at, one in enumerate(held):
    os.dup2(one.fileno(), 20 + at)
for at in range(len(held)):
    os.dup2(20 + at, 3 + at)
    os.close(20 + at)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(held)), LISTEN_FDNAMES=":".join(n for n, _ in places))
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_a_service_manager_are_taken_by_their_names() {
    let upstream = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config: Value = json!({ "upstreams": { "one": { "url": upstream.url() } } });
    let weir = Weir::start_with_wrapper(&["python3", "-c", MANAGER], config);
    weir.wait_until_listed("/mcp", &["one__echo"]);
    assert!(weir.get_admin_page("/readyz").starts_with("HTTP/1.1 200"));
    // A second hand-over, by weir itself this time.
    weir.process.signal("USR2");
    let id = wait_until("the next process", || successors(&weir).first().copied());
    assert_eq!(
        weir.call_tool("/mcp", "one__echo", &json!({ "n": 2 }))["content"][0]["text"],
        r#"{"n":2}"#
    );
    signal(id, "TERM");
    wait_until("its end", || is_gone(id).then_some(()));
}

/// Reloads under load: every other one is refused, every good one changes the config, and no call
/// fails.
async fn reload(times: usize) {
    let upstream = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let other = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = |at: usize| {
        let mut upstreams = json!({ "one": { "url": upstream.url(), "deadlines": { "idle": format!("{}s", 60 + at) } } });
        if at.is_multiple_of(4) {
            upstreams["two"] = json!({ "url": other.url() });
        }
        json!({ "upstreams": upstreams })
    };
    let weir = Weir::with_config(config(0));
    weir.wait_until_listed("/mcp", &["one__echo"]);
    let (load, watchers) = (
        HandoverLoad::start(&weir.url("/mcp")),
        ListWatchers::start(&weir.url("/mcp")).await,
    );
    for at in 1..=times {
        let label = if at.is_multiple_of(2) {
            r#"result="ok""#
        } else {
            r#"result="error""#
        };
        let counted = || weir.metric("weir_config_reloads_total", &[label]);
        // Both the signal and the watch may cause it: the last one of this kind is long over.
        let before = counted();
        match at.is_multiple_of(2) {
            true => weir.rewrite_config(config(at)),
            false => weir.rewrite_config(
                json!({ "upstreams": { "one": { "url": upstream.url(), "deadline": at } } }),
            ),
        }
        weir.process.signal("HUP");
        wait_until_async("the reload", async || (counted() > before).then_some(())).await;
    }
    load.wait_for_more_calls(20).await;
    let calls = load.stop().await;
    upstream.set_tools([MockTool::new("echo"), MockTool::new("late")]);
    upstream.notify_list_changed();
    assert_eq!(watchers.finish().await, 0, "no reload ends a stream");
    assert_eq!(upstream.executions("echo"), calls, "each call ran once");
    println!("{times} reloads, half of them bad, {calls} calls, 0 lost, 0 twice");
}

// Proves G01, G03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_lose_nothing() {
    reload(10).await;
}

// Proves G01, G04.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn a_thousand_reloads_under_load_lose_nothing() {
    reload(1000).await;
}
