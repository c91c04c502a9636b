//! Subscriptions to single resources that a server refuses, hangs on, or loses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use weir_core::FailureKind;
use weir_core::upstream::{RefusedSubscriptions, ResourceUpdate, ResourceUpdates, Upstream};
use weir_testkit::ScriptedServer;
use weir_testkit::scripted_server::{ScriptedRequest, ServerAct, json_answer, modern_answer};
use weir_upstream::{OwnDeadlines, UpstreamProtocol, UpstreamSettings};

use crate::child;
use crate::fixtures::*;

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
/// Time enough for every answer but one that never comes.
const LIST_DEADLINE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

fn write(text: &str) -> Vec<ServerAct> {
    vec![ServerAct::Write(Bytes::copy_from_slice(text.as_bytes()))]
}

fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

fn updated(uri: &str) -> String {
    event(
        &json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } }),
    )
}

/// Answers a request about a resource that the server fails on, by the name of the resource.
fn failing_answer(request: &ScriptedRequest, uri: &str) -> Option<Vec<ServerAct>> {
    let error = |status, code| {
        let error = json!({ "code": code, "message": "not now" });
        let message = json!({ "jsonrpc": "2.0", "id": request.id(), "error": error });
        vec![json_answer(status, &message)]
    };
    Some(match uri {
        "bad:limit" => error(429, -32000),
        "bad:busy" => error(503, -32000),
        "bad:error" => error(200, -32603),
        "bad:unknown" => error(404, -32601),
        "bad:bare" => write("HTTP/1.1 500 Bare\r\ncontent-length: 0\r\n\r\n"),
        "bad:closed" => [write(STREAM), vec![ServerAct::Close]].concat(),
        "bad:hang" => vec![ServerAct::Hang],
        _ => return None,
    })
}

fn legacy_server(request: &ScriptedRequest) -> Vec<ServerAct> {
    if request.head.starts_with("GET") {
        return write(STREAM);
    }
    let result = match request.method() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "s", "version": "1" },
            "capabilities": { "resources": { "subscribe": true } },
        }),
        _ if request.id().is_null() => {
            return write("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
        }
        _ => json!({}),
    };
    let uri = request.body["params"]["uri"].as_str().unwrap_or_default();
    failing_answer(request, uri).unwrap_or_else(|| {
        let message = json!({ "jsonrpc": "2.0", "id": request.id(), "result": result }).to_string();
        let length = message.len();
        write(&format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: one\r\ncontent-length: {length}\r\n\r\n{message}"
        ))
    })
}

/// Acknowledges all resources of a subscription, if it does not fail on one of them.
fn modern_server(request: &ScriptedRequest) -> Vec<ServerAct> {
    if request.method() != "subscriptions/listen" {
        return modern_answer(request, &[]).unwrap();
    }
    let wanted = &request.body["params"]["notifications"];
    let uris = wanted["resourceSubscriptions"].as_array().unwrap();
    let mut uris = uris.iter().filter_map(Value::as_str);
    uris.find_map(|uri| failing_answer(request, uri))
        .unwrap_or_else(|| {
            let meta = json!({ "io.modelcontextprotocol/subscriptionId": request.id() });
            let acknowledged = json!({
                "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": { "notifications": wanted, "_meta": meta },
            });
            write(&(STREAM.to_owned() + &event(&acknowledged)))
        })
}

/// Returns the updates of a server, and the upstream they live with.
async fn updates(
    server: &ScriptedServer,
    protocol: UpstreamProtocol,
) -> (Box<dyn ResourceUpdates>, Arc<dyn Upstream>) {
    open(UpstreamSettings {
        protocol,
        ..settings(&server.url())
    })
    .await
}

async fn open(settings: UpstreamSettings) -> (Box<dyn ResourceUpdates>, Arc<dyn Upstream>) {
    open_with(settings, LIST_DEADLINE).await
}

/// Opens the updates of an upstream that has this time for the answer to a request.
async fn open_with(
    settings: UpstreamSettings,
    deadline: Duration,
) -> (Box<dyn ResourceUpdates>, Arc<dyn Upstream>) {
    let upstream = build(UpstreamSettings {
        own_deadlines: OwnDeadlines {
            // The test writes to the stream once it is open.
            stream_head: PATIENCE,
            ..list_deadline(deadline)
        },
        ..settings
    });
    (upstream.clone().updates().await.unwrap(), upstream)
}

