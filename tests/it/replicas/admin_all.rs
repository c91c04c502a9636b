//! Operators reach every replica, or a named one, through any of them.

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_testkit::{TestFolder, mock_server::CallGate};
use weir_wire::Revision;

use super::{COUNT, open_at};
use crate::admin::{OperatorClient, body, new_api_key};
use crate::harness::{Replicas, Weir, wait_until_async};

/// Replicas whose operators need a token, and the token.
async fn start(upstream: &MockServer) -> (Replicas, String) {
    let (token, digest) = new_api_key("ops");
    let mut config = super::config(upstream);
    config["admin"] = json!({ "auth": { "tokens": [{ "name": "ops", "sha256": digest }] } });
    config["audit"] = json!({ "stdout": true });
    (Replicas::start(COUNT, config).await, token)
}

fn operator(weir: &Weir, token: &str) -> OperatorClient {
    OperatorClient::of(weir).with("authorization", &format!("Bearer {token}"))
}

/// Runs `weir admin` with a token; returns the exit code and the output.
fn run_admin(weir: &Weir, token: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = TestFolder::new("token");
    let file = folder.write("token", token);
    let admin = weir.admin_url();
    let file = file.to_str().unwrap();
    let connection: [&str; 5] = ["admin", "--admin", &admin, "--token-file", file];
    let all = [&connection[..], arguments].concat();
    let printed = Weir::run_cli(&all);
    let text = String::from_utf8(printed.stdout).unwrap();
    (printed.status.code(), text)
}

/// Returns the answers of all replicas by their ids.
fn answers(answer: &Value) -> Vec<&Value> {
    answer["replicas"].as_array().unwrap().iter().collect()
}

async fn own_id(weir: &Weir, token: &str) -> String {
    let seen = operator(weir, token).get_json("/admin/replicas").await;
    seen["replicas"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_answers_and_audits_what_one_is_asked() {
    let upstream = MockServer::dual().tools(1).start().await;
    let (mut replicas, token) = start(&upstream).await;
    let ops = operator(replicas.replica(0), &token);
    let all = ops.get_json("/admin/upstreams?replicas=all").await;
    assert_eq!(
        (answers(&all).len(), &all["failed"]),
        (COUNT, &json!(0)),
        "{all}"
    );
    for answer in answers(&all) {
        assert_eq!(answer["answer"]["upstreams"][0]["id"], "one", "{all}");
    }
    assert_eq!(all["replicas"][0]["own"], true, "{all}");
    let wish = json!({ "level": "debug", "reason": "hunt" });
    let done = ops.change("/admin/log?replicas=all", wish).await;
    assert_eq!(done["failed"], 0, "{done}");
    for (number, weir) in replicas.running().enumerate() {
        let config = operator(weir, &token).get_json("/admin/config").await;
        assert_eq!(config["changes"][0]["what"], "log", "{config}");
        let expected = if number == 0 {
            "debug; hunt\""
        } else {
            "debug; hunt; through another replica\""
        };
        wait_until_async("the audit record", async || {
            let output = weir.process.output();
            let mut lines = output.lines();
            lines
                .any(|line| line.contains(expected) && line.contains("ops"))
                .then_some(())
        })
        .await;
    }
    let (code, printed) = run_admin(replicas.replica(1), &token, &["--all", "reload"]);
    assert_eq!(
        (code, printed.matches("\nreload").count()),
        (Some(0), COUNT),
        "{printed}"
    );
    // A change of one replica alone, through another one.
    let id = own_id(replicas.replica(2), &token).await;
    let (code, printed) = run_admin(replicas.replica(0), &token, &["--replica", &id, "log"]);
    assert_eq!((code, &*printed), (Some(0), "log\n"));
    for (number, weir) in replicas.running().enumerate() {
        let config = operator(weir, &token).get_json("/admin/config").await;
        let changes = config["changes"].as_array().unwrap().len();
        assert_eq!(changes, usize::from(number != 2), "{config}");
    }
    // The replicas check the operator themselves, and one that does not answer is named.
    let stranger = OperatorClient::of(replicas.replica(0))
        .get("/admin/config?replicas=all")
        .await;
    assert_eq!(stranger.status, 401);
    replicas.kill(2).await;
    let (code, printed) = run_admin(replicas.replica(0), &token, &["--all", "config"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("1 replica failed"), "{printed}");
    let left = ops.get_json("/admin/config?replicas=all").await;
    let failed: Vec<_> = answers(&left)
        .into_iter()
        .filter(|one| !one["error"].is_null())
        .collect();
    assert_eq!(failed.len(), 1, "{left}");
    assert_eq!(failed[0]["id"], json!(id), "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_calls_of_any_replica_are_ended_through_another() {
    let gate = CallGate::new();
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("gated", MockBehaviour::gated(&gate))
        .start()
        .await;
    let (replicas, token) = start(&upstream).await;
    let client = open_at(&replicas, 2, Revision::NEWEST_LEGACY).await;
    let raw = client.raw().clone();
    let running = tokio::spawn(async move { raw.call("gated", json!({})).await });
    upstream
        .wait_until("the call runs", |upstream| {
            upstream.executions("gated") == 1
        })
        .await;
    let ops = operator(replicas.replica(0), &token);
    let all = ops.get_json("/admin/calls?replicas=all").await;
    let mut owners = answers(&all).into_iter();
    let owner = owners
        .find(|one| !one["answer"]["calls"].as_array().unwrap().is_empty())
        .unwrap();
    let call = owner["answer"]["calls"][0]["id"].as_str().unwrap();
    let owner = owner["id"].as_str().unwrap();
    let path = format!("/admin/calls/{call}/cancel");
    let refused = ops
        .try_change(&format!("{path}?replicas=all"), &json!({}))
        .await;
    assert_eq!(refused.status, 400, "{}", body(&refused));
    ops.change(&format!("{path}?replicas={owner}"), json!({}))
        .await;
    let ended = running.await.unwrap().unwrap();
    assert!(
        ended.last().to_string().contains("operator"),
        "{}",
        ended.last()
    );
    let sessions = ops.get_json("/admin/sessions?replicas=all").await;
    let mut sessions = answers(&sessions).into_iter();
    let session = sessions
        .find_map(|one| one["answer"]["sessions"][0]["id"].as_str())
        .unwrap();
    let path = format!("/admin/sessions/{session}/end?replicas=all");
    let done = ops.change(&path, json!({})).await;
    assert_eq!(done["failed"], 0, "{done}");
    let gone = client.raw().ask("ping", json!({})).await.unwrap();
    assert_eq!(gone.status, 404);
}
