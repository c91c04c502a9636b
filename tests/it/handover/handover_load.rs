//! Clients of every kind that call, or hold streams, while processes or configs change.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use weir_testkit::RawClient;
use weir_wire::Revision;

use crate::harness::{TEST_TIMEOUT, wait_until_async};

/// Callers of every kind that call in a loop while processes or configs change.
pub(super) struct HandoverLoad {
    stop: Arc<AtomicBool>,
    next: Arc<AtomicUsize>,
    callers: Vec<tokio::task::JoinHandle<usize>>,
}

/// A kind of caller.
#[derive(Clone, Copy, Debug)]
enum CallerKind {
    /// Modern, with a new HTTP/1.1 connection for each call.
    Connecting,
    /// Modern, with an HTTP/1.1 connection that is kept.
    KeepAlive,
    /// Modern, with an HTTP/2 connection that is kept.
    Http2,
    /// With a session, which moves from process to process, and a kept HTTP/1.1 connection.
    LegacyHttp1,
    /// With a session, over a kept HTTP/2 connection.
    LegacyHttp2,
}

impl CallerKind {
    const ALL: [Self; 5] = [
        Self::Connecting,
        Self::KeepAlive,
        Self::Http2,
        Self::LegacyHttp1,
        Self::LegacyHttp2,
    ];

    /// Returns a client of this kind; a legacy one has no session yet.
    fn client(self, url: &str) -> RawClient {
        let client = RawClient::new(url);
        match self {
            Self::Connecting => client.modern(),
            Self::KeepAlive => client.modern().keeping_connections(),
            Self::Http2 => client.modern().with_http2().keeping_connections(),
            Self::LegacyHttp1 => client.legacy(Revision::V2025_11_25).keeping_connections(),
            Self::LegacyHttp2 => client
                .legacy(Revision::V2025_11_25)
                .with_http2()
                .keeping_connections(),
        }
    }

    fn is_legacy(self) -> bool {
        matches!(self, Self::LegacyHttp1 | Self::LegacyHttp2)
    }

    fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::LegacyHttp2)
    }

    /// Returns true if the server did not accept the request before its GOAWAY, so that a client
    /// sends it again (RFC 9113, section 6.8). hyper leaves that to its caller. A call that ran all
    /// the same would be counted twice.
    fn must_send_again<T>(self, outcome: &io::Result<T>) -> bool {
        let goaway = "GoAway(b\"\", NO_ERROR, Remote)";
        self.is_http2()
            && outcome
                .as_ref()
                .is_err_and(|error| format!("{error:?}").contains(goaway))
    }
}

/// A caller and, if it is legacy, its session.
struct LoadCaller {
    kind: CallerKind,
    client: RawClient,
}

impl LoadCaller {
    async fn new(kind: CallerKind, url: &str) -> Self {
        let client = kind.client(url);
        if !kind.is_legacy() {
            return Self { kind, client };
        }
        let greeted = loop {
            let greeted = client.clone().initialize().await;
            if !kind.must_send_again(&greeted) {
                break greeted;
            }
        };
        let client = greeted.unwrap_or_else(|error| panic!("a session is refused: {error:?}"));
        Self { kind, client }
    }

    /// Makes one call, which must be answered correctly.
    async fn call(&mut self, number: usize) {
        let answer = loop {
            let answer = self.client.call("one__echo", json!({ "n": number })).await;
            if !self.kind.must_send_again(&answer) {
                break answer;
            }
        };
        let answer = answer
            .unwrap_or_else(|error| panic!("call {number} of {:?} is lost: {error:?}", self.kind));
        assert_eq!(
            answer.text(),
            format!(r#"{{"n":{number}}}"#),
            "call {number} of {:?}",
            self.kind
        );
    }
}

impl HandoverLoad {
    /// Starts one caller of each kind, twice.
    pub(super) fn start(url: &str) -> Self {
        let (stop, next) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let caller = |kind: CallerKind| {
            let (url, stop, next) = (url.to_owned(), stop.clone(), next.clone());
            tokio::spawn(async move {
                let mut caller = LoadCaller::new(kind, &url).await;
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    caller.call(next.fetch_add(1, Ordering::Relaxed)).await;
                    calls += 1;
                }
                calls
            })
        };
        let callers = CallerKind::ALL
            .into_iter()
            .chain(CallerKind::ALL)
            .map(caller)
            .collect();
        Self {
            stop,
            next,
            callers,
        }
    }

