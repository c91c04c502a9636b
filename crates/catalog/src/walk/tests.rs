#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use weir_core::failure::FailureKind;
use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKinds, ListPage, ServerDescription};

use super::*;

/// A server that computes every response from the cursor it is given.
struct ScriptedWatch<F>(F, Vec<Option<String>>);

impl<F: FnMut(Option<&str>) -> Result<ListPage, Failure> + Send> ListWatch for ScriptedWatch<F> {
    fn about(&self) -> &ServerDescription {
        unreachable!("a walk does not ask")
    }
    fn list(
        &mut self,
        _kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        self.1.push(cursor.clone());
        let page = (self.0)(cursor.as_deref());
        Box::pin(async move { page })
    }
    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        unreachable!("a walk does not wait")
    }
}

fn page(items: usize, next: Option<&str>) -> Result<ListPage, Failure> {
    let items = (0..items)
        .map(|at| Bytes::from(format!("{{\"name\":\"t{at}\"}}")))
        .collect();
    Ok(ListPage {
        items,
        next_cursor: next.map(str::to_owned),
        ..ListPage::default()
    })
}

async fn run(
    answer: impl FnMut(Option<&str>) -> Result<ListPage, Failure> + Send,
    limits: WalkLimits,
) -> (Result<WalkResult, Failure>, Vec<Option<String>>) {
    let mut watch = ScriptedWatch(answer, Vec::new());
    let walked = walk(&mut watch, ListKind::Tools, &limits, false).await;
    (walked, watch.1)
}

// Proves R146, R145.
#[tokio::test]
async fn the_empty_cursor_is_a_cursor_and_cursors_go_back_unaltered() {
    let odd = "=?\u{0}\"ä\\ ";
    let (walked, asked) = run(
        |cursor| match cursor {
            None => page(1, Some("")),
            Some("") => page(1, Some(odd)),
            Some(_) => page(1, None),
        },
        WalkLimits::default(),
    )
    .await;
    assert_eq!(walked.unwrap().items.len(), 3);
    assert_eq!(asked, [None, Some(String::new()), Some(odd.to_owned())]);
}

// Proves B18, R150.
#[tokio::test]
async fn cursor_loops_and_endless_lists_are_cut() {
    let (walked, asked) = run(|_| page(2, Some("same")), WalkLimits::default()).await;
    let walked = walked.unwrap();
    assert_eq!(
        (walked.truncated, asked.len(), walked.items.len()),
        (Some("cursor_loop"), 2, 4)
    );

    let mut count = 0;
    let (walked, asked) = run(
        |_| {
            count += 1;
            page(1, Some(&count.to_string()))
        },
        WalkLimits::default(),
    )
    .await;
    assert_eq!(
        (walked.unwrap().truncated, asked.len()),
        (Some("pages"), 200)
    );

    let (walked, _) = run(|_| page(1_000_000, None), WalkLimits::default()).await;
    let walked = walked.unwrap();
    assert_eq!(
        (walked.truncated, walked.items.len()),
        (Some("items"), 10_000)
    );
}

// Proves B25.
#[tokio::test]
async fn an_oversized_item_is_left_out_and_the_others_stay() {
    let big = Bytes::from(vec![b' '; (256 << 10) + 1]);
    let (walked, _) = run(
        |_| {
            let mut page = page(2, None)?;
            page.items.insert(1, big.clone());
            Ok(page)
        },
        WalkLimits::default(),
    )
    .await;
    let walked = walked.unwrap();
    assert_eq!(
        (walked.truncated, walked.items.len()),
        (Some("item_bytes"), 2)
    );
}

#[tokio::test]
async fn a_failing_page_fails_the_walk() {
    let (walked, _) = run(
        |cursor| match cursor {
            None => page(5, Some("2")),
            Some("2") => page(5, Some("3")),
            _ => Err(Failure::new(FailureKind::Unavailable, "gone")
                .with_upstream(&UpstreamId::new("u").unwrap())),
        },
        WalkLimits::default(),
    )
    .await;
    assert_eq!(walked.unwrap_err().kind(), &FailureKind::Unavailable);
}

// Proves R153, R157, R159.
#[tokio::test]
async fn hints_of_a_walk_are_the_narrowest_of_its_pages() {
    let hints = |first: (u64, bool, bool), second: (u64, bool, bool)| async move {
        let (walked, _) = run(
            move |cursor| {
                let (ttl_ms, public, hinted) = if cursor.is_none() { first } else { second };
                let next = cursor.is_none().then_some("2");
                Ok(ListPage {
                    ttl_ms,
                    public,
                    hinted,
                    ..page(1, next)?
                })
            },
            WalkLimits::default(),
        )
        .await;
        let walked = walked.unwrap();
        (walked.ttl.map(|ttl| ttl.as_millis()), walked.public)
    };
    assert_eq!(
        hints((9000, true, true), (4000, true, true)).await,
        (Some(4000), true)
    );
    assert_eq!(
        hints((9000, true, true), (9000, false, true)).await,
        (Some(9000), false)
    );
    assert_eq!(
        hints((9000, true, true), (0, true, true)).await,
        (Some(0), true)
    );
    assert_eq!(
        hints((0, false, false), (0, false, false)).await,
        (None, false)
    );
}

proptest! {
    // Proves R148.
    #[test]
    fn every_page_size_gives_each_item_once(total in 0usize..300, size in 1usize..60) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (walked, _) = runtime.block_on(run(|cursor| {
            let from: usize = cursor.map_or(0, |at| at.parse().unwrap());
            let to = (from + size).min(total);
            let items = (from..to).map(|at| Bytes::from(at.to_string())).collect();
            Ok(ListPage { items, next_cursor: (to < total).then(|| to.to_string()), ..ListPage::default() })
        }, WalkLimits { pages: 400, ..WalkLimits::default() }));
        let expected: Vec<Bytes> = (0..total).map(|at| Bytes::from(at.to_string())).collect();
        prop_assert_eq!(walked.unwrap().items, expected);
    }
}

#[tokio::test]
async fn only_the_first_page_of_a_new_list_may_have_an_unknown_method() {
    let unknown = || Err(Failure::new(FailureKind::MethodNotFound, "unknown"));
    let (walked, _) = run(|_| unknown(), WalkLimits::default()).await;
    assert_eq!(walked.unwrap(), WalkResult::not_offered());
    let later = |cursor: Option<&str>| match cursor {
        None => page(2, Some("next")),
        Some(_) => unknown(),
    };
    let (walked, _) = run(later, WalkLimits::default()).await;
    assert!(walked.is_err(), "a part never stands for the whole");
    let mut watch = ScriptedWatch(|_: Option<&str>| unknown(), Vec::new());
    let limits = WalkLimits::default();
    let walked = walk(&mut watch, ListKind::Tools, &limits, true).await;
    assert!(walked.is_err(), "the list was given before");
}
