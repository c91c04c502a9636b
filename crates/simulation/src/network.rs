//! The network between the hosts: streams with delays of the seed, partitions, and resets.
//!
//! As in TCP, a partition loses no byte of a stream: they arrive once it is over, unless the stream is
//! reset meanwhile. A host that crashes closes its streams; what it sent before still arrives.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::host::HostClock;
use crate::seeded::Seeded;
use crate::stream::{Pipe, SimStream};
use crate::trace::Trace;

/// The time between two looks at a link that is cut.
pub(crate) const RETRANSMIT: Duration = Duration::from_millis(50);
/// The wait for a connection before it is refused by the system of the connecting host.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// The name of a host on the network.
pub(crate) type HostName = &'static str;

/// A stream that was accepted, with the host at its other end.
pub(crate) type Accepted = (SimStream, HostName);

/// The network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<NetworkState>>);

struct NetworkState {
    seed: u64,
    /// Gets each part of a stream, if that is wanted.
    trace: Option<Trace>,
    /// The longest delay of a part of a stream, in milliseconds.
    most_delay: u64,
    /// Pairs of hosts without a link, the smaller name first.
    cut: Vec<(HostName, HostName)>,
    listeners: BTreeMap<String, (HostName, mpsc::UnboundedSender<Accepted>)>,
    streams: Vec<((HostName, HostName), std::sync::Weak<Pipe>)>,
}

impl Network {
    pub(crate) fn new(seed: u64, trace: Option<Trace>) -> Self {
        Self(Arc::new(Mutex::new(NetworkState {
            seed,
            trace,
            most_delay: 2,
            cut: Vec::new(),
            listeners: BTreeMap::new(),
            streams: Vec::new(),
        })))
    }

    /// Sets the longest delay of a part of a stream.
    pub(crate) fn set_delay(&self, most: u64) {
        self.lock().most_delay = most.max(1);
    }

    /// The delay of a part that is sent from one host to another now. It follows from the seed, the
    /// link and the moment: not from the number of parts, which differs if two of them are joined.
    pub(crate) fn delay(&self, now: Duration, from: HostName, to: HostName) -> Duration {
        let state = self.lock();
        let link = from.bytes().chain(to.bytes()).fold(0, |sum: u64, byte| {
            sum.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        let moment = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let random = Seeded::new(state.seed ^ moment.rotate_left(32), link);
        Duration::from_millis(random.between(1, state.most_delay))
    }

    /// Adds a part of a stream to the trace, if that is wanted.
    pub(crate) fn trace_part(&self, at: Duration, from: HostName, to: HostName, part: &[u8]) {
        let trace = self.lock().trace.clone();
        if let Some(trace) = trace {
            let shown = String::from_utf8_lossy(part.get(..200).unwrap_or(part)).into_owned();
            trace.note(
                at,
                format!("{from} to {to}: {} bytes {shown:?}", part.len()),
            );
        }
    }

    /// True while two hosts reach each other.
    pub(crate) fn is_open(&self, one: HostName, other: HostName) -> bool {
        !self.lock().cut.contains(&pair(one, other))
    }

    /// Cuts the link of two hosts.
    pub(crate) fn cut(&self, one: HostName, other: HostName) {
        let mut state = self.lock();
        if !state.cut.contains(&pair(one, other)) {
            state.cut.push(pair(one, other));
        }
    }

    /// Ends the cut of two hosts.
    pub(crate) fn heal(&self, one: HostName, other: HostName) {
        self.lock().cut.retain(|cut| *cut != pair(one, other));
    }

    /// Resets all streams of two hosts: bytes on their way are lost.
    pub(crate) fn reset(&self, one: HostName, other: HostName) {
        let streams = std::mem::take(&mut self.lock().streams);
        let mut left = Vec::new();
        for (ends, pipe) in streams {
            match pipe.upgrade() {
                Some(pipe) if ends == pair(one, other) => pipe.reset(),
                Some(_) => left.push((ends, pipe)),
                None => {}
            }
        }
        self.lock().streams.extend(left);
    }

    /// Accepts streams at an address from now on. The address is free again once the receiver is
    /// dropped.
    pub(crate) fn listen(
        &self,
        address: &str,
        host: HostName,
    ) -> mpsc::UnboundedReceiver<Accepted> {
        let (sender, accepted) = mpsc::unbounded_channel();
        self.lock()
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
            .lock()
            .listeners
            .get(address)
            .map_or(from, |(host, _)| host);
        sleep(self.delay(clock.now(), from, host)).await;
        let mut waited = Duration::ZERO;
        loop {
            let found = self.lock().listeners.get(address).cloned();
            let Some((host, listener)) = found else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            if self.is_open(from, host) {
                let (near, far) = SimStream::pair(self, clock, (from, host));
                self.register(&near, pair(from, host));
                if listener.send((far, from)).is_err() {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                sleep(self.delay(clock.now(), host, from)).await;
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
        self.lock().streams.extend(pipes);
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(one: HostName, other: HostName) -> (HostName, HostName) {
    if one < other {
        (one, other)
    } else {
        (other, one)
    }
}

/// Bytes on their way.
pub(crate) type Parts = VecDeque<(Duration, bytes::Bytes)>;
