//! Child processes that answer nothing any more: they are replaced once the breaker has opened, or
//! when an operator says so.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_core::upstream::{CallDeadlines, OutboundCall, Upstream};
use weir_core::{CapabilityClass, Principal};
use weir_upstream::{SessionSharing, UpstreamSettings};

use crate::child::settings;
use crate::fixtures::*;
use crate::stdio::{lives, pid, until_gone};

/// The calls in a row that open the breaker.
const CALLS_TO_OPEN: usize = 5;
/// The deadline of the question that a silent process gets.
const LIST_DEADLINE: Duration = Duration::from_secs(3);

fn child(manner: &str) -> UpstreamSettings {
    UpstreamSettings {
        own_deadlines: list_deadline(LIST_DEADLINE),
        ..settings(manner)
    }
}

/// Returns a call with a deadline that passes soon.
async fn short_call(tool: &str) -> OutboundCall {
    OutboundCall {
        deadlines: CallDeadlines {
            idle: Duration::from_millis(300),
            ..CallDeadlines::CALL
        },
        ..outbound(tool, call(tool, json!({}))).await
    }
}

async fn pass_deadlines(upstream: &Arc<dyn Upstream>, tool: &str, calls: usize) {
    for _ in 0..calls {
        let call = short_call(tool).await;
        let failure = failure(upstream.clone().call(call).await).await;
        assert_eq!(failure.reason(), "timed_out", "{failure:?}");
    }
}

