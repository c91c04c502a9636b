//! Secrets found by regular expressions, in the strings that are cleaned.

use std::collections::BTreeMap;
use std::ops::Range;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use crate::document::DocumentKind;
use crate::spelled_string::{CleanedStrings, SpelledCharacters, decode};

/// The group of an expression that is the secret itself. Without the group, the whole match is the
/// secret.
const SECRET: &str = "secret";

/// The most memory of one compiled expression in bytes, and that of all together as a set.
const SIZE_LIMIT: usize = 1 << 20;
const SET_SIZE_LIMIT: usize = 16 << 20;

/// The longest name of a pattern.
const MAX_NAME: usize = 64;

/// One pattern as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPattern {
    /// The name in the mask, in metrics and in the audit: 1 to 64 ASCII letters, digits, `-`, `_`
    /// and `.`.
    pub name: String,
    /// The expression, in the syntax of the crate `regex`. If it has a group named `secret`, only
    /// that group is masked.
    pub regex: String,
}

/// The reason for refusing patterns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The name is empty, too long, or has other characters.
    #[error("the name of pattern '{0}' must have 1 to 64 letters, digits, '-', '_' and '.'")]
    Name(String),
    /// Two patterns have this name.
    #[error("the name '{0}' is that of two patterns")]
    Twice(String),
    /// The expression is malformed or too large.
    #[error("pattern '{name}': {reason}")]
    Regex {
        /// The pattern's name.
        name: String,
        /// The last line of the message from the crate `regex`.
        reason: String,
    },
    /// The expression matches the empty text, so every text would be a secret.
    #[error("pattern '{0}' matches the empty text")]
    Empty(String),
    /// All expressions together are too large.
    #[error("the patterns together need more than 16 MiB: use fewer or simpler ones")]
    TooLarge,
}

impl PatternError {
    /// The name of the faulty pattern; `None` if the fault is in all of them together.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) | Self::Twice(name) | Self::Empty(name) | Self::Regex { name, .. } => {
                Some(name)
            }
            Self::TooLarge => None,
        }
    }
}

/// Compiled patterns. A check that a string has no match takes linear time for all expressions. Two
/// values are equal if they have the same names and expressions in the same order.
#[derive(Clone, Debug)]
pub struct SecretPatterns {
    /// Answers for most strings that they have no match.
    set: RegexSet,
    each: Vec<(String, Regex)>,
}

impl PartialEq for SecretPatterns {
    fn eq(&self, other: &Self) -> bool {
        let each = |all: &Self| {
            all.each
                .iter()
                .map(|(name, regex)| (name.clone(), regex.as_str().to_owned()))
                .collect::<Vec<_>>()
        };
        each(self) == each(other)
    }
}

impl Eq for SecretPatterns {}

/// A secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretMatch<'a> {
    /// The name of its pattern.
    pub name: &'a str,
    /// The offset in the text of the string that has the secret, behind its quote.
    pub at: usize,
}

/// A text with its secrets masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedText<'a> {
    /// The text.
    pub bytes: Vec<u8>,
    /// The number of secrets by name of their pattern. Of overlapping secrets, the one that begins
    /// first counts.
    pub found: BTreeMap<&'a str, u64>,
}

