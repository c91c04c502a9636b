//! Servers of both eras: what they list and declare in sessions is for clients with sessions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_catalog::View;
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;

use crate::calls::RouterWorld;
use crate::classes::{called, class_of, listing_apart};
use crate::support::{CatalogWorld, endpoint, exposed, principal};

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
    let desk = RouterWorld::of(CatalogWorld::of(&[&fake]));
    list_in_session(&desk.world).await;
    // The list of a class that nobody uses is dropped.
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    fake.set(|script| script.page_delay = Duration::from_millis(300));
    let class = class_of(called(&desk, SESSIONS, "both__without").await);
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
