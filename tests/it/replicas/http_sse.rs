//! Clients of HTTP+SSE with their stream at one replica and their messages at others.

use serde_json::{Value, json};
use weir_replica_testkit::{RedisServer, free_port};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{COUNT, config, start};
use crate::harness::{Replicas, SseClient, wait_until_async};

fn ping(id: usize) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })
}

async fn post(client: &SseClient, replicas: &Replicas, number: usize, id: usize) -> ClientAnswer {
    client.post(replicas.replica(number), &ping(id)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_posted_to_any_replica_are_answered_on_the_one_stream() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(2);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    for streaming in 0..COUNT {
        let mut client = SseClient::open(replicas.replica(streaming), None).await;
        let elsewhere = replicas.replica((streaming + 1) % COUNT);
        client.initialize(elsewhere, json!({})).await;
        for id in 2..11 {
            let called = json!({ "name": "tool_0000", "arguments": { "n": id } });
            let to = replicas.replica(id % COUNT);
            let answer = client.ask(to, id, "tools/call", called).await;
            let text = &answer["result"]["content"][0]["text"];
            assert_eq!(text, &format!(r#"{{"n":{id}}}"#), "{answer}");
        }
        let listed = client.ask(elsewhere, 11, "tools/list", json!({})).await;
        assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(2));
    }
    assert_eq!(upstream.executions("tool_0000"), 9 * COUNT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_a_stream_of_a_killed_replica_are_refused() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let config = config(&upstream);
    let mut first = config.clone();
    first["cluster"]["listen"] = json!(format!("127.0.0.1:{}", free_port()));
    let configs = vec![first, config];
    let mut replicas = Replicas::with_configs(configs, RedisServer::start()).await;
    let client = SseClient::open(replicas.replica(0), None).await;
    replicas.kill(0).await;
    for number in replicas.running_numbers() {
        let refused = post(&client, &replicas, number, 1).await;
        let may_come_back = refused.status == 503 && refused.header("retry-after").is_some();
        assert!(may_come_back, "{} {:?}", refused.status, refused.body);
    }
    // The next replica at its address proves its end.
    replicas.start_again(0);
    for number in replicas.running_numbers() {
        wait_until_async("the end of the stream", async || {
            let refused = post(&client, &replicas, number, 1).await;
            (refused.status == 404).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_for_a_stream_of_a_paused_replica_may_be_sent_again() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    let mut client = SseClient::open(replicas.replica(0), None).await;
    client.initialize(replicas.replica(1), json!({})).await;
    replicas.replica(0).process.freeze();
    // Two: the second one finds that no request reaches the owner.
    for id in [2, 3] {
        let refused = post(&client, &replicas, 1, id).await;
        let may_come_back = refused.status == 503 && refused.header("retry-after").is_some();
        assert!(may_come_back, "{} {:?}", refused.status, refused.body);
    }
    replicas.replica(0).process.signal("CONT");
    wait_until_async("the owner", async || {
        let taken = post(&client, &replicas, 1, 4).await;
        assert_ne!(taken.status, 404, "{:?}", taken.body);
        (taken.status == 202).then_some(())
    })
    .await;
    // The owner may have read those before, too.
    while client.next().await.unwrap()["id"] != 4 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_connects_again_to_another_replica_goes_on_with_its_settings() {
    let form =
        json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let asks = MockTool::new("asks").does(MockBehaviour::ask("elicitation/create", form));
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).with(asks);
    let upstream = upstream.start().await;
    let mut replicas = start(&upstream).await;
    let mut before = SseClient::open(replicas.replica(0), None).await;
    before
        .initialize(replicas.replica(0), json!({ "elicitation": {} }))
        .await;
    replicas.kill(0).await;
    let there = replicas.replica(1);
    let mut client = SseClient::open(there, before.last_event.as_deref()).await;
    let call = json!({ "name": "asks", "arguments": {} });
    client.request(there, 2, "tools/call", call).await;
    let question = client.next().await.unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let declined = json!({ "action": "decline" });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": declined });
    let taken = client.post(replicas.replica(2), &answer).await;
    assert_eq!(taken.status, 202);
    let result = client.next().await.unwrap();
    assert_eq!(result["id"], 2, "{result}");
}
