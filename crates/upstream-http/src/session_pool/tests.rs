//! The end of clients, and of calls, while their sessions are opened.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use weir_testkit::scripted_server::{ScriptedRequest, ScriptedServer, ServerAct};
use weir_testkit::wait_for_condition;

use super::*;
use crate::http_watch::HttpWatch;
use crate::tests::test_upstream::TestUpstream;

const CLIENT: SessionKey = SessionKey([1; 16]);

fn answer(request: &ScriptedRequest) -> ServerAct {
    let capabilities = json!({ "tools": { "listChanged": true } });
    let result = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
    let body = json!({ "jsonrpc": "2.0", "id": request.id(), "result": result }).to_string();
    let head = match request.method() {
        "initialize" => "200 OK\r\nmcp-session-id: one\r\ncontent-type: application/json",
        _ => "202 Accepted",
    };
    let length = body.len();
    let response = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
    ServerAct::Write(response.into())
}

/// The opening of a session of [`CLIENT`].
#[derive(Clone)]
struct Opening {
    pool: Arc<SessionPool>,
    key: SessionPoolKey,
}

impl Opening {
    fn new(server: &ScriptedServer) -> Self {
        Self::at(TestUpstream::new(server))
    }

    fn at(upstream: TestUpstream) -> Self {
        let TestUpstream { context, http, .. } = upstream;
        let revision = Revision::parse("2025-11-25").unwrap();
        Self {
            pool: SessionPool::new(context, http, revision, SessionSharing::Principal),
            key: SessionPoolKey {
                principal: None,
                class: CapabilityClass::BASE,
                session: Some(CLIENT),
            },
        }
    }

    /// Returns the refusal, if there is one.
    async fn run(self) -> Option<FailedAttempt> {
        let slot = self.pool.slots.free_slot(&self.key, 0).unwrap();
        self.pool.session(&slot, &self.key, None).await.err()
    }

    /// Ends the upstream, and waits at most `grace` for its tasks.
    async fn retire(&self, grace: Duration) {
        self.pool.close().await;
        self.pool.context.tasks.stop(grace).await;
    }

    fn start(self, is_for_watch: bool) -> JoinHandle<Option<FailedAttempt>> {
        if is_for_watch {
            tokio::spawn(self.run_for_watch())
        } else {
            tokio::spawn(self.run())
        }
    }

    /// Opens a session for a watch instead.
    async fn run_for_watch(self) -> Option<FailedAttempt> {
        let session = self.pool.open_apart(self.key.class).await.unwrap();
        HttpWatch::legacy(self.pool.context.clone(), session).await;
        None
    }
}

fn deletes(server: &ScriptedServer) -> usize {
    let requests = server.requests();
    let is_delete = |request: &&ScriptedRequest| request.head.starts_with("DELETE");
    requests.iter().filter(is_delete).count()
}

/// The refusal of a session whose slot is taken out during its opening, and the number of DELETEs.
async fn opened_while(taken_out: fn(&SessionPool)) -> (FailedAttempt, usize) {
    let known = Arc::new(OnceLock::<Arc<SessionPool>>::new());
    let found = known.clone();
    let server = ScriptedServer::start(move |request| {
        if request.method() == "initialize" {
            taken_out(found.get().unwrap());
        }
        vec![answer(request)]
    })
    .await;
    let opening = Opening::new(&server);
    known.set(opening.pool.clone()).unwrap();
    let context = opening.pool.context.clone();
    let refusal = opening.run().await.unwrap();
    context.tasks.stop(Duration::from_secs(60)).await;
    (refusal, deletes(&server))
}

#[tokio::test]
async fn session_of_a_client_that_ends_during_its_opening_is_deleted() {
    let (refusal, deleted) = opened_while(|pool| {
        pool.forward_session_change(&HashSet::from([CLIENT]), ClientSessionChange::Ended);
    })
    .await;
    assert_eq!(deleted, 1);
    assert!(
        refusal.proof.is_none() && !refusal.was_attempted(),
        "the call would open another session"
    );
}

/// The call of a client whose session ends may make its slot after the change is forwarded.
#[tokio::test]
async fn session_that_is_opened_after_the_end_of_its_client_is_deleted() {
    let server = ScriptedServer::start(|request| vec![answer(request)]).await;
    let opening = Opening::new(&server);
    let ended = HashSet::from([CLIENT]);
    let (pool, context) = (&opening.pool, opening.pool.context.clone());
    pool.forward_session_change(&ended, ClientSessionChange::Ended);
    let refusal = opening.run().await.unwrap();
    assert!(!refusal.was_attempted());
    context.tasks.stop(Duration::from_secs(60)).await;
    assert_eq!(deletes(&server), 1);
}

