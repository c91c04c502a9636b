//! Tests of the judgement of replicas.

use super::*;

const OTHER: ReplicaId = ReplicaId([2; 8]);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn listed(stamp: u64, age: u64) -> ListedReplica {
    ListedReplica {
        id: OTHER,
        stamp: stamp.to_string(),
        age: seconds(age),
        info: ReplicaInfo {
            address: "10.0.0.2:7946".into(),
            version: "1".into(),
            config: "c".into(),
            keys: vec![1],
            fingerprints: Vec::new(),
            sealing_key: None,
            opens_all: true,
            draining: false,
            frames: None,
        },
    }
}

fn reply(born: &str, replicas: Vec<ListedReplica>) -> HeartbeatReply {
    HeartbeatReply {
        born: born.to_owned(),
        own_silence: Some(HEARTBEAT_INTERVAL),
        replicas,
    }
}

/// Applies one reply every interval from `from` on; returns the state after each.
fn watch(view: &mut RegistryView, from: u64, replies: Vec<HeartbeatReply>) -> Vec<OwnerState> {
    let times = (from..).step_by(2).map(seconds);
    let apply = |(at, reply)| {
        view.apply(reply, at, "mine");
        view.state(&OTHER)
    };
    times.zip(replies).map(apply).collect()
}

#[test]
fn silent_replica_ends_after_its_time_and_comes_back_with_a_heartbeat() {
    use OwnerState::{Ended, Live, Unknown};
    let mut view = RegistryView::default();
    assert_eq!(view.state(&OTHER), Unknown);
    let same = |age| reply("b", vec![listed(1, age)]);
    let states = watch(&mut view, 0, vec![same(0), same(2), same(4), same(6)]);
    assert_eq!(states, [Live, Live, Live, Ended]);
    assert_eq!(view.address(&OTHER), None);
    let states = watch(&mut view, 8, vec![reply("b", vec![listed(2, 0)])]);
    assert_eq!(states, [Live]);
    let states = watch(&mut view, 10, vec![reply("b", vec![])]);
    assert_eq!(states, [Unknown]);
}

#[test]
fn unreachable_replica_is_ended_until_its_next_heartbeat() {
    use OwnerState::{Ended, Live};
    let mut view = RegistryView::default();
    watch(&mut view, 0, vec![reply("b", vec![listed(1, 0)])]);
    view.report_unreachable(&OTHER);
    assert_eq!(view.state(&OTHER), Ended);
    let states = watch(
        &mut view,
        2,
        vec![
            reply("b", vec![listed(1, 2)]),
            reply("b", vec![listed(2, 0)]),
        ],
    );
    assert_eq!(states, [Ended, Live]);
}

#[test]
fn draining_replica_is_ended() {
    let mut view = RegistryView::default();
    let mut draining = listed(1, 0);
    draining.info.draining = true;
    watch(&mut view, 0, vec![reply("b", vec![draining])]);
    assert_eq!(view.state(&OTHER), OwnerState::Ended);
    assert_eq!(view.others(&ReplicaId([1; 8])).len(), 1);
}

#[test]
fn outage_of_the_store_ends_no_replica() {
    use OwnerState::{Ended, Live};
    let mut view = RegistryView::default();
    watch(&mut view, 0, vec![reply("b", vec![listed(1, 0)])]);
    // 58 seconds later the other one has sent no heartbeat, like this one.
    let later = |age| reply("b", vec![listed(1, age)]);
    let states = watch(
        &mut view,
        60,
        vec![later(60), later(62), later(64), later(66)],
    );
    assert_eq!(states, [Live, Live, Live, Ended]);
}

#[test]
fn old_heartbeat_at_the_first_look_is_watched_for_one_interval() {
    use OwnerState::{Ended, Live};
    let mut view = RegistryView::default();
    let states = watch(
        &mut view,
        0,
        vec![
            reply("b", vec![listed(1, 40)]),
            reply("b", vec![listed(1, 42)]),
        ],
    );
    assert_eq!(states, [Live, Ended]);
}

