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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rewritten_config_with_the_same_settings_is_announced() {
    let upstream = MockServer::dual().tools(1).start().await;
    let replicas = start(&upstream).await;
    let [changed, other] = [replicas.replica(0), replicas.replica(1)];
    let digest_in_force = async || {
        let seen = OperatorClient::of(changed).get_json("/admin/config").await;
        seen["digest"].as_str().unwrap().to_owned()
    };
    let before = digest_in_force().await;
    let text = serde_json::to_string_pretty(&changed.config()).unwrap();
    std::fs::write(changed.config_file(), text).unwrap();
    let digest = wait_until_async("the digest of the rewritten file", async || {
        Some(digest_in_force().await).filter(|digest| *digest != before)
    })
    .await;
    // The announced digest is the beginning of it.
    wait_until_async("the announcement", async || {
        let seen = OperatorClient::of(other).get_json("/admin/replicas").await;
        let is_announced = |one: &serde_json::Value| {
            one["config"]
                .as_str()
                .is_some_and(|short| digest.starts_with(short))
        };
        let all = seen["replicas"].as_array()?;
        all.iter().any(is_announced).then_some(())
    })
    .await;
}
