//! Pages and cursors over a catalog that changes under them.

use std::time::Duration;

use proptest::prelude::*;
use weir_catalog::CatalogSettings;
use weir_core::endpoint::NamePrefix;
use weir_core::{Failure, FailureKind, Principal};

use crate::support::{CatalogWorld, ScriptedUpstream, principal};

fn many(from: usize, count: usize) -> Vec<String> {
    (from..from + count).map(|at| format!("t{at}")).collect()
}

fn paged(fake: &std::sync::Arc<ScriptedUpstream>, items: usize) -> CatalogWorld {
    let world = CatalogWorld::empty(CatalogSettings::default());
    world.show(&[fake], NamePrefix::Always, items);
    world
}

/// Reads on from a cursor to the end.
async fn rest(
    world: &CatalogWorld,
    who: &Principal,
    mut cursor: Option<String>,
) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    while let Some(text) = cursor {
        let page = world.page(who, Some(&text)).await?;
        assert!(!page.range.is_empty());
        names.extend(
            page.view.items[page.range]
                .iter()
                .map(|item| item.exposed.to_string()),
        );
        cursor = page.next_cursor;
    }
    Ok(names)
}

// Proves R148.
#[tokio::test(start_paused = true)]
async fn a_full_reading_gives_each_item_once_by_items_and_by_bytes() {
    let fake = ScriptedUpstream::new("up", &[]);
    fake.set_tools(&many(0, 57));
    let who = principal("p");
    for items in [1, 2, 10, 56, 57, 58] {
        let world = paged(&fake, items);
        let first = world.page(&who, None).await.unwrap();
        assert_eq!(first.range, 0..items.min(57));
        let mut names: Vec<String> = first.view.items[first.range]
            .iter()
            .map(|item| item.exposed.to_string())
            .collect();
        names.extend(rest(&world, &who, first.next_cursor).await.unwrap());
        assert_eq!(
            names,
            many(0, 57)
                .iter()
                .map(|name| format!("up__{name}"))
                .collect::<Vec<_>>()
        );
    }
    let world = CatalogWorld::empty(CatalogSettings::default());
    let mut small = (*crate::support::aggregate(&["up"], NamePrefix::Always, 1000)).clone();
    small.page.bytes = 1;
    world.apply(vec![small.into()], &[&fake]);
    let first = world.page(&who, None).await.unwrap();
    assert_eq!(first.range, 0..1, "a page holds at least one item");
    assert_eq!(
        rest(&world, &who, first.next_cursor).await.unwrap().len(),
        56
    );
}

// Proves R147, B16.
#[tokio::test(start_paused = true)]
async fn a_foreign_or_changed_cursor_is_refused_and_the_empty_one_is_a_cursor() {
    let fake = ScriptedUpstream::new("up", &["a", "b"]);
    let world = paged(&fake, 1);
    let (alice, bob) = (principal("alice"), principal("bob"));
    let cursor = world.page(&alice, None).await.unwrap().next_cursor.unwrap();
    assert_eq!(world.page(&alice, Some(&cursor)).await.unwrap().range, 1..2);
    let mut changed = cursor.clone().into_bytes();
    changed[20] = if changed[20] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for (who, text) in [
        (&bob, cursor.as_str()),
        (&alice, &changed),
        (&alice, ""),
        (&alice, "1"),
    ] {
        let refused = world.page(who, Some(text)).await.unwrap_err();
        assert_eq!(
            (refused.kind(), refused.message()),
            (&FailureKind::InvalidParams, Failure::bad_cursor().message())
        );
    }
}

// Proves B17.
#[tokio::test(start_paused = true)]
async fn a_cursor_reads_on_in_the_list_it_came_from_for_a_while() {
    let fake = ScriptedUpstream::new("up", &[]);
    fake.set_tools(&many(0, 4));
    let world = paged(&fake, 2);
    let who = principal("p");
    let cursor = world.page(&who, None).await.unwrap().next_cursor;
    fake.set_tools(&many(3, 5));
    fake.tell();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        rest(&world, &who, cursor.clone()).await.unwrap(),
        ["up__t2", "up__t3"]
    );
    let old = world.page(&who, cursor.as_deref()).await.unwrap();
    assert_eq!(
        old.ttl_ms, 0,
        "nobody should keep a page of a list that is over"
    );
    tokio::time::sleep(Duration::from_secs(700)).await;
    let refused = world.page(&who, cursor.as_deref()).await.unwrap_err();
    assert_eq!(refused.message(), Failure::bad_cursor().message());
}

