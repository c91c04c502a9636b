//! Clients that call while replicas come and go.

mod call_kind;
pub(super) mod caller_group;

use std::convert::Infallible;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use weir_testkit::{MockServer, RawClient};

use crate::harness::CheckedClient;
pub(super) use call_kind::{CallKind, upstream};
use caller_group::{CallerGroup, CallerSignals};

/// Callers of each kind.
const CALLERS: usize = 2;

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
    callers: CallerGroup<(CallKind, CallTotals)>,
}

impl CallLoad {
    /// Starts callers of each of the kinds at this URL, which call without a pause.
    pub(super) async fn start(url: &str, kinds: &[CallKind]) -> Self {
        Self::start_paced(url, kinds, Duration::ZERO).await
    }

    /// Starts callers of each of the kinds at this URL, each with this pause after a call.
    pub(super) async fn start_paced(url: &str, kinds: &[CallKind], pause: Duration) -> Self {
        let mut callers = CallerGroup::new();
        for kind in kinds {
            for _ in 0..CALLERS {
                let able = kind.capabilities();
                let client = CheckedClient::with_capabilities(url, kind.revision(), able).await;
                let caller = Caller {
                    kind: *kind,
                    pause,
                    client: kind.connected(client.raw().clone()),
                };
                callers.spawn(|signals| caller.call_until_stopped(signals));
            }
        }
        Self {
            kinds: kinds.to_vec(),
            callers,
        }
    }

    /// Waits until this many more calls are answered.
    pub(super) async fn wait_for_answers(&self, count: usize) {
        self.callers.wait_for_answers(count).await;
    }

    /// Stops the callers, and compares the answered calls of each kind with those that the server
    /// ran: an answered call ran once, and no other call ran. Returns the counts of all.
    pub(super) async fn stop(self, upstream: &MockServer) -> CallTotals {
        let all = self.callers.stop().await;
        for kind in self.kinds {
            let own = all.iter().filter(|(other, _)| *other == kind);
            let answered: usize = own.map(|(_, totals)| totals.answered).sum();
            let executions = upstream.executions(kind.tool());
            assert_eq!(executions, answered, "answered calls of {kind:?}");
            println!("{answered} answered calls of {kind:?}");
        }
        let mut totals = CallTotals::default();
        for (_, own) in all {
            totals.answered += own.answered;
            totals.refused += own.refused;
        }
        totals
    }
}

struct Caller {
    kind: CallKind,
    pause: Duration,
    client: RawClient,
}

impl Caller {
    async fn call_until_stopped(self, signals: CallerSignals) -> (CallKind, CallTotals) {
        let mut totals = CallTotals::default();
        while !signals.is_stopped() {
            if self.call().await {
                totals.answered += 1;
                signals.count_answer();
            } else {
                totals.refused += 1;
            }
            // A sleep of no time is one of up to a millisecond.
            if !self.pause.is_zero() {
                sleep(self.pause).await;
            }
        }
        (self.kind, totals)
    }

    /// Makes a call; false if it was refused or had no answer.
    async fn call(&self) -> bool {
        let params = self.kind.params(&json!({}));
        match self.kind {
            CallKind::Legacy
            | CallKind::Modern
            | CallKind::LegacyHttp2
            | CallKind::ModernHttp2
            | CallKind::Progress => self.ask("tools/call", params).await.is_some(),
            CallKind::Elicitation | CallKind::Sampling => self.call_with_question(params).await,
            CallKind::Parked => self.call_with_input(params).await,
            CallKind::LegacyTask | CallKind::ModernTask => self.call_as_task(params).await,
        }
    }

    /// Makes a request; returns its result.
    async fn ask(&self, method: &str, params: Value) -> Option<Value> {
        let answer = self.client.ask(method, params).await;
        let answer = answer.map_err(|error| self.report(&error)).ok()?;
        if answer.status != 200 {
            assert_eq!(answer.status, 503, "{method}: {:?}", answer.body);
            self.report(&answer.body);
            return None;
        }
        let result = answer.result().clone();
        assert!(result["isError"].is_null(), "{}", answer.last());
        Some(result)
    }

    /// Prints why a call has no answer.
    fn report(&self, reason: &dyn std::fmt::Debug) {
        println!("a call of {:?} has no answer: {reason:?}", self.kind);
    }

    /// Makes a further request of a call that runs, which must succeed.
    async fn go_on(&self, method: &str, params: Value) -> Value {
        let result = self.ask(method, params).await;
        result.unwrap_or_else(|| panic!("a call of {:?} was lost at {method}", self.kind))
    }

    async fn call_with_question(&self, params: Value) -> bool {
        let mut exchange = match self.client.request("tools/call", params).await {
            Ok(exchange) if exchange.status == 200 => exchange,
            other => {
                self.report(&other);
                return false;
            }
        };
        let question = exchange.next_message().await.unwrap().unwrap();
        assert_eq!(question["method"], self.kind.question(), "{question}");
        let answer = self.kind.answer("Ada");
        let taken = self.client.respond(&question["id"], answer).await.unwrap();
        assert_eq!(taken.status, 202, "{:?}", taken.body);
        let end = exchange.finish().await.unwrap();
        assert!(end.text().contains("Ada"), "{:?}", end.messages);
        true
    }

    async fn call_with_input(&self, params: Value) -> bool {
        let Some(asked) = self.ask("tools/call", params.clone()).await else {
            return false;
        };
        let params = self.kind.with_input(params, &asked, "Ada");
        self.go_on("tools/call", params).await;
        true
    }

    async fn call_as_task(&self, params: Value) -> bool {
        let Some(created) = self.ask("tools/call", params).await else {
            return false;
        };
        let go_on = |method, about| {
            Box::pin(async move { Ok::<_, Infallible>(self.go_on(method, about).await) }) as _
        };
        let Ok(result) = self.kind.follow_task(&created, go_on).await;
        assert_eq!(result["content"][0]["text"], "{}", "{result}");
        true
    }
}
