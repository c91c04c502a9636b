//! The name of an instance in texts that come back with a later request: the ids of its tasks and
//! its `requestState`. It is a digest of the URL, so every replica finds the instance, and the
//! order of the config has no part in it. Clients never see it: both texts are sealed.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use sha2::{Digest as _, Sha256};
use weir_core::reply::{Payload, ReplyEnd};
use weir_era::lower;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;

/// The first characters of a text with a name in it.
const PREFIX: &str = "weir-url-";
/// The bytes of the digest.
const BYTES: usize = 8;
/// Separates the name from a text, or stands for the absence of a text.
const TEXT: char = ':';
const NO_TEXT: char = '.';

/// The name of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceName(Arc<str>);

/// A text that an instance gave, with the instance's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedText<'a> {
    /// The name, as the text has it.
    pub(crate) name: &'a str,
    /// The instance's own text; absent if it gave none.
    pub(crate) text: Option<&'a str>,
}

impl InstanceName {
    /// Makes the name of the instance at this URL.
    pub(crate) fn of(url: &Uri) -> Self {
        let digest = Sha256::digest(url.to_string());
        let mut name = PREFIX.to_owned();
        for byte in &digest[..BYTES] {
            let _always_fits = write!(name, "{byte:02x}");
        }
        Self(name.into())
    }

    /// True for the name in a text.
    pub(crate) fn is(&self, name: &str) -> bool {
        *self.0 == *name
    }

    /// Adds the name to a text of the instance.
    pub(crate) fn add_to(&self, text: Option<&str>) -> String {
        match text {
            Some(text) => format!("{}{TEXT}{text}", self.0),
            None => format!("{}{NO_TEXT}", self.0),
        }
    }

    /// Adds the name to the texts in the end of a reply that come back with a later request. An end
    /// without them, or one that is not valid, stays as it is.
    pub(crate) fn add_to_end(&self, end: ReplyEnd) -> ReplyEnd {
        match end {
            ReplyEnd::Task(created) => {
                let id = string_member(&created, "taskId").flatten();
                let named = id.and_then(|id| self.replaced(&created, "taskId", Some(&id)));
                ReplyEnd::Task(named.unwrap_or(created))
            }
            ReplyEnd::InputRequired(Payload::Whole(result)) => {
                let named = match string_member(&result, "requestState") {
                    // It is no string: the client gets a failure.
                    Some(None) => None,
                    Some(state) => self.replaced(&result, "requestState", state.as_deref()),
                    None => self.replaced(&result, "requestState", None),
                };
                ReplyEnd::InputRequired(Payload::Whole(named.unwrap_or(result)))
            }
            end @ (ReplyEnd::Complete(_)
            | ReplyEnd::InputRequired(_)
            | ReplyEnd::Parked { .. }
            | ReplyEnd::Failed(_)) => end,
        }
    }

    fn replaced(&self, object: &Bytes, member: &'static str, text: Option<&str>) -> Option<Bytes> {
        let edits = ObjectEdits::new().set(member, lower::json(&self.add_to(text)));
        Some(edits.apply_checked(object).ok()?.0)
    }
}

/// Reads the name in a text; absent if it has none.
pub(crate) fn split(text: &str) -> Option<NamedText<'_>> {
    let length = PREFIX.len() + 2 * BYTES;
    let (name, rest) = text.split_at_checked(length)?;
    let digest = name.strip_prefix(PREFIX)?;
    if !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let text = match rest.strip_prefix(TEXT) {
        Some(text) => Some(text),
        None if rest.len() == 1 && rest.starts_with(NO_TEXT) => None,
        None => return None,
    };
    Some(NamedText { name, text })
}

/// Returns a member that is a string; an inner absence if it is something else.
fn string_member<'a>(object: &'a Bytes, name: &str) -> Option<Option<Cow<'a, str>>> {
    scan::find(object, name).map(|range| scan::string(&object[range]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &'static str) -> InstanceName {
        InstanceName::of(&Uri::from_static(url))
    }

    fn whole(end: ReplyEnd) -> String {
        let (ReplyEnd::Task(bytes) | ReplyEnd::InputRequired(Payload::Whole(bytes))) = end else {
            panic!("{end:?}")
        };
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn name_depends_on_the_url_alone_and_comes_back() {
        let (a, b) = (name("http://a.test/mcp"), name("http://b.test/mcp"));
        assert_ne!(a, b);
        assert_eq!(a, name("http://a.test/mcp"));
        for text in [Some("786512e2:9e0d"), Some(""), None] {
            let named = a.add_to(text);
            let split = split(&named).expect("a name");
            assert_eq!(split.text, text);
            assert!(a.is(split.name) && !b.is(split.name));
        }
        for other in ["", "task-1", "weir-url-", "weir-url-0123456789abcdeg:x"] {
            assert_eq!(split(other), None);
        }
        assert_eq!(split("weir-url-0123456789abcdef"), None);
        assert_eq!(split("weir-url-0123456789abcdef.x"), None);
    }

    #[test]
    fn ends_that_a_client_comes_back_to_get_the_name() {
        let name = name("http://a.test/mcp");
        let at = &*name.0;
        let task = ReplyEnd::Task(Bytes::from_static(br#"{"taskId":"t","ttlMs":1}"#));
        assert_eq!(
            whole(name.add_to_end(task)),
            format!(r#"{{"taskId":"{at}:t","ttlMs":1}}"#)
        );
        let asks = |text: &'static str| {
            let end = ReplyEnd::InputRequired(Payload::Whole(Bytes::from_static(text.as_bytes())));
            whole(name.add_to_end(end))
        };
        assert_eq!(
            asks(r#"{"requestState":"s"}"#),
            format!(r#"{{"requestState":"{at}:s"}}"#)
        );
        assert!(asks(r#"{"inputRequests":{}}"#).contains(&format!(r#""requestState":"{at}.""#)));
        assert_eq!(asks(r#"{"requestState":5}"#), r#"{"requestState":5}"#);
    }
}
