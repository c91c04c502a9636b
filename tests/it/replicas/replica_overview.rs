//! Operators see all replicas and the state of their store at each of them.

use serde_json::json;
use weir_testkit::MockServer;

use super::{COUNT, start};
use crate::admin::OperatorClient;
use crate::harness::{Weir, wait_until_async};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_lists_all_and_the_state_of_their_store() {
    let upstream = MockServer::dual().tools(1).start().await;
    let mut replicas = start(&upstream).await;
    for weir in replicas.running() {
        let seen = OperatorClient::of(weir).get_json("/admin/replicas").await;
        assert_eq!(seen["store"], "redis");
        assert_eq!(seen["status"]["connected"], true, "{seen}");
        assert_eq!(seen["differences"], json!([]), "{seen}");
        let all = seen["replicas"].as_array().unwrap();
        assert_eq!(all.len(), COUNT, "{seen}");
        let own: Vec<_> = all.iter().map(|one| one["own"] == true).collect();
        assert_eq!(own, [true, false, false], "{seen}");
        assert!(all.iter().all(|one| one["keys"] == json!([1])), "{seen}");
    }
    let weir = replicas.replica(0);
    let ops = OperatorClient::of(weir);
    let printed = Weir::run_cli(&["admin", "replicas", "--admin", &weir.admin_url()]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("store: redis, connected"), "{printed}");
    assert_eq!(
        printed
            .lines()
            .filter(|line| line.contains(" false "))
            .count(),
        COUNT
    );
    let page = ops.get("/").await;
    assert!(String::from_utf8_lossy(&page.body).contains("<h2>Replicas</h2>"));
    replicas.stop(2).await;
    wait_until_async("two replicas", async || {
        let seen = OperatorClient::of(replicas.replica(0));
        let seen = seen.get_json("/admin/replicas").await;
        (seen["replicas"].as_array()?.len() == COUNT - 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_weir_has_a_store_in_memory() {
    let upstream = MockServer::dual().tools(1).start().await;
    let weir = Weir::with_config(super::config(&upstream));
    let ops = OperatorClient::of(&weir);
    let seen = ops.get_json("/admin/replicas").await;
    assert_eq!(
        seen,
        json!({
            "store": "memory", "status": null, "next_key": null, "differences": [], "replicas": [],
        })
    );
    let page = ops.get("/").await;
    assert!(!String::from_utf8_lossy(&page.body).contains("<h2>Replicas</h2>"));
}
