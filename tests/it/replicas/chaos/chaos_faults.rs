//! The faults that a chaos run injects.

use std::time::Duration;

use tokio::time::sleep;
use weir_testkit::FaultProxy;

use crate::harness::Replicas;

/// Random numbers by xorshift: the same ones for the same seed.
pub(super) struct SeededRandom(u64);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> Self {
        // Small seeds differ in few bits.
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn millis(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_millis((least + self.below(most - least)) as u64)
    }
}

/// A fault. Each one has ended when [`ChaosFault::inject`] returns.
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
    /// Redis is killed, and starts with the data that it saved.
    RedisRestarted,
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
    /// The connections to the server break.
    UpstreamReset,
}

impl ChaosFault {
    const ALL: [Self; 11] = [
        Self::ReplicaKilled,
        Self::ReplicaStopped,
        Self::ReplicaFrozen,
        Self::ReplicaReloaded,
        Self::RedisRestarted,
        Self::RedisFrozen,
        Self::RedisFlushed,
        Self::RedisCommandsCut,
        Self::RedisMessagesCut,
        Self::RedisReadOnly,
        Self::UpstreamReset,
    ];

    pub(super) fn choose(random: &mut SeededRandom) -> Self {
        Self::ALL[random.below(Self::ALL.len())]
    }

    /// True if sessions of ended replicas may be lost.
    pub(super) fn loses_data(&self) -> bool {
        matches!(
            self,
            Self::RedisRestarted | Self::RedisFlushed | Self::RedisFrozen | Self::RedisReadOnly
        )
    }

    /// Injects the fault and ends it.
    pub(super) async fn inject(
        self,
        replicas: &mut Replicas,
        between: &FaultProxy,
        random: &mut SeededRandom,
    ) {
        let running = replicas.running_numbers();
        let number = running[random.below(running.len())];
        match self {
            Self::ReplicaKilled => {
                replicas.kill(number).await;
                replicas.start_another();
            }
            Self::ReplicaStopped => {
                assert_eq!(replicas.stop(number).await, Some(0));
                replicas.start_another();
            }
            Self::ReplicaFrozen => {
                replicas.replica(number).process.signal("STOP");
                sleep(random.millis(100, 8_000)).await;
                replicas.replica(number).process.signal("CONT");
            }
            Self::ReplicaReloaded => replicas.replica(number).process.signal("HUP"),
            Self::RedisRestarted => replicas.redis_mut().restart(),
            Self::RedisFrozen => {
                replicas.redis().pause();
                sleep(random.millis(10, 3_000)).await;
                replicas.redis().resume();
            }
            Self::RedisFlushed => replicas.redis().flush(),
            Self::RedisCommandsCut => cut(replicas, "normal"),
            Self::RedisMessagesCut => cut(replicas, "pubsub"),
            Self::RedisReadOnly => {
                replicas.redis().run(&["REPLICAOF", "127.0.0.1", "1"]);
                sleep(random.millis(10, 3_000)).await;
                replicas.redis().run(&["REPLICAOF", "NO", "ONE"]);
            }
            Self::UpstreamReset => between.reset_all(),
        }
    }
}

fn cut(replicas: &Replicas, kind: &str) {
    let redis = replicas.redis();
    redis.run(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
}