#[test]
fn emptied_store_is_noticed_and_keeps_known_replicas() {
    let mut view = RegistryView::default();
    let first = view.apply(reply("old", vec![listed(1, 0)]), seconds(0), "mine");
    assert_eq!(first, ViewChange::default());
    assert!(!view.is_emptied_lately(seconds(0)));
    let mut emptied = reply("new", vec![]);
    emptied.own_silence = None;
    let change = view.apply(emptied, seconds(2), "mine");
    assert!(change.was_emptied && !change.was_interrupted);
    assert_eq!(view.state(&OTHER), OwnerState::Live);
    assert!(view.is_emptied_lately(seconds(11)));
    view.apply(reply("new", vec![]), seconds(12), "mine");
    assert_eq!(view.state(&OTHER), OwnerState::Unknown);
}

#[test]
fn store_without_data_at_the_start_counts_as_emptied() {
    let mut view = RegistryView::default();
    let change = view.apply(reply("mine", vec![]), seconds(1), "mine");
    assert_eq!(change, ViewChange::default());
    assert!(view.is_emptied_lately(seconds(2)));
}

#[test]
fn interruption_of_the_own_heartbeat_is_noticed() {
    let mut view = RegistryView::default();
    view.apply(reply("b", vec![]), seconds(0), "mine");
    let mut late = reply("b", vec![]);
    late.own_silence = Some(seconds(7));
    assert!(view.apply(late.clone(), seconds(7), "mine").was_interrupted);
    late.own_silence = None;
    assert!(view.apply(late, seconds(9), "mine").was_interrupted);
}

#[test]
fn live_replica_with_another_digest_is_config_drift() {
    let own = ReplicaId([1; 8]);
    let mut view = RegistryView::default();
    view.apply(reply("b", vec![listed(1, 0)]), seconds(0), "mine");
    assert!(view.has_other_config(&own, "d") && !view.has_other_config(&own, "c"));
    assert!(!view.has_other_config(&OTHER, "d"));
    view.report_unreachable(&OTHER);
    assert!(!view.has_other_config(&own, "d"));
}

#[test]
fn draining_replica_owns_no_session_and_is_reached_until_its_end() {
    use OwnerState::{Ended, Unknown};
    let mut view = RegistryView::default();
    let mut drained = listed(1, 0);
    drained.info.draining = true;
    let states = watch(&mut view, 0, vec![reply("b", vec![drained])]);
    assert_eq!(states, [Ended]);
    assert!(view.address(&OTHER).is_some());
    assert_eq!(watch(&mut view, 2, vec![reply("b", vec![])]), [Unknown]);
    assert_eq!(view.address(&OTHER), None);
}

#[test]
fn view_survives_its_way_to_another_process_with_another_clock() {
    use OwnerState::{Ended, Live};
    let third = ReplicaId([3; 8]);
    let mut view = RegistryView::default();
    assert!(view.export(seconds(1)).is_none());
    let other = ListedReplica {
        id: third.clone(),
        ..listed(1, 0)
    };
    let both = vec![listed(1, 0), other];
    watch(&mut view, 100, vec![reply("a", vec![]), reply("b", both)]);
    view.report_unreachable(&third);
    let moved = serde_json::to_string(&view.export(seconds(105))).unwrap_or_default();
    let moved = serde_json::from_str(&moved).unwrap_or_else(|error| panic!("{error}"));
    let mut view = RegistryView::import(moved, seconds(10));
    assert_eq!((view.state(&OTHER), view.state(&third)), (Live, Ended));
    assert_eq!(view.address(&OTHER).as_deref(), Some("10.0.0.2:7946"));
    assert_eq!(
        (view.asked_at(), view.born()),
        (Some(seconds(7)), Some("b"))
    );
    assert!(view.is_emptied_lately(seconds(16)) && !view.is_emptied_lately(seconds(18)));
    // The replica goes on being watched: it was silent for three seconds.
    let states = watch(&mut view, 10, vec![reply("b", vec![listed(1, 6)])]);
    assert_eq!(states, [Live]);
    let states = watch(&mut view, 13, vec![reply("b", vec![listed(1, 9)])]);
    assert_eq!(states, [Ended]);
    let late = RegistryView::import(
        view.export(seconds(20)).unwrap_or_else(|| panic!()),
        seconds(1),
    );
    assert_eq!(late.asked_at(), Some(seconds(0)));
}
