//! The faults that a chaos run injects.

use std::time::Duration;

use tokio::time::sleep;
use weir_replica_testkit::RedisServer;
use weir_testkit::{FaultProxy, ProxyDirection, Toxic};

use super::chaos_scene::ChaosScene;
use super::chaos_store::{ChaosStore, StoreKind, USER};
use crate::harness::SplitMixRandom;

/// A fault, or another event. Each one has ended when [`ChaosFault::inject`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChaosFault {
    /// A replica is killed, and another one starts.
    ReplicaKilled,
    /// A replica stops while the balancer still sends requests to it, and another one starts.
    ReplicaStopped,
    /// A replica stands still for some time, up to longer than the others wait for it.
    ReplicaFrozen,
    /// A replica reads its config again.
    ReplicaReloaded,
    /// Another key seals, on every replica.
    KeysRotated,
    /// An operator blocks a principal.
    PrincipalBlocked,
    /// One replica is not reached by the others for some time.
    PeersCut,
    /// Some replicas do not reach Redis for some time, and the others do.
    RedisCutFromSome,
    /// Redis is killed, and starts with the data that it saved, at once or after some time.
    RedisRestarted,
    /// Redis loads its data for some time.
    RedisLoading,
    /// Redis stands still for some time.
    RedisFrozen,
    /// Redis loses its data.
    RedisFlushed,
    /// Redis closes the connections for commands.
    RedisCommandsCut,
    /// Redis closes the connections of subscribers.
    RedisMessagesCut,
    /// Redis takes no writes for some time.
    RedisReadOnly,
    /// Redis has no memory for some time.
    RedisFull,
    /// Redis refuses weir's password for some time.
    RedisPasswordRefused,
    /// Redis loses its scripts.
    RedisScriptsLost,
    /// Redis is killed, and its copy lacks the last writes.
    RedisFailedOver,
    /// A slot of the cluster moves to another Redis.
    RedisSlotMoved,
    /// The connections to the server break.
    UpstreamReset,
}

impl ChaosFault {
    /// The faults of every kind of store.
    const COMMON: [Self; 17] = [
        Self::ReplicaKilled,
        Self::ReplicaStopped,
        Self::ReplicaFrozen,
        Self::ReplicaReloaded,
        Self::KeysRotated,
        Self::PrincipalBlocked,
        Self::PeersCut,
        Self::RedisRestarted,
        Self::RedisLoading,
        Self::RedisFrozen,
        Self::RedisFlushed,
        Self::RedisCommandsCut,
        Self::RedisMessagesCut,
        Self::RedisFull,
        Self::RedisPasswordRefused,
        Self::RedisScriptsLost,
        Self::UpstreamReset,
    ];

