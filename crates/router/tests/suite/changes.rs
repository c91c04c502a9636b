//! From an upstream's change to the clients that see it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};
use weir_catalog::ListChange;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::upstream::OutboundCall;
use weir_core::{Failure, FailureKind, Reply};

use crate::awaited_tasks::invalid_params;
use crate::calls::RouterWorld;
use crate::support::{CatalogWorld, ScriptedUpstream, exposed};

/// Counts announcements until a quiet time; returns their times.
async fn collect(world: &CatalogWorld, quiet: Duration) -> Vec<Instant> {
    let mut changes = world.changes();
    let mut times = Vec::new();
    while let Ok(ListChange::Changed) = timeout(quiet, changes.changed()).await {
        times.push(Instant::now());
    }
    times
}

// Proves R201, R162.
#[tokio::test(start_paused = true)]
async fn a_real_change_is_announced_at_once_and_the_list_is_new_then() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut changes = world.changes();
    let began = Instant::now();
    fake.set_tools(&["a", "b"]);
    fake.tell();
    assert_eq!(changes.changed().await, ListChange::Changed);
    assert!(began.elapsed() < Duration::from_millis(50));
    assert_eq!(exposed(&world.view()), ["up__a", "up__b"]);
}

// Proves R203, D13.
#[tokio::test(start_paused = true)]
async fn no_announcement_where_nothing_visible_changed() {
    let (seen, other) = (
        ScriptedUpstream::new("seen", &["a"]),
        ScriptedUpstream::new("other", &["b"]),
    );
    let world = CatalogWorld::empty(weir_catalog::CatalogSettings::default());
    let endpoint =
        crate::support::aggregate(&["seen"], weir_core::endpoint::NamePrefix::Always, 1000);
    world.apply(
        vec![endpoint, crate::support::transparent("other")],
        &[&seen, &other],
    );
    world.settled().await;
    world.rest().await;
    let mut changes = world.changes();
    other.set_tools(&["b", "c"]);
    other.tell();
    seen.tell();
    assert!(
        timeout(Duration::from_secs(30), changes.changed())
            .await
            .is_err()
    );
}

