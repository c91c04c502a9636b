//! The JSON Schema of the config, for editors and for `weir schema`.

use schemars::generate::SchemaSettings;

use super::raw::Raw;

/// The schema as JSON text, ending in a newline: what stands in `docs/config.schema.json`.
#[must_use]
pub fn schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Raw>();
    // A schema is JSON by construction: the fallback keeps this total.
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text + "\n"
}

#[cfg(test)]
mod tests {
    /// Run with `UPDATE=1` to write the file anew.
    #[test]
    fn the_checked_in_schema_is_current() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(file, super::schema()).expect("docs/ can be written");
        }
        let checked_in = std::fs::read_to_string(file).expect("docs/config.schema.json is there");
        assert_eq!(checked_in, super::schema(), "run this test with UPDATE=1 and review the difference");
    }
}
