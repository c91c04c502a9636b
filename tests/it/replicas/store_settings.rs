//! Settings of Redis that may lose sessions are seen before the start and while replicas run.

use serde_json::json;
use weir_replica_testkit::RedisServer;
use weir_testkit::{MockServer, TestFolder};

use super::start;
use crate::harness::{Weir, sealing_keys, wait_until_async};

/// A config file of a replica with this Redis.
struct ConfigFile(TestFolder);

impl ConfigFile {
    fn new(redis_url: &str, upstream: &MockServer) -> Self {
        let mut config = super::config(upstream);
        config["store"] = json!(redis_url);
        config["keys"] = sealing_keys(&[1]);
        config["cluster"] = json!({ "listen": "127.0.0.1:0" });
        let folder = TestFolder::new("store-settings");
        folder.write("weir.json", &config.to_string());
        Self(folder)
    }

    /// Runs `weir check` with these options; returns its exit code and its output.
    fn check(&self, options: &[&str]) -> (Option<i32>, String) {
        let file = self.0.file("weir.json");
        let mut words = vec!["check", file.to_str().unwrap()];
        words.extend(options);
        let ended = Weir::run_cli(&words);
        let printed = String::from_utf8(ended.stdout).unwrap();
        (ended.status.code(), printed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_connects_to_the_store_and_warns_of_its_settings() {
    let upstream = MockServer::dual().tools(1).start().await;
    let mut redis = RedisServer::start();
    redis.run(&["CONFIG", "SET", "appendonly", "yes"]);
    let file = ConfigFile::new(&redis.url(), &upstream);
    let (code, printed) = file.check(&["--connect", "--strict"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("the shared store takes writes"),
        "{printed}"
    );

    redis.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (code, printed) = file.check(&["--connect"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("maxmemory-policy"), "{printed}");
    assert_eq!(file.check(&["--connect", "--strict"]).0, Some(1));
    assert_eq!(file.check(&["--strict"]).0, Some(0));

    redis.kill();
    let (code, printed) = file.check(&["--connect"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("the shared store is of no use"),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metric_has_the_settings_that_may_lose_sessions() {
    let upstream = MockServer::dual().tools(1).start().await;
    let replicas = start(&upstream).await;
    for (policy, risk) in [("allkeys-lru", 1.0), ("noeviction", 0.0)] {
        let redis = replicas.redis();
        redis.run(&["CONFIG", "SET", "maxmemory-policy", policy]);
        // Each replica reads the settings when it connects.
        redis.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        for weir in replicas.running() {
            wait_until_async("the setting in the metric", async || {
                let now = weir.metric("weir_store_risks", &["maxmemory-policy"]);
                (now == risk).then_some(())
            })
            .await;
        }
    }
}
