//! The connections of the operators' listener. A new one is always admitted: at the limit one
//! without a request is closed, so that idle connections never keep a probe out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The open connections in order of arrival, up to a limit.
#[derive(Debug)]
pub(super) struct AdminConnections {
    most: usize,
    open: Mutex<Vec<Arc<AdminConnectionState>>>,
}

/// The state of one connection.
#[derive(Debug)]
struct AdminConnectionState {
    address: IpAddr,
    /// The number of its requests in progress.
    busy: AtomicUsize,
    end: CancellationToken,
}

/// The handle of an open connection; dropping it removes the connection.
#[derive(Debug)]
pub(super) struct AdminConnection {
    connections: Arc<AdminConnections>,
    entry: Arc<AdminConnectionState>,
}

/// The mark of a request in progress, until dropped.
#[derive(Debug)]
pub(super) struct AdminRequestGuard(Arc<AdminConnectionState>);

impl AdminConnections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
        })
    }

    /// Adds a connection. At the limit it ends the oldest one without a request, of the address
    /// that has the most. Returns `None` if all connections have requests in progress.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<AdminConnection> {
        let entry = Arc::new(AdminConnectionState {
            address,
            busy: AtomicUsize::new(0),
            end: CancellationToken::new(),
        });
        let mut open = self.open.lock();
        if open.len() >= self.most {
            let at = connection_to_end(&open)?;
            open.remove(at).end.cancel();
        }
        open.push(entry.clone());
        Some(AdminConnection {
            connections: self.clone(),
            entry,
        })
    }
}

/// Returns the index of the connection to end first.
fn connection_to_end(open: &[Arc<AdminConnectionState>]) -> Option<usize> {
    let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
    for entry in open {
        *of_address.entry(entry.address).or_default() += 1;
    }
    let silent = open
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.busy.load(Ordering::Acquire) == 0);
    // `max_by_key` returns the last of equals: reversed, that is the oldest.
    silent
        .rev()
        .max_by_key(|(_, entry)| of_address.get(&entry.address))
        .map(|(at, _)| at)
}

impl AdminConnection {
    /// Returns the token that is cancelled when the connection must end.
    pub(crate) fn end(&self) -> CancellationToken {
        self.entry.end.clone()
    }

    /// Returns the function that marks a request in progress.
    pub(super) fn requests(&self) -> impl Fn() -> AdminRequestGuard + Clone + Send + 'static {
        let entry = self.entry.clone();
        move || {
            entry.busy.fetch_add(1, Ordering::AcqRel);
            AdminRequestGuard(entry.clone())
        }
    }
}

impl Drop for AdminConnection {
    fn drop(&mut self) {
        self.connections
            .open
            .lock()
            .retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

impl Drop for AdminRequestGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    // Proves A13.
    #[test]
    fn the_oldest_silent_connection_of_the_address_with_the_most_goes_for_a_new_one() {
        let (probe, scanner): (IpAddr, IpAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let connections = AdminConnections::new(4);
        let kept = connections.admit(probe).unwrap();
        let answered = connections.admit(scanner).unwrap();
        let busy = (answered.requests())();
        let (oldest, youngest) = (
            connections.admit(scanner).unwrap(),
            connections.admit(scanner).unwrap(),
        );
        let new = connections.admit(probe).unwrap();
        let ended = |connection: &AdminConnection| connection.end().is_cancelled();
        assert!(ended(&oldest), "the first without a request");
        assert!(
            [&kept, &answered, &youngest, &new]
                .into_iter()
                .all(|connection| !ended(connection))
        );
        drop(oldest);
        let _held = [&kept, &youngest, &new].map(|connection| (connection.requests())());
        assert!(
            connections.admit(probe).is_none(),
            "requests are answered to their end"
        );
        drop((busy, answered));
        assert!(connections.admit(scanner).is_some());
    }
}
