//! Questions of a server in the middle of a request, and the respondent that answers them.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};
use weir_wire::Method;

use crate::client::error::ClientError;

/// An answer that is being made.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, DeclinedRequest>> + Send + 'a>>;

/// A question that is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclinedRequest {
    /// The JSON-RPC code, for a server that takes one.
    pub code: i64,
    /// The reason.
    pub why: String,
}

/// The answerer of servers' questions.
pub trait Respondent: Send + Sync {
    /// The capabilities that are declared to servers.
    fn capabilities(&self) -> Value;

    /// Answers a request of this method: the result.
    fn answer<'a>(&'a self, method: &'a str, params: &'a Value) -> Answering<'a>;
}

/// Answers all requests for input in a result (2026-07-28).
pub(super) async fn answer_all(
    respondent: Option<&dyn Respondent>,
    questions: &Value,
) -> Result<Map<String, Value>, ClientError> {
    let mut answers = Map::new();
    for (key, question) in questions.as_object().into_iter().flatten() {
        let method = question["method"].as_str().unwrap_or_default();
        let answer = match respondent {
            Some(respondent) => respondent.answer(method, &question["params"]).await,
            None => Err(declined(method)),
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
    respondent: Option<&dyn Respondent>,
    method: &str,
    params: &Value,
) -> Result<Value, DeclinedRequest> {
    match respondent {
        _ if method == Method::Ping.as_str() => Ok(Value::Object(Map::new())),
        Some(respondent) => respondent.answer(method, params).await,
        None => Err(declined(method)),
    }
}

fn declined(method: &str) -> DeclinedRequest {
    let what = weir_text::one_line(method);
    let why = format!(
        "the server asks its user something (`{what}`): run the command at a terminal, where you can answer"
    );
    DeclinedRequest {
        code: weir_wire::error_code::METHOD_NOT_FOUND,
        why,
    }
}
