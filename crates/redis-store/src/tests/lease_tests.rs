//! Leases of several replicas: their holders, epochs, and the waits after a loss of data.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use weir_core::port::{LeaseIntent, LeaseRequest, LeaseState, LeaseStore as _, LeaseToken};
use weir_replica_testkit::RedisServer;

use super::replica::{TestReplica, old_server};

/// The name of the lease.
pub(super) const LEASE: &str = "memory";
/// A lease that outlives each test.
pub(super) const LONG: Duration = Duration::from_secs(600);
/// A lease that ends within a test.
const SHORT: Duration = Duration::from_millis(300);

/// An asker for the lease `memory`, with its view of it.
pub(super) struct Asker {
    pub(super) replica: TestReplica,
    token: LeaseToken,
    known_epoch: u64,
    pub(super) is_held: bool,
}

impl Asker {
    async fn start(server: &RedisServer, number: u8) -> Self {
        let replica = TestReplica::start(server, number).await;
        Self::of(replica, LeaseToken([number; 8]))
    }

    pub(super) fn of(replica: TestReplica, token: LeaseToken) -> Self {
        Self {
            replica,
            token,
            known_epoch: 0,
            is_held: false,
        }
    }

    pub(super) async fn ask(&self, intent: LeaseIntent, time: Duration) -> LeaseState {
        let request = self.request(intent, time);
        self.replica.store.leases().ask(request).await.unwrap()
    }

    /// Asks until the store answers.
    pub(super) async fn ask_patiently(&self, intent: LeaseIntent, time: Duration) -> LeaseState {
        loop {
            let request = self.request(intent, time);
            if let Ok(state) = self.replica.store.leases().ask(request).await {
                return state;
            }
            tokio::time::sleep(SHORT).await;
        }
    }

    pub(super) fn request(&self, intent: LeaseIntent, time: Duration) -> LeaseRequest<'static> {
        LeaseRequest {
            name: LEASE,
            token: self.token,
            time,
            intent,
            known_epoch: self.known_epoch,
            is_held: self.is_held,
        }
    }

    /// Takes the lease from an empty store, and holds it for long.
    pub(super) async fn take_first(&mut self) -> u64 {
        let first = self.take(SHORT).await;
        assert_eq!(self.take(LONG).await, first, "a renewal keeps the epoch");
        first
    }

    /// Asks until the lease can be taken, and takes it.
    pub(super) async fn take(&mut self, time: Duration) -> u64 {
        loop {
            match self.ask(LeaseIntent::Take, time).await {
                LeaseState::Own { epoch } => {
                    (self.known_epoch, self.is_held) = (epoch, true);
                    return epoch;
                }
                LeaseState::Free { after } => tokio::time::sleep(after).await,
                LeaseState::Other { left, .. } => tokio::time::sleep(left).await,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_asker_holds_a_lease_and_the_next_epoch_is_greater() {
    let server = old_server();
    let (mut one, mut two) = (
        Asker::start(&server, 1).await,
        Asker::start(&server, 2).await,
    );
    let first = one.take_first().await;
    match two.ask(LeaseIntent::Take, LONG).await {
        LeaseState::Other {
            replica,
            epoch,
            left,
        } => {
            assert_eq!((replica, epoch), (one.replica.id.clone(), first));
            assert!(left > SHORT);
        }
        state @ (LeaseState::Own { .. } | LeaseState::Free { .. }) => panic!("{state:?}"),
    }
    one.is_held = false;
    let released = one.ask(LeaseIntent::Release, LONG).await;
    assert_eq!(
        released,
        LeaseState::Free {
            after: Duration::ZERO
        }
    );
    assert!(matches!(
        two.ask(LeaseIntent::Look, LONG).await,
        LeaseState::Free { .. }
    ));
    assert!(two.take(LONG).await > first);
    // The release of another holder changes nothing.
    assert!(matches!(
        one.ask(LeaseIntent::Release, LONG).await,
        LeaseState::Other { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_free_after_its_time() {
    let server = old_server();
    let (mut one, mut two) = (
        Asker::start(&server, 1).await,
        Asker::start(&server, 2).await,
    );
    let first = one.take(SHORT).await;
    assert!(two.take(LONG).await > first);
    // By its own clock the first one may not know: the newer epoch wins.
    assert!(matches!(
        one.ask(LeaseIntent::Take, LONG).await,
        LeaseState::Other { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_of_data_the_holder_goes_on_and_others_wait() {
    let server = old_server();
    let (mut one, mut two) = (
        Asker::start(&server, 1).await,
        Asker::start(&server, 2).await,
    );
    let first = one.take_first().await;
    // It has seen the holder, and asks first.
    two.known_epoch = first;
    server.flush();
    assert!(matches!(
        two.ask(LeaseIntent::Take, SHORT).await,
        LeaseState::Free { after } if after > Duration::ZERO
    ));
    assert!(one.take(LONG).await > first);
    assert!(matches!(
        two.ask(LeaseIntent::Take, LONG).await,
        LeaseState::Other { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_of_before_a_loss_of_data_waits_like_the_others() {
    let server = old_server();
    let mut one = Asker::start(&server, 1).await;
    let first = one.take_first().await;
    server.flush();
    one.is_held = false;
    assert!(matches!(
        one.ask(LeaseIntent::Take, SHORT).await,
        LeaseState::Free { after } if after > Duration::ZERO
    ));
    assert!(one.take(SHORT).await > first);
}
