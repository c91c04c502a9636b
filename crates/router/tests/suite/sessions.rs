//! Lists that belong to one session: times of reading, visibility, and the effects of servers that
//! fail or hurry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_catalog::{CatalogPage, ListPageRequest, SessionClient, SessionLists, UpdateInbox};
use weir_core::endpoint::NamePrefix;
use weir_core::port::{BoxFuture, ListSession, SessionListObserver};
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{Call, CapabilityClass, Failure, FailureKind, Principal, ReplyEnd, SessionKey};
use weir_wire::method::Method;

use crate::calls::{RouterWorld, asked_with, end, failure, raw};
use crate::support::{CatalogWorld, GateRule, ScriptedUpstream, endpoint, id, principal, tool};

/// A session at an upstream, with tools of its own.
struct ScriptedSession {
    /// Without a value it fails.
    tools: Mutex<Option<Vec<&'static str>>>,
    /// URIs of resources.
    resources: Mutex<Vec<&'static str>>,
    reads: AtomicUsize,
    subscribes: AtomicUsize,
    /// The time that it takes to answer.
    delay: Mutex<Duration>,
}

impl ScriptedSession {
    fn with(tools: &[&'static str]) -> Arc<Self> {
        Arc::new(Self {
            tools: Mutex::new(Some(tools.to_vec())),
            resources: Mutex::default(),
            reads: AtomicUsize::new(0),
            subscribes: AtomicUsize::new(0),
            delay: Mutex::default(),
        })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

struct ScriptedSessionWatch(Arc<ScriptedSession>, ServerDescription);

impl ListSession for ScriptedSession {
    fn lists(self: Arc<Self>) -> Box<dyn ListWatch> {
        Box::new(ScriptedSessionWatch(self, ServerDescription::default()))
    }

    fn subscribe(self: Arc<Self>, _uri: Arc<str>) -> BoxFuture<'static, Result<(), Failure>> {
        self.subscribes.fetch_add(1, Ordering::SeqCst);
        let delay = *self.delay.lock();
        let answer = self.tools.lock().as_ref().map(drop);
        let answer = answer.ok_or_else(failing);
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            answer
        })
    }

