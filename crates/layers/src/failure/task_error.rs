//! The errors of failed tasks, in the states that modern clients get: the same codes that errors of
//! calls have.

use bytes::Bytes;
use weir_core::failure::UpstreamError;
use weir_core::{Failure, FailureKind};
use weir_era::server_questions::{self, UrlElicitation};
use weir_era::upstream_messages;
use weir_wire::splice::ObjectEdits;
use weir_wire::{ErrorObject, error_code, scan};

use crate::failure::failure_data;
use crate::failure::response_table::upstream_error_code;

/// The state of a task with an error that a modern client may get.
///
/// # Errors
/// `Internal`: the state is malformed.
pub fn task_state_for_modern(state: &Bytes) -> Result<Bytes, Failure> {
    let Some(error) = scan::find(state, "error").map(|at| state.slice(at)) else {
        return Ok(state.clone());
    };
    let failure = upstream_messages::failure(&error);
    let object = match (server_questions::required_visits(&failure), failure.kind()) {
        (Some((error, visits)), _) => visits_required(error, &visits),
        (None, FailureKind::Upstream(error)) => {
            let (_, code) = upstream_error_code(error, true);
            failure_data::of_upstream(error, code)
        }
        (None, _) => ErrorObject::new(error_code::BAD_ANSWER, failure.message().to_owned()),
    };
    let malformed = |error| Failure::internal("a state of a task is malformed").because(error);
    let edits = ObjectEdits::new().set("error", object.to_json());
    edits
        .apply_checked(state)
        .map(|(state, _)| state)
        .map_err(malformed)
}

/// The error of a task that requires visits of URLs first. The task is over, so its client is asked
/// to make the call again.
fn visits_required(error: &UpstreamError, visits: &[UrlElicitation]) -> ErrorObject {
    if visits.is_empty() {
        let text = server_questions::no_visit_text(error);
        return ErrorObject::new(error_code::BAD_ANSWER, text);
    }
    let text = server_questions::visits_as_text(&error.message, visits);
    ErrorObject::new(error_code::INTERNAL_ERROR, text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::{Value, json};

    use super::*;

    /// The error of a failed task, as a modern client gets it.
    fn seen(error: &Value) -> Value {
        let state = json!({ "taskId": "t", "status": "failed", "error": error });
        let state = task_state_for_modern(&state.to_string().into()).unwrap();
        let mut state: Value = serde_json::from_slice(&state).unwrap();
        assert_eq!(
            (&state["taskId"], &state["status"]),
            (&json!("t"), &json!("failed"))
        );
        state["error"].take()
    }

    // Proves R049.
    #[test]
    fn failed_task_has_no_code_that_modern_clients_do_not_know() {
        for code in (-32_100..=-31_998).chain([-1, 1001, 4242]) {
            let seen = seen(&json!({ "code": code, "message": "m" }));
            let seen = seen["code"].as_i64().unwrap();
            assert!(
                error_code::is_allowed_to_modern(seen),
                "{code} became {seen}"
            );
        }
        let own = json!({ "code": 4242, "message": "sold out", "data": { "left": 0 } });
        assert_eq!(seen(&own), own);
        let gone = json!({ "code": -32002, "message": "gone", "data": { "uri": "x://1" } });
        let mut expected = gone.clone();
        expected["code"] = json!(-32602);
        assert_eq!(seen(&gone), expected);
        assert_eq!(seen(&json!(5))["code"], error_code::BAD_ANSWER);
    }

    // Proves R187.
    #[test]
    fn failed_task_that_requires_visits_names_the_urls_in_a_text() {
        let visit = json!({ "mode": "url", "url": "https://example.com/", "message": "Sign in", "elicitationId": "E1" });
        let error =
            json!({ "code": -32042, "message": "first", "data": { "elicitations": [visit] } });
        let text =
            "first\nSign in: https://example.com/\nOpen this in a browser, and then call again.";
        assert_eq!(seen(&error), json!({ "code": -32603, "message": text }));
        let without = json!({ "code": -32042, "message": "first" });
        assert_eq!(seen(&without)["code"], error_code::BAD_ANSWER);
        let refused = json!({ "code": -32042, "message": "first", "data": { "elicitations": [{ "mode": "url", "url": "http://example.com/" }] } });
        let text = seen(&refused)["message"].to_string();
        assert!(text.contains("weir refuses"), "{text}");
    }

    #[test]
    fn state_without_an_error_stays_as_it_is() {
        let state = Bytes::from_static(br#"{"taskId":"t","status":"working"}"#);
        assert_eq!(task_state_for_modern(&state).unwrap(), state);
    }
}
