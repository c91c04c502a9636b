//! The dialects of JSON Schema.

use jsonschema::Draft;
use serde_json::Value;

use crate::unusable::UnusableSchema;

/// The dialect that `$schema` names; 2020-12 if it names none.
///
/// # Errors
///
/// It is not known.
pub(crate) fn of(schema: &Value) -> Result<Draft, UnusableSchema> {
    let Some(name) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let name = name.as_str().ok_or(UnusableSchema::Invalid)?;
    named(name.trim_end_matches('#')).ok_or(UnusableSchema::Dialect)
}

/// True if a reference leads to the schema of a dialect, or into it.
pub(crate) fn is_metaschema(reference: &str) -> bool {
    let address = reference.split('#').next().unwrap_or_default();
    named(address).is_some()
}

/// The dialect of this name, which is the address of its schema.
fn named(address: &str) -> Option<Draft> {
    let name = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"))
        .unwrap_or(address);
    match name {
        "json-schema.org/draft/2020-12/schema" | "json-schema.org/schema" => {
            Some(Draft::Draft202012)
        }
        "json-schema.org/draft/2019-09/schema" => Some(Draft::Draft201909),
        "json-schema.org/draft-07/schema" => Some(Draft::Draft7),
        "json-schema.org/draft-06/schema" => Some(Draft::Draft6),
        "json-schema.org/draft-04/schema" => Some(Draft::Draft4),
        _ => None,
    }
}
