//! Validation of tool arguments and structured results against the tool's own JSON Schemas.
//!
//! A schema comes from a server that may be careless or hostile. So its cost is bounded before it
//! is compiled, no reference is ever fetched, patterns run on a linear engine, and a value that
//! would cost too much is not validated. A schema that cannot be used switches validation off for
//! its tool, and that is logged.

mod compile;
mod mismatch;
mod shape;
mod unreadable;

use std::sync::Arc;

use serde_json::Value;
use weir_wire::scan::{self, JsonLimits, ScanErrorKind};

pub(crate) use compile::{CompiledSchema, SchemaCache};
pub use mismatch::Mismatch;
pub(crate) use mismatch::{cut, message};

/// The action on a value that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckMode {
    /// Not checked.
    Off,
    /// Counted and logged; passes.
    Warn,
    /// Refused if the schema can be used. A tool with an unusable schema is flagged and stays
    /// unchecked.
    EnforceUsable,
    /// Refused, and so is every call of a tool whose schema cannot be used.
    Enforce,
}

impl CheckMode {
    /// True if values that do not match are refused.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Self::EnforceUsable | Self::Enforce)
    }
}

/// The checks of arguments and of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Arguments against `inputSchema`, before the call goes out.
    pub input: CheckMode,
    /// `structuredContent` against `outputSchema`, before the result goes back.
    pub output: CheckMode,
}

impl Default for Validation {
    fn default() -> Self {
        Self {
            input: CheckMode::EnforceUsable,
            output: CheckMode::Warn,
        }
    }
}

/// The usability of a tool's schema.
#[derive(Clone, Debug)]
pub(crate) enum ToolSchema {
    /// There is no schema.
    None,
    /// It cannot be used.
    Unchecked(UnusableSchema),
    /// It can.
    Checked(Arc<CompiledSchema>),
}

impl ToolSchema {
    /// The result of compiling the schema; absent if there is none.
    pub(crate) fn usable(&self) -> Option<Result<(), UnusableSchema>> {
        match self {
            Self::None => None,
            Self::Unchecked(why) => Some(Err(*why)),
            Self::Checked(_) => Some(Ok(())),
        }
    }
}

/// The obstacle to using a schema for validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// Longer than 256 KiB.
    #[error("the schema is longer than 256 KiB")]
    TooLong,
    /// More than 5,000 values.
    #[error("the schema has more than 5,000 values")]
    TooManyNodes,
    /// Nested too deeply.
    #[error("the schema is nested more than 32 schemas deep")]
    TooDeep,
    /// One value would be validated against more than 10,000 schemas.
    #[error("its references expand to more than 10,000 schemas for one value")]
    TooManyExpansions,
    /// A reference leads back to itself without going into the value.
    #[error("a reference leads back to itself")]
    EndlessReference,
    /// A reference leads out of the schema. No reference is fetched.
    #[error("a reference leads out of the schema, and nothing is fetched")]
    ForeignReference,
    /// A reference leads nowhere, or the schema has parts with ids of their own.
    #[error("a reference cannot be followed")]
    BrokenReference,
    /// `$schema` names a dialect weir does not know.
    #[error("its dialect is not known")]
    Dialect,
    /// Not a valid schema.
    #[error("it is not a valid schema")]
    Invalid,
}

impl UnusableSchema {
    /// A word for metrics, one of a fixed set.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::TooManyNodes => "too_many_nodes",
            Self::TooDeep => "too_deep",
            Self::TooManyExpansions => "too_many_expansions",
            Self::EndlessReference => "endless_reference",
            Self::ForeignReference => "foreign_reference",
            Self::BrokenReference => "broken_reference",
            Self::Dialect => "dialect",
            Self::Invalid => "invalid",
        }
    }
}

/// The result of validating a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SchemaVerdict {
    /// It matches.
    Fits,
    /// It does not; at most five mismatches.
    Fails(Vec<Mismatch>),
    /// No validator can read it: a number that no double holds, or half a surrogate pair. The first
    /// such place.
    Unreadable(Mismatch),
    /// The check would cost more than it may.
    Unknown,
}

/// Keys and values of a value that is validated: as many as a client's request may have altogether.
/// As a tree each takes many times its bytes.
const MOST_TOKENS: u32 = JsonLimits::DEFAULT_TOKENS;

/// The reason for refusing arguments that cannot be checked at a bearable cost.
pub(crate) const TOO_COSTLY_TEXT: &str = "checking them against the schema would cost too much: send less at once, or nest it less deeply";

/// Validates the bytes of a value against a schema.
pub(crate) fn verdict(schema: &CompiledSchema, bytes: &[u8]) -> SchemaVerdict {
    judged(schema, bytes, CompiledSchema::verdict)
}

/// Validates the bytes of a tool's arguments against its input schema. Properties must not differ
/// in case alone from those that the schema names: a server without regard to case would mix them
/// up.
pub(crate) fn verdict_of_arguments(schema: &CompiledSchema, bytes: &[u8]) -> SchemaVerdict {
    judged(schema, bytes, CompiledSchema::verdict_of_arguments)
}

fn judged(
    schema: &CompiledSchema,
    bytes: &[u8],
    judge: fn(&CompiledSchema, &Value, usize) -> SchemaVerdict,
) -> SchemaVerdict {
    let limits = JsonLimits {
        max_tokens: MOST_TOKENS,
        ..JsonLimits::upstream()
    };
    match scan::check_unique(bytes, &limits) {
        // Of two equal keys the validator sees one and the upstream perhaps the other.
        Err(error) if error.kind == ScanErrorKind::DuplicateKey => {
            return SchemaVerdict::Fails(vec![Mismatch::whole(
                "an object in it has the same key twice",
            )]);
        }
        Err(_) => return SchemaVerdict::Unknown,
        Ok(()) => {}
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => judge(schema, &value, bytes.len()),
        Err(_) => unreadable::find(bytes).map_or(SchemaVerdict::Unknown, SchemaVerdict::Unreadable),
    }
}

#[cfg(test)]
mod prove;
#[cfg(test)]
mod tests;
