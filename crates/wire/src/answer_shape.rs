//! The shapes of clients' answers to questions of servers: sampling, elicitation, roots.

use crate::method::Method;
use crate::scan;

/// True if a value has the shape of the result of a question.
#[must_use]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "three of the 38 methods are questions"
)]
pub fn is_answer_shape(method: Method, value: &[u8]) -> bool {
    let member = |name: &str| scan::find(value, name).map(|range| &value[range]);
    let starts =
        |name: &str, with: &[u8]| member(name).is_some_and(|value| with.contains(&value[0]));
    scan::is_object(value)
        && match method {
            Method::ElicitationCreate => {
                let action = member("action").and_then(scan::string);
                matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
                    && member("content")
                        .is_none_or(|content| scan::is_object(content) || content == b"null")
            }
            Method::SamplingCreateMessage => {
                starts("role", b"\"") && starts("model", b"\"") && starts("content", b"{[")
            }
            Method::RootsList => starts("roots", b"["),
            _ => false,
        }
}
