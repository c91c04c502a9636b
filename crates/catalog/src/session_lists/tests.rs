#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::poll_fn;

use bytes::Bytes;
use weir_core::call::LogMessages;
use weir_core::failure::Failure;
use weir_core::port::BoxFuture;
use weir_core::server_item::ServerItem;
use weir_core::session_notifier::SessionNotifier;
use weir_core::upstream::ListWatch;
use weir_schema::SchemaCache;
use weir_testkit::FixedRandom;

use super::*;
use weir_items::ItemDraft;

struct UnusedListSession;

impl ListSession for UnusedListSession {
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch> {
        unreachable!("nobody walks here")
    }

    fn subscribe(self: Arc<Self>, _uri: Arc<str>) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unsubscribe(self: Arc<Self>, _uri: Arc<str>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

fn upstream() -> UpstreamId {
    UpstreamId::new("u").unwrap()
}

fn all() -> ListKinds {
    ListKind::ALL.into_iter().collect()
}

fn tool(text: &str) -> Arc<ServerItem> {
    let draft = ItemDraft::read(ListKind::Tools, Bytes::copy_from_slice(text.as_bytes())).unwrap();
    Arc::new(draft.finish(&upstream(), &SchemaCache::default()))
}

fn tools(names: &[&str]) -> Vec<Arc<ServerItem>> {
    names
        .iter()
        .map(|name| tool(&format!(r#"{{"name":"{name}"}}"#)))
        .collect()
}

fn table() -> (Arc<SessionNotifier>, Arc<SessionListTable>) {
    let notifier = Arc::<SessionNotifier>::default();
    (
        notifier.clone(),
        SessionListTable::new(notifier, &FixedRandom(7)),
    )
}

fn open(table: &Arc<SessionListTable>, session: &Arc<UnusedListSession>) -> Arc<SessionLists> {
    let session: Weak<UnusedListSession> = Arc::downgrade(session);
    table.open(upstream(), all(), session)
}

fn difference(
    shared: &[&str],
    own: &[&str],
    table: &SessionListTable,
) -> Result<ListDifference, &'static str> {
    ListDifference::between(
        &tools(shared),
        &tools(own),
        false,
        WalkMark::default(),
        &table.memory,
    )
}

#[test]
fn difference_has_changed_and_removed_items() {
    let (_, table) = table();
    let found = difference(&["a", "b", "c"], &["a", "d", "c"], &table).unwrap();
    let changed: Vec<&str> = found.changed.iter().map(|tool| &*tool.native).collect();
    assert_eq!((changed, found.removed.len()), (vec!["d"], 1));
    assert!(found.removed.contains("b") && !found.is_empty());
    assert!(difference(&["a"], &["a"], &table).unwrap().is_empty());
    let other = [tool(r#"{"name":"a","description":"other"}"#)];
    let redefined = ListDifference::between(
        &tools(&["a"]),
        &other,
        false,
        WalkMark::default(),
        &table.memory,
    )
    .unwrap();
    assert_eq!(
        (
            redefined.changed("a").map(|tool| tool.digest),
            redefined.removed.len()
        ),
        (Some(other[0].digest), 0)
    );
    let cut = ListDifference::between(
        &tools(&["a", "b"]),
        &tools(&["a"]),
        true,
        WalkMark::default(),
        &table.memory,
    )
    .unwrap();
    assert!(cut.is_empty(), "what a guard cut off is not gone");
}

#[test]
fn difference_beyond_a_bound_is_refused() {
    let (_, table) = table();
    let many: Vec<String> = (0..257).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(difference(&[], &many, &table).unwrap_err(), "items");
    assert_eq!(difference(&many, &[], &table).unwrap_err(), "items");
    assert!(difference(&[], &many[1..], &table).is_ok());
    let long = "x".repeat(300 << 10);
    assert_eq!(difference(&[], &[&long], &table).unwrap_err(), "bytes");
    table.memory.set_limit(10);
    assert_eq!(difference(&[], &["a"], &table).unwrap_err(), "memory");
}

#[test]
fn list_is_due_after_a_notification_or_a_possibly_missed_one() {
    let (_, table) = table();
    let session = Arc::new(UnusedListSession);
    let lists = open(&table, &session);
    let is_due = |cause| lists.is_due(ListKind::Tools, cause);
    let walk = || {
        lists.learn(
            ListKind::Tools,
            ListDifference::none(lists.mark(ListKind::Tools)),
        )
    };
    assert!(!is_due(WalkCause::Changed) && !is_due(WalkCause::Called));
    lists.count_call();
    assert!(is_due(WalkCause::Changed), "nothing is heard here");
    walk();
    lists.set_heard(true);
    assert!(
        is_due(WalkCause::Changed),
        "what was said before it was heard is not known"
    );
    walk();
    lists.count_call();
    assert!(!is_due(WalkCause::Changed) && is_due(WalkCause::Called));
    walk();
    lists.handle_list_changed(ListKinds::default().with(ListKind::Prompts));
    assert!(!is_due(WalkCause::Changed) && lists.is_due(ListKind::Prompts, WalkCause::Changed));
    lists.handle_list_changed(all());
    assert!(is_due(WalkCause::Changed));
}

#[tokio::test]
async fn clients_of_a_session_are_notified_of_changes_and_of_its_end() {
    let (notifier, table) = table();
    let session = Arc::new(UnusedListSession);
    let (one, other) = (SessionKey([1; 16]), SessionKey([2; 16]));
    let (mut line, _silent) = (
        notifier.open_receiver(one, LogMessages::None),
        notifier.open_receiver(other, LogMessages::None),
    );
    let lists = open(&table, &session);
    lists.serves(one);
    lists.serves(one);
    assert_eq!((table.of(&one).len(), table.of(&other).len()), (1, 0));
    let mut told = async || match poll_fn(|cx| line.poll_message(cx)).await {
        SessionMessage::ListsChanged(_, kinds) => kinds,
        other @ (SessionMessage::Ask(_)
        | SessionMessage::TaskProgress(..)
        | SessionMessage::ElicitationComplete(..)
        | SessionMessage::Log(_)) => panic!("{other:?}"),
    };
    lists.handle_list_changed(all());
    assert_eq!(told().await, all());
    lists.learn(ListKind::Tools, difference(&[], &["a"], &table).unwrap());
    assert_eq!((table.differing(), table.differing_at(&upstream())), (1, 1));
    drop(lists);
    assert_eq!(told().await, ListKinds::default().with(ListKind::Tools));
    assert_eq!((table.differing(), table.of(&one).len()), (0, 0));
    assert!(table.memory.used() == 0, "its memory went with it");
}

#[test]
fn ended_client_session_is_removed() {
    let (_, table) = table();
    let session = Arc::new(UnusedListSession);
    let lists = open(&table, &session);
    let (one, other) = (SessionKey([1; 16]), SessionKey([2; 16]));
    [one, other]
        .into_iter()
        .for_each(|client| lists.serves(client));
    table.ended(&HashSet::from([one]));
    assert_eq!(
        (
            table.of(&one).len(),
            table.of(&other).len(),
            lists.clients.read().len()
        ),
        (0, 1, 1)
    );
}

#[tokio::test]
async fn server_is_subscribed_at_the_first_and_unsubscribed_after_the_last() {
    let (_, table) = table();
    let session = Arc::new(UnusedListSession);
    let lists = open(&table, &session);
    let heard = Arc::<parking_lot::Mutex<Vec<Arc<str>>>>::default();
    let tell = || {
        let heard = heard.clone();
        Box::new(move |uri: &Arc<str>| heard.lock().push(uri.clone()))
    };
    let first = lists
        .subscribed
        .subscribe("a:1".into(), tell())
        .await
        .unwrap();
    let second = lists
        .subscribed
        .subscribe("a:1".into(), tell())
        .await
        .unwrap();
    lists.handle_resource_updated("a:1");
    lists.handle_resource_updated("a:1/part");
    lists.handle_resource_updated("a:12");
    assert_eq!(heard.lock().len(), 4);
    drop(first);
    lists.handle_resource_updated("a:1");
    assert_eq!(heard.lock().len(), 5);
    drop((second, session));
    lists.handle_resource_updated("a:1");
    assert_eq!(heard.lock().len(), 5);
    assert!(
        lists
            .subscribed
            .subscribe("a:1".into(), tell())
            .await
            .is_err(),
        "its session is gone"
    );
}
