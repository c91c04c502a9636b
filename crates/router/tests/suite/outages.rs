//! Upstreams that are slow, down or flapping do not delay clients of the others.

use std::time::Duration;

use tokio::time::Instant;
use weir_catalog::View;
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;

use crate::support::{CatalogWorld, ScriptedUpstream, endpoint, exposed};

fn missing(view: &View) -> Vec<(&str, &str)> {
    view.missing
        .iter()
        .map(|missing| (missing.upstream.as_str(), missing.reason.as_str()))
        .collect()
}

// Proves R141, E15.
#[tokio::test(start_paused = true)]
async fn a_hanging_upstream_costs_the_first_list_two_seconds_and_later_ones_nothing() {
    let (good, bad) = (
        ScriptedUpstream::new("good", &["a"]),
        ScriptedUpstream::new("bad", &["b"]),
    );
    bad.set(|script| script.hang = true);
    let began = Instant::now();
    let world = CatalogWorld::of(&[&bad, &good]);
    let view = world.settled().await;
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(
        (exposed(&view), missing(&view)),
        (vec!["good__a"], vec![("bad", "pending")])
    );
    assert_eq!((view.settled, view.ttl_ms()), (false, 0));
    let again = Instant::now();
    world.settled().await;
    assert_eq!(again.elapsed(), Duration::ZERO);
    // When its list comes at last, clients are notified.
    let mut changes = world.changes();
    bad.set(|script| script.hang = false);
    changes.changed().await;
    assert_eq!(
        (exposed(&world.view()), world.view().missing.len()),
        (vec!["bad__b", "good__a"], 0)
    );
}

// Proves R141, R143.
#[tokio::test(start_paused = true)]
async fn upstream_with_too_slow_list_pages_is_marked_down() {
    let (good, drip) = (
        ScriptedUpstream::new("good", &["a"]),
        ScriptedUpstream::new("drip", &["b", "c", "d", "e"]),
    );
    drip.set(|script| (script.page, script.page_delay) = (1, Duration::from_secs(20)));
    let world = CatalogWorld::of(&[&good, &drip]);
    assert_eq!(exposed(&world.settled().await), ["good__a"]);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(missing(&world.view()), [("drip", "down")]);
}

// Proves E01.
#[tokio::test(start_paused = true)]
async fn a_refusing_upstream_does_not_make_the_first_list_wait() {
    let (good, bad) = (
        ScriptedUpstream::new("good", &["a"]),
        ScriptedUpstream::new("bad", &["b"]),
    );
    bad.set(|script| script.refuse = true);
    let began = Instant::now();
    let view = CatalogWorld::of(&[&good, &bad]).settled().await;
    assert!(began.elapsed() < Duration::from_millis(100));
    assert_eq!(
        (exposed(&view), missing(&view)),
        (vec!["good__a"], vec![("bad", "down")])
    );
}

// Proves E15, R165.
#[tokio::test(start_paused = true)]
async fn the_last_good_items_stay_for_the_grace_time_and_then_go() {
    let (good, bad) = (
        ScriptedUpstream::new("good", &["a"]),
        ScriptedUpstream::new("bad", &["b"]),
    );
    let world = CatalogWorld::of(&[&good, &bad]);
    world.settled().await;
    let mut changes = world.changes();
    bad.set(|script| script.refuse = true);
    bad.cut();
    tokio::time::sleep(Duration::from_secs(299)).await;
    let view = world.view();
    assert_eq!(
        (exposed(&view), missing(&view)),
        (vec!["good__a", "bad__b"], vec![("bad", "stale")])
    );
    assert_eq!(view.ttl_ms(), 0);
    changes.changed().await;
    let view = world.view();
    assert_eq!(
        (exposed(&view), missing(&view)),
        (vec!["good__a"], vec![("bad", "down")])
    );
    assert!(
        world
            .catalog
            .offers(&endpoint(), ListKind::Tools, CapabilityClass::BASE)
    );
    bad.set(|script| script.refuse = false);
    changes.changed().await;
    assert_eq!(missing(&world.view()), []);
}

// Proves E16.
#[tokio::test(start_paused = true)]
async fn empty_list_of_a_full_outage_is_not_cacheable() {
    let bad = ScriptedUpstream::new("bad", &["b"]);
    bad.set(|script| script.refuse = true);
    let world = CatalogWorld::of(&[&bad]);
    let view = world.settled().await;
    assert_eq!(
        (view.items.len(), view.ttl_ms(), missing(&view)),
        (0, 0, vec![("bad", "down")])
    );
    assert!(
        world
            .catalog
            .offers(&endpoint(), ListKind::Tools, CapabilityClass::BASE),
        "an upstream that is not known may have tools"
    );
    let mut changes = world.changes();
    bad.set(|script| script.refuse = false);
    changes.changed().await;
    assert_eq!(exposed(&world.view()), ["bad__b"]);
}

// Proves E11.
#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_tried_with_growing_waits() {
    let bad = ScriptedUpstream::new("bad", &["b"]);
    bad.set(|script| script.refuse = true);
    let world = CatalogWorld::of(&[&bad]);
    world.settled().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = ScriptedUpstream::count(&bad.opened);
    // Full jitter halves the mean: 30 s waits on average 15, after a short rise.
    assert!((25..=90).contains(&tries), "{tries}");
}

// Proves E14.
#[tokio::test(start_paused = true)]
async fn a_flapping_upstream_changes_nothing_for_clients_and_is_not_hammered() {
    let (good, flap) = (
        ScriptedUpstream::new("good", &["a"]),
        ScriptedUpstream::new("flap", &["b"]),
    );
    let world = CatalogWorld::of(&[&good, &flap]);
    let before = world.settled().await;
    let mut changes = world.changes();
    let flapping = async {
        for _ in 0..240 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            flap.cut();
        }
    };
    tokio::select! {
        change = changes.changed() => panic!("{change:?}"),
        () = flapping => {}
    }
    assert_eq!(world.view().version, before.version);
    assert!(
        ScriptedUpstream::count(&flap.opened) < 40,
        "{}",
        ScriptedUpstream::count(&flap.opened)
    );
}

// Proves R204.
#[tokio::test(start_paused = true)]
async fn a_lost_stream_is_opened_again_and_taken_for_a_possible_change() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let mut changes = world.changes();
    fake.set_tools(&["a", "b"]);
    fake.cut();
    changes.changed().await;
    assert_eq!(exposed(&world.view()), ["up__a", "up__b"]);
}

#[tokio::test(start_paused = true)]
async fn upstream_that_is_lost_while_the_process_ends_stays_in_the_lists() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    world.catalog.begin_ending();
    let opened = ScriptedUpstream::count(&fake.opened);
    fake.cut();
    // Longer than a lost upstream stays in the lists.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(missing(&world.view()), []);
    assert_eq!(exposed(&world.view()), ["up__a"]);
    assert_eq!(ScriptedUpstream::count(&fake.opened), opened);
    // The next process did not start: this one goes on.
    let mut changes = world.changes();
    fake.set_tools(&["a", "b"]);
    world.catalog.abort_ending();
    changes.changed().await;
    assert_eq!(exposed(&world.view()), ["up__a", "up__b"]);
}
