//! Servers of both eras: what they list and declare in sessions is for clients with sessions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use weir_catalog::View;
use weir_core::upstream::ListKind;
use weir_core::{Call, CapabilityClass};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_with, failure, raw};
use crate::classes::{called, class_of, listing_apart};
use crate::support::{CatalogWorld, ScriptedUpstream, endpoint, exposed, principal};

const SESSIONS: CapabilityClass = CapabilityClass::SESSIONS;

async fn list_in_session(world: &CatalogWorld) -> Arc<View> {
    world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, SESSIONS)
        .await
}

#[tokio::test(start_paused = true)]
async fn calls_after_an_idle_time_are_made_in_the_era_that_lists_the_tool() {
    let fake = listing_apart();
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    list_in_session(&world.world).await;
    // The list of a class that nobody uses is dropped.
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    fake.set(|script| script.page_delay = Duration::from_millis(300));
    let class = class_of(called(&world, SESSIONS, "both__without").await);
    assert_eq!(class, "base");
}

#[tokio::test(start_paused = true)]
async fn features_of_sessions_are_offered_to_clients_with_sessions_alone() {
    let fake = listing_apart();
    fake.set(|script| {
        script.prompts_in_sessions = Some(vec![Bytes::from_static(b"{\"name\":\"p\"}")]);
    });
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    list_in_session(&world).await;
    let (catalog, principal) = (&world.catalog, principal("ada"));
    for (class, has_prompts) in [(CapabilityClass::BASE, false), (SESSIONS, true)] {
        let features = catalog.offered_features(&endpoint(), class, &principal);
        assert!(features.tools);
        assert_eq!(features.prompts, has_prompts);
        assert_eq!(
            catalog.offers(&endpoint(), ListKind::Prompts, class),
            has_prompts
        );
        let prompts = catalog
            .settled_view(&endpoint(), ListKind::Prompts, class)
            .await;
        assert_eq!(exposed(&prompts).len(), usize::from(has_prompts));
    }
}

/// An upstream that lists other items in sessions, of which it is unknown if it has them.
fn not_searched() -> Arc<ScriptedUpstream> {
    let fake = listing_apart();
    fake.set(|script| {
        script.carries = CapabilityClass::BASE;
        script.session_search = Some(Duration::from_millis(300));
    });
    fake
}

fn searches(fake: &ScriptedUpstream) -> usize {
    ScriptedUpstream::count(&fake.searches)
}

#[tokio::test(start_paused = true)]
async fn first_call_of_a_client_with_sessions_is_made_in_the_era_that_lists_the_tool() {
    for (name, class) in [("both__with", "sessions"), ("both__without", "base")] {
        let fake = not_searched();
        let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
        world.world.settled().await;
        assert_eq!(searches(&fake), 0, "lists search nothing");
        let first = called(&world, SESSIONS, name).await;
        assert_eq!(class_of(first), class, "{name}");
        class_of(called(&world, SESSIONS, name).await);
        assert_eq!(searches(&fake), 1, "{name}");
        // The definition is that of sessions, too.
        let refused = failure(called(&world, SESSIONS, "both__a").await);
        assert_eq!(refused.reason(), "bad_arguments");
    }
}

#[tokio::test(start_paused = true)]
async fn first_call_of_a_tool_that_neither_era_has_is_of_an_unknown_tool() {
    for has_sessions in [true, false] {
        let fake = not_searched();
        if !has_sessions {
            fake.set(|script| script.in_sessions = None);
        }
        let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
        world.world.settled().await;
        let refused = failure(called(&world, SESSIONS, "both__neither").await);
        assert_eq!(refused.message(), "Unknown tool: both__neither");
        assert_eq!(searches(&fake), 1);
        assert_eq!(ScriptedUpstream::count(&fake.calls), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_are_searched_for_calls_in_sessions_at_servers_that_may_have_the_item() {
    let fake = not_searched();
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    world.world.settled().await;
    called(&world, CapabilityClass::BASE, "both__a").await;
    failure(called(&world, CapabilityClass::BASE, "both__with").await);
    failure(called(&world, SESSIONS, "other__with").await);
    assert_eq!(searches(&fake), 0);
}

#[tokio::test(start_paused = true)]
async fn first_request_for_a_kind_that_no_server_has_finds_the_kinds_of_sessions() {
    let fake = not_searched();
    fake.set(|script| {
        script.prompts_in_sessions = Some(vec![Bytes::from_static(b"{\"name\":\"p\"}")]);
    });
    let world = RouterWorld::of(CatalogWorld::of(&[&fake]));
    world.world.settled().await;
    let get = raw(&json!({ "name": "both__p" }));
    for (class, has_prompts) in [(CapabilityClass::BASE, false), (SESSIONS, true)] {
        let change = |call: &mut Call| call.capabilities.class = class;
        let (to, method) = (endpoint(), Method::PromptsGet);
        let call = asked_with("somebody", &to, method, get.clone(), change).await;
        world
            .router
            .find_sessions(&call, &[ListKind::Prompts])
            .await;
        let catalog = &world.world.catalog;
        let has_list = catalog.offers(&endpoint(), ListKind::Prompts, class);
        assert_eq!(has_list, has_prompts);
        assert_eq!(searches(&fake), usize::from(has_prompts));
    }
}
