//! One call while faults happen. It has a number of its own, which its answer must have.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, RawClient};

use super::super::call_load::CallKind;
use super::chaos_totals::CallEnd;

/// Attempts to answer a question, and the pause after each.
const ATTEMPTS: u32 = 150;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// The bound of a call whose answer weir took. A replica that asks can stand still for 8 s, and weir
/// sends the answer to the server again for up to 10 s.
const ANSWERED_CALL_BOUND: Duration = Duration::from_secs(40);

/// A call of a kind.
pub(super) struct NumberedCall<'a> {
    pub(super) kind: CallKind,
    pub(super) client: &'a RawClient,
    pub(super) number: u64,
}

impl NumberedCall<'_> {
    /// Makes the call; returns its end.
    ///
    /// # Panics
    /// The answer is another call's, or is none that weir gives.
    pub(super) async fn run(&self) -> CallEnd {
        let mut params = self.kind.params(&json!({ "n": self.number }));
        params["_meta"] = json!({ "progressToken": self.number });
        let ended = match self.kind {
            CallKind::Legacy
            | CallKind::Modern
            | CallKind::LegacyHttp2
            | CallKind::ModernHttp2
            | CallKind::Progress => self.ask(params).await.map(|result| self.echoed(&result)),
            CallKind::Elicitation | CallKind::Sampling => self.run_with_question(params).await,
            CallKind::Parked => self.run_with_input(params).await,
            CallKind::LegacyTask | CallKind::ModernTask => self.run_as_task(params).await,
        };
        ended.unwrap_or_else(|end| end)
    }

    /// Makes a request of `tools/call`; returns its result.
    async fn ask(&self, params: Value) -> Result<Value, CallEnd> {
        match self.client.ask("tools/call", params).await {
            Ok(answer) => self.judge(&answer),
            Err(_) => Err(CallEnd::Unknown),
        }
    }

    async fn run_with_input(&self, params: Value) -> Result<CallEnd, CallEnd> {
        let asked = self.ask(params.clone()).await?;
        let params = self.kind.with_input(params, &asked, &self.name());
        // It had begun with the first request.
        let result = self.ask(params).await.map_err(|_| CallEnd::Unknown)?;
        Ok(self.echoed(&result))
    }

    async fn run_with_question(&self, params: Value) -> Result<CallEnd, CallEnd> {
        let sent = self.client.request("tools/call", params).await;
        let mut exchange = sent.map_err(|_| CallEnd::Unknown)?;
        let mut deliveries = Vec::new();
        if exchange.is_stream() && exchange.status == 200 {
            match exchange.next_message().await {
                Ok(Some(message)) if message["method"] == self.kind.question() => {
                    deliveries = self.deliver_answer(&message["id"]).await;
                }
                Ok(_) | Err(_) => return Err(CallEnd::Unknown),
            }
        }
        let is_taken = deliveries.iter().any(|delivery| delivery.contains("202"));
        if !is_taken && !deliveries.is_empty() {
            // weir said that it has no use for the answer: the call waits until its own time limit.
            return Err(CallEnd::Unknown);
        }
        let finished = tokio::time::timeout(ANSWERED_CALL_BOUND, exchange.finish()).await;
        let finished = finished.unwrap_or_else(|_| {
            panic!("weir took the answer, and the call did not end: {deliveries:?}")
        });
        let answer = finished.map_err(|_| CallEnd::Unknown)?;
        if answer.status == 200 && answer.messages.is_empty() {
            return Err(CallEnd::Unknown);
        }
        let result = self.judge(&answer)?;
        if !is_taken && text_of(&result) == "null" {
            // A fault hit `notifications/initialized`: weir asks no such client.
            return Err(CallEnd::Unknown);
        }
        assert_ne!(
            text_of(&result),
            "null",
            "weir took the answer, and the server did not get it: {deliveries:?}"
        );
        let name = self.name();
        assert!(text_of(&result).contains(&name), "{name}: {result}");
        Ok(CallEnd::Answered)
    }

    /// Sends the answer to a question until weir takes it, as a client does that does not give up.
    /// Returns the outcome of each attempt.
    async fn deliver_answer(&self, question: &Value) -> Vec<String> {
        let mut outcomes = Vec::new();
        for _ in 0..ATTEMPTS {
            let answer = self.kind.answer(&self.name());
            let outcome = self.client.respond(question, answer).await;
            let may_come_again = outcome.as_ref().map_or(true, |answer| answer.status == 503);
            outcomes.push(match outcome {
                Ok(answer) => format!("{question}: {} {:?}", answer.status, answer.body),
                Err(error) => error.to_string(),
            });
            if !may_come_again {
                break;
            }
            tokio::time::sleep(ATTEMPT_PAUSE).await;
        }
        outcomes
    }

    async fn run_as_task(&self, params: Value) -> Result<CallEnd, CallEnd> {
        let created = self.ask(params).await?;
        let ask = |method, about| Box::pin(self.ask_about_task(method, about)) as _;
        let result = self.kind.follow_task(&created, ask).await?;
        Ok(self.echoed(&result))
    }

    /// Makes a request about the task, which has run already. A fault can lose its name.
    async fn ask_about_task(&self, method: &str, about: Value) -> Result<Value, CallEnd> {
        let answer = self.client.ask(method, about).await;
        let answer = answer.map_err(|_| CallEnd::Unknown)?;
        if self.is_session_gone(&answer) {
            return Err(CallEnd::SessionGone);
        }
        match answer.messages.last() {
            Some(last) if last["result"].is_object() && last["result"]["isError"].is_null() => {
                Ok(last["result"].clone())
            }
            Some(_) | None => Err(CallEnd::Unknown),
        }
    }

    fn is_session_gone(&self, answer: &ClientAnswer) -> bool {
        answer.status == 404 && !self.kind.revision().is_modern()
    }

    /// Returns the result of an answer, or the end that its error means.
    fn judge(&self, answer: &ClientAnswer) -> Result<Value, CallEnd> {
        if self.is_session_gone(answer) {
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
        // No connection to the server could be opened. A call that is to be a task has an error.
        let error = &last["error"]["data"]["reason"];
        let is_unavailable = last["result"]["_meta"]["dev.weir/error"]["reason"] == "unavailable"
            || error == "unavailable";
        let is_refused = answer.status == 503 && error.is_string();
        assert!(is_unavailable || is_refused, "{} {text}", answer.status);
        Err(CallEnd::Refused)
    }

    /// Compares an answer with the arguments that only this call has.
    fn echoed(&self, result: &Value) -> CallEnd {
        let expected = format!(r#"{{"n":{}}}"#, self.number);
        let text = text_of(result);
        assert!(text.contains(&expected), "{expected} is not in {result}");
        CallEnd::Answered
    }

    fn name(&self) -> String {
        format!("Ada-{}-", self.number)
    }
}

fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
