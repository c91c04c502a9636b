//! The JSON Schema of the config, for editors and for `weir schema`.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::raw::{BOOLEAN_WORDS, RawConfig};

/// The mark of a declaration: `none` for a key whose absence removes no protection from a config,
/// `none below` for a section that has only such keys.
pub const PROTECTION: &str = "x-protection";

/// Returns the schema with the marks of the declarations.
#[must_use]
pub fn marked_schema() -> Value {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<RawConfig>();
    // A schema is always valid JSON: the fallback only avoids a panic.
    serde_json::to_value(&schema).unwrap_or_default()
}

/// Returns the schema as JSON text, ending in a newline: the content of `docs/config.schema.json`.
#[must_use]
pub fn schema() -> String {
    let mut schema = marked_schema();
    simplify(&mut schema);
    // As above.
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text + "\n"
}

/// The key under which a JSON file names its schema for editors. Files of other programs have it,
/// too.
pub(crate) const SCHEMA_KEY: &str = "$schema";

/// Returns the keys at the top of a config, without `$schema`.
pub fn keys() -> Vec<String> {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<RawConfig>();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .map(|properties| {
            let keys = properties.keys().filter(|key| *key != SCHEMA_KEY);
            keys.cloned().collect()
        })
        .unwrap_or_default()
}

/// Removes `null` from the permitted values: a key may be absent, but not without a value. Removes
/// the marks, too. Adds the boolean that stands for a word.
fn simplify(schema: &mut Value) {
    if let Value::Object(members) = schema {
        members.remove(PROTECTION);
        let word = members.get("const").and_then(Value::as_str);
        let boolean = BOOLEAN_WORDS.iter().find(|(name, _)| word == Some(name));
        if let Some((word, boolean)) = boolean {
            members.remove("const");
            members.remove("type");
            members.insert("enum".to_owned(), json!([word, boolean]));
        }
        if members.get("default").is_some_and(Value::is_null) {
            members.remove("default");
        }
        if let Some(Value::Array(kinds)) = members.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [kind] = kinds.as_slice() {
                let kind = kind.clone();
                members.insert("type".to_owned(), kind);
            }
        }
        if let Some(Value::Array(words)) = members.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        for list in ["anyOf", "oneOf"] {
            let Some(Value::Array(choices)) = members.get_mut(list) else {
                continue;
            };
            choices.retain(|choice| choice["type"] != "null");
            if let [Value::Object(choice)] = choices.as_slice() {
                let choice = choice.clone();
                members.remove(list);
                members.extend(choice.into_iter().filter(|(key, _)| key != "description"));
            }
        }
    }
    match schema {
        Value::Object(members) => members.values_mut().for_each(simplify),
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_value_of_the_schema_may_be_null() {
        assert!(!super::schema().contains("null"), "{}", super::schema());
    }

    /// Run with `UPDATE=1` to rewrite the file.
    #[test]
    fn the_checked_in_schema_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(file, super::schema()).expect("docs/ can be written");
        }
        let checked_in = std::fs::read_to_string(file).expect("docs/config.schema.json is there");
        assert_eq!(
            checked_in,
            super::schema(),
            "run this test with UPDATE=1 and review the difference"
        );
    }
}
