//! Patterns of a schema, and the engine that matches them.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Bytes of one compiled pattern, and of its lazily built automaton.
pub(super) const PATTERN_BYTES: usize = 1 << 20;

/// The options of patterns: a linear engine, and bounds.
pub(super) fn pattern_options() -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex()
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
}

/// A pattern of members' names, matched by the validator's own engine.
pub(super) struct MemberPattern {
    text: String,
    /// Absent until it is needed, and for a pattern that cannot be used: such a schema is not used
    /// either.
    validator: Option<Validator>,
}

impl MemberPattern {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            validator: None,
        }
    }

    pub(super) fn compile(&mut self) {
        let schema = serde_json::json!({ "pattern": self.text });
        self.validator = jsonschema::options()
            .with_pattern_options(pattern_options())
            .build(&schema)
            .ok();
    }

    pub(super) fn fits(&self, name: &str) -> bool {
        self.validator
            .as_ref()
            .is_none_or(|validator| validator.is_valid(&Value::from(name)))
    }
}

impl fmt::Debug for MemberPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