/// Returns the process that serves calls, once the breaker lets one through.
async fn next_pid(upstream: &Arc<dyn Upstream>) -> u32 {
    for _ in 0..300 {
        let reply = call_anonymously(upstream, "pid", json!({})).await;
        if let Ok(result) = outcome(reply).await.end {
            let text = result["content"][0]["text"].as_str().unwrap();
            return text.parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no call succeeds any more");
}

async fn hang_and_expect_another_process(manner: &str) {
    let upstream = build(child(manner));
    let first = pid(&upstream).await;
    pass_deadlines(&upstream, "block", 1).await;
    pass_deadlines(&upstream, "echo", CALLS_TO_OPEN - 2).await;
    assert!(lives(first), "{manner}: it may be busy with one long call");
    if manner == "legacy" {
        // The watch asks a running legacy process nothing, so it is no sign of life.
        upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    }
    pass_deadlines(&upstream, "echo", 1).await;
    assert!(upstream.health().breaker_open, "{manner}");
    until_gone(first).await;
    assert_ne!(next_pid(&upstream).await, first, "{manner}");
    upstream.retire(Duration::ZERO).await;
}

#[tokio::test]
async fn child_that_hangs_is_replaced_once_the_breaker_opens() {
    tokio::join!(
        hang_and_expect_another_process("legacy"),
        hang_and_expect_another_process("modern"),
    );
}

async fn answer_beside_long_calls(manner: &str) {
    let upstream = build(child(manner));
    let first = pid(&upstream).await;
    pass_deadlines(&upstream, "hang", CALLS_TO_OPEN).await;
    tokio::time::sleep(LIST_DEADLINE + Duration::from_secs(1)).await;
    assert!(lives(first), "{manner}");
    assert_eq!(next_pid(&upstream).await, first, "{manner}");
    upstream.retire(Duration::ZERO).await;
}

#[tokio::test]
async fn child_that_answers_beside_long_calls_is_never_ended() {
    tokio::join!(
        answer_beside_long_calls("legacy"),
        answer_beside_long_calls("modern"),
    );
}

/// A process of one thread answers nothing beside a long call. The deadlines of an endpoint end
/// calls long before those of the upstream.
#[tokio::test]
async fn busy_child_is_not_suspected_for_the_short_deadlines_of_an_endpoint() {
    let upstream = build(child("legacy"));
    let first = pid(&upstream).await;
    let impatient = CallDeadlines::CALL.cut(short_deadlines());
    for _ in 0..=CALLS_TO_OPEN {
        let call = OutboundCall {
            deadlines: impatient,
            ..outbound("block", call("block", json!({}))).await
        };
        let failure = failure(upstream.clone().call(call).await).await;
        assert_eq!(failure.reason(), "timed_out", "{failure:?}");
    }
    tokio::time::sleep(LIST_DEADLINE + Duration::from_secs(1)).await;
    assert!(lives(first) && !upstream.health().breaker_open);
    upstream.retire(Duration::ZERO).await;
}

/// Calls a tool as this principal.
async fn call_as(principal: &Principal, upstream: &Arc<dyn Upstream>, call: OutboundCall) -> Value {
    let call = OutboundCall {
        principal: principal.clone(),
        ..call
    };
    let outcome = outcome(upstream.clone().call(call).await).await;
    outcome.end.unwrap_or_default()
}

/// The process of a principal hangs, a second one is busy with a long call, which a process of one
/// thread answers nothing beside, and the calls of a third keep the breaker closed.
#[tokio::test]
async fn hung_child_of_one_principal_is_replaced_alone() {
    let upstream = build(UpstreamSettings {
        session: SessionSharing::Principal,
        ..child("legacy")
    });
    let callers = [
        principal(Some("busy")).await,
        principal(Some("hung")).await,
        principal(Some("well")).await,
    ];
    let [busy, hung, well] = &callers;
    let pid_of = async |caller: &Principal| {
        let call = outbound("pid", call("pid", json!({}))).await;
        let result = call_as(caller, &upstream, call).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        text.parse::<u32>().unwrap()
    };
    let before = [pid_of(busy).await, pid_of(hung).await, pid_of(well).await];
    let long = OutboundCall {
        principal: busy.clone(),
        ..outbound("block", call("block", json!({}))).await
    };
    let working = upstream.clone().call(long).await;
    for _ in 0..=CALLS_TO_OPEN {
        call_as(hung, &upstream, short_call("block").await).await;
        assert_eq!(pid_of(well).await, before[2]);
    }
    until_gone(before[1]).await;
    assert_eq!(before.map(lives), [true, false, true]);
    drop(working);
    upstream.retire(Duration::ZERO).await;
}

#[tokio::test]
async fn replaced_child_ends_after_its_running_calls() {
    let upstream = build(child("legacy"));
    let first = pid(&upstream).await;
    let file = |name| {
        let name = format!("weir-replaced-{}-{name}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let (begun, gate) = (file("begun"), file("gate"));
    let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}"#;
    let arguments = json!({"text": answer, "begun": begun, "gate": gate});
    let running = {
        let upstream = upstream.clone();
        tokio::spawn(
            async move { outcome(call_anonymously(&upstream, "print", arguments).await).await },
        )
    };
    while !begun.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let grace = Duration::from_secs(60);
    let replacing = tokio::spawn(upstream.clone().replace_processes(grace));
    // The other process starts while the call still runs in this one.
    while pid_beside(&upstream, first).await == first {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(lives(first) && !replacing.is_finished());
    std::fs::write(&gate, "").unwrap();
    assert!(running.await.unwrap().end.is_ok());
    replacing.await.unwrap();
    until_gone(first).await;
    for file in [begun, gate] {
        std::fs::remove_file(file).unwrap();
    }
    upstream.retire(Duration::ZERO).await;
}

/// Returns the process that serves a call; `busy` if that one still has it.
async fn pid_beside(upstream: &Arc<dyn Upstream>, busy: u32) -> u32 {
    let call = OutboundCall {
        deadlines: CallDeadlines {
            idle: Duration::from_secs(3),
            ..CallDeadlines::CALL
        },
        ..outbound("pid", call("pid", json!({}))).await
    };
    match outcome(upstream.clone().call(call).await).await.end {
        Ok(result) => result["content"][0]["text"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap(),
        Err(_) => busy,
    }
}

#[tokio::test]
async fn hung_child_is_replaced_after_the_grace() {
    let upstream = build(child("legacy"));
    let first = pid(&upstream).await;
    let hanging = call_anonymously(&upstream, "block", json!({})).await;
    let grace = Duration::from_millis(100);
    upstream.clone().replace_processes(grace).await;
    until_gone(first).await;
    assert_eq!(failure(hanging).await.reason(), "result_unknown");
    assert_ne!(pid(&upstream).await, first);
    upstream.retire(Duration::ZERO).await;
}
