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
