//! The holder of a lease, against a store that answers as a test says.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tokio::time::{advance, sleep};
use weir_core::port::BoxFuture;
use weir_core::upstream::HandoverSession;
use weir_testkit::{FakeRandom, HandoverUpstream, TokioClock};

use super::*;
use crate::lease_handover::{exported_lease, import_session};

const TIME: Duration = Duration::from_secs(15);
const S: Duration = Duration::from_secs(1);

/// A store with one lease. It does not answer while it hangs.
#[derive(Debug)]
struct FakeStore {
    state: Mutex<LeaseState>,
    intents: Mutex<Vec<(LeaseIntent, LeaseToken, bool)>>,
    hangs: watch::Sender<bool>,
}

impl FakeStore {
    fn set(&self, state: LeaseState) {
        *self.state.lock() = state;
    }

    fn intents(&self) -> Vec<LeaseIntent> {
        let all = std::mem::take(&mut *self.intents.lock());
        all.into_iter().map(|(intent, _, _)| intent).collect()
    }

    fn tokens(&self) -> Vec<LeaseToken> {
        let all = self.intents.lock();
        all.iter().map(|(_, token, _)| *token).collect()
    }
}

impl LeaseStore for FakeStore {
    fn ask<'a>(
        &'a self,
        request: LeaseRequest<'a>,
    ) -> BoxFuture<'a, Result<LeaseState, StoreError>> {
        let intent = (request.intent, request.token, request.is_held);
        self.intents.lock().push(intent);
        Box::pin(async move {
            let mut hangs = self.hangs.subscribe();
            hangs.wait_for(|hangs| !hangs).await.unwrap();
            Ok(self.state.lock().clone())
        })
    }
}

fn lease(state: LeaseState) -> (Arc<FakeStore>, Arc<SingletonLease>) {
    let store = Arc::new(FakeStore {
        state: Mutex::new(state),
        intents: Mutex::default(),
        hangs: watch::Sender::new(false),
    });
    let clock = Arc::new(TokioClock::new());
    let ports = LeasePorts {
        store: store.clone(),
        clock: clock.clone(),
        random: Arc::new(FakeRandom::new(1)),
        own: ReplicaId([1; 8]),
        time: TIME,
    };
    let fence = Arc::new(LeaseFence::new(clock));
    let id = UpstreamId::new("memory").unwrap();
    (store, Arc::new(SingletonLease::new(id, ports, fence)))
}

/// Keeps a lease in a task, and waits until it has asked once.
async fn keep(lease: &Arc<SingletonLease>) {
    let keeping = lease.clone();
    tokio::spawn(async move { keeping.keep().await });
    sleep(Duration::from_millis(1)).await;
}

fn other(epoch: u64) -> LeaseState {
    LeaseState::Other {
        replica: ReplicaId([2; 8]),
        epoch,
        left: TIME,
    }
}

#[tokio::test(start_paused = true)]
async fn held_lease_is_renewed_at_a_third_of_its_time() {
    let (store, lease) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease).await;
    assert_eq!(lease.own_epoch(), Some(7));
    assert!(lease.accepts(7) && !lease.accepts(6) && !lease.accepts(8));
    assert_eq!(store.intents(), [LeaseIntent::Take]);
    sleep(3 * TIME).await;
    let renewals = store.intents().len();
    assert!((8..=9).contains(&renewals), "{renewals}");
    assert_eq!(lease.own_epoch(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn holder_stops_by_its_clock_while_the_store_hangs() {
    let (store, lease) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease).await;
    let pass = lease.fence.enter().unwrap();
    store.hangs.send_replace(true);
    sleep(TIME * 3 / 4 - S).await;
    assert_eq!(lease.own_epoch(), Some(7));
    sleep(S).await;
    assert_eq!(lease.own_epoch(), None);
    assert!(!pass.is_open() && pass.over().is_cancelled());
    assert_eq!(lease.view().holder, LeaseHolder::Unknown);
}

#[tokio::test(start_paused = true)]
async fn holder_that_slept_past_its_lease_finds_it_ended_before_any_timer_runs() {
    let (_store, lease) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease).await;
    let pass = lease.fence.enter().unwrap();
    advance(TIME).await;
    assert!(!pass.is_open() && !lease.accepts(7));
}

