//! The watch of the lists: at one instance, and at another one if that fails.

use serde_json::Value;
use weir_core::CapabilityClass;
use weir_core::upstream::{ListKind, ListWatch};
use weir_testkit::MockServer;

use super::*;

async fn tools(watch: &mut dyn ListWatch) -> Vec<String> {
    let page = watch.list(ListKind::Tools, None).await.unwrap();
    let name = |item: &bytes::Bytes| {
        let item: Value = serde_json::from_slice(item).unwrap();
        item["name"].as_str().unwrap().to_owned()
    };
    page.items.iter().map(name).collect()
}

fn watched(upstream: &Arc<dyn Upstream>) -> Vec<usize> {
    let all = instances(upstream).into_iter().enumerate();
    all.filter_map(|(at, one)| one.watched.then_some(at))
        .collect()
}

async fn versions() -> [MockServer; 3] {
    let server = |tool: &str| {
        MockServer::modern()
            .tool(tool, MockBehaviour::echo())
            .start()
    };
    [server("a").await, server("b").await, server("c").await]
}

#[tokio::test]
async fn lists_are_read_at_one_instance_and_at_the_next_if_it_fails() {
    let [canary, mut usual, other] = versions().await;
    let upstream = build(weighted(&[(&canary, 5), (&usual, 90), (&other, 5)]));
    let watch = || upstream.clone().watch(CapabilityClass::BASE);
    let mut first = watch().await.unwrap();
    assert_eq!(tools(&mut *first).await, ["b"], "the heaviest");
    let again = watch().await.unwrap();
    assert_eq!(watched(&upstream), [1]);
    drop(again);
    usual.stop().await;
    assert!(first.next_change().await.is_err(), "its stream was lost");
    let mut second = watch().await.unwrap();
    assert_eq!(tools(&mut *second).await, ["c"]);
    assert_eq!(watched(&upstream), [2]);
    usual.restart().await;
    // The lists do not move back without a reason.
    drop(second);
    assert_eq!(tools(&mut *watch().await.unwrap()).await, ["c"]);
    other.notify_list_changed();
}

#[tokio::test]
async fn instance_that_does_not_give_its_lists_is_left() {
    let [a, b, c] = versions().await;
    let upstream = build(weighted(&[(&a, 1), (&b, 1), (&c, 1)]));
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    assert_eq!(tools(&mut *watch).await, ["a"]);
    a.add_rule("tools/list", usize::MAX, MockBehaviour::reset_after(0));
    assert!(watch.list(ListKind::Tools, None).await.is_err());
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    assert_eq!(tools(&mut *watch).await, ["b"]);
}

#[tokio::test]
async fn instance_that_answers_a_list_with_an_error_is_left_for_one_that_gives_it() {
    let [a, b, c] = versions().await;
    let upstream = build(weighted(&[(&a, 1), (&b, 1), (&c, 1)]));
    let open = || upstream.clone().watch(CapabilityClass::BASE);
    let mut watch = open().await.unwrap();
    let error = || MockBehaviour::error(-32603, "broken", Value::Null);
    for one in [&a, &b] {
        one.add_rule("tools/list", 1, error());
    }
    // It may be the answer of all of them to a list that none gave so far.
    assert!(watch.list(ListKind::Tools, None).await.is_err());
    assert_eq!(tools(&mut *watch).await, ["a"]);
    a.add_rule("tools/list", usize::MAX, error());
    let failure = watch.list(ListKind::Tools, None).await.unwrap_err();
    assert_eq!(failure.reason(), "unavailable", "the watch is lost");
    assert_eq!(watched(&upstream), [2]);
    assert_eq!(tools(&mut *open().await.unwrap()).await, ["c"]);
}

/// Answers as a server in maintenance, or with a limit, for so long.
fn not_before(seconds: u32) -> MockBehaviour {
    MockBehaviour::retry_after(503, seconds)
}

// Proves E13.
#[tokio::test]
async fn instance_that_gives_its_lists_later_is_left_while_another_one_may_give_them() {
    let [a, b, _] = versions().await;
    let upstream = build(weighted(&[(&a, 1), (&b, 1)]));
    let open = || upstream.clone().watch(CapabilityClass::BASE);
    let mut watch = open().await.unwrap();
    assert_eq!(tools(&mut *watch).await, ["a"]);
    a.add_rule("tools/list", usize::MAX, not_before(600));
    let failure = watch.list(ListKind::Tools, None).await.unwrap_err();
    // The pause is that of the instance, and not of the upstream.
    assert_eq!(
        (failure.reason(), failure.retry_delay()),
        ("unavailable", None)
    );
    let mut watch = open().await.unwrap();
    assert_eq!(tools(&mut *watch).await, ["b"]);
    assert_eq!(a.requests_of("tools/list").len(), 2);
    // No instance is left: the watch stays until the first one may be asked again.
    b.add_rule("tools/list", usize::MAX, not_before(600));
    let failure = watch.list(ListKind::Tools, None).await.unwrap_err();
    let delay = failure.retry_delay().unwrap();
    assert_eq!(failure.reason(), "busy");
    assert!(
        Duration::ZERO < delay && delay <= Duration::from_secs(60),
        "{delay:?}"
    );
    assert_eq!(watched(&upstream), [1]);
    // An operator may want the lists earlier.
    assert!(open().await.is_ok());
}

