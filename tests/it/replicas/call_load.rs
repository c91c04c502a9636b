//! Clients that call without a pause while replicas come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::mock_server::AnswerStep;
use weir_testkit::{MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use crate::harness::{CheckedClient, wait_until_async, within_test_timeout};

/// Callers of each kind.
const CALLERS: usize = 4;

/// The kind of calls that a caller makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// Calls in a session.
    Legacy,
    /// Calls of 2026-07-28.
    Modern,
    /// Calls in a session, answered by a stream with progress notifications.
    Progress,
    /// Calls in a session whose server asks the client.
    Question,
    /// Calls of 2026-07-28 that wait for the client's input.
    Parked,
}

impl CallKind {
    /// The kinds without questions.
    pub(super) const PLAIN: [Self; 2] = [Self::Legacy, Self::Modern];
    /// All kinds.
    pub(super) const ALL: [Self; 5] = [
        Self::Legacy,
        Self::Modern,
        Self::Progress,
        Self::Question,
        Self::Parked,
    ];

    pub(super) const fn revision(self) -> Revision {
        match self {
            Self::Legacy | Self::Progress | Self::Question => Revision::NEWEST_LEGACY,
            Self::Modern | Self::Parked => Revision::MODERN,
        }
    }

    /// The tool that it calls: each kind has one of its own, so that executions are counted apart.
    pub(super) const fn tool(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Progress => "progress",
            Self::Question => "question",
            Self::Parked => "parked",
        }
    }

    fn behaviour(self) -> MockBehaviour {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let form = json!({ "message": "Your name?", "requestedSchema": schema });
        match self {
            Self::Legacy | Self::Modern => MockBehaviour::echo(),
            Self::Progress => MockBehaviour::progress(3),
            Self::Question => MockBehaviour::steps([
                AnswerStep::Ask {
                    method: "elicitation/create",
                    params: form,
                },
                AnswerStep::Answer,
            ]),
            Self::Parked => MockBehaviour::ask("elicitation/create", form),
        }
    }
}

/// Starts a server with the tools of all kinds of calls.
pub(super) async fn upstream() -> MockServer {
    let mut server = MockServer::legacy(Revision::NEWEST_LEGACY);
    for kind in CallKind::ALL {
        server = server.tool(kind.tool(), kind.behaviour());
    }
    server.start().await
}

/// The counts of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallTotals {
    pub(super) answered: usize,
    /// Refused with 503, or without any answer.
    pub(super) refused: usize,
}

/// Callers that run until they are stopped.
pub(super) struct CallLoad {
    kinds: Vec<CallKind>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: JoinSet<(CallKind, CallTotals)>,
}

impl CallLoad {
    /// Starts callers of each of the kinds at this URL.
    pub(super) async fn start(url: &str, kinds: &[CallKind]) -> Self {
        let mut load = Self {
            kinds: kinds.to_vec(),
            stop: Arc::default(),
            answered: Arc::default(),
            callers: JoinSet::new(),
        };
        for kind in kinds {
            for _ in 0..CALLERS {
                let able = json!({ "elicitation": {} });
                let client = CheckedClient::with_capabilities(url, kind.revision(), able).await;
                let caller = Caller {
                    kind: *kind,
                    client: client.raw().clone().keeping_connections(),
                };
                let (stop, answered) = (load.stop.clone(), load.answered.clone());
                load.callers.spawn(caller.call_until(stop, answered));
            }
        }
        load
    }

    /// Waits until this many more calls are answered.
    pub(super) async fn wait_for_answers(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        wait_until_async("more answers", async || {
            (self.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Stops the callers, and compares the answered calls of each kind with those that the server
    /// ran: an answered call ran once, and no other call ran. Returns the counts of all.
    pub(super) async fn stop(mut self, upstream: &MockServer) -> CallTotals {
        self.stop.store(true, Ordering::Relaxed);
        let mut totals = CallTotals::default();
        let mut all = Vec::new();
        while let Some(own) = within_test_timeout("the callers", self.callers.join_next()).await {
            all.push(own.unwrap());
        }
        for kind in self.kinds {
            let own = all.iter().filter(|(other, _)| *other == kind);
            let answered: usize = own.map(|(_, totals)| totals.answered).sum();
            let executions = upstream.executions(kind.tool());
            assert_eq!(executions, answered, "answered calls of {kind:?}");
        }
        for (_, own) in all {
            totals.answered += own.answered;
            totals.refused += own.refused;
        }
        totals
    }
}

struct Caller {
    kind: CallKind,
    client: RawClient,
}

impl Caller {
    async fn call_until(
        self,
        stop: Arc<AtomicBool>,
        answered: Arc<AtomicUsize>,
    ) -> (CallKind, CallTotals) {
        let mut totals = CallTotals::default();
        while !stop.load(Ordering::Relaxed) {
            if self.call().await {
                totals.answered += 1;
                answered.fetch_add(1, Ordering::Relaxed);
            } else {
                totals.refused += 1;
            }
        }
        (self.kind, totals)
    }

    /// Makes a call; false if it was refused or had no answer.
    async fn call(&self) -> bool {
        match self.kind {
            CallKind::Legacy | CallKind::Modern | CallKind::Progress => {
                let params = json!({
                    "name": self.kind.tool(),
                    "arguments": {},
                    "_meta": { "progressToken": 1 },
                });
                self.ask(params).await.is_some()
            }
            CallKind::Question => self.call_with_question().await,
            CallKind::Parked => self.call_with_input().await,
        }
    }

    /// Makes a request of `tools/call`; returns its result.
    async fn ask(&self, params: Value) -> Option<Value> {
        let answer = self.client.ask("tools/call", params).await.ok()?;
        if answer.status != 200 {
            assert_eq!(answer.status, 503, "{:?}", answer.body);
            return None;
        }
        let result = answer.result().clone();
        assert!(result["isError"].is_null(), "{}", answer.last());
        Some(result)
    }

    async fn call_with_question(&self) -> bool {
        let params = json!({ "name": self.kind.tool(), "arguments": {} });
        let Ok(mut exchange) = self.client.request("tools/call", params).await else {
            return false;
        };
        if exchange.status != 200 {
            assert_eq!(exchange.status, 503);
            return false;
        }
        let question = exchange.next_message().await.unwrap().unwrap();
        let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
        let taken = self.client.respond(&question["id"], answer).await.unwrap();
        assert_eq!(taken.status, 202, "{:?}", taken.body);
        let end = exchange.finish().await.unwrap();
        assert!(end.text().contains("Ada"), "{:?}", end.messages);
        true
    }

    async fn call_with_input(&self) -> bool {
        let mut params = json!({ "name": self.kind.tool(), "arguments": {} });
        let Some(asked) = self.ask(params.clone()).await else {
            return false;
        };
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let requests = asked["inputRequests"].as_object().unwrap();
        let key = requests.keys().next().unwrap();
        let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
        params["inputResponses"] = json!({ key: answer });
        params["requestState"] = asked["requestState"].clone();
        let done = self.ask(params).await;
        assert!(done.is_some(), "the call was lost while it was parked");
        true
    }
}