/// Openings of sessions of several clients.
fn openings(opening: &Opening, count: u8) -> impl Iterator<Item = Opening> {
    (0..count).map(|number| Opening {
        key: SessionPoolKey {
            session: Some(SessionKey([number; 16])),
            ..opening.key.clone()
        },
        ..opening.clone()
    })
}

// Proves E11.
#[tokio::test]
async fn openings_that_fail_side_by_side_are_one_failure() {
    let unavailable = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let server =
        ScriptedServer::start(|_| vec![ServerAct::Write(Bytes::from_static(unavailable))]).await;
    let upstream = TestUpstream::new(&server);
    let clock = upstream.clock.clone();
    let opening = Opening::at(upstream);
    let all = openings(&opening, 12).map(Opening::run);
    let refused = futures_util::future::join_all(all).await;
    assert!(refused.iter().all(Option::is_some));
    assert_eq!(
        server.requests().len(),
        12,
        "they began before the first had failed"
    );
    // The longest wait after one failure.
    clock.advance(Duration::from_millis(100));
    let pace = opening.pool.pace.lock();
    assert_eq!(pace.admit(opening.pool.context.clock.now()), Ok(()));
}

#[tokio::test]
async fn openings_of_callers_that_have_left_are_bounded() {
    let (seen, mut initialized) = mpsc::channel(8);
    let server = ScriptedServer::start(move |_| {
        seen.try_send(()).unwrap();
        vec![ServerAct::Hang]
    })
    .await;
    let mut opening = Opening::new(&server);
    let pool = Arc::get_mut(&mut opening.pool).unwrap();
    pool.openings = Arc::new(Semaphore::new(2));
    let mut more = openings(&opening, 3);
    for opening in more.by_ref().take(2) {
        let caller = tokio::spawn(opening.run());
        initialized.recv().await.unwrap();
        caller.abort();
    }
    let refusal = more.next().unwrap().run().await.unwrap();
    assert_eq!(*refusal.failure.kind(), FailureKind::Busy);
    assert!(!refusal.was_attempted());
}

#[tokio::test]
async fn call_of_a_pool_that_is_closed_during_its_opening_is_sent_again() {
    let close = |pool: &SessionPool| pool.close().now_or_never().unwrap();
    let (refusal, deleted) = opened_while(close).await;
    assert_eq!((refusal.proof, deleted), (Some(ResendProof::NotSent), 1));
}

#[tokio::test]
async fn session_whose_opening_is_given_up_is_deleted() {
    let cases = ["notifications/initialized", "GET"].map(|at| [(at, false), (at, true)]);
    for (silent_at, is_for_watch) in cases.into_iter().flatten() {
        let (seen, mut silent) = mpsc::channel(1);
        let server = ScriptedServer::start(move |request| {
            if request.method() == silent_at || request.head.starts_with(silent_at) {
                seen.try_send(()).unwrap();
                return vec![ServerAct::Hang];
            }
            vec![answer(request)]
        })
        .await;
        let opening = Opening::new(&server);
        let call = opening.clone().start(is_for_watch);
        silent.recv().await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        // The end of the session is not cut short.
        opening.retire(Duration::ZERO).await;
        assert_eq!(deletes(&server), 1, "{silent_at}, {is_for_watch}");
    }
}

/// Begins an opening whose caller leaves before the server answers `initialize`, and waits for the
/// caller's end.
async fn left_during_initialize(is_for_watch: bool) -> (Opening, ScriptedServer) {
    let caller = Arc::new(OnceLock::<AbortHandle>::new());
    let leaving = caller.clone();
    let server = ScriptedServer::start(move |request| {
        if request.method() == "initialize" {
            leaving.get().unwrap().abort();
        }
        vec![answer(request)]
    })
    .await;
    let opening = Opening::new(&server);
    let call = opening.clone().start(is_for_watch);
    caller.set(call.abort_handle()).unwrap();
    assert!(call.await.unwrap_err().is_cancelled());
    (opening, server)
}

#[tokio::test]
async fn session_whose_caller_leaves_during_initialize_serves_the_next_call() {
    let (opening, server) = left_during_initialize(false).await;
    assert!(opening.clone().run().await.is_none());
    let requests = server.requests();
    let opened = requests.iter().filter(|one| one.method() == "initialize");
    assert_eq!((opened.count(), opening.pool.len()), (1, 1));
    opening.retire(Duration::from_secs(60)).await;
    assert_eq!(deletes(&server), 1);
}

#[tokio::test]
async fn session_whose_caller_leaves_during_initialize_ends_with_the_upstream() {
    for is_for_watch in [false, true] {
        let (opening, server) = left_during_initialize(is_for_watch).await;
        opening.retire(Duration::from_secs(60)).await;
        assert_eq!(deletes(&server), 1, "{is_for_watch}");
    }
}

