//! The operator's search for secrets in calls: the patterns, and the action on a match.
//!
//! Arguments are searched before a call is sent, and answers before they are passed on. An argument
//! is never masked: a call with another argument is another call.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weir_clean::DocumentKind;
use weir_wire::scan;

use weir_schema::mismatch::cut;

pub use weir_clean::{PatternError, SecretPattern, SecretPatterns};

/// The search for secrets in the calls of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSearch {
    /// The patterns.
    pub patterns: Arc<SecretPatterns>,
    /// True if a call with a secret in its arguments is refused, before it is made.
    pub refuses_arguments: bool,
    /// The action on an answer with a secret; absent if answers are not searched.
    pub answers: Option<SecretAction>,
}

/// The action on an answer with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretAction {
    /// `[masked: NAME]` stands in its place.
    Mask,
    /// An error stands in the place of the answer.
    Refuse,
}

/// The longest place that is named.
const POINTER: usize = 256;

/// A secret in arguments, without the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentSecret<'a> {
    /// The name of its pattern.
    pub pattern: &'a str,
    /// The JSON pointer of the string that has it; absent if the pointer has a secret, too.
    pub place: Option<String>,
}

impl fmt::Display for ArgumentSecret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")?;
        if let Some(place) = &self.place {
            write!(f, " at {place}")?;
        }
        write!(f, " (pattern `{}`)", self.pattern)
    }
}

impl SecretSearch {
    /// The first secret in the arguments of a call, a JSON object, for which it is refused.
    #[must_use]
    pub fn in_arguments(&self, arguments: &[u8]) -> Option<ArgumentSecret<'_>> {
        if !self.refuses_arguments {
            return None;
        }
        let found = self.patterns.find(DocumentKind::Arguments, arguments)?;
        let place = Some(cut(&pointer(arguments, found.at), POINTER));
        Some(ArgumentSecret {
            pattern: found.name,
            place: place.filter(|place| !self.patterns.has_match(place)),
        })
    }
}

/// The JSON pointer of the value around a position.
fn pointer(json: &[u8], at: usize) -> String {
    let (mut pointer, mut here) = (String::new(), 0..json.len());
    loop {
        let (value, start) = (&json[here.clone()], here.start);
        let has = |place: &Range<usize>| (start + place.start..start + place.end).contains(&at);
        let next = if scan::is_object(value) {
            let member = scan::members(value).find(|member| has(&member.value));
            member.map(|member| {
                (
                    member.key.decode().replace('~', "~0").replace('/', "~1"),
                    member.value,
                )
            })
        } else if scan::trim(value).first() == Some(&b'[') {
            let element = scan::elements(value)
                .enumerate()
                .find(|(_, place)| has(place));
            element.map(|(nth, place)| (nth.to_string(), place))
        } else {
            None
        };
        let Some((step, place)) = next else {
            return pointer;
        };
        pointer.push('/');
        pointer.push_str(&step);
        here = start + place.start..start + place.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_offset_maps_to_its_json_pointer() {
        let json = r#" {"a":1,"b/c":{"~":[ "x" ,{"d":"HERE"}]},"e":"x"}"#;
        let at = json.find("HERE").unwrap_or_default();
        assert_eq!(pointer(json.as_bytes(), at), "/b~1c/~0/1/d");
        assert_eq!(pointer(br#""HERE""#, 1), "");
    }
}
