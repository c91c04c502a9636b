//! The connections of the operators' listener. A new one always gets in: when there are as many as
//! may be, one without a request goes, so that silent ones never keep a probe out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The open connections, in the order in which they came; the bound it is made with holds.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    open: Mutex<Vec<Arc<Entry>>>,
}

/// What is known of one.
#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Requests that are being answered.
    busy: AtomicUsize,
    end: CancellationToken,
}

/// An open connection; it is forgotten when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    entry: Arc<Entry>,
}

/// A request of a connection, as long as it is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Entry>);

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
        })
    }

    /// Takes a connection in. Where there are too many, the oldest without a request goes, of the
    /// address that has the most. `None` where all of them are being answered.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let entry = Arc::new(Entry {
            address,
            busy: AtomicUsize::new(0),
            end: CancellationToken::new(),
        });
        let mut open = self.open();
        if open.len() >= self.most {
            let at = expendable(&open)?;
            open.remove(at).end.cancel();
        }
        open.push(entry.clone());
        Some(Connection {
            connections: self.clone(),
            entry,
        })
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of the connection that goes first.
fn expendable(open: &[Arc<Entry>]) -> Option<usize> {
    let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
    for entry in open {
        *of_address.entry(entry.address).or_default() += 1;
    }
    let silent = open
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.busy.load(Ordering::Acquire) == 0);
    // Of equals the last one is given: the oldest, where the oldest come last.
    silent
        .rev()
        .max_by_key(|(_, entry)| of_address.get(&entry.address))
        .map(|(at, _)| at)
}

impl Connection {
    /// Cancelled when the connection is to go.
    pub(super) fn end(&self) -> CancellationToken {
        self.entry.end.clone()
    }

    /// What marks its requests.
    pub(super) fn requests(&self) -> impl Fn() -> Busy + Clone + Send + 'static {
        let entry = self.entry.clone();
        move || {
            entry.busy.fetch_add(1, Ordering::AcqRel);
            Busy(entry.clone())
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections
            .open()
            .retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a13_the_oldest_silent_connection_of_the_address_with_the_most_goes_for_a_new_one() {
        let (probe, scanner): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let connections = Connections::new(4);
        let kept = connections.enter(probe).unwrap();
        let answered = connections.enter(scanner).unwrap();
        let busy = (answered.requests())();
        let (oldest, youngest) = (
            connections.enter(scanner).unwrap(),
            connections.enter(scanner).unwrap(),
        );
        let new = connections.enter(probe).unwrap();
        let ended = |connection: &Connection| connection.end().is_cancelled();
        assert!(ended(&oldest), "the first without a request");
        assert!(
            [&kept, &answered, &youngest, &new]
                .into_iter()
                .all(|connection| !ended(connection))
        );
        drop(oldest);
        let _held = [&kept, &youngest, &new].map(|connection| (connection.requests())());
        assert!(
            connections.enter(probe).is_none(),
            "requests are answered to their end"
        );
        drop((busy, answered));
        assert!(connections.enter(scanner).is_some());
    }
}
