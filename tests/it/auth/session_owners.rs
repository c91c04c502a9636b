//! Session ids are names, not credentials: one principal's ids are of no use to another.

use serde_json::{Value, json};
use weir_testkit::identity_provider::now;
use weir_testkit::{ClientAnswer, MockServer, RawClient};
use weir_wire::Revision;

use super::{WeirWithIdp, bearer};
use crate::harness::{Weir, wait_until_async, within_test_timeout};

fn legacy(stage: &WeirWithIdp, subject: &str) -> RawClient {
    let url = stage.weir.url("/mcp");
    bearer(&url, &stage.idp.token(subject, &url)).legacy(Revision::NEWEST_LEGACY)
}

/// Returns a refusal without the request's own id and name.
fn comparable_refusal(answer: &ClientAnswer) -> String {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    match serde_json::from_str::<Value>(&text) {
        Ok(mut message) => {
            message["id"] = json!(0);
            if let Some(data) = message["error"]["data"].as_object_mut() {
                data.remove("requestId");
            }
            format!("{} {message}", answer.status)
        }
        Err(_) => format!("{} {text}", answer.status),
    }
}

// Proves D03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_a_good_token_is_no_way_in_and_outlives_a_bad_one() {
    let stage = WeirWithIdp::with(json!({ "leeway": "0s" })).await;
    let url = stage.weir.url("/mcp");
    let ada = legacy(&stage, "ada").initialize().await.unwrap();
    let session = ada.session().unwrap().to_owned();
    let mut claims = stage.idp.claims("ada", &url);
    claims["exp"] = json!(now() - 60);
    let expired = stage.idp.signer().token(&claims);
    let bare = || {
        RawClient::new(&url)
            .legacy(Revision::NEWEST_LEGACY)
            .with_header("mcp-session-id", &session)
    };
    for (what, client) in [
        ("none", bare()),
        (
            "expired",
            bare().with_header("authorization", &format!("Bearer {expired}")),
        ),
        (
            "garbage",
            bare().with_header("authorization", "Bearer garbage"),
        ),
        (
            "basic",
            bare().with_header("authorization", "Basic YWRhOmFkYQ=="),
        ),
    ] {
        assert_eq!(
            client.ask("tools/list", json!({})).await.unwrap().status,
            401,
            "{what}"
        );
        assert_eq!(client.get_stream().await.unwrap().status, 401, "{what}");
        assert_eq!(client.delete().await.unwrap().status, 401, "{what}");
    }
    assert_eq!(
        ada.ask("tools/list", json!({})).await.unwrap().status,
        200,
        "the session is still there"
    );
}

// Proves R276, R281, D02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_requests_reach_no_session_and_do_not_reveal_it() {
    let stage = WeirWithIdp::start().await;
    let ada = legacy(&stage, "ada").initialize().await.unwrap();
    let mut stream = within_test_timeout("the stream", ada.get_stream())
        .await
        .unwrap();
    assert_eq!(stream.status, 200);
    let real = ada.session().unwrap().to_owned();
    // The same form, but never issued.
    let unknown: String = real.chars().rev().collect();
    let eve = |session: &str| legacy(&stage, "eve").with_header("mcp-session-id", session);
    for (theirs, nobodys) in [
        (
            eve(&real).ask("tools/list", json!({})).await,
            eve(&unknown).ask("tools/list", json!({})).await,
        ),
        (
            eve(&real).call("one__tool_0000", json!({})).await,
            eve(&unknown).call("one__tool_0000", json!({})).await,
        ),
        (
            eve(&real).respond(&json!(1), json!({})).await,
            eve(&unknown).respond(&json!(1), json!({})).await,
        ),
        (
            eve(&real)
                .notify("notifications/cancelled", json!({ "requestId": 2 }))
                .await,
            eve(&unknown)
                .notify("notifications/cancelled", json!({ "requestId": 2 }))
                .await,
        ),
        (
            eve(&real)
                .notify("notifications/roots/list_changed", json!({}))
                .await,
            eve(&unknown)
                .notify("notifications/roots/list_changed", json!({}))
                .await,
        ),
        (
            eve(&real).get_stream().await.unwrap().finish().await,
            eve(&unknown).get_stream().await.unwrap().finish().await,
        ),
        (eve(&real).delete().await, eve(&unknown).delete().await),
    ] {
        let (theirs, nobodys) = (theirs.unwrap(), nobodys.unwrap());
        assert_eq!(theirs.status, 404);
        assert_eq!(
            comparable_refusal(&theirs).replace(&real, "ID"),
            comparable_refusal(&nobodys).replace(&unknown, "ID")
        );
    }
    assert_eq!(stage.upstream.total_executions(), 0);
    // Its owner goes on, and its stream has received no message.
    assert_eq!(
        ada.call("one__tool_0000", json!({ "n": 2 }))
            .await
            .unwrap()
            .text(),
        r#"{"n":2}"#
    );
    tokio::select! {
        biased;
        heard = stream.next_message() => panic!("{heard:?}"),
        () = std::future::ready(()) => {}
    }
}

// Proves D06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_event_id_opens_a_fresh_stream_without_replay() {
    let stage = WeirWithIdp::start().await;
    let (ada, eve) = (
        legacy(&stage, "ada").initialize().await.unwrap(),
        legacy(&stage, "eve").initialize().await.unwrap(),
    );
    for id in [
        "1",
        "0",
        "-1",
        "99999999999999999999",
        ada.session().unwrap(),
        "a b",
        "%00",
        "",
    ] {
        let mut stream = eve
            .clone()
            .with_header("last-event-id", id)
            .get_stream()
            .await
            .unwrap();
        assert_eq!(stream.status, 200, "{id}");
        tokio::select! {
            biased;
            heard = stream.next_message() => panic!("{id}: {heard:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(
        ada.call("one__tool_0000", json!({ "n": 1 }))
            .await
            .unwrap()
            .text(),
        r#"{"n":1}"#
    );
}

// Proves R277, D16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_principals_never_meet_in_a_session_of_an_upstream() {
    let idp = weir_testkit::IdentityProvider::start().await;
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "auth": { "mode": "oauth", "issuers": [{ "issuer": idp.issuer() }] },
        "upstreams": { "one": { "url": upstream.url() } },
    }));
    let url = weir.url("/mcp");
    let client = |subject: &str| bearer(&url, &idp.token(subject, &url));
    let call = async |client: &RawClient, who: &str| {
        let answer = client
            .call("one__tool_0000", json!({ "who": who }))
            .await
            .unwrap();
        let told: Value = serde_json::from_str(answer.text()).ok()?;
        (told == json!({ "who": who })).then_some(())
    };
    let modern = ["ada", "eve"].map(|who| (who, client(who).modern()));
    wait_until_async("the tool", async || call(&modern[0].1, "ada").await).await;
    for _ in 0..5 {
        for (who, client) in &modern {
            call(client, who).await.unwrap();
        }
        for who in ["ada", "eve"] {
            let legacy = client(who)
                .legacy(Revision::NEWEST_LEGACY)
                .initialize()
                .await
                .unwrap();
            call(&legacy, who).await.unwrap();
        }
    }
    let mut owners = std::collections::HashMap::<String, String>::new();
    for request in upstream.requests_of("tools/call") {
        let session = request.session().unwrap().to_owned();
        let who = request.message["params"]["arguments"]["who"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            *owners.entry(session).or_insert_with(|| who.clone()),
            who,
            "one session, two principals"
        );
    }
    assert!(owners.len() >= 4, "{owners:?}");
}