impl SecretPatterns {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The first fault of a pattern.
    pub fn new(patterns: &[SecretPattern]) -> Result<Self, PatternError> {
        let mut each: Vec<(String, Regex)> = Vec::with_capacity(patterns.len());
        for SecretPattern { name, regex } in patterns {
            let is_plain =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_plain) {
                return Err(PatternError::Name(name.clone()));
            }
            if each.iter().any(|(other, _)| other == name) {
                return Err(PatternError::Twice(name.clone()));
            }
            let compiled = RegexBuilder::new(regex).size_limit(SIZE_LIMIT).build();
            let compiled = compiled.map_err(|error| PatternError::Regex {
                name: name.clone(),
                reason: reason(&error),
            })?;
            if compiled.is_match("") {
                return Err(PatternError::Empty(name.clone()));
            }
            each.push((name.clone(), compiled));
        }
        let expressions = patterns.iter().map(|pattern| &pattern.regex);
        let set = RegexSetBuilder::new(expressions)
            .size_limit(SET_SIZE_LIMIT)
            .build();
        Ok(Self {
            set: set.map_err(|_too_large| PatternError::TooLarge)?,
            each,
        })
    }

    /// The names of the patterns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.each.iter().map(|(name, _)| name.as_str())
    }

    /// The first secret in the strings of the document, if there is one.
    #[must_use]
    pub fn find(&self, document: DocumentKind, bytes: &[u8]) -> Option<SecretMatch<'_>> {
        let mut texts = CleanedStrings::new(document, bytes);
        texts.find_map(|place| {
            let secrets = self.secrets(&decode(&bytes[place.clone()]));
            secrets.first().map(|(_, name)| SecretMatch {
                name,
                at: place.start,
            })
        })
    }

    /// True if a text that is not JSON has a secret.
    #[must_use]
    pub fn has_match(&self, text: &str) -> bool {
        !self.secrets(text).is_empty()
    }

    /// Replaces every secret in the strings of the document by `[masked: NAME]`. Returns `None` if
    /// there is no secret.
    ///
    /// Strings are matched as they are decoded, so no spelling hides a secret; one that is spread
    /// over several strings is not found.
    #[must_use]
    pub fn mask(&self, document: DocumentKind, bytes: &[u8]) -> Option<MaskedText<'_>> {
        let mut masked = MaskedText {
            bytes: Vec::new(),
            found: BTreeMap::new(),
        };
        let mut copied = 0;
        for place in CleanedStrings::new(document, bytes) {
            let spelled = &bytes[place.clone()];
            let secrets = self.secrets(&decode(spelled));
            let mut spelling = SpellingCursor {
                rest: SpelledCharacters(spelled),
                decoded: 0,
                at: place.start,
            };
            for (secret, name) in secrets {
                masked
                    .bytes
                    .extend_from_slice(&bytes[copied..spelling.seek(secret.start)]);
                masked
                    .bytes
                    .extend_from_slice(format!("[masked: {name}]").as_bytes());
                copied = spelling.seek(secret.end);
                *masked.found.entry(name).or_default() += 1;
            }
        }
        if masked.found.is_empty() {
            return None;
        }
        masked.bytes.extend_from_slice(&bytes[copied..]);
        Some(masked)
    }

    /// The places of secrets in a decoded string, in order and apart.
    fn secrets(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut found = Vec::new();
        for which in &self.set.matches(text) {
            let Some((name, regex)) = self.each.get(which) else {
                continue;
            };
            let matches = regex.captures_iter(text);
            let secrets =
                matches.filter_map(|groups| groups.name(SECRET).or_else(|| groups.get(0)));
            found.extend(secrets.map(|secret| (secret.range(), name.as_str())));
        }
        found.retain(|(place, _)| !place.is_empty());
        found.sort_by_key(|(place, _)| (place.start, std::cmp::Reverse(place.end)));
        let mut apart: Vec<(Range<usize>, &str)> = Vec::with_capacity(found.len());
        for (place, name) in found {
            match apart.last_mut() {
                Some((last, _)) if place.start < last.end => last.end = last.end.max(place.end),
                _ => apart.push((place, name)),
            }
        }
        apart
    }
}

/// The error of an expression in one line. The lines before it point at the position with a caret.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().next_back().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Maps positions in the decoded string to positions in the spelled one.
struct SpellingCursor<'a> {
    rest: SpelledCharacters<'a>,
    decoded: usize,
    at: usize,
}

