//! A primary Redis, its replica, and the sentinel that watches both.

use std::time::Duration;

use crate::poll_pause::wait_until;
use crate::redis_server::{RedisServer, RespValue};

/// The most time until the servers know each other.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A primary server, its replica, and the sentinel that makes the replica the primary one soon
/// after the primary ended. Clients know the primary server by the name `main`.
#[derive(Debug)]
pub struct SentinelServers {
    /// The server that takes writes at first.
    pub primary: RedisServer,
    /// Its copy, which takes writes after a failover.
    pub replica: RedisServer,
    /// The server that clients ask for the primary one.
    pub sentinel: RedisServer,
}

impl SentinelServers {
    /// Starts all three, and waits until they know each other.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with_settings(&[])
    }

    /// Starts all three, and waits until they know each other. The primary and its copy have further
    /// directives of their config.
    ///
    /// # Panics
    /// `redis-server` is not on PATH, or does not start.
    #[must_use]
    pub fn with_settings(settings: &[[&str; 2]]) -> Self {
        let primary = RedisServer::with_settings(settings);
        let replica = RedisServer::with_settings(settings);
        make_copy(&replica, &primary);
        wait_until(START_TIMEOUT, "the replica does not follow", || {
            replication(&primary).contains("state=online")
        });
        let sentinel = RedisServer::sentinel_of(&primary);
        let none = RespValue::Array(Vec::new());
        wait_until(START_TIMEOUT, "the sentinel knows no replica", || {
            sentinel.run(&["SENTINEL", "REPLICAS", "main"]) != none
        });
        Self {
            primary,
            replica,
            sentinel,
        }
    }

    /// Stops the replica, which hears of no write from now on. Writes to the primary succeed.
    pub fn pause_replica(&self) {
        self.replica.pause();
        // Nothing may wait for it in its connection.
        self.primary.run(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Ends the primary server at once, and lets a stopped replica go on: it takes the place of the
    /// primary with what it heard before it was stopped.
    pub fn kill_primary(&mut self) {
        self.primary.kill();
        self.replica.resume();
    }

    /// Waits until the server that the sentinel names takes writes and the other one is its copy,
    /// after an outage of either of them. [`Self::primary`] and [`Self::replica`] are these then.
    ///
    /// # Panics
    /// A server does not run, or they do not agree.
    pub fn settle(&mut self) {
        wait_until(START_TIMEOUT, "the servers do not agree", || {
            if self.named_port() == Some(self.replica.address().port()) {
                std::mem::swap(&mut self.primary, &mut self.replica);
            }
            let primary = replication(&self.primary);
            if !primary.contains("role:master") {
                return false;
            }
            if replication(&self.replica).contains("role:master") {
                // The sentinel would wait for ten seconds with that.
                make_copy(&self.replica, &self.primary);
            }
            primary.contains("state=online")
        });
    }

    /// The port of the server that the sentinel names as the primary one.
    fn named_port(&self) -> Option<u16> {
        let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
        self.sentinel.run(&asked).texts().last()?.parse().ok()
    }

    /// Waits until the replica takes writes.
    ///
    /// # Panics
    /// The sentinel does not make it the primary server.
    pub fn wait_until_replica_is_primary(&self) {
        wait_until(START_TIMEOUT, "the replica stays a replica", || {
            replication(&self.replica).contains("role:master")
        });
    }
}

/// Makes a server the copy of another one.
fn make_copy(replica: &RedisServer, primary: &RedisServer) {
    let port = primary.address().port().to_string();
    replica.run(&["REPLICAOF", "127.0.0.1", &port]);
}

/// Returns the section `replication` of a server's `INFO`. It is empty while the server changes its
/// part, because that closes connections.
fn replication(server: &RedisServer) -> String {
    let reported = server.command(&["INFO", "replication"]);
    reported.map_or_else(|_| String::new(), |info| info.text())
}
