//! Limits of concurrent TLS handshakes, overall and from one network: silent ones of a few
//! addresses must not shut TLS for the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_network::client_network;

/// One network may have one in this many of all handshakes.
const NETWORK_SHARE: usize = 8;

/// The permits for handshakes.
#[derive(Debug)]
pub(super) struct HandshakeLimit {
    all: Arc<Semaphore>,
    each: usize,
    /// An entry for each network with a running or waiting handshake: the connections bound it.
    networks: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// The permit of one handshake.
#[derive(Debug)]
pub(super) struct HandshakePermit {
    _all: OwnedSemaphorePermit,
    _own: NetworkHandshakes,
}

/// A network's share of the handshakes, and the permit for one of them once it is granted.
#[derive(Debug)]
struct NetworkHandshakes {
    handshakes: Arc<HandshakeLimit>,
    address: IpAddr,
    semaphore: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl HandshakeLimit {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let networks = Mutex::default();
        Arc::new(Self {
            all: Arc::new(Semaphore::new(most)),
            each: (most / NETWORK_SHARE).max(1),
            networks,
        })
    }

    /// Waits for a permit: first for one of the address's network, so that a network has only so
    /// many waiting for the overall ones.
    pub(super) async fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<HandshakePermit> {
        let address = client_network(address);
        let semaphore = self
            .networks
            .lock()
            .entry(address)
            .or_insert_with(|| Arc::new(Semaphore::new(self.each)))
            .clone();
        let mut own = NetworkHandshakes {
            handshakes: self.clone(),
            address,
            semaphore: Some(semaphore.clone()),
            permit: None,
        };
        own.permit = semaphore.acquire_owned().await.ok();
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(HandshakePermit {
            _all: all,
            _own: own,
        })
    }
}

impl Drop for NetworkHandshakes {
    fn drop(&mut self) {
        self.permit = None;
        let mut networks = self.handshakes.networks.lock();
        self.semaphore = None;
        // Each running or waiting handshake of the network holds a reference; new ones are made
        // under the lock.
        if networks
            .get(&self.address)
            .is_some_and(|semaphore| Arc::strong_count(semaphore) == 1)
        {
            networks.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use futures_util::FutureExt as _;

    use super::*;

    // Proves A16.
    #[tokio::test]
    async fn one_network_has_its_part_of_the_handshakes_and_waits_for_more() {
        let handshakes = HandshakeLimit::new(16);
        let own: IpAddr = "2001:db8::1".parse().unwrap();
        let beside: IpAddr = "2001:db8::2".parse().unwrap();
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let first = handshakes.acquire(own).await.unwrap();
        let second = handshakes.acquire(beside).await.unwrap();
        let mut third = Box::pin(handshakes.acquire(own));
        assert!(third.as_mut().now_or_never().is_none());
        drop(handshakes.acquire(other).await.unwrap());
        assert_eq!(handshakes.networks.lock().len(), 1);
        drop(first);
        let third = third.await.unwrap();
        drop((second, third));
        assert_eq!(handshakes.networks.lock().len(), 0);
    }
}