impl SpellingCursor<'_> {
    /// The spelled position of a decoded one. It must not lie before the last.
    fn seek(&mut self, decoded: usize) -> usize {
        while self.decoded < decoded {
            let Some(character) = self.rest.next() else {
                break;
            };
            self.decoded += character.decoded_len();
            self.at += character.raw.len();
        }
        self.at
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn pattern(name: &str, regex: &str) -> SecretPattern {
        SecretPattern {
            name: name.to_owned(),
            regex: regex.to_owned(),
        }
    }

    fn patterns() -> SecretPatterns {
        let key = pattern("key", "AKIA[0-9A-Z]{4}");
        let password = pattern(
            "password",
            r#"(?i)password["']?\s*[:=]\s*["']?(?<secret>[^\s"']+)"#,
        );
        SecretPatterns::new(&[key, password, pattern("umlaut", "gehe[iî]m-ü+")]).unwrap()
    }

    fn masked(json: &str) -> Option<(String, Vec<(String, u64)>)> {
        let patterns = patterns();
        let masked = patterns.mask(DocumentKind::ToolResult, json.as_bytes())?;
        let found = masked
            .found
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        Some((String::from_utf8(masked.bytes).unwrap(), found))
    }

    #[test]
    fn secrets_are_masked_in_every_spelling() {
        for (text, expected) in [
            ("a AKIA12AB b", "a [masked: key] b"),
            (r"\u0041KIA12A\u0042\n", r"[masked: key]\n"),
            (
                r#"{\"password\": \"hunter2\"}"#,
                r#"{\"password\": \"[masked: password]\"}"#,
            ),
            ("PASSWORD=AKIA12ABcd é", "PASSWORD=[masked: password] é"),
            (r"x geheim-\u00fcü\u00FC.", "x [masked: umlaut]."),
            ("AKIA12ABAKIA12AB", "[masked: key][masked: key]"),
        ] {
            let json = format!(
                r#"{{"content":[{{"text":"{text}","type":"text"}}],"_meta":{{"k":"AKIA12AB"}}}}"#
            );
            let expected = json.replace(text, expected);
            assert_eq!(
                masked(&json).map(|(json, _)| json),
                Some(expected),
                "{text}"
            );
            assert!(
                patterns()
                    .find(DocumentKind::ToolResult, json.as_bytes())
                    .is_some()
            );
        }
    }

    #[test]
    fn secrets_are_counted_by_name_and_elsewhere_left() {
        let json = r#"{"structuredContent":{"AKIA00AA":["AKIA12AB","AKIA12AC",7]},"content":[{"text":"password: x"},{"data":"AKIA12AB"}]}"#;
        let (cleaned, found) = masked(json).unwrap();
        assert_eq!(found, [("key".to_owned(), 2), ("password".to_owned(), 1)]);
        let expected = r#"{"structuredContent":{"AKIA00AA":["[masked: key]","[masked: key]",7]},"content":[{"text":"password: [masked: password]"},{"data":"AKIA12AB"}]}"#;
        assert_eq!(cleaned, expected);
        for json in [
            "{}",
            r#"{"content":[{"text":"nothing"},{"data":"AKIA12AB"}]}"#,
            r#"{"content":[{"text":"AKIA12AB"#,
        ] {
            assert_eq!(masked(json), None);
            assert_eq!(
                patterns().find(DocumentKind::ToolResult, json.as_bytes()),
                None
            );
        }
        assert_eq!(
            patterns().find(DocumentKind::Arguments, br#"{"a":{"b":["AKIA12AB"]}}"#),
            Some(SecretMatch {
                name: "key",
                at: 12
            })
        );
        assert!(patterns().has_match("AKIA12AB") && !patterns().has_match("AKIA"));
    }

    #[test]
    fn patterns_are_equal_by_their_names_and_expressions() {
        let of = |name: &str, regex: &str| SecretPatterns::new(&[pattern(name, regex)]).unwrap();
        assert_eq!(of("a", "x"), of("a", "x"));
        assert_ne!(of("a", "x"), of("b", "x"));
        assert_ne!(of("a", "x"), of("a", "y"));
        assert_eq!(
            patterns().names().collect::<Vec<_>>(),
            ["key", "password", "umlaut"]
        );
    }

    #[test]
    fn pattern_errors_name_the_pattern() {
        let error =
            |patterns: &[SecretPattern]| SecretPatterns::new(patterns).unwrap_err().to_string();
        assert!(error(&[pattern("a b", "x")]).contains("'a b' must have"));
        assert!(error(&[pattern("a", "x"), pattern("a", "y")]).contains("two patterns"));
        assert_eq!(error(&[pattern("a", "(")]), "pattern 'a': unclosed group");
        assert!(error(&[pattern("a", "x*")]).contains("empty text"));
        assert!(error(&[pattern("a", r"\w{1000}{1000}")]).starts_with("pattern 'a'"));
        assert!(
            SecretPatterns::new(&[])
                .unwrap()
                .mask(DocumentKind::ToolResult, b"{}")
                .is_none()
        );
    }
}