    /// The faults of one kind of store: each kind has as many, so that they are as likely. In a cluster
    /// no server can be made a copy by hand, and a proxy would not be found by a server's address.
    fn of_store(kind: StoreKind) -> &'static [Self] {
        match kind {
            StoreKind::Single => &[Self::RedisCutFromSome, Self::RedisReadOnly],
            StoreKind::Sentinel => &[Self::RedisFailedOver, Self::RedisFailedOver],
            StoreKind::Cluster => &[Self::RedisSlotMoved, Self::RedisSlotMoved],
        }
    }

    pub(super) fn choose(kind: StoreKind, random: &mut SplitMixRandom) -> Self {
        let all = [&Self::COMMON, Self::of_store(kind)].concat();
        *random.pick(&all)
    }

    /// True if sessions of ended replicas may be lost.
    pub(super) fn loses_data(&self) -> bool {
        matches!(
            self,
            Self::RedisCutFromSome
                | Self::RedisRestarted
                | Self::RedisLoading
                | Self::RedisFailedOver
                | Self::RedisFlushed
                | Self::RedisFrozen
                | Self::RedisReadOnly
                | Self::RedisFull
                | Self::RedisPasswordRefused
        )
    }

    /// Injects the fault and ends it.
    pub(super) async fn inject(self, scene: &mut ChaosScene, random: &mut SplitMixRandom) {
        match self {
            Self::ReplicaKilled
            | Self::ReplicaStopped
            | Self::ReplicaFrozen
            | Self::ReplicaReloaded => self.hit_replica(scene, random).await,
            Self::KeysRotated => scene.rotate_keys(),
            Self::PrincipalBlocked => {
                let replicas = &scene.replicas;
                scene.blocks.block_another(replicas, random).await;
            }
            Self::PeersCut => cut_for_some_time(&scene.to_peer, random).await,
            Self::RedisCutFromSome => {
                let proxy = scene.to_redis.as_ref();
                cut_for_some_time(proxy.expect("a store with a proxy"), random).await;
            }
            Self::RedisFailedOver => scene.store.fail_over(millis(random, 10, 1_000)).await,
            Self::RedisSlotMoved => {
                let time = millis(random, 10, 1_000);
                scene.store.move_slot(random, time).await;
            }
            Self::UpstreamReset => scene.to_upstream.reset_all(),
            Self::RedisRestarted
            | Self::RedisLoading
            | Self::RedisFrozen
            | Self::RedisFlushed
            | Self::RedisCommandsCut
            | Self::RedisMessagesCut
            | Self::RedisReadOnly
            | Self::RedisFull
            | Self::RedisPasswordRefused
            | Self::RedisScriptsLost => self.hit_redis(&mut scene.store, random).await,
        }
        scene.store.settle();
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of the faults of replicas, which alone come here, one is left"
    )]
    async fn hit_replica(self, scene: &mut ChaosScene, random: &mut SplitMixRandom) {
        let replicas = &mut scene.replicas;
        let number = *random.pick(&replicas.running_numbers());
        match self {
            Self::ReplicaKilled => {
                replicas.kill(number).await;
                scene.start_another(random);
            }
            Self::ReplicaStopped => {
                assert_eq!(replicas.stop(number).await, Some(0));
                scene.start_another(random);
            }
            Self::ReplicaFrozen => {
                replicas.replica(number).process.signal("STOP");
                sleep(millis(random, 100, 8_000)).await;
                replicas.replica(number).process.signal("CONT");
            }
            _ => replicas.replica(number).process.signal("HUP"),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of the faults of Redis, which alone come here, one is left"
    )]
    async fn hit_redis(self, store: &mut ChaosStore, random: &mut SplitMixRandom) {
        let some_time = millis(random, 10, 3_000);
        let redis = store.pick_primary(random);
        match self {
            Self::RedisRestarted => {
                redis.kill();
                if random.once_in(2) {
                    sleep(some_time).await;
                }
                redis.restart();
            }
            Self::RedisLoading => redis.reload_slowly(some_time),
            Self::RedisFrozen => {
                redis.pause();
                sleep(some_time).await;
                redis.resume();
            }
            Self::RedisFlushed => redis.flush(),
            Self::RedisCommandsCut => close_connections(redis, &["TYPE", "normal"]),
            Self::RedisMessagesCut => close_connections(redis, &["TYPE", "pubsub"]),
            Self::RedisReadOnly => {
                redis.run(&["REPLICAOF", "127.0.0.1", "1"]);
                sleep(some_time).await;
                redis.run(&["REPLICAOF", "NO", "ONE"]);
            }
            Self::RedisFull => {
                redis.run(&["CONFIG", "SET", "maxmemory", "1"]);
                sleep(some_time).await;
                redis.run(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Self::RedisPasswordRefused => {
                redis.run(&["ACL", "SETUSER", USER, "resetpass", ">another-of-a-test"]);
                close_connections(redis, &["USER", USER]);
                sleep(some_time).await;
            }
            _ => {
                redis.run(&["SCRIPT", "FLUSH"]);
            }
        }
    }
}

fn millis(random: &mut SplitMixRandom, least: usize, most: usize) -> Duration {
    Duration::from_millis((least + random.below(most - least)) as u64)
}

/// Breaks the connections through a proxy and refuses new ones, or passes no byte, and then serves
/// again.
async fn cut_for_some_time(proxy: &FaultProxy, random: &mut SplitMixRandom) {
    let time = millis(random, 10, 5_000);
    if random.once_in(2) {
        proxy.set_refusing(true);
        proxy.reset_all();
        sleep(time).await;
        proxy.set_refusing(false);
        return;
    }
    for direction in [ProxyDirection::Up, ProxyDirection::Down] {
        proxy.add_toxic(direction, Toxic::BlackHole);
    }
    sleep(time).await;
    proxy.clear_toxics();
}

fn close_connections(redis: &RedisServer, which: &[&str]) {
    let words = [&["CLIENT", "KILL"], which, &["SKIPME", "yes"]].concat();
    redis.run(&words);
}
