//! Lists that belong to one session: times of reading, visibility, and the effects of servers that
//! fail or hurry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_core::catalog::{ListSession, Page, PageAsk, SessionLists};
use weir_core::endpoint::Prefix;
use weir_core::port::Fut;
use weir_core::upstream::{About, Kinds, ListKind, ListPage, Watch};
use weir_core::{Call, CapabilityClass, End, Failure, FailureKind, Principal, SessionKey};
use weir_wire::method::Method;

use crate::calls::{Desk, asked_by, end, failure, raw};
use crate::support::{Fake, Rule, World, endpoint, id, principal, tool};

/// A session at an upstream, with tools of its own.
struct Session {
    /// Without a value it fails.
    tools: Mutex<Option<Vec<&'static str>>>,
    reads: AtomicUsize,
}

impl Session {
    fn with(tools: &[&'static str]) -> Arc<Self> {
        Arc::new(Self {
            tools: Mutex::new(Some(tools.to_vec())),
            reads: AtomicUsize::new(0),
        })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

struct Reading(Arc<Session>, About);

impl ListSession for Session {
    fn lists(self: Arc<Self>) -> Box<dyn Watch> {
        Box::new(Reading(self, About::default()))
    }

    fn subscribe(self: Arc<Self>, _uri: Arc<str>) -> Fut<'static, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unsubscribe(self: Arc<Self>, _uri: Arc<str>) {}
}

impl Watch for Reading {
    fn about(&self) -> &About {
        &self.1
    }

    fn list(
        &mut self,
        _kind: ListKind,
        _cursor: Option<String>,
    ) -> Fut<'_, Result<ListPage, Failure>> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        let tools = self.0.tools.lock().unwrap().clone();
        let items: Option<Vec<Bytes>> =
            tools.map(|tools| tools.iter().map(|name| tool(name)).collect());
        let page = items.map(|items| ListPage {
            items,
            ..ListPage::default()
        });
        let page = page.ok_or_else(|| Failure::new(FailureKind::Unavailable, "it fails"));
        Box::pin(std::future::ready(page))
    }

    fn changed(&mut self) -> Fut<'_, Result<Kinds, Failure>> {
        Box::pin(std::future::pending())
    }
}

const ONE: SessionKey = SessionKey([1; 16]);
const OTHER: SessionKey = SessionKey([2; 16]);

fn open(world: &World, session: &Arc<Session>, client: SessionKey) -> Arc<SessionLists> {
    let own: Weak<Session> = Arc::downgrade(session);
    let lists = world.session_lists.open(id("one"), tools(), own);
    lists.set_heard(true);
    lists.serves(client);
    lists
}

fn tools() -> Kinds {
    Kinds::default().with(ListKind::Tools)
}

async fn page(world: &World, who: &Principal, session: SessionKey) -> Page {
    let ask = PageAsk {
        endpoint: &endpoint(),
        class: CapabilityClass::BASE,
        principal: who,
        session: Some(session),
        kind: ListKind::Tools,
        cursor: None,
    };
    world.catalog.page(ask).await.unwrap()
}

async fn names(world: &World, who: &Principal, session: SessionKey) -> Vec<String> {
    let page = page(world, who, session).await;
    page.view.items[page.range]
        .iter()
        .map(|item| item.exposed.to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_session_is_asked_when_its_server_said_so_and_its_own_client_alone_sees_it() {
    let (one, two) = (Fake::new("one", &["a", "b"]), Fake::new("two", &["c"]));
    let world = World::of(&[&one, &two]);
    let (who, session) = (principal("ada").await, Session::with(&["b", "new"]));
    world.settled().await;
    let shared = ["one__a", "one__b", "two__c"];
    let lists = open(&world, &session, ONE);
    assert_eq!(names(&world, &who, ONE).await, shared);
    assert_eq!(session.reads(), 0, "nothing was said");
    lists.changed(tools());
    for _ in 0..3 {
        assert_eq!(
            names(&world, &who, ONE).await,
            ["one__b", "two__c", "one__new"]
        );
        assert_eq!(names(&world, &who, OTHER).await, shared);
    }
    assert_eq!(
        (
            session.reads(),
            world.catalog.sessions_that_differ(&id("one"))
        ),
        (1, 1)
    );
    two.set_tools(&["c", "d"]);
    two.tell();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        names(&world, &who, ONE).await,
        ["one__b", "two__c", "two__d", "one__new"],
        "on top of what all see"
    );
    drop(lists);
    assert_eq!(
        names(&world, &who, ONE).await,
        ["one__a", "one__b", "two__c", "two__d"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_answer_is_shown_as_it_was_and_left_alone_for_a_while() {
    let one = Fake::new("one", &["a"]);
    let world = World::of(&[&one]);
    let (who, session) = (principal("ada").await, Session::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    lists.changed(tools());
    assert_eq!(names(&world, &who, ONE).await, ["one__a", "one__new"]);
    *session.tools.lock().unwrap() = None;
    lists.changed(tools());
    for _ in 0..5 {
        assert_eq!(names(&world, &who, ONE).await, ["one__a", "one__new"]);
    }
    assert_eq!(session.reads(), 2, "it is not asked with every request");
    *session.tools.lock().unwrap() = Some(vec!["a"]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(names(&world, &who, ONE).await, ["one__a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_without_end_has_its_sessions_read_ten_times_a_second() {
    let one = Fake::new("one", &["a"]);
    let world = World::of(&[&one]);
    let (who, session) = (principal("ada").await, Session::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    let began = tokio::time::Instant::now();
    for _ in 0..60 {
        lists.changed(tools());
        assert_eq!(names(&world, &who, ONE).await, ["one__a", "one__new"]);
    }
    let seconds = began.elapsed().as_secs_f64();
    assert!(
        session.reads() as f64 <= 10.0 * (seconds + 1.0),
        "{} reads in {seconds} s",
        session.reads()
    );
}

#[tokio::test(start_paused = true)]
async fn on_an_aggregate_what_the_client_sees_decides_whether_it_is_news() {
    let one = Fake::new("one", &["a"]);
    let world = World::of(&[&one]);
    let (who, session) = (principal("ada").await, Session::with(&["a"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    let news = async || {
        let of = (&endpoint(), &id("one"));
        world
            .catalog
            .session_news(of, CapabilityClass::BASE, (&who, ONE), tools())
            .await
    };
    lists.changed(tools());
    assert!(news().await.is_empty(), "it is the same list");
    *session.tools.lock().unwrap() = Some(vec!["a", "new"]);
    lists.changed(tools());
    assert_eq!(news().await, tools());
    assert!(news().await.is_empty(), "it was told");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_upstream_has_stays_its_own() {
    let (one, two) = (Fake::new("one", &["a"]), Fake::new("two", &["new"]));
    let world = World::empty(weir_core::catalog::CatalogSettings::default());
    world.show(&[&one, &two], Prefix::None, 1000);
    let (who, session) = (principal("ada").await, Session::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    lists.changed(tools());
    assert_eq!(names(&world, &who, ONE).await, ["a", "new", "one__new"]);
    let seen = page(&world, &who, ONE).await;
    assert_eq!(seen.view.items[1].tool.upstream, id("two"));
}

/// A call in a client's session, to its end.
async fn called(desk: &Desk, method: Method, params: Value) -> End {
    let call = asked_by("ada", &endpoint(), method, raw(&params)).await;
    end(desk
        .router
        .call(call.map(|call| Call {
            session: Some(ONE),
            ..call
        }))
        .await)
    .await
}

#[tokio::test(start_paused = true)]
async fn a_session_is_read_for_a_name_that_nothing_has_and_for_no_other() {
    let one = Fake::new("one", &["a"]);
    one.set(|script| script.has_resources = true);
    let desk = Desk::of(World::of(&[&one]));
    let session = Session::with(&["a", "new"]);
    desk.world.settled().await;
    let lists = open(&desk.world, &session, ONE);
    lists.called();
    called(&desk, Method::ToolsCall, json!({ "name": "one__a" })).await;
    called(
        &desk,
        Method::ResourcesRead,
        json!({ "uri": "one+x:unlisted" }),
    )
    .await;
    assert_eq!(
        session.reads(),
        0,
        "a shared tool, and a resource of which the URI says whose it is"
    );
    let added = called(&desk, Method::ToolsCall, json!({ "name": "one__new" })).await;
    assert!(matches!(added, End::Complete(_)), "{added:?}");
    assert_eq!((session.reads(), Fake::count(&one.calls)), (1, 3));
    let unknown = failure(called(&desk, Method::ToolsCall, json!({ "name": "one__none" })).await);
    assert_eq!(*unknown.kind(), FailureKind::InvalidParams);
    assert_eq!(session.reads(), 1, "nothing was called there since");
    lists.called();
    desk.gate.rule("ada", "a", Rule::Hidden);
    failure(called(&desk, Method::ToolsCall, json!({ "name": "one__a" })).await);
    assert_eq!(session.reads(), 1, "what is hidden is not unknown");
}
