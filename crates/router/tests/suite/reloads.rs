//! Reloads and the shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use weir_catalog::ListChange;
use weir_core::CapabilityClass;
use weir_core::endpoint::NamePrefix;
use weir_core::names::EndpointId;
use weir_core::upstream::ListKind;

use crate::support::{
    CatalogWorld, GateRule, ScriptedUpstream, aggregate, endpoint, exposed, id, principal,
    transparent,
};

// Proves G02.
#[tokio::test(start_paused = true)]
async fn upstream_removed_by_reload_is_unlisted_announced_and_retired() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b"]),
    );
    let world = CatalogWorld::of(&[&one, &two]);
    world.settled().await;
    let mut changes = world.changes();
    world.show(&[&one], NamePrefix::Always, 1000);
    assert_eq!(exposed(&world.view()), ["one__a"], "at once");
    assert_eq!(
        timeout(Duration::from_secs(1), changes.changed()).await,
        Ok(ListChange::Changed)
    );
    world.rest().await;
    assert_eq!(
        (
            ScriptedUpstream::count(&one.retired),
            ScriptedUpstream::count(&two.retired)
        ),
        (0, 1)
    );
    two.tell();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        ScriptedUpstream::count(&two.walks),
        1,
        "nobody follows it any more"
    );
}

// Proves G04.
#[tokio::test(start_paused = true)]
async fn a_thousand_reloads_keep_watchers_and_lists_and_leak_nothing() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b"]),
    );
    let world = CatalogWorld::of(&[&one, &two]);
    world.settled().await;
    let mut changes = world.changes();
    for _ in 0..1000 {
        world.show(&[&one, &two], NamePrefix::Always, 1000);
    }
    world.rest().await;
    assert_eq!(
        (
            ScriptedUpstream::count(&one.opened),
            ScriptedUpstream::count(&one.walks)
        ),
        (1, 1)
    );
    assert!(
        timeout(Duration::from_secs(5), changes.changed())
            .await
            .is_err(),
        "nothing changed for clients"
    );
    // The fake, the catalog's own source, its watcher and its watch.
    assert!(
        std::sync::Arc::strong_count(&one) <= 4,
        "{}",
        std::sync::Arc::strong_count(&one)
    );
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_renames_and_a_class_that_is_asked_for_agree() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let class = CapabilityClass::ROOTS;
    for prefix in [NamePrefix::None, NamePrefix::Always, NamePrefix::None] {
        world.show(&[&fake], prefix, 1000);
        let view = world
            .catalog
            .settled_view(&endpoint(), ListKind::Tools, class)
            .await;
        assert_eq!(
            (exposed(&view), view.version),
            (exposed(&world.view()), world.view().version)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_with_new_settings_shows_its_list_until_the_new_one_is_known() {
    let old = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&old]);
    let before = world.settled().await.version;
    let mut changes = world.changes();
    let new = ScriptedUpstream::new("up", &["a"]);
    new.set(|script| script.page_delay = Duration::from_millis(500));
    world.show(&[&new], NamePrefix::Always, 1000);
    let view = world.view();
    assert_eq!(
        (view.version, view.missing[0].reason.as_str(), view.settled),
        (before, "stale", false)
    );
    let view = world.settled().await;
    assert_eq!(
        (view.version, view.missing.len(), view.settled),
        (before, 0, true)
    );
    assert!(
        timeout(Duration::from_secs(5), changes.changed())
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_renames_tells_clients_and_one_that_ends_the_endpoint_says_so() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let mut changes = world.changes();
    world.show(&[&fake], NamePrefix::None, 1000);
    assert_eq!(changes.changed().await, ListChange::Changed);
    assert_eq!(exposed(&world.view()), ["a"]);
    world.apply(vec![transparent("up")], &[&fake]);
    assert_eq!(changes.changed().await, ListChange::EndpointGone);
    assert!(
        world
            .catalog
            .view(&endpoint(), ListKind::Tools, CapabilityClass::BASE)
            .is_none()
    );
    assert_eq!(
        world
            .catalog
            .settled_view(&endpoint(), ListKind::Tools, CapabilityClass::BASE)
            .await
            .items
            .len(),
        0
    );
    assert_eq!(world.changes().changed().await, ListChange::EndpointGone);
    assert_eq!(ScriptedUpstream::count(&fake.opened), 1);
}

#[tokio::test(start_paused = true)]
async fn endpoints_come_in_config_order_and_strange_upstreams_are_left_out() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    let world = CatalogWorld::empty(weir_catalog::CatalogSettings::default());
    world.apply(
        vec![
            transparent("up"),
            aggregate(&["nobody", "up"], NamePrefix::Always, 1000),
        ],
        &[&fake],
    );
    let paths: Vec<String> = world
        .catalog
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.id.to_string())
        .collect();
    assert_eq!(paths, ["/mcp/up", "/mcp"]);
    assert_eq!(exposed(&world.settled().await), ["up__a"]);
    let who = principal("anybody");
    let about = world
        .catalog
        .about(&endpoint(), CapabilityClass::BASE, &who);
    assert_eq!(about.len(), 1);
}

