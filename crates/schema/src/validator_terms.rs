//! Writes weir's own copy of a schema in the terms that the validator knows. The listed bytes stay.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::dialect::is_metaschema;
use crate::subschemas::{DATA, NEVER_RELAXED, change_each};
use crate::unusable::UnusableSchema;

/// Keywords with a reference.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Characters that the fragment of a URI has only encoded (RFC 3986, 3.5), beside those beyond
/// ASCII. A `%` begins an encoded one already.
const ENCODED: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Rewrites the keywords of a schema at every level.
///
/// # Errors
///
/// A reference to the schema of schemas stands where anything must not be permitted instead.
pub(crate) fn use_validator_terms(schema: &mut Value) -> Result<(), UnusableSchema> {
    change_each(schema, &NEVER_RELAXED, &mut |keywords| {
        // A value that has to be a schema is not checked.
        keywords.retain(|keyword, target| !is_reference_to_metaschema(keyword, target));
        permit_null(keywords);
    });
    let mut is_usable = true;
    change_each(schema, &DATA, &mut |keywords| {
        is_usable &= !keywords
            .iter()
            .any(|(keyword, target)| is_reference_to_metaschema(keyword, target));
        encode_references(keywords);
    });
    if is_usable {
        Ok(())
    } else {
        Err(UnusableSchema::ForeignReference)
    }
}

fn is_reference_to_metaschema(keyword: &str, target: &Value) -> bool {
    REFERENCES.contains(&keyword) && target.as_str().is_some_and(is_metaschema)
}

/// Encodes the characters of pointers that are none of a URI, such as those of `Page[Item]`:
/// libraries name generic types so, and validators of clients follow such a pointer.
fn encode_references(keywords: &mut Map<String, Value>) {
    for keyword in REFERENCES {
        if let Some(Value::String(target)) = keywords.get_mut(keyword)
            && let Some((address, fragment)) = target.split_once('#')
        {
            *target = format!("{address}#{}", utf8_percent_encode(fragment, &ENCODED));
        }
    }
}

/// `nullable: true` of OpenAPI beside a type, which validators of clients know, permits `null`.
fn permit_null(keywords: &mut Map<String, Value>) {
    let is_nullable = keywords.get("nullable") == Some(&Value::Bool(true));
    let Some(types) = keywords.get_mut("type").filter(|_| is_nullable) else {
        return;
    };
    let null = Value::from("null");
    if let Value::Array(names) = types {
        if !names.contains(&null) {
            names.push(null);
        }
    } else if *types != null {
        *types = Value::Array(vec![types.take(), null]);
    }
    if let Some(Value::Array(choices)) = keywords.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_is_rewritten_outside_of_data() {
        let mut schema = json!({
            "properties": {
                "$ref": { "$ref": "#/$defs/Map[K, V]" },
                "enum": { "items": { "$ref": "https://x.example/a#/$defs/a%20é~1\\`1#" } },
                "n": { "type": "string", "nullable": true, "enum": ["a"] },
                "m": { "type": ["string", "null"], "nullable": true },
                "o": { "type": "string", "nullable": false, "const": { "type": "s", "nullable": true } },
                "p": { "oneOf": [{ "type": "string", "nullable": true }, { "type": "null" }] },
                "s": { "$ref": "http://json-schema.org/draft-07/schema#", "title": "T" },
            },
            "const": { "$ref": "#/a b" },
            "nullable": true,
        });
        use_validator_terms(&mut schema).unwrap();
        assert_eq!(
            schema,
            json!({
                "properties": {
                    "$ref": { "$ref": "#/$defs/Map%5BK,%20V%5D" },
                    "enum": {
                        "items": { "$ref": "https://x.example/a#/$defs/a%20%C3%A9~1%5C%601%23" }
                    },
                    "n": { "type": ["string", "null"], "nullable": true, "enum": ["a", null] },
                    "m": { "type": ["string", "null"], "nullable": true },
                    "o": {
                        "type": "string",
                        "nullable": false,
                        "const": { "type": "s", "nullable": true },
                    },
                    "p": { "oneOf": [{ "type": "string", "nullable": true }, { "type": "null" }] },
                    "s": { "title": "T" },
                },
                "const": { "$ref": "#/a b" },
                "nullable": true,
            })
        );
    }
}
