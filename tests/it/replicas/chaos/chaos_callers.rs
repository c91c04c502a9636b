//! Clients that call while faults happen. Every call has a number of its own, which its answer must
//! have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_testkit::{ClientAnswer, MockServer, RawClient};

use super::super::call_load::CallKind;
use crate::harness::{wait_until_async, within_test_timeout};

/// Callers of each kind.
const CALLERS: usize = 2;
/// Attempts to open a session or to answer a question, and the pause after each.
const ATTEMPTS: u32 = 300;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait of a client for the end of a call that it answered a question of.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// The end of a call, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEnd {
    /// It has its answer.
    Answered,
    /// weir refused it: it did not run.
    Refused,
    /// Its connection broke, or weir says that it may have run.
    Unknown,
    /// Its session is gone.
    SessionGone,
}

/// The numbers of calls by their ends.
#[derive(Debug, Default)]
pub(super) struct ChaosTotals {
    answered: Vec<u64>,
    refused: Vec<u64>,
    unknown: usize,
    pub(super) sessions_gone: usize,
}

impl ChaosTotals {
    fn count(&mut self, number: u64, end: CallEnd) {
        match end {
            CallEnd::Answered => self.answered.push(number),
            CallEnd::Refused => self.refused.push(number),
            CallEnd::Unknown => self.unknown += 1,
            CallEnd::SessionGone => self.sessions_gone += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.answered.extend(other.answered);
        self.refused.extend(other.refused);
        self.unknown += other.unknown;
        self.sessions_gone += other.sessions_gone;
    }

    /// Compares the ends with the calls that the server ran: an answered call ran once, a refused
    /// one never, and no other call twice.
    pub(super) fn compare_with(&self, upstream: &MockServer) {
        let mut runs = HashMap::<u64, usize>::new();
        for request in upstream.requests_of("tools/call") {
            let number = &request.message["params"]["arguments"]["n"];
            *runs.entry(number.as_u64().unwrap()).or_default() += 1;
        }
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "calls that ran twice: {twice:?}");
        let lost: Vec<_> = self
            .answered
            .iter()
            .filter(|n| !runs.contains_key(n))
            .collect();
        assert!(lost.is_empty(), "answered calls that did not run: {lost:?}");
        let ran: Vec<_> = self
            .refused
            .iter()
            .filter(|n| runs.contains_key(n))
            .collect();
        assert!(ran.is_empty(), "refused calls that ran: {ran:?}");
    }
}

impl std::fmt::Display for ChaosTotals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} calls answered, {} refused, {} of unknown result, {} sessions gone",
            self.answered.len(),
            self.refused.len(),
            self.unknown,
            self.sessions_gone
        )
    }
}

/// Callers that run until they are stopped.
pub(super) struct ChaosCallers {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: JoinSet<ChaosTotals>,
}

