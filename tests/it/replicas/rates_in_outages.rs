//! Rates while the shared store hangs, is slow, or comes and goes: each replica admits its share, no
//! request fails, and the tokens of the outage are paid afterwards.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_replica_testkit::RedisServer;
use weir_testkit::{FaultProxy, MockServer, ProxyDirection, Toxic};

use super::rate_limits::{client, count_admitted};
use super::{COUNT, config};
use crate::auth::api_key;
use crate::harness::{Replicas, wait_until_async};

/// The rate of a principal: so few tokens come in a test that its burst is all that there is.
const BURST: usize = 30;
/// The share of one replica.
const SHARE: usize = BURST / COUNT;

/// Replicas that reach their store through a proxy.
struct ProxiedReplicas {
    replicas: Replicas,
    store: FaultProxy,
    upstream: MockServer,
    keys: Vec<String>,
}

impl ProxiedReplicas {
    /// Starts replicas with a rate of each principal, and the keys of some principals. A command of
    /// the store has this time: so long that a busy machine is no outage.
    async fn start(rate: Value, store_timeout: &str) -> Self {
        let redis = RedisServer::start();
        let store = FaultProxy::start(redis.address()).await;
        let upstream = MockServer::dual().tools(1).start().await;
        let (keys, hashes): (Vec<_>, Vec<_>) = ["first", "second", "third", "watcher"]
            .into_iter()
            .map(api_key)
            .unzip();
        let mut config = config(&upstream);
        config["auth"] = json!({ "mode": "required", "api_keys": hashes });
        config["rates"] = json!({ "principal": rate });
        config["store"] = json!({
            "url": format!("redis://{}", store.address()),
            "timeout": store_timeout,
        });
        Self {
            replicas: Replicas::with_redis(COUNT, config, redis).await,
            store,
            upstream,
            keys,
        }
    }

    /// Makes so many calls of a principal at each replica in turn; returns the admitted ones. Every
    /// other one is refused by the rate.
    async fn admitted_in_turn(&self, principal: usize, calls: usize) -> usize {
        let balanced = client(&self.replicas.url("/mcp"), &self.keys[principal]);
        count_admitted(&balanced, calls).await
    }

    /// Makes so many calls of a principal at one replica after the other; returns the admitted ones
    /// of each.
    async fn admitted_at_each(&self, principal: usize, calls: usize) -> Vec<usize> {
        let mut admitted = Vec::new();
        for replica in self.replicas.running() {
            let own = client(&replica.url("/mcp"), &self.keys[principal]);
            admitted.push(count_admitted(&own, calls).await);
        }
        admitted
    }

    /// The decisions that were made without the store.
    fn decided_alone(&self) -> f64 {
        let label = "operation=\"take_tokens\"";
        self.replicas.metric("weir_store_fallbacks_total", &[label])
    }

    /// Waits until each replica asks the store for the rate of the last principal again.
    async fn wait_until_rates_are_shared(&self) {
        self.replicas.wait_until_store_is_used().await;
        let label = ["operation=\"take_tokens\"", "result=\"ok\""];
        for replica in self.replicas.running() {
            let own = client(&replica.url("/mcp"), &self.keys[3]);
            let before = replica.metric("weir_store_commands_total", &label);
            wait_until_async("a shared rate", async || {
                count_admitted(&own, 1).await;
                let now = replica.metric("weir_store_commands_total", &label);
                (now > before + 0.5).then_some(())
            })
            .await;
        }
    }
}

fn small_rate() -> Value {
    json!({ "rate": format!("{BURST}/d"), "burst": BURST })
}

