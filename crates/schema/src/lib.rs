//! Validation of tool arguments and structured results against the tool's own JSON Schemas.
//!
//! A schema comes from a server that may be careless or hostile. So its cost is bounded before it
//! is compiled, no reference is ever fetched, patterns run on a linear engine, and a value that
//! would cost too much is not validated. A schema that cannot be used switches validation off for
//! its tool, and that is logged.

mod check_mode;
mod compile;
mod defaulted_members;
mod dialect;
mod ecma_pattern;
pub mod fuzzing;
mod member_pattern;
pub mod mismatch;
mod pattern_cost;
mod shape;
mod subschemas;
mod unicode_property;
mod unreadable;
mod unusable;
mod validator_terms;

use serde_json::Value;
use weir_wire::scan::{self, JsonLimits, ScanErrorKind};

pub use check_mode::{CheckMode, Validation};
pub use compile::{CompiledSchema, SchemaCache, ToolSchema};
pub use mismatch::{Mismatch, SchemaVerdict};
pub use unreadable::find_unreadable;
pub use unusable::UnusableSchema;

/// The reason for refusing arguments that cannot be checked at a bearable cost.
pub const TOO_COSTLY_TEXT: &str = "checking them against the schema would cost too much: send less at once, or nest it less deeply";

/// Validates the bytes of a value against a schema.
#[must_use]
pub fn verdict(schema: &CompiledSchema, bytes: &[u8]) -> SchemaVerdict {
    verdict_by(schema, bytes, CompiledSchema::verdict)
}

/// Validates the bytes of a tool's arguments against its input schema. Properties must not differ
/// in case alone from those that the schema names: a server without regard to case would mix them
/// up.
#[must_use]
pub fn verdict_of_arguments(schema: &CompiledSchema, bytes: &[u8]) -> SchemaVerdict {
    verdict_by(schema, bytes, CompiledSchema::verdict_of_arguments)
}

fn verdict_by(
    schema: &CompiledSchema,
    bytes: &[u8],
    judge: fn(&CompiledSchema, &Value, usize) -> SchemaVerdict,
) -> SchemaVerdict {
    let limits = JsonLimits {
        // As many as a client's request may have: in a tree each takes many times its bytes.
        max_tokens: JsonLimits::DEFAULT_TOKENS,
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
        Err(_) => find_unreadable(bytes).map_or(SchemaVerdict::Unknown, SchemaVerdict::Unreadable),
    }
}

#[cfg(test)]
mod tests;
