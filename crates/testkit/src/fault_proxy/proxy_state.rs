//! The state that the connections of a proxy share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::fault_proxy::toxic::{ProxyDirection, Toxic};

/// The state of a proxy.
#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) target: Mutex<SocketAddr>,
    pub(super) toxics: watch::Sender<Vec<(ProxyDirection, Toxic)>>,
    /// Counts the calls of `FaultProxy::reset_all`.
    pub(super) resets: watch::Sender<u64>,
    /// The delay before a new connection is connected.
    pub(super) accept_delay: watch::Sender<Duration>,
    pub(super) refusing: AtomicBool,
    pub(super) connections: AtomicU64,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    pub(super) seed: u64,
}

impl ProxyState {
    /// The count of bytes that passed in a direction.
    pub(super) fn passed(&self, direction: ProxyDirection) -> &AtomicU64 {
        match direction {
            ProxyDirection::Up => &self.up,
            ProxyDirection::Down => &self.down,
        }
    }
}
