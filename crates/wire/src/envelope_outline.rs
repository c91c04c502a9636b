//! The members that show what a message is, of a message that is not parsed: it is too long to be
//! kept, or it is broken.
//!
//! [`EnvelopeOutline`] reads the bytes as they come, in constant memory. It looks at brackets,
//! strings and the names of the outermost members only, so that it also finds the id of a message
//! with a fault somewhere else. An id is taken only if the other members leave no doubt: an error
//! under a wrong id would end another request.

use crate::id::{MAX_LEN, RequestId};
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::scan::json_members::MemberKey;

/// The longest spelling of a known name, every letter escaped, and one byte to tell longer names
/// apart.
const MAX_NAME_BYTES: usize = 6 * 7 + 1;

/// The outline of one message.
#[derive(Debug, Default)]
pub struct EnvelopeOutline {
    state: OutlineState,
    /// The name or the id that is being read, as far as it is kept.
    text: Vec<u8>,
    member: EnvelopeMember,
    id: OutlineId,
    has_version: bool,
    has_method: bool,
    /// True if there is a `result` or an `error`.
    has_outcome: bool,
    has_unknown: bool,
}

/// The part of the message that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutlineState {
    #[default]
    Start,
    Name,
    InName {
        escaped: bool,
    },
    Colon,
    Value,
    InScalar,
    InString {
        escaped: bool,
    },
    /// Inside a container: the count of open brackets, and the string that is open in it.
    InContainer {
        depth: usize,
        string: NestedString,
    },
    NextMember,
    Complete,
    /// No object, or one with members that cannot be told apart any more.
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NestedString {
    None,
    Open,
    Escape,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EnvelopeMember {
    Version,
    Id,
    Method,
    Outcome,
    Params,
    #[default]
    Unknown,
}

#[derive(Clone, Debug, Default)]
enum OutlineId {
    #[default]
    None,
    One(RequestId),
    /// It is no id, or there are several.
    Unusable,
}

impl EnvelopeOutline {
    /// Returns the outline of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut outline = Self::default();
        outline.feed(bytes);
        outline
    }

    /// Takes the next bytes of the message.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = self.step(byte, rest, behind);
        }
    }

    /// Returns the id of the request that the message answers. Absent if the message may be
    /// something else.
    #[must_use]
    pub fn answered_id(&self) -> Option<&RequestId> {
        let is_complete = self.state == OutlineState::Complete;
        // Without the version it may be a line of a log in JSON: those have members of their own.
        let is_answer = if self.has_version {
            self.has_outcome || is_complete
        } else {
            self.has_outcome && is_complete && !self.has_unknown
        };
        self.sole_id().filter(|_| is_answer && !self.has_method)
    }

    /// Returns the id of the request that the message is. Absent if the message may be something
    /// else.
    #[must_use]
    pub fn requested_id(&self) -> Option<&RequestId> {
        self.sole_id()
            .filter(|_| self.has_method && !self.has_outcome)
    }

    /// True if the message is an object that does not end: the rest may be in other lines.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        !matches!(
            self.state,
            OutlineState::Start | OutlineState::Complete | OutlineState::Unreadable
        )
    }

    const fn sole_id(&self) -> Option<&RequestId> {
        match &self.id {
            OutlineId::One(id) => Some(id),
            OutlineId::None | OutlineId::Unusable => None,
        }
    }

    /// Takes one byte, or more of `bytes`, which begin with it. Returns the bytes that are left.
    fn step<'a>(&mut self, byte: u8, bytes: &'a [u8], behind: &'a [u8]) -> &'a [u8] {
        match self.state {
            OutlineState::InString { .. } | OutlineState::InContainer { .. } => {
                return self.step_inside(bytes);
            }
            OutlineState::InName { escaped } => match byte {
                b'"' if !escaped => {
                    self.member = self.named_member();
                    self.state = OutlineState::Colon;
                }
                byte => {
                    self.keep(byte, MAX_NAME_BYTES);
                    let escaped = byte == b'\\' && !escaped;
                    self.state = OutlineState::InName { escaped };
                }
            },
            OutlineState::InScalar => {
                if matches!(byte, b',' | b'}') || byte.is_ascii_whitespace() {
                    self.end_member();
                    return bytes;
                }
                self.keep_id(byte);
            }
            OutlineState::Complete | OutlineState::Unreadable => return &[],
            _ if byte.is_ascii_whitespace() => {}
            OutlineState::Start => match byte {
                // A byte order mark.
                0xef | 0xbb | 0xbf => {}
                b'{' => self.state = OutlineState::Name,
                _ => self.state = OutlineState::Unreadable,
            },
            OutlineState::Name => match byte {
                b'"' => {
                    self.text.clear();
                    self.state = OutlineState::InName { escaped: false };
                }
                b'}' => self.state = OutlineState::Complete,
                _ => self.state = OutlineState::Unreadable,
            },
            OutlineState::Colon => {
                self.state = if byte == b':' {
                    OutlineState::Value
                } else {
                    OutlineState::Unreadable
                }
            }
            OutlineState::Value => self.begin_value(byte),
            OutlineState::NextMember => {
                self.state = match byte {
                    b',' => OutlineState::Name,
                    b'}' => OutlineState::Complete,
                    _ => OutlineState::Unreadable,
                }
            }
        }
        behind
    }

    /// Takes the bytes of a string or a container up to its end.
    fn step_inside<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut state = self.state;
        for (at, &byte) in bytes.iter().enumerate() {
            state = match (state, byte) {
                (OutlineState::InString { escaped: false }, b'"') => {
                    self.keep_id(byte);
                    self.end_member();
                    return &bytes[at + 1..];
                }
                (OutlineState::InString { escaped }, byte) => {
                    self.keep_id(byte);
                    let escaped = byte == b'\\' && !escaped;
                    OutlineState::InString { escaped }
                }
                (OutlineState::InContainer { depth, string }, byte) => {
                    let (depth, string) = step_in_container(depth, string, byte);
                    if depth == 0 {
                        self.end_member();
                        return &bytes[at + 1..];
                    }
                    OutlineState::InContainer { depth, string }
                }
                (other, _) => other,
            };
        }
        self.state = state;
        &[]
    }

    fn begin_value(&mut self, first: u8) {
        self.text.clear();
        self.keep_id(first);
        // Servers in languages with null write it for absent members.
        let is_null = first == b'n';
        match self.member {
            EnvelopeMember::Version => self.has_version = true,
            EnvelopeMember::Method => self.has_method |= !is_null,
            EnvelopeMember::Outcome => self.has_outcome = true,
            EnvelopeMember::Unknown => self.has_unknown = true,
            EnvelopeMember::Id | EnvelopeMember::Params => {}
        }
        self.state = match first {
            b'"' => OutlineState::InString { escaped: false },
            b'{' | b'[' => OutlineState::InContainer {
                depth: 1,
                string: NestedString::None,
            },
            b',' | b'}' => OutlineState::Unreadable,
            _ => OutlineState::InScalar,
        };
    }

    fn end_member(&mut self) {
        if self.member == EnvelopeMember::Id {
            // The text is not checked elsewhere.
            let limits = JsonLimits::default();
            let checked = scan::check_grammar(&self.text, &limits).ok();
            let id = checked.and_then(|()| RequestId::from_json(&self.text).ok());
            self.id = match (&self.id, id) {
                (OutlineId::None, Some(id)) => OutlineId::One(id),
                _ => OutlineId::Unusable,
            };
        }
        self.state = OutlineState::NextMember;
    }

    fn named_member(&self) -> EnvelopeMember {
        let name = MemberKey::new(&self.text);
        let known = [
            ("jsonrpc", EnvelopeMember::Version),
            ("id", EnvelopeMember::Id),
            ("method", EnvelopeMember::Method),
            ("params", EnvelopeMember::Params),
            ("result", EnvelopeMember::Outcome),
            ("error", EnvelopeMember::Outcome),
        ];
        known
            .into_iter()
            .find(|(known, _)| name.eq_str(known))
            .map_or(EnvelopeMember::Unknown, |(_, member)| member)
    }

    /// Keeps a byte of an id; one beyond the longest is kept, too, so that the id is refused.
    fn keep_id(&mut self, byte: u8) {
        if self.member == EnvelopeMember::Id {
            self.keep(byte, MAX_LEN + 1);
        }
    }

    fn keep(&mut self, byte: u8, most: usize) {
        if self.text.len() < most {
            self.text.push(byte);
        }
    }
}

