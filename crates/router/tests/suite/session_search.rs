//! Servers of both eras: whether they have sessions is found out when a client with sessions first
//! asks for a list.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_catalog::View;
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;

use crate::calls::RouterWorld;
use crate::classes::{called, class_of, listing_apart};
use crate::support::{CatalogWorld, ScriptedUpstream, endpoint, exposed, principal};

const SESSIONS: CapabilityClass = CapabilityClass::SESSIONS;

/// An upstream that lists other items in sessions, of which nothing is known before a search of this
/// time.
fn not_searched(time: Duration) -> Arc<ScriptedUpstream> {
    let fake = listing_apart();
    fake.set(|script| {
        script.carries = CapabilityClass::BASE;
        script.session_search = Some(time);
    });
    fake
}

async fn list_in_session(world: &CatalogWorld) -> Arc<View> {
    world
        .catalog
        .settled_view(&endpoint(), ListKind::Tools, SESSIONS)
        .await
}

fn searches(fake: &ScriptedUpstream) -> usize {
    ScriptedUpstream::count(&fake.searches)
}

#[tokio::test(start_paused = true)]
async fn first_list_of_a_client_with_sessions_has_the_items_of_sessions() {
    let fake = not_searched(Duration::from_millis(300));
    let world = CatalogWorld::of(&[&fake]);
    assert_eq!(
        exposed(&world.settled().await),
        ["both__a", "both__without"]
    );
    assert_eq!(searches(&fake), 0, "no client with sessions has asked");
    let view = list_in_session(&world).await;
    assert_eq!(exposed(&view), ["both__a", "both__with", "both__without"]);
    assert!(view.missing.is_empty() && view.settled);
    assert_eq!(searches(&fake), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_before_the_first_list_are_made_in_the_era_that_lists_the_tool() {
    for (name, class) in [("both__with", "sessions"), ("both__without", "base")] {
        let fake = not_searched(Duration::from_millis(300));
        let desk = RouterWorld::of(CatalogWorld::of(&[&fake]));
        desk.world.settled().await;
        assert_eq!(class_of(called(&desk, SESSIONS, name).await), class);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_after_an_idle_time_are_made_in_the_era_that_lists_the_tool() {
    let fake = not_searched(Duration::from_millis(300));
    let desk = RouterWorld::of(CatalogWorld::of(&[&fake]));
    list_in_session(&desk.world).await;
    // The list of a class that nobody uses is dropped.
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    fake.set(|script| script.page_delay = Duration::from_millis(300));
    let class = class_of(called(&desk, SESSIONS, "both__without").await);
    assert_eq!(class, "base");
}

#[tokio::test(start_paused = true)]
async fn server_without_sessions_is_searched_once_in_a_while() {
    let fake = not_searched(Duration::from_millis(300));
    fake.set(|script| script.in_sessions = None);
    let world = CatalogWorld::of(&[&fake]);
    for _ in 0..3 {
        let view = list_in_session(&world).await;
        assert_eq!(exposed(&view), ["both__a", "both__without"]);
        assert!(view.missing.is_empty() && view.settled);
        fake.tell();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(searches(&fake), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    fake.tell();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(searches(&fake), 2, "it may have been replaced");
}

#[tokio::test(start_paused = true)]
async fn search_without_an_answer_holds_lists_up_for_a_limited_time() {
    let fake = not_searched(Duration::from_secs(3_600));
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    let begun = tokio::time::Instant::now();
    let view = list_in_session(&world).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(exposed(&view), ["both__a", "both__without"]);
    assert_eq!(view.missing[0].reason, "pending");
    let begun = tokio::time::Instant::now();
    list_in_session(&world).await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "only the first waits");
}

#[tokio::test(start_paused = true)]
async fn features_of_sessions_are_offered_to_clients_with_sessions_alone() {
    let fake = not_searched(Duration::from_millis(300));
    fake.set(|script| {
        script.prompts_in_sessions = Some(vec![Bytes::from_static(b"{\"name\":\"p\"}")]);
    });
    let world = CatalogWorld::of(&[&fake]);
    world.settled().await;
    list_in_session(&world).await;
    let (catalog, principal) = (&world.catalog, principal("ada").await);
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
