//! The links between the hosts: delays, cuts, and the trace of what passes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_core::instant::millis;

use crate::seeded::Seeded;
use crate::trace::Trace;

/// The time between two looks at a link that is cut.
pub(crate) const RETRANSMIT: Duration = Duration::from_millis(50);

/// The name of a host on the network.
pub(crate) type HostName = &'static str;

/// The links. Clones are the same.
#[derive(Clone)]
pub(crate) struct Links(Arc<Mutex<LinkState>>);

struct LinkState {
    seed: u64,
    /// Gets each part of a stream, if that is wanted.
    trace: Option<Trace>,
    /// The longest delay of a part of a stream, in milliseconds.
    most_delay: u64,
    /// Pairs of hosts without a link, the smaller name first.
    cut: Vec<(HostName, HostName)>,
}

impl Links {
    pub(crate) fn new(seed: u64, trace: Option<Trace>) -> Self {
        Self(Arc::new(Mutex::new(LinkState {
            seed,
            trace,
            most_delay: 2,
            cut: Vec::new(),
        })))
    }

    /// Sets the longest delay of a part of a stream.
    pub(crate) fn set_delay(&self, most: u64) {
        self.0.lock().most_delay = most.max(1);
    }

    /// The delay of a part that is sent from one host to another now. It follows from the seed, the
    /// link and the moment: not from the number of parts, which differs if two of them are joined.
    pub(crate) fn delay(&self, now: Duration, from: HostName, to: HostName) -> Duration {
        let state = self.0.lock();
        let link = from.bytes().chain(to.bytes()).fold(0, |sum: u64, byte| {
            sum.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        let moment = millis(now);
        let random = Seeded::new(state.seed ^ moment.rotate_left(32), link);
        Duration::from_millis(random.between(1, state.most_delay))
    }

    /// Adds a part of a stream to the trace, if that is wanted.
    pub(crate) fn trace_part(&self, at: Duration, from: HostName, to: HostName, part: &[u8]) {
        let trace = self.0.lock().trace.clone();
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
        !self.0.lock().cut.contains(&pair(one, other))
    }

    /// Cuts the link of two hosts.
    pub(crate) fn cut(&self, one: HostName, other: HostName) {
        let mut state = self.0.lock();
        if !state.cut.contains(&pair(one, other)) {
            state.cut.push(pair(one, other));
        }
    }

    /// Ends the cut of two hosts.
    pub(crate) fn heal(&self, one: HostName, other: HostName) {
        self.0.lock().cut.retain(|cut| *cut != pair(one, other));
    }
}

/// Two hosts, the smaller name first.
pub(crate) fn pair(one: HostName, other: HostName) -> (HostName, HostName) {
    if one < other {
        (one, other)
    } else {
        (other, one)
    }
}