// Proves E13.
#[tokio::test]
async fn instance_that_asked_for_a_pause_is_not_asked_for_a_watch_before_its_end() {
    let [a, mut b]: [MockServer; 2] = legacy().await;
    a.add_rule("*", usize::MAX, not_before(600));
    let upstream = build(weighted(&[(&a, 1), (&b, 1)]));
    let open = || upstream.clone().watch(CapabilityClass::BASE);
    assert_eq!(tools(&mut *open().await.unwrap()).await, ["echo"]);
    let asked = a.requests().len();
    b.stop().await;
    let failure = open().await.err().unwrap();
    assert_eq!(
        (failure.reason(), failure.retry_delay()),
        ("unavailable", None)
    );
    assert_eq!(a.requests().len(), asked);
}

// Proves E13.
#[tokio::test]
async fn instance_is_asked_again_after_its_own_pause_while_the_others_refuse() {
    let [a, b, _] = versions().await;
    let upstream = build(weighted(&[(&a, 1), (&b, 1)]));
    let open = || upstream.clone().watch(CapabilityClass::BASE);
    a.add_rule("tools/list", 1, not_before(0));
    let mut watch = open().await.unwrap();
    assert!(watch.list(ListKind::Tools, None).await.is_err());
    assert_eq!(watched(&upstream), [1]);
    let mut watch = open().await.unwrap();
    assert_eq!(tools(&mut *watch).await, ["b"]);
    // The first one gives its lists since.
    b.add_rule("tools/list", usize::MAX, not_before(600));
    let failure = watch.list(ListKind::Tools, None).await.unwrap_err();
    assert_eq!(
        (failure.reason(), failure.retry_delay()),
        ("unavailable", None)
    );
    assert_eq!(tools(&mut *open().await.unwrap()).await, ["a"]);
    assert_eq!(watched(&upstream), [0]);
}

// Proves E13.
#[tokio::test]
async fn watch_begins_at_the_instance_whose_pause_ends_first() {
    let [a, b, _] = versions().await;
    let upstream = build(weighted(&[(&a, 1), (&b, 1)]));
    a.add_rule("tools/list", 1, not_before(40));
    b.add_rule("tools/list", 1, not_before(30));
    let open = || upstream.clone().watch(CapabilityClass::BASE);
    // Neither gives the list: both were asked once.
    let mut watch = open().await.unwrap();
    let failure = watch.list(ListKind::Tools, None).await.unwrap_err();
    assert_eq!(failure.reason(), "busy");
    let delay = failure.retry_delay().unwrap();
    assert!(delay <= Duration::from_secs(30), "{delay:?}");
    assert_eq!(tools(&mut *open().await.unwrap()).await, ["b"]);
}

// Proves E13.
#[tokio::test]
async fn list_that_no_other_instance_gives_fails_alone() {
    let builder = || MockServer::legacy(Revision::V2025_11_25).with_library();
    let [a, mut b] = start(|| builder().tool("echo", MockBehaviour::echo())).await;
    a.add_rule("prompts/list", usize::MAX, not_before(600));
    let upstream = build(weighted(&[(&a, 1), (&b, 1)]));
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    assert!(watch.about().offers.has(ListKind::Prompts));
    b.stop().await;
    assert_eq!(tools(&mut *watch).await, ["echo"]);
    let failure = watch.list(ListKind::Prompts, None).await.unwrap_err();
    assert_eq!(failure.reason(), "busy");
    assert_eq!(watched(&upstream), [0]);
    assert_eq!(tools(&mut *watch).await, ["echo"], "the watch goes on");
}

// Proves E13.
#[tokio::test]
async fn watch_of_instances_that_all_ask_for_a_pause_waits_for_the_shortest() {
    let [a, b]: [MockServer; 2] = legacy().await;
    a.add_rule("*", usize::MAX, not_before(300));
    b.add_rule("*", usize::MAX, not_before(600));
    let upstream = build(weighted(&[(&a, 1), (&b, 1)]));
    let opened = upstream.watch(CapabilityClass::BASE).await;
    let failure = opened.err().unwrap();
    assert_eq!(failure.reason(), "busy");
    assert_eq!(failure.retry_delay(), Some(Duration::from_secs(300)));
}

#[tokio::test]
async fn change_is_heard_from_the_watched_instance() {
    let mocks = versions().await;
    let upstream = upstream_of(&mocks);
    let mut watch = upstream.clone().watch(CapabilityClass::BASE).await.unwrap();
    let [at] = watched(&upstream)[..] else {
        panic!("one is watched")
    };
    mocks[at].notify_list_changed();
    watch.next_change().await.unwrap();
    let listeners: Vec<_> = mocks.iter().map(MockServer::listeners).collect();
    assert_eq!(listeners.iter().sum::<usize>(), 1, "{listeners:?}");
}