impl ChaosCallers {
    /// Starts callers of each kind at this URL.
    pub(super) fn start(url: &str) -> Self {
        let mut all = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            callers: JoinSet::new(),
        };
        let numbers = Arc::<AtomicU64>::default();
        for kind in CallKind::ALL {
            for _ in 0..CALLERS {
                let caller = ChaosCaller {
                    kind,
                    url: url.to_owned(),
                    numbers: Arc::clone(&numbers),
                };
                let (stop, answered) = (Arc::clone(&all.stop), Arc::clone(&all.answered));
                all.callers.spawn(caller.call_until(stop, answered));
            }
        }
        all
    }

    /// Waits until this many more calls are answered.
    pub(super) async fn wait_for_answers(&self, count: usize) {
        let wanted = self.answered.load(Ordering::Relaxed) + count;
        wait_until_async("more answers", async || {
            (self.answered.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    /// Stops the callers and returns the ends of all calls.
    pub(super) async fn stop(mut self) -> ChaosTotals {
        self.stop.store(true, Ordering::Relaxed);
        let mut totals = ChaosTotals::default();
        while let Some(own) = within_test_timeout("the callers", self.callers.join_next()).await {
            totals.add(own.unwrap());
        }
        totals
    }
}

struct ChaosCaller {
    kind: CallKind,
    url: String,
    /// The number of the next call of all callers.
    numbers: Arc<AtomicU64>,
}

impl ChaosCaller {
    async fn call_until(self, stop: Arc<AtomicBool>, answered: Arc<AtomicUsize>) -> ChaosTotals {
        let mut totals = ChaosTotals::default();
        let mut client = None;
        while !stop.load(Ordering::Relaxed) {
            let open = match client.take() {
                Some(open) => open,
                None => self.open().await,
            };
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let what = format!("a call of {:?}", self.kind);
            let ended = within_test_timeout(&what, self.call(&open, number)).await;
            totals.count(number, ended);
            if ended == CallEnd::Answered {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            if ended != CallEnd::SessionGone {
                client = Some(open);
            }
        }
        if let Some(open) = client.filter(|open| open.session().is_some()) {
            let _may_be_gone = open.delete().await;
        }
        totals
    }

    /// Opens a client, over as many attempts as it takes.
    async fn open(&self) -> RawClient {
        let able = json!({ "elicitation": {} });
        let bare = || RawClient::new(&self.url).keeping_connections();
        if self.kind.revision().is_modern() {
            return bare().modern_with(weir_testkit::ModernEnvelope {
                capabilities: able,
                ..Default::default()
            });
        }
        for _ in 0..ATTEMPTS {
            let opening = bare().legacy(self.kind.revision());
            match opening.initialize_with(able.clone()).await {
                Ok((client, answer)) if answer.status.is_success() => return client,
                Ok(_) | Err(_) => tokio::time::sleep(ATTEMPT_PAUSE).await,
            }
        }
        panic!("no session within {:?}", ATTEMPT_PAUSE * ATTEMPTS);
    }

    async fn call(&self, client: &RawClient, number: u64) -> CallEnd {
        let mut params = json!({
            "name": self.kind.tool(),
            "arguments": { "n": number },
            "_meta": { "progressToken": number },
        });
        match self.kind {
            CallKind::Legacy | CallKind::Modern | CallKind::Progress => {
                let result = self.ask(client, params).await;
                result.map_or_else(|end| end, |result| answered(&result, &arguments(number)))
            }
            CallKind::Question => self.call_with_question(client, params, number).await,
            CallKind::Parked => {
                let asked = match self.ask(client, params.clone()).await {
                    Ok(asked) => asked,
                    Err(end) => return end,
                };
                assert_eq!(asked["resultType"], "input_required", "{asked}");
                let requests = asked["inputRequests"].as_object().unwrap();
                let key = requests.keys().next().unwrap();
                params["inputResponses"] = json!({ key: acceptance(number) });
                params["requestState"] = asked["requestState"].clone();
                match self.ask(client, params).await {
                    Ok(result) => answered(&result, &arguments(number)),
                    // It had begun with the first request.
                    Err(_) => CallEnd::Unknown,
                }
            }
        }
    }

    /// Makes a request of `tools/call`; returns its result.
    async fn ask(&self, client: &RawClient, params: Value) -> Result<Value, CallEnd> {
        match client.ask("tools/call", params).await {
            Ok(answer) => self.judge(&answer),
            Err(_) => Err(CallEnd::Unknown),
        }
    }

    async fn call_with_question(&self, client: &RawClient, params: Value, number: u64) -> CallEnd {
        let Ok(mut exchange) = client.request("tools/call", params).await else {
            return CallEnd::Unknown;
        };
        let mut deliveries = Vec::new();
        if exchange.is_stream() && exchange.status == 200 {
            match exchange.next_message().await {
                Ok(Some(message)) if message["method"] == "elicitation/create" => {
                    deliveries = deliver(client, &message["id"], number).await;
                }
                Ok(_) | Err(_) => return CallEnd::Unknown,
            }
        }
        // A question whose answer was lost waits for it until the call's own time limit.
        let finished = tokio::time::timeout(ANSWER_WAIT, exchange.finish()).await;
        let Ok(Ok(answer)) = finished else {
            return CallEnd::Unknown;
        };
        if answer.status == 200 && answer.messages.is_empty() {
            return CallEnd::Unknown;
        }
        match self.judge(&answer) {
            // Without the client's answer, the server goes on.
            Ok(result) if text_of(&result) == "null" => {
                assert!(
                    !deliveries.iter().any(|delivery| delivery.contains("202")),
                    "weir took the answer, and the server did not get it: {deliveries:?}"
                );
                println!("a question without an answer: {deliveries:?}");
                CallEnd::Unknown
            }
            Ok(result) => answered(&result, &name(number)),
            Err(end) => end,
        }
    }

    /// Returns the result of an answer, or the end that its error means.
    fn judge(&self, answer: &ClientAnswer) -> Result<Value, CallEnd> {
        if answer.status == 404 && !self.kind.revision().is_modern() {
            return Err(CallEnd::SessionGone);
        }
        let Some(last) = answer.messages.last() else {
            // A stream that broke ends without an answer.
            if answer.status == 200 {
                return Err(CallEnd::Unknown);
            }
            // A refusal before the message is read has its reason as a text. For a replica that stood
            // still, the body came too slowly.
            let is_refusal = match answer.status.as_u16() {
                503 => answer.header("retry-after").is_some(),
                status => status == 408,
            };
            assert!(is_refusal, "{} {:?}", answer.status, answer.body);
            return Err(CallEnd::Refused);
        };
        if last["result"].is_object() && last["result"]["isError"].is_null() {
            return Ok(last["result"].clone());
        }
        let text = last.to_string();
        if text.contains("may have run") {
            return Err(CallEnd::Unknown);
        }
        // No connection to the server could be opened.
        let is_unavailable = last["result"]["_meta"]["dev.weir/error"]["reason"] == "unavailable";
        let is_refused = answer.status == 503 && last["error"]["data"]["reason"].is_string();
        assert!(is_unavailable || is_refused, "{} {text}", answer.status);
        Err(CallEnd::Refused)
    }
}

/// Sends the answer to a question until weir takes it, as a client does that does not give up.
/// Returns the outcome of each attempt.
async fn deliver(client: &RawClient, question: &Value, number: u64) -> Vec<String> {
    let mut outcomes = Vec::new();
    for _ in 0..ATTEMPTS {
        let outcome = client.respond(question, acceptance(number)).await;
        let may_come_again = outcome.as_ref().map_or(true, |answer| answer.status == 503);
        outcomes.push(match outcome {
            Ok(answer) => format!("{} {:?}", answer.status, answer.body),
            Err(error) => error.to_string(),
        });
        if !may_come_again {
            break;
        }
        tokio::time::sleep(ATTEMPT_PAUSE).await;
    }
    outcomes
}

/// Compares an answer with the text that only the call's own answer has.
fn answered(result: &Value, expected: &str) -> CallEnd {
    assert!(
        text_of(result).contains(expected),
        "{expected} is not in {result}"
    );
    CallEnd::Answered
}

fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// Returns the text of a server that answers with the arguments.
fn arguments(number: u64) -> String {
    format!(r#"{{"n":{number}}}"#)
}

fn name(number: u64) -> String {
    format!("Ada-{number}-")
}

fn acceptance(number: u64) -> Value {
    json!({ "action": "accept", "content": { "name": name(number) } })
}