fn uris(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// The refused resources, by name, each with its failure.
fn refused(refused: RefusedSubscriptions) -> Vec<(String, FailureKind)> {
    let refused = refused.into_iter();
    refused
        .map(|(uri, failure)| (uri.to_string(), failure.kind().clone()))
        .collect()
}

async fn next_update(updates: &mut dyn ResourceUpdates) -> ResourceUpdate {
    timeout(PATIENCE, updates.next_update())
        .await
        .expect("an update comes in time")
        .expect("the stream goes on")
}

#[tokio::test]
async fn legacy_server_that_fails_on_some_resources_keeps_its_session_and_the_others() {
    let server = ScriptedServer::start(legacy_server).await;
    let (mut updates, _upstream) = updates(&server, UpstreamProtocol::Legacy).await;
    let names = [
        "memo:1",
        "bad:bare",
        "bad:error",
        "bad:hang",
        "bad:limit",
        "memo:2",
    ];
    let all = refused(
        updates
            .set_subscriptions(&uris(&names), &|_| ())
            .await
            .unwrap(),
    );
    let (names, kinds): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    assert_eq!(names, ["bad:bare", "bad:error", "bad:hang", "bad:limit"]);
    assert!(
        matches!(
            kinds[..],
            [
                FailureKind::BadAnswer,
                FailureKind::Upstream(_),
                FailureKind::TimedOut,
                FailureKind::Limit
            ]
        ),
        "{kinds:?}"
    );
    server.write_to_all(updated("memo:2").as_bytes()).await;
    assert_eq!(
        next_update(&mut *updates).await,
        ResourceUpdate::Resource("memo:2".into())
    );
    assert_eq!(server.requests_of("initialize").len(), 1);
}

#[tokio::test]
async fn modern_server_that_refuses_a_subscription_has_none_that_could_be_read() {
    let server = ScriptedServer::start(modern_server).await;
    for uri in [
        "bad:limit",
        "bad:busy",
        "bad:error",
        "bad:unknown",
        "bad:closed",
        "bad:hang",
    ] {
        let (mut updates, _upstream) = updates(&server, UpstreamProtocol::Modern).await;
        let failure = updates
            .set_subscriptions(&uris(&[uri]), &|_| ())
            .await
            .unwrap_err();
        let kind = failure.kind();
        let expected = match uri {
            "bad:limit" => matches!(kind, FailureKind::Limit),
            "bad:busy" => matches!(kind, FailureKind::Busy),
            "bad:closed" => matches!(kind, FailureKind::Unavailable),
            "bad:hang" => matches!(kind, FailureKind::TimedOut),
            _ => matches!(kind, FailureKind::Upstream(_)),
        };
        assert!(expected, "{uri}: {failure:?}");
    }
}

#[tokio::test]
async fn stream_of_a_modern_server_outlives_a_failed_replacement() {
    let server = ScriptedServer::start(modern_server).await;
    for uri in [
        "bad:limit",
        "bad:error",
        "bad:closed",
        "bad:bare",
        "bad:hang",
    ] {
        let (mut updates, _upstream) = updates(&server, UpstreamProtocol::Modern).await;
        let granted = updates.set_subscriptions(&uris(&["memo:1"]), &|_| ()).await;
        assert!(granted.unwrap().is_empty());
        let all = updates
            .set_subscriptions(&uris(&["memo:1", uri]), &|_| ())
            .await;
        let all = refused(all.unwrap());
        assert!(matches!(&all[..], [(name, _)] if name == uri), "{all:?}");
        server.write_to_all(updated("memo:1").as_bytes()).await;
        assert_eq!(
            next_update(&mut *updates).await,
            ResourceUpdate::Resource("memo:1".into())
        );
        // Without the resource that is wanted no more, nothing of the old stream may go on.
        updates
            .set_subscriptions(&uris(&[uri]), &|_| ())
            .await
            .unwrap_err();
    }
}

#[tokio::test]
async fn child_that_fails_on_some_resources_keeps_the_subscriptions_of_others() {
    let (mut updates, _upstream) = open(child::settings("legacy")).await;
    let names = ["bad:hang", "bad:error", "memo:1"];
    let (sender, mut delivered) = mpsc::unbounded_channel();
    let deliver = |updated| sender.send(updated).unwrap();
    let all = updates.set_subscriptions(&uris(&names), &deliver).await;
    let all = refused(all.unwrap());
    assert!(
        matches!(
            &all[..],
            [(hang, FailureKind::TimedOut), (error, FailureKind::Upstream(_))]
                if hang == "bad:hang" && error == "bad:error"
        ),
        "{all:?}"
    );
    // The update comes before the deadline of the hanging request, unless the child is that slow.
    let updated = match delivered.try_recv() {
        Ok(updated) => updated,
        Err(_) => next_update(&mut *updates).await,
    };
    assert_eq!(updated, ResourceUpdate::Resource("memo:1".into()));
    let (mut updates, _upstream) = open(child::settings("modern")).await;
    let failure = updates
        .set_subscriptions(&uris(&["bad:error"]), &|_| ())
        .await;
    assert!(matches!(
        failure.unwrap_err().kind(),
        FailureKind::Upstream(_)
    ));
    let granted = updates.set_subscriptions(&uris(&["memo:1"]), &|_| ()).await;
    assert!(granted.unwrap().is_empty());
    let all = updates
        .set_subscriptions(&uris(&["memo:1", "bad:error"]), &|_| ())
        .await;
    let all = refused(all.unwrap());
    assert!(
        matches!(&all[..], [(uri, FailureKind::Upstream(_))] if uri == "bad:error"),
        "{all:?}"
    );
}

/// Subscribes to a resource on which the server hangs, beside another; returns the first update
/// that comes meanwhile.
async fn update_beside_hanging(updates: &mut dyn ResourceUpdates) -> ResourceUpdate {
    let (sender, mut delivered) = mpsc::unbounded_channel();
    let deliver = |updated| sender.send(updated).unwrap();
    let wanted = uris(&["bad:hang", "memo:1"]);
    tokio::select! {
        outcome = updates.set_subscriptions(&wanted, &deliver) => panic!("no answer is due: {outcome:?}"),
        updated = timeout(PATIENCE, delivered.recv()) => updated.expect("an update in time").unwrap(),
    }
}

#[tokio::test]
async fn resource_that_a_server_hangs_on_delays_no_update_of_others() {
    let legacy_http = ScriptedServer::start(|request| {
        if request.head.starts_with("GET") {
            return write(&(STREAM.to_owned() + &updated("memo:1")));
        }
        legacy_server(request)
    })
    .await;
    let legacy_http = UpstreamSettings {
        protocol: UpstreamProtocol::Legacy,
        ..settings(&legacy_http.url())
    };
    for settings in [legacy_http, child::settings("legacy")] {
        let (mut updates, _upstream) = open_with(settings, NEVER).await;
        assert_eq!(
            update_beside_hanging(&mut *updates).await,
            ResourceUpdate::Resource("memo:1".into())
        );
    }
}