// Proves R202, D11.
#[tokio::test(start_paused = true)]
async fn a_thousand_changes_a_second_become_few_walks_and_few_notices_and_the_last_arrives() {
    let fake = ScriptedUpstream::new("up", &["t"]);
    let world = Arc::new(CatalogWorld::of(&[&fake]));
    world.settled().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (walks, began) = (ScriptedUpstream::count(&fake.walks), Instant::now());
    let storm = async {
        for at in 0..5000 {
            fake.set_tools(&[format!("t{at}")]);
            fake.tell();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fake.set_tools(&["last"]);
        fake.tell();
    };
    let (times, ()) = tokio::join!(collect(&world, Duration::from_secs(20)), storm);
    assert_eq!(exposed(&world.view()), ["up__last"]);
    let walks = ScriptedUpstream::count(&fake.walks) - walks;
    assert!(walks <= 12, "{walks} walks");
    assert!((2..=12).contains(&times.len()), "{} notices", times.len());
    assert!(
        times
            .windows(2)
            .all(|two| two[1] - two[0] >= Duration::from_millis(500))
    );
    assert!(
        times[0] - began < Duration::from_millis(50),
        "the first change is told at once"
    );
}

// Proves R202.
#[tokio::test(start_paused = true)]
async fn an_upstream_that_never_stops_changing_is_walked_ever_more_slowly() {
    let fake = ScriptedUpstream::new("up", &["t"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    for at in 0..120_000 {
        fake.set_tools(&[format!("t{at}")]);
        fake.tell();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let walks = ScriptedUpstream::count(&fake.walks);
    assert!((40..=60).contains(&walks), "{walks} walks in two minutes");
    fake.set_tools(&["last"]);
    fake.tell();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(exposed(&world.view()), ["up__last"]);
}

// Proves D12.
#[tokio::test(start_paused = true)]
async fn fifty_upstreams_that_change_at_once_make_one_notice_now_and_one_merged() {
    let fakes: Vec<_> = (0..50)
        .map(|at| ScriptedUpstream::new(&format!("u{at}"), &["a"]))
        .collect();
    let world = CatalogWorld::of(&fakes.iter().collect::<Vec<_>>());
    world.settled().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let change = async {
        for fake in &fakes {
            fake.set_tools(&["a", "b"]);
            fake.tell();
        }
    };
    let (times, ()) = tokio::join!(collect(&world, Duration::from_secs(5)), change);
    assert!((1..=2).contains(&times.len()), "{}", times.len());
    assert_eq!(world.view().items.len(), 100);
}

// Proves D12.
#[tokio::test(start_paused = true)]
async fn upstreams_that_change_one_after_the_other_share_a_window() {
    let fakes: Vec<_> = (0..40)
        .map(|at| ScriptedUpstream::new(&format!("u{at}"), &["a"]))
        .collect();
    let world = CatalogWorld::of(&fakes.iter().collect::<Vec<_>>());
    world.settled().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let change = async {
        for fake in &fakes {
            fake.set_tools(&["a", "b"]);
            fake.tell();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (times, ()) = tokio::join!(collect(&world, Duration::from_secs(5)), change);
    assert!(
        times
            .windows(2)
            .all(|two| two[1] - two[0] >= Duration::from_millis(500))
    );
    assert_eq!((times.len(), world.view().items.len()), (5, 80));
}

#[tokio::test(start_paused = true)]
async fn change_and_its_reversal_within_a_window_are_announced() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    let first = world.settled().await.version;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut changes = world.changes();
    fake.set_tools(&["b"]);
    fake.tell();
    changes.changed().await;
    // A client that lists now sees `b`, and has to be notified that it is `a` again.
    fake.set_tools(&["a"]);
    fake.tell();
    assert_eq!(
        timeout(Duration::from_secs(5), changes.changed()).await,
        Ok(ListChange::Changed)
    );
    assert_eq!(world.view().version, first);
}

#[tokio::test(start_paused = true)]
async fn nineteen_thousand_streams_hear_of_one_change() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    world.rest().await;
    assert!(size_of::<weir_catalog::ChangeReceiver>() <= 64);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..19_000 {
        let mut changes = world.changes();
        waiting.spawn(async move { changes.changed().await });
    }
    tokio::task::yield_now().await;
    fake.set_tools(&["b"]);
    fake.tell();
    let told = waiting.join_all().await;
    assert_eq!(
        told.iter()
            .filter(|change| **change == ListChange::Changed)
            .count(),
        19_000
    );
}

#[tokio::test(start_paused = true)]
async fn change_that_is_not_announced_is_found_within_two_hours() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    fake.set_tools(&["b"]);
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(exposed(&world.view()), ["up__b"]);
    assert!(ScriptedUpstream::count(&fake.walks) < 5, "it is no poll");
}

/// The answer of a server that does not have the tool: an error, or a result as SDKs make it.
fn unknown_tool(is_error: bool, outbound: &OutboundCall) -> Reply {
    if is_error {
        let error = FailureKind::Upstream(invalid_params("unknown tool"));
        return Reply::ended(Failure::new(error, "unknown tool"));
    }
    let text = format!("Unknown tool: {}", outbound.native);
    let result = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
    Reply::ended(ReplyEnd::Complete(Payload::Whole(
        result.to_string().into(),
    )))
}

#[tokio::test(start_paused = true)]
async fn calls_of_unknown_tools_have_the_list_read_again_at_most_once_each_poll() {
    for is_error in [true, false] {
        let fake = ScriptedUpstream::new("up", &["a", "b"]);
        fake.set(|script| {
            script.answer = Box::new(move |outbound| unknown_tool(is_error, &outbound));
        });
        let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
        world.world.settled().await;
        world.world.rest().await;
        fake.set_tools(&["b"]);
        world.call(json!({ "name": "up__a" })).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(exposed(&world.world.view()), ["up__b"], "{is_error}");
        let before = ScriptedUpstream::count(&fake.walks);
        for _ in 0..600 {
            world.call(json!({ "name": "up__b" })).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let walks = ScriptedUpstream::count(&fake.walks) - before;
        assert!(
            (1..12).contains(&walks),
            "{walks} in ten times the interval"
        );
    }
}