#[tokio::test]
async fn retired_upstream_waits_for_the_session_of_its_watch() {
    let server = ScriptedServer::start(|request| vec![answer(request)]).await;
    let opening = Opening::new(&server);
    let session = opening.pool.open_apart(opening.key.class).await.unwrap();
    let watch = HttpWatch::legacy(opening.pool.context.clone(), session).await;
    // The watcher notices its end when it runs next.
    let leaving = async {
        tokio::task::yield_now().await;
        drop(watch);
    };
    tokio::join!(opening.retire(Duration::from_secs(60)), leaving);
    assert_eq!(deletes(&server), 1);
}

#[tokio::test]
async fn session_that_outlives_its_upstream_is_deleted() {
    let (seen, mut deleted) = mpsc::channel(1);
    let server = ScriptedServer::start(move |request| {
        if request.head.starts_with("DELETE") {
            seen.try_send(()).unwrap();
        }
        vec![answer(request)]
    })
    .await;
    let opening = Opening::new(&server);
    let session = opening.pool.open_apart(opening.key.class).await.unwrap();
    opening.retire(Duration::ZERO).await;
    drop(session);
    let arrived = timeout(Duration::from_secs(60), deleted.recv()).await;
    assert!(arrived.unwrap().is_some());
}

#[tokio::test]
async fn call_that_begins_after_the_close_of_its_pool_leaves_no_session() {
    let server = ScriptedServer::start(|request| vec![answer(request)]).await;
    let opening = Opening::new(&server);
    opening.pool.close().await;
    let refusal = opening.clone().run().await.unwrap();
    assert_eq!(refusal.proof, Some(ResendProof::NotSent));
    opening.retire(Duration::from_secs(60)).await;
    assert_eq!((deletes(&server), opening.pool.len()), (1, 0));
}

#[tokio::test]
async fn session_whose_initialize_answer_is_unusable_is_deleted() {
    let head = "HTTP/1.1 200 OK\r\nmcp-session-id: one\r\ncontent-type: application/json\r\n";
    let cut = format!("{head}content-length: 1000\r\n\r\n{{");
    let no_json = format!("{head}content-length: 7\r\n\r\nno JSON");
    let unknown = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01"}}"#;
    let unknown = format!("{head}content-length: {}\r\n\r\n{unknown}", unknown.len());
    let typed = |head: &str| {
        format!("HTTP/1.1 {head}\r\nmcp-session-id: one\r\ncontent-length: 2\r\n\r\n{{}}")
    };
    let page = typed("200 OK\r\ncontent-type: text/html");
    let coded = typed("200 OK\r\ncontent-type: application/json\r\ncontent-encoding: br");
    let accepted = "HTTP/1.1 202 Accepted\r\nmcp-session-id: one\r\ncontent-length: 0\r\n\r\n";
    for bad in [cut, no_json, unknown, page, coded, accepted.to_owned()] {
        let written = bad.clone();
        let server = ScriptedServer::start(move |request| match request.method() {
            "initialize" => vec![ServerAct::Write(written.clone().into()), ServerAct::Close],
            _ => vec![answer(request)],
        })
        .await;
        let opening = Opening::new(&server);
        let context = opening.pool.context.clone();
        assert!(opening.run().await.is_some(), "{bad}");
        context.tasks.stop(Duration::from_secs(60)).await;
        let requests = server.requests();
        let head = &requests.last().unwrap().head;
        assert!(
            head.starts_with("DELETE") && head.contains("mcp-session-id: one"),
            "{head}"
        );
        assert_eq!(deletes(&server), 1, "{bad}");
    }
}

#[tokio::test]
async fn session_whose_initialize_answer_is_late_is_deleted() {
    let (seen, mut deleted) = mpsc::channel(1);
    let server = ScriptedServer::start(move |request| {
        if request.method() == "initialize" {
            return Vec::new();
        }
        seen.try_send(request.head.clone()).unwrap();
        vec![answer(request)]
    })
    .await;
    let mut upstream = TestUpstream::new(&server);
    let context = Arc::get_mut(&mut upstream.context).unwrap();
    context.own_requests.deadlines.probe = Duration::from_millis(50);
    let opening = Opening::at(upstream);
    let refusal = opening.clone().run().await.unwrap();
    assert_eq!(*refusal.failure.kind(), FailureKind::TimedOut);
    wait_for_condition(
        "the server has the request",
        Duration::from_secs(60),
        || !server.requests().is_empty(),
    )
    .await;
    let ServerAct::Write(late) = answer(&server.requests()[0]) else {
        unreachable!("it is written")
    };
    server.write_to_all(&late).await;
    let head = timeout(Duration::from_secs(60), deleted.recv()).await;
    let head = head.unwrap().unwrap();
    assert!(
        head.starts_with("DELETE") && head.contains("mcp-session-id: one"),
        "{head}"
    );
}
