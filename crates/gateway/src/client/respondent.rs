//! Questions of a server in the middle of a request, and the respondent that answers them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value};
use weir_wire::Method;

use super::{Client, ClientError, Note};

/// Rounds of questions in one request; a server that asks more often does not end.
const MOST_ROUNDS: usize = 100;
/// The wait before a request is sent again that waits for no answer.
const POLL: Duration = Duration::from_millis(500);

/// An answer that is being made.
pub(crate) type Answering<'a> =
    Pin<Box<dyn Future<Output = Result<Value, DeclinedRequest>> + Send + 'a>>;

/// A question that is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclinedRequest {
    /// The JSON-RPC code, for a server that takes one.
    pub(crate) code: i64,
    /// The reason.
    pub(crate) why: String,
}

/// The answerer of servers' questions.
pub(crate) trait Respondent: Send + Sync {
    /// The capabilities that are declared to servers.
    fn capabilities(&self) -> Value;

    /// Answers a request of this method: the result.
    fn answer<'a>(&'a self, method: &'a str, params: &'a Value) -> Answering<'a>;
}

impl Client {
    /// Sends a request that may need input (2026-07-28), with the answers as often as the server
    /// asks. In the older revisions the server's questions come on the request's stream.
    pub(super) async fn request_with_input(
        &mut self,
        method: Method,
        params: Value,
        on_note: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Value, ClientError> {
        let mut sent = params.clone();
        for _ in 0..MOST_ROUNDS {
            let mut result = self.request(method, sent, on_note).await?;
            if result["resultType"] != "input_required" {
                return Ok(result);
            }
            let answers = self.answers(&result["inputRequests"]).await?;
            if answers.is_empty() {
                tokio::time::sleep(POLL).await;
            }
            sent = params.clone();
            sent["inputResponses"] = Value::Object(answers);
            if let state @ Value::String(_) = result["requestState"].take() {
                sent["requestState"] = state;
            }
        }
        Err(ClientError::Unanswered(format!(
            "the server asked {MOST_ROUNDS} times and gave no result: ask its operator"
        )))
    }

    async fn answers(&self, asked: &Value) -> Result<Map<String, Value>, ClientError> {
        let mut answers = Map::new();
        for (key, question) in asked.as_object().into_iter().flatten() {
            let method = question["method"].as_str().unwrap_or_default();
            let answer = match &self.respondent {
                Some(respondent) => respondent.answer(method, &question["params"]).await,
                None => Err(nobody(method)),
            };
            // This revision has no error form for an input response. A declined elicitation is an
            // answer.
            answers.insert(
                key.clone(),
                answer.map_err(|declined| ClientError::Unanswered(declined.why))?,
            );
        }
        Ok(answers)
    }

    /// Answers a request that a server of the older revisions makes of its client.
    pub(super) async fn answer(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<Value, DeclinedRequest> {
        match &self.respondent {
            _ if method == Method::Ping.as_str() => Ok(Value::Object(Map::new())),
            Some(respondent) => respondent.answer(method, params).await,
            None => Err(nobody(method)),
        }
    }
}

fn nobody(method: &str) -> DeclinedRequest {
    let what = crate::terminal::one_line(method);
    let why = format!(
        "the server asks its user something (`{what}`): run the command at a terminal, where you can answer"
    );
    DeclinedRequest {
        code: weir_wire::error_code::METHOD_NOT_FOUND,
        why,
    }
}