/// An upstream in whose session this task runs.
fn with_task(upstream: &str, task: &str) -> Arc<ScriptedUpstream> {
    let upstream = ScriptedUpstream::new(upstream, &["a"]);
    upstream.set(|script| script.running_tasks.push(task.to_owned()));
    upstream
}

/// The number of the present upstream `one`.
fn number(world: &CatalogWorld) -> u32 {
    let route = world.catalog.call_route(&endpoint(), &id("one"));
    route.unwrap().incarnation
}

/// The upstream that is asked about a task that began at the upstream of this number.
async fn asked(world: &CatalogWorld, number: u32, task: &str) -> Option<*const ()> {
    let owner = principal("ada");
    let catalog = &world.catalog;
    let upstream = catalog.upstream_of_task(&id("one"), number, &owner, task)?;
    Some(Arc::as_ptr(&upstream).cast())
}

fn address(upstream: &Arc<ScriptedUpstream>) -> Option<*const ()> {
    Some(Arc::as_ptr(upstream).cast())
}

#[tokio::test(start_paused = true)]
async fn replaced_upstream_keeps_its_tasks_until_they_end() {
    let (before, after) = (with_task("one", "t1"), ScriptedUpstream::new("one", &["a"]));
    let world = CatalogWorld::of(&[&before]);
    world.settled().await;
    let first = number(&world);
    world.show(&[&after], NamePrefix::Always, 1000);
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert_eq!(ScriptedUpstream::count(&before.retired), 0);
    assert_eq!(asked(&world, first, "t1").await, address(&before));
    assert_eq!(asked(&world, first, "t2").await, address(&after));
    // Servers may give their tasks the same ids.
    let second = number(&world);
    assert_eq!(asked(&world, second, "t1").await, address(&after));
    before.set(|script| script.running_tasks.clear());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ScriptedUpstream::count(&before.retired), 1);
    assert_eq!(asked(&world, first, "t1").await, address(&after));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_server_that_moved_are_asked_about_at_its_new_url() {
    let (before, after) = (with_task("one", "t1"), ScriptedUpstream::new("one", &["a"]));
    let world = CatalogWorld::of(&[&before]);
    world.settled().await;
    let first = number(&world);
    world.show(&[&after], NamePrefix::Always, 1000);
    before.set(|script| script.down = true);
    assert_eq!(asked(&world, first, "t1").await, address(&after));
    before.set(|script| script.down = false);
    assert_eq!(asked(&world, first, "t1").await, address(&before));
    // Without a new URL, its failure is the answer.
    before.set(|script| script.down = true);
    world.show(&[], NamePrefix::Always, 1000);
    assert_eq!(asked(&world, first, "t1").await, address(&before));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_the_process_before_run_in_the_first_upstream() {
    let upstreams = [with_task("one", "t1"), with_task("one", "t1")];
    let last = ScriptedUpstream::new("one", &["a"]);
    let world = CatalogWorld::of(&[&upstreams[0]]);
    world.settled().await;
    // That process gave its own numbers.
    let earlier = number(&world).wrapping_add(1);
    assert_eq!(asked(&world, earlier, "t1").await, address(&upstreams[0]));
    for upstream in [&upstreams[1], &last] {
        world.show(&[upstream], NamePrefix::Always, 1000);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(asked(&world, earlier, "t1").await, address(&upstreams[0]));
        assert_eq!(asked(&world, earlier, "t2").await, address(upstream));
    }
}

#[tokio::test(start_paused = true)]
async fn removed_upstream_keeps_its_tasks_as_long_as_its_calls() {
    let (one, two) = (with_task("one", "t1"), ScriptedUpstream::new("two", &["b"]));
    let world = CatalogWorld::of(&[&one, &two]);
    world.settled().await;
    let first = number(&world);
    world.show(&[&two], NamePrefix::Always, 1000);
    let removed_tool = || {
        world
            .catalog
            .removed_tool(&endpoint(), &id("one"), "one__a")
    };
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(asked(&world, first, "t1").await, address(&one));
    assert!(removed_tool().is_some());
    let elsewhere = EndpointId::new("/other");
    let of_other = world.catalog.removed_tool(&elsewhere, &id("one"), "one__a");
    assert!(of_other.is_none(), "an endpoint without the upstream");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(ScriptedUpstream::count(&one.retired), 1);
    assert_eq!(asked(&world, first, "t1").await, None);
    assert!(removed_tool().is_none());
}

#[tokio::test(start_paused = true)]
async fn many_reloads_leave_a_bounded_number_of_upstreams_with_tasks() {
    let all: Vec<_> = (0..20)
        .map(|nth| with_task("one", &format!("t{nth}")))
        .collect();
    let world = CatalogWorld::of(&[&all[0]]);
    let mut numbers = Vec::new();
    for next in &all[1..] {
        numbers.push(number(&world));
        world.show(&[next], NamePrefix::Always, 1000);
    }
    world.rest().await;
    let retired = all.iter().map(|one| ScriptedUpstream::count(&one.retired));
    // The last one is in force.
    assert_eq!(retired.sum::<usize>(), 11);
    assert_eq!(asked(&world, numbers[18], "t18").await, address(&all[18]));
    assert_eq!(asked(&world, numbers[0], "t0").await, address(&all[19]));
    let shutdown = world.catalog.shutdown();
    let in_time = timeout(Duration::from_secs(1), shutdown).await;
    assert!(in_time.is_ok(), "the shutdown waits for tasks");
}

#[tokio::test(start_paused = true)]
async fn the_shutdown_ends_every_task_and_retires_every_upstream() {
    let (one, hanging) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("hanging", &["b"]),
    );
    hanging.set(|script| script.hang = true);
    let world = CatalogWorld::of(&[&one, &hanging]);
    let mut changes = world.changes();
    world.rest().await;
    world.catalog.shutdown().await;
    assert_eq!(
        (
            ScriptedUpstream::count(&one.retired),
            ScriptedUpstream::count(&hanging.retired)
        ),
        (1, 1)
    );
    while changes.changed().await != ListChange::EndpointGone {}
    world.show(&[&one], NamePrefix::Always, 1000);
    assert!(
        world.catalog.endpoints().is_empty(),
        "a reload after the end does nothing"
    );
    drop(world);
    assert_eq!(std::sync::Arc::strong_count(&one), 1);
}

#[tokio::test(start_paused = true)]
async fn items_of_a_removed_upstream_are_dropped_once_no_cursor_needs_them() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b", "c"]),
    );
    let world = CatalogWorld::of(&[&one, &two]);
    let view = world.settled().await;
    let removed = std::sync::Arc::downgrade(&view.items[1].tool);
    drop(view);
    // A part that one audience sees is kept beside the whole.
    world.gate.rule("bob", "c", GateRule::Hidden);
    let page = world.page(&principal("bob"), None).await.unwrap();
    assert_eq!(exposed(&page.view), ["one__a", "two__b"]);
    drop(page);
    world.show(&[&one], NamePrefix::Always, 1000);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(removed.upgrade().is_some(), "a cursor may still come back");
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(removed.upgrade().is_none());
}