    /// Waits until this many more calls have begun.
    pub(super) async fn wait_for_more_calls(&self, calls: usize) {
        let wanted = self.next.load(Ordering::Relaxed) + calls;
        wait_until_async("more calls", async || {
            (self.next.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Stops the callers; returns the number of answered calls.
    pub(super) async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut calls = 0;
        for caller in self.callers {
            calls += caller.await.unwrap();
        }
        calls
    }
}

/// The tool that the upstream gets after all hand-overs.
const LATE_TOOL: &str = "one__late";

/// Clients that hold a stream for changes of the list: one of each era over HTTP/1.1, and one of
/// each over HTTP/2.
pub(super) struct ListWatchers(Vec<tokio::task::JoinHandle<usize>>);

impl ListWatchers {
    /// Starts them, and waits until each has its stream.
    pub(super) async fn start(url: &str) -> Self {
        let kinds = [
            CallerKind::KeepAlive,
            CallerKind::Http2,
            CallerKind::LegacyHttp1,
            CallerKind::LegacyHttp2,
        ];
        let watching = Arc::new(AtomicUsize::new(0));
        let watch = |kind| tokio::spawn(watch(kind, url.to_owned(), watching.clone()));
        let watchers = Self(kinds.map(watch).into());
        wait_until_async("their streams", async || {
            (watching.load(Ordering::Relaxed) >= kinds.len()).then_some(())
        })
        .await;
        watchers
    }

    /// Waits until each has been notified of [`LATE_TOOL`]; returns the number of streams that
    /// ended.
    pub(super) async fn finish(self) -> usize {
        let mut ends = 0;
        for watcher in self.0 {
            ends += tokio::time::timeout(TEST_TIMEOUT, watcher)
                .await
                .expect("the last change is heard")
                .unwrap();
        }
        ends
    }
}

/// Holds a stream, and opens it again whenever it ends, until the list has [`LATE_TOOL`]; returns
/// how often it ended. The test fails if a stream ends in another way than its protocol demands.
async fn watch(kind: CallerKind, url: String, watching: Arc<AtomicUsize>) -> usize {
    let mut ends = 0;
    loop {
        let LoadCaller { client, .. } = LoadCaller::new(kind, &url).await;
        let opened = match kind.is_legacy() {
            true => client.get_stream().await,
            false => client.listen(json!({ "toolsListChanged": true })).await,
        };
        if kind.must_send_again(&opened) {
            continue;
        }
        let mut stream = opened.unwrap_or_else(|error| panic!("no stream for {kind:?}: {error:?}"));
        if stream.status == 404 {
            // The session ended between its handshake and its stream.
            continue;
        }
        assert_eq!(stream.status, 200, "{kind:?}");
        watching.fetch_add(1, Ordering::Relaxed);
        // A change may have come before the stream.
        let mut has_changed = true;
        while has_changed {
            // The client sends a list request again to the successor if a draining process refuses
            // it.
            if client
                .list_tools()
                .await
                .is_ok_and(|tools| tools.iter().any(|tool| tool["name"] == LATE_TOOL))
            {
                return ends;
            }
            has_changed = loop {
                let message = stream.next_message().await;
                match message
                    .unwrap_or_else(|error| panic!("a stream of {kind:?} broke: {error:?}"))
                {
                    None => break false,
                    Some(message) if message["method"] == "notifications/tools/list_changed" => {
                        break true;
                    }
                    Some(_) => {}
                }
            };
        }
        ends += 1;
    }
}
