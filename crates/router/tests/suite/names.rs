//! Names on aggregating and transparent endpoints, and order.

use std::time::Duration;

use serde_json::json;
use weir_catalog::{CatalogSettings, NameLookup};
use weir_core::endpoint::NamePrefix;
use weir_core::upstream::{ListKind, Upstream as _};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, failure, raw};
use crate::support::{CatalogWorld, ScriptedUpstream, exposed, id, transparent};

// Proves R111, B15.
#[tokio::test(start_paused = true)]
async fn tools_of_the_same_name_are_distinguished_by_configured_upstream_id() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["search", "only"]),
        ScriptedUpstream::new("two", &["search"]),
    );
    let world = CatalogWorld::of(&[&one, &two]);
    let view = world.settled().await;
    assert_eq!(exposed(&view), ["one__search", "one__only", "two__search"]);
    assert!(
        matches!(view.find("two__search"), NameLookup::Exposed(item) if item.tool.upstream == id("two"))
    );
    assert!(matches!(view.find("only"), NameLookup::Native(item) if &*item.exposed == "one__only"));
    assert!(matches!(view.find("search"), NameLookup::Ambiguous));
    assert!(matches!(view.find("One__search"), NameLookup::Unknown));
}

// Proves R112.
#[tokio::test(start_paused = true)]
async fn a_name_of_200_characters_is_listed_and_found() {
    let long = "x".repeat(200);
    let fake = ScriptedUpstream::new("files", &[&long, "größe/lesen"]);
    let view = CatalogWorld::of(&[&fake]).settled().await;
    assert_eq!(view.items.len(), 2);
    for item in &*view.items {
        assert!(
            item.exposed.len() <= 64
                && item
                    .exposed
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        );
        assert!(
            view.find(&item.exposed).item().is_some()
                && view.find(&item.tool.native).item().is_some()
        );
    }
}

// Proves R113.
#[tokio::test(start_paused = true)]
async fn order_is_that_of_the_config_whatever_answers_first() {
    let slow_first = |one_ms: u64, two_ms: u64| async move {
        let (one, two) = (
            ScriptedUpstream::new("one", &["b", "a"]),
            ScriptedUpstream::new("two", &["c"]),
        );
        one.set(|script| script.page_delay = Duration::from_millis(one_ms));
        two.set(|script| script.page_delay = Duration::from_millis(two_ms));
        let view = CatalogWorld::of(&[&one, &two]).settled().await;
        (view.version, exposed(&view).join(" "))
    };
    let (first, second) = (slow_first(900, 1).await, slow_first(1, 900).await);
    assert_eq!(first, second);
    assert_eq!(first.1, "one__b one__a two__c");
}

#[tokio::test(start_paused = true)]
async fn a_transparent_endpoint_renames_nothing() {
    let fake = ScriptedUpstream::new("files", &["read file", "x__y"]);
    let world = CatalogWorld::empty(CatalogSettings::default());
    let endpoint = transparent("files");
    world.apply(vec![endpoint.clone()], &[&fake]);
    let view = world
        .catalog
        .settled_view(
            &endpoint.id,
            ListKind::Tools,
            weir_core::CapabilityClass::BASE,
        )
        .await;
    assert_eq!(exposed(&view), ["read file", "x__y"]);
}

#[tokio::test(start_paused = true)]
async fn without_prefix_the_first_in_config_order_keeps_the_bare_name_and_a_taken_one_is_reported()
{
    // `three` has a tool with the prefixed name that its other one would fall back to.
    let one = ScriptedUpstream::new("one", &["search"]);
    let two = ScriptedUpstream::new("two", &["search"]);
    let three = ScriptedUpstream::new("three", &["three__search", "search"]);
    let world = CatalogWorld::empty(CatalogSettings::default());
    world.show(&[&one, &two, &three], NamePrefix::None, 1000);
    let view = world.settled().await;
    assert_eq!(exposed(&view), ["search", "two__search", "three__search"]);
    assert!(
        matches!(view.find("search"), NameLookup::Exposed(item) if item.tool.upstream == id("one"))
    );
    let [lost] = &*view.collisions else {
        panic!("{:?}", view.collisions)
    };
    assert_eq!(
        (&*lost.exposed, &lost.kept, &lost.dropped),
        ("search", &id("one"), &id("three"))
    );
}

/// The next server in the config once got the bare name, and the calls that were meant for the first.
#[tokio::test(start_paused = true)]
async fn without_prefix_the_names_of_an_upstream_that_is_away_stay_its_own() {
    let one = ScriptedUpstream::new("one", &["search", "only"]);
    let two = ScriptedUpstream::new("two", &["search"]);
    let world = CatalogWorld::empty(CatalogSettings::default());
    world.show(&[&one, &two], NamePrefix::None, 1000);
    assert_eq!(
        exposed(&world.settled().await),
        ["search", "only", "two__search"]
    );
    one.set(|script| script.refuse = true);
    one.cut();
    // Longer than the last good items stay.
    tokio::time::sleep(Duration::from_secs(400)).await;
    let view = world.view();
    assert_eq!(exposed(&view), ["two__search"]);
    assert!(matches!(view.find("search"), NameLookup::Unknown));
    assert_eq!(view.kept_names().get("search"), Some(one.id()));
    let world = RouterWorld::of(world);
    let call = |name: &str| raw(&json!({ "name": name, "arguments": {} }));
    let refused = failure(world.send(Method::ToolsCall, call("search")).await);
    assert_eq!(refused.reason(), "unavailable", "{refused:?}");
    assert_eq!(ScriptedUpstream::count(&two.calls), 0);
    let _answer = world.send(Method::ToolsCall, call("two__search")).await;
    assert_eq!(ScriptedUpstream::count(&two.calls), 1);
    let mut changes = world.world.changes();
    one.set(|script| script.refuse = false);
    while exposed(&world.world.view()) != ["search", "only", "two__search"] {
        changes.changed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_prefix_a_call_at_a_start_waits_for_the_lists_that_may_have_its_name() {
    let one = ScriptedUpstream::new("one", &["search"]);
    let two = ScriptedUpstream::new("two", &["search"]);
    one.set(|script| script.page_delay = Duration::from_millis(500));
    let world = CatalogWorld::empty(CatalogSettings::default());
    world.show(&[&one, &two], NamePrefix::None, 1000);
    while exposed(&world.view()) != ["search"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let world = RouterWorld::of(world);
    let params = raw(&json!({ "name": "search", "arguments": {} }));
    let _answer = world.send(Method::ToolsCall, params).await;
    let calls = [&one, &two].map(|fake| ScriptedUpstream::count(&fake.calls));
    assert_eq!(calls, [1, 0]);
}
