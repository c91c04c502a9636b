//! Tests of the choice of the key that seals.

use super::*;

fn name(id: u8) -> SealingKeyName {
    SealerKey::new(id, &[id; 32]).name()
}

fn sealer(ids: &[u8]) -> Sealer {
    let keys = ids.iter().map(|id| SealerKey::new(*id, &[*id; 32]));
    Sealer::new(keys.collect())
}

/// A replica that serves with these keys.
fn other(ids: &[u8], sealing: u8) -> ListedKeys {
    let mut info = ReplicaInfo {
        address: "10.0.0.2:7946".into(),
        version: "1".into(),
        config: "c".into(),
        keys: Vec::new(),
        fingerprints: Vec::new(),
        sealing_key: None,
        opens_all: true,
        draining: false,
        frames: None,
    };
    let names: Vec<_> = ids.iter().copied().map(name).collect();
    info.set_keys(&names, name(sealing));
    ListedKeys {
        id: ReplicaId([2; 8]),
        info,
        is_silent: false,
    }
}

fn view(others: &[ListedKeys]) -> KeyView {
    KeyView {
        others: others.to_vec(),
        is_incomplete: false,
    }
}

/// A replica with these keys, after its first view.
fn joined(ids: &[u8], others: &[ListedKeys]) -> SealingRotation {
    let rotation = SealingRotation::new(sealer(ids), ReplicaId([1; 8]), Duration::ZERO);
    rotation.review(&view(others), Duration::ZERO);
    rotation
}

/// Returns the id of the key that seals, and of the one that is missing, after another view.
fn review(rotation: &SealingRotation, view: &KeyView) -> (u8, Option<u8>) {
    rotation.review(view, Duration::ZERO);
    let missing = rotation.missing().map(|missing| missing.key);
    (rotation.sealer.sealing_key().id, missing)
}

#[test]
fn new_key_seals_once_every_listed_replica_has_it() {
    let rotation = joined(&[1], &[other(&[1], 1), other(&[1], 1)]);
    rotation.replace_keys(vec![
        SealerKey::new(2, &[2; 32]),
        SealerKey::new(1, &[1; 32]),
    ]);
    let one_lacks_it = [other(&[2, 1], 1), other(&[1], 1)];
    assert_eq!(review(&rotation, &view(&one_lacks_it)), (1, None));
    assert_eq!(rotation.state.lock().waits_for, 1);
    // Neither a silence nor a store that lost its data is a proof of the end of a replica.
    let mut silent = one_lacks_it.clone();
    silent[1].is_silent = true;
    assert_eq!(review(&rotation, &view(&silent)), (1, None));
    let emptied = KeyView {
        others: Vec::new(),
        is_incomplete: true,
    };
    assert_eq!(review(&rotation, &emptied), (1, None));
    let all_have_it = [other(&[2, 1], 1), other(&[2, 1], 2)];
    assert_eq!(review(&rotation, &view(&all_have_it)), (2, None));
    assert_eq!(rotation.state.lock().waits_for, 0);
    // A replica that starts with the old keys does not undo the rotation.
    let stale = [other(&[2, 1], 2), other(&[1], 1)];
    assert_eq!(review(&rotation, &view(&stale)), (2, None));
}

#[test]
fn replica_that_joins_seals_with_a_key_that_all_have() {
    let newest = |others: &[ListedKeys]| joined(&[2, 1], others).sealer.sealing_key().id;
    assert_eq!(newest(&[other(&[2, 1], 2), other(&[2, 1], 1)]), 2);
    assert_eq!(newest(&[other(&[2, 1], 1), other(&[1], 1)]), 1);
    assert_eq!(newest(&[]), 2);
    let unseen = SealingRotation::new(sealer(&[2, 1]), ReplicaId([1; 8]), Duration::ZERO);
    assert_eq!(unseen.sealer.sealing_key().id, 1);
    // One that is not ready itself has no say.
    let mut unready = other(&[1], 1);
    unready.info.opens_all = false;
    assert_eq!(newest(&[other(&[2, 1], 2), unready]), 2);
}

#[test]
fn replica_that_lacks_a_sealing_key_is_not_ready_and_the_others_stay_ready() {
    let stranger = joined(&[3], &[other(&[2, 1], 2)]);
    assert_eq!(stranger.missing().map(|missing| missing.key), Some(2));
    let mut info = other(&[3], 3).info;
    stranger.describe(&mut info);
    assert!(!info.opens_all);
    let serving = joined(&[2, 1], &[other(&[2, 1], 2)]);
    let stranger_listed = ListedKeys {
        info,
        ..other(&[3], 3)
    };
    let both = [other(&[2, 1], 2), stranger_listed];
    assert_eq!(review(&serving, &view(&both)), (2, None));
    // It is ready with the key, and once no replica seals with it any more.
    stranger.replace_keys(vec![
        SealerKey::new(3, &[3; 32]),
        SealerKey::new(2, &[2; 32]),
    ]);
    assert_eq!(review(&stranger, &view(&[other(&[2, 1], 2)])), (2, None));
}

#[test]
fn of_two_that_serve_the_one_that_is_behind_is_not_ready() {
    let behind = joined(&[1], &[other(&[2, 1], 1)]);
    assert_eq!(review(&behind, &view(&[other(&[2, 1], 2)])), (1, Some(2)));
    assert_eq!(review(&behind, &view(&[])), (1, None));
    let apart = joined(&[1], &[other(&[1], 1)]);
    assert_eq!(review(&apart, &view(&[other(&[2], 2)])), (1, None));
    assert!(apart.state.lock().conflict.is_some());
}

#[test]
fn key_of_one_id_and_another_secret_is_another_key() {
    let mut different = other(&[1], 1);
    different.info.fingerprints = vec!["00".repeat(8)];
    let joining = joined(&[1], &[different.clone()]);
    assert_eq!(joining.missing().map(|missing| missing.key), Some(1));
    // A replica of an earlier version announces ids alone.
    different.info.fingerprints.clear();
    different.info.sealing_key = None;
    assert_eq!(review(&joining, &view(&[different])), (1, None));
}

#[test]
fn key_that_seals_anywhere_cannot_be_removed() {
    let rotation = joined(&[2, 1], &[other(&[2, 1], 2)]);
    let lost = |kept: &[u8], others: &[ListedKeys]| {
        let kept: Vec<_> = kept.iter().copied().map(name).collect();
        let lost = rotation.lost_use(&kept, others);
        lost.map(|lost| (lost.key, lost.replica.0[0]))
    };
    assert_eq!(lost(&[1], &[]), Some((2, 1)));
    assert_eq!(lost(&[2], &[other(&[2, 1], 1)]), Some((1, 2)));
    assert_eq!(lost(&[2], &[other(&[2, 1], 2), other(&[3], 3)]), None);
    assert_eq!(lost(&[3, 2, 1], &[other(&[2, 1], 1)]), None);
}