#[tokio::test(start_paused = true)]
async fn newer_holder_ends_the_use_at_once() {
    let (store, lease) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease).await;
    let pass = lease.fence.enter().unwrap();
    store.set(other(8));
    let seen = lease.view().version;
    lease.refresh(seen, TIME).await;
    assert!(pass.over().is_cancelled() && lease.own_epoch().is_none());
    sleep(S).await;
    assert!(matches!(
        lease.view().holder,
        LeaseHolder::Other(LeaseOwner { epoch: 8, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn lease_is_not_taken_while_a_child_of_before_runs() {
    let (store, lease) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease).await;
    let child = lease.fence.enter().unwrap().child_mark();
    store.set(LeaseState::Free { after: S });
    sleep(TIME).await;
    store.intents();
    sleep(TIME).await;
    assert!(
        store
            .intents()
            .iter()
            .all(|intent| *intent == LeaseIntent::Look)
    );
    drop(child);
    sleep(TIME).await;
    assert_eq!(store.intents().last(), Some(&LeaseIntent::Take));
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_given_back_after_its_children_and_never_taken_again() {
    let (store, lease) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease).await;
    let child = lease.fence.enter().unwrap().child_mark();
    let releasing = lease.clone();
    let released = tokio::spawn(async move { releasing.release(false).await });
    sleep(S).await;
    assert!(!store.intents().contains(&LeaseIntent::Release));
    store.set(LeaseState::Free {
        after: Duration::ZERO,
    });
    drop(child);
    released.await.unwrap();
    assert!(store.intents().contains(&LeaseIntent::Release));
    sleep(TIME).await;
    let later = store.intents();
    assert!(!later.is_empty() && later.iter().all(|intent| *intent == LeaseIntent::Look));
}

#[tokio::test(start_paused = true)]
async fn handed_over_lease_is_neither_renewed_nor_released() {
    let (store, lease_before) = lease(LeaseState::Own { epoch: 7 });
    keep(&lease_before).await;
    let pass = lease_before.fence.enter().unwrap();
    let (token, epoch) = lease_before.hand_over().unwrap();
    store.intents();
    lease_before.release(true).await;
    sleep(TIME).await;
    assert_eq!(store.intents(), []);
    assert!(!pass.over().is_cancelled(), "the relay goes on");
    assert!(!lease_before.accepts(7) && lease_before.streams_end().is_cancelled());

    let (next, lease_after) = lease(other(7));
    keep(&lease_after).await;
    next.set(LeaseState::Own { epoch: 7 });
    assert!(lease_after.adopt(token, epoch, S).await);
    assert_eq!(next.tokens().last(), Some(&token));
    assert!(lease_after.accepts(7));
}

#[tokio::test(start_paused = true)]
async fn answer_that_comes_after_a_hand_over_changes_nothing() {
    let late_answers = [
        LeaseState::Own { epoch: 7 },
        LeaseState::Free { after: S },
        other(8),
    ];
    for late in late_answers {
        let (store, lease) = lease(LeaseState::Own { epoch: 7 });
        keep(&lease).await;
        let pass = lease.fence.enter().unwrap();
        store.hangs.send_replace(true);
        sleep(TIME / 3 + S).await;
        assert_eq!(store.intents().len(), 2, "the renewal waits");
        lease.hand_over().unwrap();
        store.set(late.clone());
        store.hangs.send_replace(false);
        sleep(S).await;
        assert!(!pass.over().is_cancelled(), "the relay goes on: {late:?}");
        assert_eq!(lease.own_epoch(), Some(7), "{late:?}");
        assert_eq!(lease.control.lock().ending, None, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lease_taken_before_that_of_the_process_before_arrives_is_kept() {
    let (store, lease) = lease(LeaseState::Own { epoch: 8 });
    keep(&lease).await;
    assert!(lease.adopt(LeaseToken([9; 8]), 7, S).await);
    sleep(TIME).await;
    assert_keeps_first_token(&store);
    assert!(lease.accepts(8));
}

#[tokio::test(start_paused = true)]
async fn lease_taken_while_that_of_the_process_before_arrives_is_kept() {
    let (store, lease) = lease(LeaseState::Own { epoch: 8 });
    store.hangs.send_replace(true);
    keep(&lease).await;
    let adopting = lease.clone();
    let adopted = tokio::spawn(async move { adopting.adopt(LeaseToken([9; 8]), 7, TIME).await });
    sleep(S).await;
    store.hangs.send_replace(false);
    assert!(adopted.await.unwrap());
    sleep(TIME).await;
    assert_keeps_first_token(&store);
    assert!(lease.accepts(8));
}

#[tokio::test(start_paused = true)]
async fn child_of_the_process_before_is_imported_after_the_lease() {
    let (store, lease) = lease(other(7));
    keep(&lease).await;
    // For each imported child, true if the fence was open.
    let imports = Arc::<Mutex<Vec<bool>>>::default();
    let (seen, fence) = (imports.clone(), lease.fence.clone());
    let local = HandoverUpstream::new(UpstreamId::new("memory").unwrap(), move |_| {
        seen.lock().push(fence.is_open());
        Box::pin(std::future::ready(()))
    });
    let local = Arc::new(local);
    let import = |session| {
        let (lease, local) = (lease.clone(), local.clone());
        tokio::spawn(async move { import_session(&lease, local, session).await })
    };
    let child = import(HandoverSession {
        description: r#"{"nth":0}"#.into(),
        descriptors: Vec::new(),
    });
    // The clock is paused: it moves on only once the import waits.
    sleep(Duration::from_millis(1)).await;
    store.set(LeaseState::Own { epoch: 7 });
    let moved = exported_lease(LeaseToken([9; 8]), 7).unwrap();
    import(moved).await.unwrap();
    child.await.unwrap();
    assert_eq!(*imports.lock(), [true]);
}

fn assert_keeps_first_token(store: &FakeStore) {
    let tokens = store.tokens();
    assert!(tokens.len() > 1);
    assert!(tokens.iter().all(|token| *token == tokens[0]));
}
