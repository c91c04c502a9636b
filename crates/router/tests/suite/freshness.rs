//! Freshness: weir's promises about the age of a list.

use std::time::Duration;

use weir_catalog::CatalogSettings;

use crate::support::{CatalogWorld, ScriptedUpstream, principal};

async fn hinted(hint: Option<(u64, bool)>, pushes: bool) -> (u64, bool) {
    let fake = ScriptedUpstream::new("up", &["a"]);
    fake.set(|script| (script.hint, script.pushes) = (hint, pushes));
    let world = CatalogWorld::of(&[&fake]);
    let page = world.page(&principal("p"), None).await.unwrap();
    (page.ttl_ms, page.public)
}

// Proves D15, R151, R159.
#[tokio::test(start_paused = true)]
async fn odd_hints_are_clamped() {
    assert_eq!(hinted(Some((0, true)), true).await, (0, true));
    assert_eq!(hinted(Some((7000, false)), true).await, (7000, false));
    assert_eq!(hinted(Some((u64::MAX, true)), true).await, (300_000, true));
    assert_eq!(hinted(None, true).await, (5000, false));
    assert_eq!(hinted(None, false).await, (0, false));
}

// Proves R158.
#[tokio::test(start_paused = true)]
async fn list_ttl_never_exceeds_the_remaining_upstream_ttl() {
    let fake = ScriptedUpstream::new("up", &["a"]);
    fake.set(|script| script.hint = Some((60_000, true)));
    let world = CatalogWorld::of(&[&fake]);
    let who = principal("p");
    world.page(&who, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(world.page(&who, None).await.unwrap().ttl_ms, 35_000);
    // It is renewed some time after it has run out, with jitter.
    fake.set(|script| script.hint = Some((90_000, true)));
    tokio::time::sleep(Duration::from_secs(50)).await;
    let left = world.page(&who, None).await.unwrap().ttl_ms;
    assert!((60_000..=90_000).contains(&left), "{left}");
}

// Proves R152, R157.
#[tokio::test(start_paused = true)]
async fn a_list_is_as_short_lived_and_as_private_as_its_narrowest_part() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b"]),
    );
    one.set(|script| script.hint = Some((60_000, true)));
    two.set(|script| script.hint = Some((9_000, true)));
    let world = CatalogWorld::of(&[&one, &two]);
    let who = principal("p");
    let page = world.page(&who, None).await.unwrap();
    assert_eq!((page.ttl_ms, page.public), (9_000, true));
    two.set(|script| script.hint = Some((9_000, false)));
    two.tell();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let page = world.page(&who, None).await.unwrap();
    assert!(!page.public);
}

// Proves R153.
#[tokio::test(start_paused = true)]
async fn all_pages_of_one_list_have_the_same_scope() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["b"]),
    );
    one.set(|script| script.hint = Some((60_000, true)));
    two.set(|script| script.hint = Some((60_000, false)));
    let world = CatalogWorld::empty(CatalogSettings::default());
    world.show(&[&one, &two], weir_core::endpoint::NamePrefix::Always, 1);
    let who = principal("p");
    let first = world.page(&who, None).await.unwrap();
    let second = world
        .page(&who, first.next_cursor.as_deref())
        .await
        .unwrap();
    assert_eq!((first.public, second.public), (false, false));
}
