//! Sessions belong to their principals on every replica.

use serde_json::json;
use weir_testkit::{MockServer, RawClient};
use weir_wire::Revision;

use super::{COUNT, at, call, config};
use crate::harness::Replicas;
use crate::tenant_isolation::TENANTS;

// Proves D18.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_one_principal_is_unknown_to_another_on_every_replica() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let mut config = config(&upstream);
    let keys = TENANTS.each_ref().map(|tenant| {
        let mut key = tenant.api_key();
        key["scopes"] = json!([]);
        key
    });
    config["auth"] = json!({ "mode": "required", "api_keys": keys });
    let replicas = Replicas::start(COUNT, config).await;
    let [ada, bob] = &TENANTS;
    let url = replicas.url("/mcp");
    let client = ada.client(&url, Revision::NEWEST_LEGACY).await;
    let session = client.raw().session().unwrap().to_owned();
    for number in 0..COUNT {
        let own = at(&client, &replicas, number);
        let (name, key) = bob.header();
        let foreign = RawClient::new(&replicas.replica(number).url("/mcp"))
            .legacy(Revision::NEWEST_LEGACY)
            .with_header(name, key)
            .with_header("mcp-session-id", &session);
        let called = foreign.call("tool_0000", json!({})).await.unwrap();
        assert_eq!(called.status, 404, "{:?}", called.body);
        assert_eq!(foreign.get_stream().await.unwrap().status, 404);
        assert_eq!(foreign.delete().await.unwrap().status, 404);
        let answered = foreign.respond(&json!(1), json!({})).await.unwrap();
        assert_eq!(answered.status, 404);
        call(&own, number).await;
    }
    assert_eq!(upstream.executions("tool_0000"), COUNT);
}