// Proves F05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_store_leaves_each_replica_its_share_and_gives_no_burst_again() {
    let scene = ProxiedReplicas::start(small_rate(), "1s").await;
    assert_eq!(scene.admitted_in_turn(0, 2 * BURST).await, BURST);
    scene.replicas.redis().pause();
    // The principal that used its burst does not get it again.
    assert_eq!(scene.admitted_at_each(0, 5).await, [0; COUNT]);
    assert_eq!(scene.admitted_at_each(1, 2 * BURST).await, [SHARE; COUNT]);
    assert!(scene.decided_alone() >= BURST as f64);
    scene.replicas.redis().resume();
    scene.wait_until_rates_are_shared().await;
    // One request of each replica waited for an answer that may have come late.
    let again = scene.admitted_in_turn(1, 2 * BURST).await;
    assert!(again <= COUNT, "{again} beside {BURST} of the outage");
    let all = scene.upstream.executions("tool_0000");
    assert!(all >= 2 * BURST, "{all}");
}

// Proves F06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_store_leaves_each_replica_its_share_and_loses_no_tokens() {
    let scene = ProxiedReplicas::start(small_rate(), "1s").await;
    let before = scene.admitted_in_turn(0, COUNT * 4).await;
    let slow = Toxic::Latency {
        wait: Duration::from_millis(1500),
        jitter: Duration::from_millis(200),
    };
    scene.store.add_toxic(ProxyDirection::Down, slow);
    let alone = scene.admitted_at_each(0, 2 * BURST).await;
    assert_eq!(alone, [SHARE - 4; COUNT]);
    assert_eq!(scene.admitted_at_each(2, 1).await, [1; COUNT]);
    let alone = scene.decided_alone();
    assert!(alone >= (COUNT * BURST) as f64, "{alone}");
    scene.store.clear_toxics();
    scene.wait_until_rates_are_shared().await;
    // A principal that used little has nearly all of its burst: each request that timed out may have
    // taken one token, and no look has.
    let rest = scene.admitted_at_each(2, 2 * BURST).await;
    let rest: usize = rest.iter().sum();
    assert!(rest >= BURST - 4 * COUNT, "{rest}");
    assert!(rest <= BURST, "{rest}");
    let again = scene.admitted_in_turn(0, 2 * BURST).await;
    let all = before + (SHARE - 4) * COUNT + again;
    assert!(all <= BURST + COUNT, "{all}");
}

/// Admits without a pause at each replica while the store hangs for half a second and answers for
/// half a second, several times, and every other time loses all connections.
async fn hammer_while_flapping(scene: &ProxiedReplicas) -> (usize, Duration) {
    let begun = Instant::now();
    let mut admitted = 0;
    for round in 0..8 {
        if round % 4 == 0 {
            scene.store.reset_all();
        }
        if round % 2 == 0 {
            scene.replicas.redis().pause();
        } else {
            scene.replicas.redis().resume();
        }
        let until = begun + Duration::from_millis(500) * (round + 1);
        while Instant::now() < until {
            admitted += scene.admitted_in_turn(0, 10 * COUNT).await;
        }
    }
    scene.replicas.redis().resume();
    (admitted, begun.elapsed())
}

// Proves F03, F06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flapping_store_admits_no_more_than_the_rate_and_its_burst() {
    for (rate, lease) in [(20_u32, 0), (100, 8)] {
        let limit = json!({ "rate": format!("{rate}/s"), "burst": rate });
        let scene = ProxiedReplicas::start(limit, "200ms").await;
        let (admitted, time) = hammer_while_flapping(&scene).await;
        let due = f64::from(rate) * (1.0 + time.as_secs_f64());
        println!("{rate}/s: {admitted} admitted in {time:?}, {due:.0} by the rate and its burst");
        // Beside the leases, each outage has a request of each replica whose answer came too late.
        let most = due * 1.05 + (COUNT * lease + 4 * COUNT) as f64;
        assert!(admitted as f64 <= most, "{admitted} of {most} at {rate}/s");
        assert!(admitted >= rate as usize, "{admitted} of {due}");
        assert!(scene.decided_alone() > 0.5);
        scene.wait_until_rates_are_shared().await;
    }
}
