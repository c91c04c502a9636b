//! Sessions, clients, limits and principals, as operators see and end them.

use serde_json::{Value, json};
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::{OperatorClient, body, config_over, new_api_key};
use crate::harness::{CheckedClient, Weir, wait_until_async, within_test_timeout};

/// Returns a config that knows Ada and Bob by their API keys, and their two headers.
pub fn with_two(upstreams: &[(&str, &MockServer)]) -> (Value, [String; 2]) {
    let mut config = config_over(upstreams);
    let made = ["ada", "bob"].map(new_api_key);
    let entries: Vec<Value> = ["ada", "bob"]
        .iter()
        .zip(&made)
        .map(|(name, (key, digest))| {
            let id = key.split('_').nth(1).unwrap();
            json!({ "id": id, "sha256": digest, "subject": name })
        })
        .collect();
    config["auth"] = json!({ "mode": "required", "api_keys": entries });
    (config, made.map(|(key, _)| format!("Bearer {key}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_seen_by_a_digest_and_ended_with_its_stream() {
    let one = MockServer::modern().tools(1).start().await;
    let weir = Weir::with_config(config_over(&[("one", &one)]));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    let ops = OperatorClient::of(&weir);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::V2025_06_18).await;
    let id = client.raw().session().unwrap().to_owned();
    let stream = client.open_change_stream().await;
    let seen = wait_until_async("its stream", async || {
        let all = ops.get_json("/admin/sessions").await;
        let session = all["sessions"][0].clone();
        assert!(
            !all.to_string().contains(&id),
            "the id itself opens the session"
        );
        (session["stream"] == true).then_some(session)
    })
    .await;
    assert_eq!(seen["protocol"], "2025-06-18");
    assert!(seen["software"]["name"].is_string(), "{seen}");
    let clients = ops.get_json("/admin/clients").await;
    assert_eq!(
        (
            &clients["clients"][0]["era"],
            &clients["streams"][0]["kind"]
        ),
        (&json!("legacy"), &json!("session"))
    );
    let end = format!("/admin/sessions/{}/end", seen["id"].as_str().unwrap());
    ops.change(&end, json!({ "reason": "left open" })).await;
    assert!(
        stream.read_rest().await.is_empty(),
        "it ended, and nothing was told"
    );
    let after = client.raw().ask("tools/list", json!({})).await.unwrap();
    assert_eq!(after.status, 404, "its client opens another one then");
    assert_eq!(ops.try_change(&end, &json!({})).await.status, 404);
    assert_eq!(
        ops.try_change("/admin/sessions/xyz/end", &json!({}))
            .await
            .status,
        404
    );
}

/// Asserts that a block needs the whole name of a principal.
async fn incomplete_principals_are_refused(ops: &OperatorClient) {
    for wrong in [
        json!({}),
        json!({ "issuer": "x" }),
        json!({ "issuer": "", "subject": "x" }),
    ] {
        assert_eq!(
            ops.try_change("/admin/principals/block", &wrong)
                .await
                .status,
            400,
            "{wrong}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_principal_gets_403_and_its_calls_and_streams_end() {
    let gate = CallGate::new();
    let one = MockServer::modern()
        .tool("now", MockBehaviour::text("hi"))
        .tool("slow", MockBehaviour::gated(&gate))
        .start()
        .await;
    let (config, [ada, bob]) = with_two(&[("one", &one)]);
    let weir = Weir::with_config(config);
    let ops = OperatorClient::of(&weir);
    for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
        let open = async |who: &str| {
            let header = ("authorization", who);
            CheckedClient::open_with_header(&weir.url("/mcp"), revision, header).await
        };
        let (blocked, other) = (open(&ada).await, open(&bob).await);
        wait_until_async("the list", async || {
            blocked
                .list_tool_names()
                .await
                .contains(&"one__now".to_owned())
                .then_some(())
        })
        .await;
        let (stream, others) = (
            blocked.open_change_stream().await,
            other.open_change_stream().await,
        );
        let running = blocked.start_call("one__slow", json!({}), None).await;
        wait_until_async("the call", async || {
            (ops.get_json("/admin/calls").await["total"] == 1).then_some(())
        })
        .await;
        let clients = ops.get_json("/admin/clients").await;
        let of_ada = clients["clients"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["principal"]["subject"] == "ada");
        let principal = of_ada.unwrap()["principal"].clone();
        let mut whom = principal.clone();
        whom["reason"] = json!("floods");
        let done = ops.change("/admin/principals/block", whom.clone()).await;
        assert_eq!(
            (
                &done["changed"],
                &done["ended_calls"],
                &done["ended_streams"]
            ),
            (&json!(true), &json!(1), &json!(1))
        );
        let ended = running.read_rest().await;
        assert!(
            ended
                .last()
                .unwrap()
                .to_string()
                .contains("blocked by an operator"),
            "{ended:?}"
        );
        stream.read_rest().await;
        let refused = blocked.raw().ask("tools/list", json!({})).await.unwrap();
        assert_eq!(refused.status, 403);
        assert!(
            body(&refused).contains("ask whoever runs this service"),
            "{}",
            body(&refused)
        );
        assert_eq!(other.call("one__now", json!({})).await.text(), "hi");
        assert_eq!(
            ops.get_json("/admin/clients").await["total_streams"],
            1,
            "the other's stream goes on"
        );
        assert_eq!(
            ops.get_json("/admin/config").await["changes"][0]["kind"],
            "principal"
        );
        ops.change("/admin/principals/unblock", principal).await;
        assert_eq!(
            blocked.call("one__now", json!({})).await.text(),
            "hi",
            "its session is as it was"
        );
        whom["ttl"] = json!("100ms");
        ops.change("/admin/principals/block", whom).await;
        wait_until_async("the end of it", async || {
            let answer = blocked.raw().ask("tools/list", json!({})).await.unwrap();
            (answer.status == 200).then_some(())
        })
        .await;
        drop(others);
    }
    incomplete_principals_are_refused(&ops).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_limit_names_its_principals() {
    let one = MockServer::modern().tools(1).start().await;
    let (mut config, [ada, _]) = with_two(&[("one", &one)]);
    config["rates"] = json!({ "principal": { "rate": "2/h" } });
    let weir = Weir::with_config(config);
    let ops = OperatorClient::of(&weir);
    let flooding = RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_header("authorization", &ada);
    wait_until_async("the refusal", async || {
        let answer = within_test_timeout("a request", flooding.ask("tools/list", json!({})))
            .await
            .unwrap();
        (answer.status == 429).then_some(())
    })
    .await;
    let limits = ops.get_json("/admin/limits").await;
    let first = &limits["refusing"][0];
    assert_eq!(
        (&first["of"]["kind"], &first["of"]["name"]),
        (&json!("principal"), &json!("ada")),
        "{limits}"
    );
    assert!(
        first["wait_ms"].as_f64().unwrap() > 0.0
            && first["allows"].as_str().unwrap().contains("2 requests")
    );
    let page = body(&ops.get("/").await);
    assert!(
        page.contains("reached, and requests are refused") && page.contains("principal ada"),
        "{page}"
    );
    let again = ops.get_json("/admin/limits").await;
    assert_eq!(again["total"], limits["total"], "looking takes nothing");
}