// Proves B17.
#[tokio::test(start_paused = true)]
async fn change_storm_does_not_evict_a_list_with_cursors() {
    let fake = ScriptedUpstream::new("up", &["a", "b"]);
    let world = paged(&fake, 1);
    let who = principal("p");
    let cursor = world.page(&who, None).await.unwrap().next_cursor;
    for at in 0..60 {
        fake.set_tools(&[format!("x{at}")]);
        fake.tell();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(rest(&world, &who, cursor).await.unwrap(), ["up__b"]);
}

// Proves R149.
#[tokio::test(start_paused = true)]
async fn a_cursor_reads_on_at_another_replica_even_one_that_just_started() {
    let (fake, twin) = (
        ScriptedUpstream::new("up", &["a", "b", "c"]),
        ScriptedUpstream::new("up", &["a", "b", "c"]),
    );
    let who = principal("p");
    let cursor = paged(&fake, 1).page(&who, None).await.unwrap().next_cursor;
    twin.set(|script| script.page_delay = Duration::from_millis(300));
    assert_eq!(
        rest(&paged(&twin, 1), &who, cursor).await.unwrap(),
        ["up__b", "up__c"]
    );
}

#[derive(Clone, Debug)]
enum ReadingStep {
    Change(usize, usize),
    Wait(u64),
    Start,
    Next(usize),
}

fn step() -> impl Strategy<Value = ReadingStep> {
    prop_oneof![
        (0usize..8, 0usize..9).prop_map(|(from, count)| ReadingStep::Change(from, count)),
        (0u64..2000).prop_map(ReadingStep::Wait),
        Just(ReadingStep::Start),
        (0usize..4).prop_map(ReadingStep::Next),
    ]
}

/// A reading under way: the items so far, and the cursor.
struct CursorReading {
    whole: Vec<String>,
    seen: Vec<String>,
    cursor: String,
}

proptest! {
    // Proves B17.
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn paged_reading_is_consistent_or_refused_under_any_changes(
        steps in prop::collection::vec(step(), 1..40),
        size in 1usize..4,
        pinned in 1usize..4,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let fake = ScriptedUpstream::new("up", &["t0", "t1", "t2"]);
            let world = CatalogWorld::empty(CatalogSettings { superseded_views: pinned, ..CatalogSettings::default() });
            world.show(&[&fake], NamePrefix::Always, size);
            let who = principal("p");
            let mut readings: Vec<CursorReading> = Vec::new();
            for step in steps {
                match step {
                    ReadingStep::Change(from, count) => {
                        fake.set_tools(&many(from, count));
                        fake.tell();
                    }
                    ReadingStep::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    ReadingStep::Start => {
                        let page = world.page(&who, None).await.unwrap();
                        let names = |range: std::ops::Range<usize>| {
                            page.view.items[range].iter().map(|item| item.exposed.to_string()).collect::<Vec<_>>()
                        };
                        if let Some(cursor) = page.next_cursor.clone() {
                            readings.push(CursorReading { whole: names(0..page.view.items.len()), seen: names(page.range.clone()), cursor });
                        }
                    }
                    ReadingStep::Next(which) if !readings.is_empty() => {
                        let at = which % readings.len();
                        match world.page(&who, Some(&readings[at].cursor)).await {
                            Err(refused) => {
                                assert_eq!(refused.message(), Failure::bad_cursor().message());
                                readings.remove(at);
                            }
                            Ok(page) => {
                                let names = page.view.items[page.range].iter().map(|item| item.exposed.to_string());
                                readings[at].seen.extend(names);
                                match page.next_cursor {
                                    Some(cursor) => readings[at].cursor = cursor,
                                    None => {
                                        let done = readings.remove(at);
                                        assert_eq!(done.seen, done.whole, "an item twice, or silently missing");
                                    }
                                }
                            }
                        }
                    }
                    ReadingStep::Next(_) => {}
                }
            }
        });
    }
}
