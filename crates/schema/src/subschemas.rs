//! Changes weir's own copy of a schema, one subschema after the other.

use serde_json::{Map, Value};

/// Keywords with schemas by name.
const NAMED_SCHEMAS: [&str; 6] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
];

/// Keywords with values that are data.
pub(crate) const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords with values that are data, and keywords with schemas that refuse more values as a whole
/// if their parts fit more.
pub(crate) const NEVER_RELAXED: [&str; 8] = [
    "const", "enum", "default", "examples", "if", "not", "oneOf", "contains",
];

/// Changes the keywords of a schema and of all below it, except for those in the values of the
/// keywords `left_alone`. The nesting of the schema is bounded by its reader.
pub(crate) fn change_each(
    schema: &mut Value,
    left_alone: &[&str],
    change: &mut impl FnMut(&mut Map<String, Value>),
) {
    match schema {
        Value::Object(keywords) => {
            change(keywords);
            for (keyword, value) in keywords {
                if left_alone.contains(&keyword.as_str()) {
                    continue;
                }
                let is_named = NAMED_SCHEMAS.contains(&keyword.as_str());
                if let Value::Object(named) = value
                    && is_named
                {
                    named
                        .values_mut()
                        .for_each(|schema| change_each(schema, left_alone, change));
                } else {
                    change_each(value, left_alone, change);
                }
            }
        }
        Value::Array(schemas) => schemas
            .iter_mut()
            .for_each(|schema| change_each(schema, left_alone, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
