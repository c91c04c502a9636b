//! Children that may ask the clients of calls: the question of one call, and the wait for a child
//! that asks no other client.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weir_core::reply::Reply;
use weir_core::upstream::{CallDeadlines, OutboundCall, Upstream};
use weir_core::{CapabilityClass, SessionKey};
use weir_upstream::{SessionSharing, UpstreamSettings};

use crate::child::settings;
use crate::fixtures::*;

/// The most calls that run side by side if each may ask a client of its own.
const MAX_CALLS: usize = 4;

fn upstream_of_children() -> Arc<dyn Upstream> {
    build(UpstreamSettings {
        session: SessionSharing::Principal,
        client_capabilities: SessionSharing::Principal.default_client_capabilities(),
        ..settings("legacy")
    })
}

/// A call of a client that can fill in forms, in this session if it has one.
async fn asking(tool: &str, session: Option<u8>) -> OutboundCall {
    let mut call = call(tool, json!({}));
    call.capabilities.class = CapabilityClass::ELICITATION_FORM;
    call.session = session.map(|byte| SessionKey([byte; 16]));
    let mut outbound = outbound(tool, call).await;
    outbound.principal = principal(Some("ann")).await;
    outbound
}

async fn start(upstream: &Arc<dyn Upstream>, tool: &str) -> Reply {
    upstream.clone().call(asking(tool, None).await).await
}

/// Reads a reply that comes soon.
async fn soon(reply: Reply) -> String {
    tokio::time::timeout(Duration::from_secs(20), text(reply))
        .await
        .expect("the call gets a child")
}

#[tokio::test]
async fn question_of_a_child_goes_to_the_clients_other_call_when_the_newest_is_cancelled() {
    let upstream = upstream_of_children();
    let call = async |tool: &str| upstream.clone().call(asking(tool, Some(1)).await).await;
    let mut older = call("hang").await;
    let mut newest = call("ask").await;
    let early = question(&mut newest).await;
    drop(newest);
    question(&mut older).await.answer(filled());
    drop(early);
    let older = tokio::spawn(outcome(older));
    for _ in 0..1000 {
        let answers = text(call("answers").await).await;
        if answers != "[]" {
            assert!(answers.contains("accept"), "{answers}");
            older.abort();
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the child got no answer");
}

#[tokio::test]
async fn call_that_waits_gets_the_first_child_that_becomes_free_or_is_refused_as_not_run() {
    let upstream = upstream_of_children();
    let mut hanging = Vec::new();
    for _ in 0..MAX_CALLS {
        hanging.push(start(&upstream, "hang").await);
    }
    let mut hurried = asking("pid", None).await;
    hurried.deadlines = CallDeadlines {
        idle: Duration::from_secs(3),
        ..CallDeadlines::CALL
    };
    let failure = failure(upstream.clone().call(hurried).await).await;
    assert_eq!(failure.reason(), "busy", "{failure:?}");
    let waiting = start(&upstream, "pid").await;
    drop(hanging.remove(2));
    soon(waiting).await;
}

#[tokio::test]
async fn call_gets_the_child_that_is_started_again_while_another_child_is_taken() {
    let upstream = upstream_of_children();
    let hanging = start(&upstream, "hang").await;
    let failure = failure(start(&upstream, "crash").await).await;
    assert_eq!(failure.reason(), "result_unknown");
    soon(start(&upstream, "pid").await).await;
    drop(hanging);
}