    fn unsubscribe(self: Arc<Self>, _uri: Arc<str>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

fn failing() -> Failure {
    Failure::new(FailureKind::Unavailable, "it fails")
}

impl ListWatch for ScriptedSessionWatch {
    fn about(&self) -> &ServerDescription {
        &self.1
    }

    fn list(
        &mut self,
        kind: ListKind,
        _cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        let tools = self.0.tools.lock().clone();
        let items: Option<Vec<Bytes>> = tools.map(|tools| match kind {
            ListKind::Resources => {
                let resources = self.0.resources.lock();
                resources.iter().map(|uri| resource(uri)).collect()
            }
            _ => tools.iter().map(|name| tool(name)).collect(),
        });
        let page = items.map(|items| ListPage {
            items,
            ..ListPage::default()
        });
        let page = page.ok_or_else(failing);
        let delay = *self.0.delay.lock();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            page
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(std::future::pending())
    }
}

const ONE: SessionKey = SessionKey([1; 16]);
const OTHER: SessionKey = SessionKey([2; 16]);

fn open(
    world: &CatalogWorld,
    session: &Arc<ScriptedSession>,
    client: SessionKey,
) -> Arc<SessionLists> {
    let own: Weak<ScriptedSession> = Arc::downgrade(session);
    let lists = world.session_lists.open(id("one"), tools(), own);
    lists.set_heard(true);
    lists.serves(client);
    lists
}

fn resource(uri: &str) -> Bytes {
    raw(&json!({ "uri": uri, "name": uri }))
}

fn tools() -> ListKinds {
    ListKinds::default().with(ListKind::Tools)
}

async fn page(
    world: &CatalogWorld,
    who: &Principal,
    session: SessionKey,
    kind: ListKind,
) -> CatalogPage {
    let ask = ListPageRequest {
        endpoint: &endpoint(),
        class: CapabilityClass::BASE,
        principal: who,
        session: Some(session),
        kind,
        cursor: None,
    };
    world.catalog.page(ask).await.unwrap()
}

async fn names(world: &CatalogWorld, who: &Principal, session: SessionKey) -> Vec<String> {
    let page = page(world, who, session, ListKind::Tools).await;
    page.view.items[page.range]
        .iter()
        .map(|item| item.exposed.to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn session_list_is_read_after_a_notification_and_shown_to_its_client_alone() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a", "b"]),
        ScriptedUpstream::new("two", &["c"]),
    );
    let world = CatalogWorld::of(&[&one, &two]);
    let (who, session) = (principal("ada"), ScriptedSession::with(&["b", "new"]));
    world.settled().await;
    let shared = ["one__a", "one__b", "two__c"];
    let lists = open(&world, &session, ONE);
    assert_eq!(names(&world, &who, ONE).await, shared);
    assert_eq!(session.reads(), 0, "nothing was said");
    lists.handle_list_changed(tools());
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
async fn shared_change_during_a_walk_over_a_sessions_list_is_shown_to_its_client() {
    let one = ScriptedUpstream::new("one", &["a"]);
    let world = CatalogWorld::of(&[&one]);
    let (who, session) = (principal("ada"), ScriptedSession::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    let delay = Duration::from_secs(1);
    *session.delay.lock() = delay;
    lists.handle_list_changed(tools());
    let change = async {
        tokio::time::sleep(delay / 10).await;
        assert_eq!(session.reads(), 1, "the walk has begun");
        one.set_tools(&["a", "new"]);
        one.tell();
    };
    let (seen, ()) = tokio::join!(names(&world, &who, ONE), change);
    // Both lists are the same now, so the difference is empty.
    assert_eq!(seen, ["one__a", "one__new"]);
    assert_eq!(names(&world, &who, ONE).await, seen);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_answer_is_shown_as_it_was_and_left_alone_for_a_while() {
    let one = ScriptedUpstream::new("one", &["a"]);
    let world = CatalogWorld::of(&[&one]);
    let (who, session) = (principal("ada"), ScriptedSession::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    lists.handle_list_changed(tools());
    assert_eq!(names(&world, &who, ONE).await, ["one__a", "one__new"]);
    *session.tools.lock() = None;
    lists.handle_list_changed(tools());
    for _ in 0..5 {
        assert_eq!(names(&world, &who, ONE).await, ["one__a", "one__new"]);
    }
    assert_eq!(session.reads(), 2, "it is not asked with every request");
    *session.tools.lock() = Some(vec!["a"]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(names(&world, &who, ONE).await, ["one__a"]);
}

#[tokio::test(start_paused = true)]
async fn endless_notifications_cause_ten_session_walks_a_second() {
    let one = ScriptedUpstream::new("one", &["a"]);
    let world = CatalogWorld::of(&[&one]);
    let (who, session) = (principal("ada"), ScriptedSession::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    let began = tokio::time::Instant::now();
    for _ in 0..60 {
        lists.handle_list_changed(tools());
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
async fn aggregate_list_change_is_reported_only_if_the_clients_view_changed() {
    let one = ScriptedUpstream::new("one", &["a"]);
    let world = CatalogWorld::of(&[&one]);
    let (who, session) = (principal("ada"), ScriptedSession::with(&["a"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    let news = async || {
        let client = SessionClient {
            endpoint: &endpoint(),
            class: CapabilityClass::BASE,
            principal: &who,
            session: ONE,
        };
        world
            .catalog
            .changed_session_lists(&client, &id("one"), tools())
            .await
    };
    lists.handle_list_changed(tools());
    assert!(news().await.is_empty(), "it is the same list");
    *session.tools.lock() = Some(vec!["a", "new"]);
    lists.handle_list_changed(tools());
    assert_eq!(news().await, tools());
    assert!(news().await.is_empty(), "it was told");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_upstream_has_stays_its_own() {
    let (one, two) = (
        ScriptedUpstream::new("one", &["a"]),
        ScriptedUpstream::new("two", &["new"]),
    );
    let world = CatalogWorld::empty(weir_catalog::CatalogSettings::default());
    world.show(&[&one, &two], NamePrefix::None, 1000);
    let (who, session) = (principal("ada"), ScriptedSession::with(&["a", "new"]));
    world.settled().await;
    let lists = open(&world, &session, ONE);
    lists.handle_list_changed(tools());
    assert_eq!(names(&world, &who, ONE).await, ["a", "new", "one__new"]);
    let seen = page(&world, &who, ONE, ListKind::Tools).await;
    assert_eq!(seen.view.items[1].tool.upstream, id("two"));
}

/// A call in a client's session, to its end.
async fn called(world: &RouterWorld, method: Method, params: Value) -> ReplyEnd {
    let change = |call: &mut Call| call.session = Some(ONE);
    let call = asked_with("ada", &endpoint(), method, raw(&params), change).await;
    end(world.router.call(call).await).await
}

#[tokio::test(start_paused = true)]
async fn session_list_is_read_for_an_unknown_name_only() {
    let one = ScriptedUpstream::new("one", &["a"]);
    one.set(|script| script.has_resources = true);
    let world = RouterWorld::of(CatalogWorld::of(&[&one]));
    let session = ScriptedSession::with(&["a", "new"]);
    world.world.settled().await;
    let lists = open(&world.world, &session, ONE);
    lists.count_call();
    called(&world, Method::ToolsCall, json!({ "name": "one__a" })).await;
    called(
        &world,
        Method::ResourcesRead,
        json!({ "uri": "one+x:unlisted" }),
    )
    .await;
    assert_eq!(
        session.reads(),
        0,
        "a shared tool, and a resource of which the URI says whose it is"
    );
    let added = called(&world, Method::ToolsCall, json!({ "name": "one__new" })).await;
    assert!(matches!(added, ReplyEnd::Complete(_)), "{added:?}");
    assert_eq!(
        (session.reads(), ScriptedUpstream::count(&one.calls)),
        (1, 3)
    );
    let unknown = failure(called(&world, Method::ToolsCall, json!({ "name": "one__none" })).await);
    assert_eq!(*unknown.kind(), FailureKind::InvalidParams);
    assert_eq!(session.reads(), 1, "nothing was called there since");
    lists.count_call();
    world.gate.rule("ada", "a", GateRule::Hidden);
    failure(called(&world, Method::ToolsCall, json!({ "name": "one__a" })).await);
    assert_eq!(session.reads(), 1, "what is hidden is not unknown");
}

#[tokio::test(start_paused = true)]
async fn subscribers_of_a_session_do_not_wait_one_after_another_for_a_slow_server() {
    let one = ScriptedUpstream::new("one", &["a"]);
    one.set(|script| script.subscribes = true);
    let world = RouterWorld::of(CatalogWorld::of(&[&one]));
    let (who, session) = (principal("ada"), ScriptedSession::with(&["a"]));
    *session.resources.lock() = vec!["memo:own"];
    world.world.settled().await;
    let lists = open(&world.world, &session, ONE);
    let resources = ListKinds::default().with(ListKind::Resources);
    lists.handle_list_changed(resources);
    page(&world.world, &who, ONE, ListKind::Resources).await;
    *session.tools.lock() = None;
    *session.delay.lock() = Duration::from_secs(10);
    let inbox = UpdateInbox::default();
    let subscribe = || async {
        let params = raw(&json!({ "uri": "one+memo:own" }));
        let (to, method) = (endpoint(), Method::ResourcesSubscribe);
        let change = |call: &mut Call| call.session = Some(ONE);
        let call = asked_with("ada", &to, method, params, change).await;
        world.router.subscribe(call, &inbox).await
    };
    let subscribed = futures_util::future::join_all((0..9).map(|_| subscribe())).await;
    assert!(subscribed.iter().all(Result::is_err));
    assert_eq!(
        session.subscribes.load(Ordering::SeqCst),
        2,
        "the time of one wait is enough for two requests"
    );
}