const fn step_in_container(depth: usize, string: NestedString, byte: u8) -> (usize, NestedString) {
    match (string, byte) {
        (NestedString::None, b'"') | (NestedString::Escape, _) => (depth, NestedString::Open),
        (NestedString::None, b'{' | b'[') => (depth.saturating_add(1), NestedString::None),
        (NestedString::None, b'}' | b']') => (depth.saturating_sub(1), NestedString::None),
        (NestedString::Open, b'"') | (NestedString::None, _) => (depth, NestedString::None),
        (NestedString::Open, b'\\') => (depth, NestedString::Escape),
        (NestedString::Open, _) => (depth, NestedString::Open),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    /// Returns the JSON of the answered and of the requested id, the same however the bytes are
    /// cut.
    fn ids(message: &[u8]) -> (Option<String>, Option<String>) {
        let shown = |outline: &EnvelopeOutline| {
            let text = |id: Option<&RequestId>| {
                id.map(|id| String::from_utf8(id.as_json().to_vec()).unwrap())
            };
            (text(outline.answered_id()), text(outline.requested_id()))
        };
        let whole = shown(&EnvelopeOutline::of(message));
        for size in [1, 2, 7] {
            let mut outline = EnvelopeOutline::default();
            message.chunks(size).for_each(|part| outline.feed(part));
            assert_eq!(shown(&outline), whole, "in parts of {size}");
        }
        whole
    }

    fn answered(message: &[u8]) -> Option<String> {
        let (answered, requested) = ids(message);
        assert_eq!(requested, None, "{}", String::from_utf8_lossy(message));
        answered
    }

    #[test]
    fn answer_with_a_fault_elsewhere_names_its_request() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{}1{}}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        let messages: &[&[u8]] = &[
            br#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#,
            br#"{"result":{"x":[-Infinity, "]}\"id\":8"]},"jsonrpc":"2.0","id": 7 }"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"x\":\"caf\xe9\"}}",
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"x\":\"a\tb\"}}",
            b"\xef\xbb\xbf {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}",
            br#"{"id":7,"result":{}}"#,
            br#"{"id":7,"error":{"message":"no"}}"#,
            br#"{"jsonrpc":"2.0","id":7}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":null,"error":null,"method":null}"#,
            br#"{"jsonrpc":"2.0","\u0069d":7,"result":{"text":"cut off"#,
            br#"{"jsonrpc":"2.0","id":7,"result":{"text":"a \"quoted" word"}}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":{}} and more"#,
            deep.as_bytes(),
        ];
        for message in messages {
            let shown = String::from_utf8_lossy(message);
            assert_eq!(answered(message).as_deref(), Some("7"), "{shown}");
        }
        let text = br#"{"jsonrpc":"2.0","id":"7","result":{"x":NaN}}"#;
        assert_eq!(answered(text).as_deref(), Some(r#""7""#));
    }

    #[test]
    fn message_that_may_be_something_else_answers_nothing() {
        let messages: &[&[u8]] = &[
            b"",
            b"7",
            b"{",
            b"listening on 8080",
            br#"loading...{"jsonrpc":"2.0","id":7,"result":{}}"#,
            br#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            br#"{"jsonrpc":"2.0","result":{},"id":7,"id":8}"#,
            br#"{"jsonrpc":"2.0","result":{},"id":7.5}"#,
            br#"{"jsonrpc":"2.0","result":{},"id":[7]}"#,
            br#"{"jsonrpc":"2.0","result":{},"id":7"#,
            br#"{"jsonrpc":"2.0","result":{},"id":7e}"#,
            br#"{"jsonrpc":"2.0","result":{"id":7}}"#,
            br#"{"jsonrpc":"2.0","id":7,"#,
            // Lines of logs.
            br#"{"level":50,"id":7,"error":{"code":1},"msg":"failed"}"#,
            br#"{"id":7,"error":"cut off"#,
            br#"{"id":7}"#,
            b"{'jsonrpc': '2.0', 'id': 7, 'result': {}}",
        ];
        for message in messages {
            let shown = String::from_utf8_lossy(message);
            assert_eq!(answered(message), None, "{shown}");
        }
        let long = format!(
            r#"{{"jsonrpc":"2.0","result":{{}},"id":"{}"}}"#,
            "7".repeat(300)
        );
        assert_eq!(answered(long.as_bytes()), None);
    }

    #[test]
    fn request_is_no_answer_whatever_its_fault() {
        for message in [
            r#"{"jsonrpc":"2.0","id":7,"method":"ping""#.to_owned(),
            r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":NaN}}"#.to_owned(),
            format!(
                r#"{{"params":{{"x":"{}"}},"method":"m","id":7}}"#,
                "{".repeat(300)
            ),
        ] {
            assert_eq!(
                ids(message.as_bytes()),
                (None, Some("7".to_owned())),
                "{message}"
            );
        }
        let both = br#"{"jsonrpc":"2.0","id":7,"method":"m","result":{}}"#;
        assert_eq!(ids(both), (None, None));
    }

    #[test]
    fn object_without_an_end_is_incomplete() {
        for (text, expected) in [
            ("{", true),
            (r#"{"id": 7,"#, true),
            (r#"{"id": 7, "x": ["#, true),
            ("{}", false),
            ("", false),
            ("{'a", false),
            ("text", false),
        ] {
            let outline = EnvelopeOutline::of(text.as_bytes());
            assert_eq!(outline.is_incomplete(), expected, "{text}");
        }
    }
}
