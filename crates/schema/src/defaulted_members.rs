//! Members with a default are optional, even if the schema requires them.
//!
//! A server fills in the default of a member that is absent. Libraries that derive a schema from the
//! result of this, such as zod 4 by default, list such members as required; the specification of JSON
//! Schema (2020-12 Validation, 9.2) gives `default` no effect on validity.

use serde_json::{Map, Value};

use crate::subschemas::{NEVER_RELAXED, change_each};

/// Removes the names of members that have a default from every `required` of a schema.
pub(crate) fn make_defaulted_members_optional(schema: &mut Value) {
    change_each(schema, &NEVER_RELAXED, &mut relax_required);
}

fn relax_required(keywords: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = keywords.get("properties") else {
        return;
    };
    let has_default = |name: &Value| {
        let property = name.as_str().and_then(|name| properties.get(name));
        property.is_some_and(|property| property.get("default").is_some())
    };
    let Some(Value::Array(required)) = keywords.get("required") else {
        return;
    };
    if !required.iter().any(has_default) {
        return;
    }
    let rest: Vec<Value> = required
        .iter()
        .filter(|name| !has_default(name))
        .cloned()
        .collect();
    // An empty list is invalid in draft 4.
    if rest.is_empty() {
        keywords.remove("required");
    } else {
        keywords.insert("required".to_owned(), Value::Array(rest));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_with_a_default_are_optional_at_any_depth() {
        let mut schema = json!({
            "properties": {
                "level": { "default": "info" },
                "path": {},
                "nested": { "items": {
                    "properties": { "only": { "default": null } },
                    "required": ["only"],
                } },
                // A member of the name `enum` is a schema; the value of the keyword is data.
                "enum": { "properties": { "a": { "default": 1 } }, "required": ["a", "b"] },
                "kind": { "enum": [{ "properties": { "a": { "default": 1 } }, "required": ["a"] }] },
                "not_this": { "not": { "properties": { "a": { "default": 1 } }, "required": ["a"] } },
            },
            "required": ["level", "path", "unknown"],
        });
        let before = schema["properties"].clone();
        make_defaulted_members_optional(&mut schema);
        assert_eq!(schema["required"], json!(["path", "unknown"]));
        assert_eq!(
            schema["properties"]["nested"]["items"],
            json!({ "properties": { "only": { "default": null } } })
        );
        for same in ["kind", "not_this"] {
            assert_eq!(schema["properties"][same], before[same]);
        }
        assert_eq!(schema["properties"]["enum"]["required"], json!(["b"]));
    }
}
