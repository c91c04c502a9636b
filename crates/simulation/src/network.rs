//! The network between the hosts: streams with delays of the seed, partitions, and resets.
//!
//! As in TCP, a partition loses no byte of a stream: they arrive once it is over, unless the stream is
//! reset meanwhile. A host that crashes closes its streams; what it sent before still arrives.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::host::HostClock;
use crate::links::{HostName, Links, RETRANSMIT, pair};
use crate::stream::{Pipe, SimStream};
use crate::trace::Trace;

/// The wait for a connection before it is refused by the system of the connecting host.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// A stream that was accepted, with the host at its other end.
pub(crate) type Accepted = (SimStream, HostName);

/// The network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) links: Links,
    state: Arc<Mutex<NetworkState>>,
}

#[derive(Default)]
struct NetworkState {
    listeners: BTreeMap<String, (HostName, mpsc::UnboundedSender<Accepted>)>,
    streams: Vec<((HostName, HostName), std::sync::Weak<Pipe>)>,
}

impl Network {
    pub(crate) fn new(seed: u64, trace: Option<Trace>) -> Self {
        Self {
            links: Links::new(seed, trace),
            state: Arc::default(),
        }
    }

    /// Resets all streams of two hosts: bytes on their way are lost.
    pub(crate) fn reset(&self, one: HostName, other: HostName) {
        let streams = std::mem::take(&mut self.state.lock().streams);
        let mut left = Vec::new();
        for (ends, pipe) in streams {
            match pipe.upgrade() {
                Some(pipe) if ends == pair(one, other) => pipe.reset(),
                Some(_) => left.push((ends, pipe)),
                None => {}
            }
        }
        self.state.lock().streams.extend(left);
    }

    /// Accepts streams at an address from now on. The address is free again once the receiver is
    /// dropped.
    pub(crate) fn listen(
        &self,
        address: &str,
        host: HostName,
    ) -> mpsc::UnboundedReceiver<Accepted> {
        let (sender, accepted) = mpsc::unbounded_channel();
        self.state
            .lock()
            .listeners
            .insert(address.to_owned(), (host, sender));
        accepted
    }

    /// Connects a host to an address.
    pub(crate) async fn connect(
        &self,
        from: HostName,
        clock: &HostClock,
        address: &str,
    ) -> io::Result<SimStream> {
        let host = self
            .state
            .lock()
            .listeners
            .get(address)
            .map_or(from, |(host, _)| host);
        sleep(self.links.delay(clock.now(), from, host)).await;
        let mut waited = Duration::ZERO;
        loop {
            let found = self.state.lock().listeners.get(address).cloned();
            let Some((host, listener)) = found else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            if self.links.is_open(from, host) {
                let (near, far) = SimStream::pair(&self.links, clock, (from, host));
                self.register(&near, pair(from, host));
                if listener.send((far, from)).is_err() {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                sleep(self.links.delay(clock.now(), host, from)).await;
                return Ok(near);
            }
            if waited >= CONNECT_LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(RETRANSMIT).await;
            waited += RETRANSMIT;
        }
    }

    fn register(&self, stream: &SimStream, ends: (HostName, HostName)) {
        let pipes = stream.pipes().map(|pipe| (ends, Arc::downgrade(pipe)));
        self.state.lock().streams.extend(pipes);
    }
}
