#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::poll_fn;

use bytes::Bytes;

use super::*;
use crate::bell::Bells;
use crate::catalog::tool::{Draft, Tool};
use crate::fakes::Sevens;
use crate::schema::Contracts;

struct Nobody;

impl ListSession for Nobody {
    fn lists(self: Arc<Self>) -> Box<dyn Watch> {
        unreachable!("nobody walks here")
    }

    fn subscribe(self: Arc<Self>, _uri: Arc<str>) -> Fut<'static, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unsubscribe(self: Arc<Self>, _uri: Arc<str>) {}
}

fn upstream() -> UpstreamId {
    UpstreamId::new("u").unwrap()
}

fn all() -> Kinds {
    ListKind::ALL.into_iter().collect()
}

fn tool(text: &str) -> Arc<Tool> {
    let draft = Draft::read(ListKind::Tools, Bytes::copy_from_slice(text.as_bytes())).unwrap();
    Arc::new(draft.finish(&upstream(), &Contracts::default()))
}

fn tools(names: &[&str]) -> Vec<Arc<Tool>> {
    names
        .iter()
        .map(|name| tool(&format!(r#"{{"name":"{name}"}}"#)))
        .collect()
}

fn table() -> (Arc<Bells>, Arc<SessionListTable>) {
    let bells = Arc::<Bells>::default();
    (bells.clone(), SessionListTable::new(bells, &Sevens))
}

fn open(table: &Arc<SessionListTable>, session: &Arc<Nobody>) -> Arc<SessionLists> {
    let session: Weak<Nobody> = Arc::downgrade(session);
    table.open(upstream(), all(), session)
}

fn difference(
    shared: &[&str],
    own: &[&str],
    table: &SessionListTable,
) -> Result<Difference, &'static str> {
    Difference::between(
        &tools(shared),
        (&tools(own), false),
        Mark::default(),
        &table.memory,
    )
}

#[test]
fn a_difference_has_what_a_session_has_otherwise_and_what_it_lacks() {
    let (_, table) = table();
    let found = difference(&["a", "b", "c"], &["a", "d", "c"], &table).unwrap();
    let changed: Vec<&str> = found.changed.iter().map(|tool| &*tool.native).collect();
    assert_eq!((changed, found.removed.len()), (vec!["d"], 1));
    assert!(found.removed.contains("b") && !found.is_empty());
    assert!(difference(&["a"], &["a"], &table).unwrap().is_empty());
    let other = [tool(r#"{"name":"a","description":"other"}"#)];
    let redefined = Difference::between(
        &tools(&["a"]),
        (&other, false),
        Mark::default(),
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
    let cut = Difference::between(
        &tools(&["a", "b"]),
        (&tools(&["a"]), true),
        Mark::default(),
        &table.memory,
    )
    .unwrap();
    assert!(cut.is_empty(), "what a guard cut off is not gone");
}

#[test]
fn a_difference_beyond_a_bound_is_none() {
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
fn a_list_is_due_once_its_server_said_so_or_may_have_said_so_unheard() {
    let (_, table) = table();
    let session = Arc::new(Nobody);
    let lists = open(&table, &session);
    let is_due = |cause| lists.is_due(ListKind::Tools, cause);
    let walk = || {
        lists.learn(
            ListKind::Tools,
            Difference::none(lists.mark(ListKind::Tools)),
        )
    };
    assert!(!is_due(Cause::Changed) && !is_due(Cause::Called));
    lists.called();
    assert!(is_due(Cause::Changed), "nothing is heard here");
    walk();
    lists.set_heard(true);
    assert!(
        is_due(Cause::Changed),
        "what was said before it was heard is not known"
    );
    walk();
    lists.called();
    assert!(!is_due(Cause::Changed) && is_due(Cause::Called));
    walk();
    lists.changed(Kinds::default().with(ListKind::Prompts));
    assert!(!is_due(Cause::Changed) && lists.is_due(ListKind::Prompts, Cause::Changed));
    lists.changed(all());
    assert!(is_due(Cause::Changed));
}

#[tokio::test]
async fn the_clients_of_a_session_are_told_and_again_when_it_is_gone_with_its_difference() {
    let (bells, table) = table();
    let session = Arc::new(Nobody);
    let (one, other) = (SessionKey([1; 16]), SessionKey([2; 16]));
    let (mut line, _silent) = (bells.open(one), bells.open(other));
    let lists = open(&table, &session);
    lists.serves(one);
    lists.serves(one);
    assert_eq!((table.of(&one).len(), table.of(&other).len()), (1, 0));
    let mut told = async || match poll_fn(|cx| line.poll_ring(cx)).await {
        Ring::ListsChanged(_, kinds) => kinds,
        other => panic!("{other:?}"),
    };
    lists.changed(all());
    assert_eq!(told().await, all());
    lists.learn(ListKind::Tools, difference(&[], &["a"], &table).unwrap());
    assert_eq!((table.differing(), table.differing_at(&upstream())), (1, 1));
    drop(lists);
    assert_eq!(told().await, Kinds::default().with(ListKind::Tools));
    assert_eq!((table.differing(), table.of(&one).len()), (0, 0));
    assert!(table.memory.used() == 0, "its memory went with it");
}

#[test]
fn a_session_of_a_client_that_ended_is_served_no_more() {
    let (_, table) = table();
    let session = Arc::new(Nobody);
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
            lists.clients().len()
        ),
        (0, 1, 1)
    );
}

#[tokio::test]
async fn the_server_is_asked_for_the_first_subscription_and_told_at_the_end_of_the_last() {
    let (_, table) = table();
    let session = Arc::new(Nobody);
    let lists = open(&table, &session);
    let heard = Arc::<std::sync::Mutex<Vec<Arc<str>>>>::default();
    let tell = || {
        let heard = heard.clone();
        Box::new(move |uri: &Arc<str>| heard.lock().unwrap().push(uri.clone()))
    };
    let first = lists.subscribe("a:1".into(), tell()).await.unwrap();
    let second = lists.subscribe("a:1".into(), tell()).await.unwrap();
    lists.updated("a:1");
    lists.updated("a:1/part");
    lists.updated("a:12");
    assert_eq!(heard.lock().unwrap().len(), 4);
    drop(first);
    lists.updated("a:1");
    assert_eq!(heard.lock().unwrap().len(), 5);
    drop((second, session));
    lists.updated("a:1");
    assert_eq!(heard.lock().unwrap().len(), 5);
    assert!(
        lists.subscribe("a:1".into(), tell()).await.is_err(),
        "its session is gone"
    );
}
