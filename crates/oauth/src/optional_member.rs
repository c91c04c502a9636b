//! Optional members of another party's document. Some servers write them as `null` or as an empty
//! text where they mean to leave them out.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a member whose `null` means that it is absent. Any other wrong type is an error.
///
/// # Errors
/// The value is of another type.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a URL; absent if it is `null` or empty. Any other wrong type is an error.
///
/// # Errors
/// The value is of another type.
pub fn optional_url<'de, D>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let url = Option::<String>::deserialize(deserializer)?;
    Ok(url.filter(|url| !url.is_empty()))
}

/// Reads a text that its reader can do without; absent if it is empty, or of any other type.
///
/// # Errors
/// The document is not valid.
pub fn optional_text<'de, D>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::String(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Members {
        #[serde(default, deserialize_with = "null_as_default")]
        list: Vec<String>,
        #[serde(default, deserialize_with = "optional_url")]
        url: Option<String>,
        #[serde(default, deserialize_with = "optional_text")]
        text: Option<String>,
    }

    fn read(document: Value) -> Option<Members> {
        serde_json::from_value(document).ok()
    }

    #[test]
    fn null_and_an_empty_text_mean_absent() {
        let absent = read(json!({}));
        assert!(absent.is_some());
        for document in [
            json!({ "list": null, "url": null, "text": null }),
            json!({ "list": [], "url": "", "text": "" }),
            json!({ "text": ["a"] }),
            json!({ "text": 7 }),
        ] {
            assert_eq!(read(document.clone()), absent, "{document}");
        }
        let present = read(json!({ "list": ["a"], "url": "b", "text": "c" })).unwrap();
        assert_eq!(present.list, ["a"]);
        assert_eq!(present.url.as_deref(), Some("b"));
        assert_eq!(present.text.as_deref(), Some("c"));
        for document in [
            json!({ "list": "a" }),
            json!({ "list": [1] }),
            json!({ "url": 7 }),
        ] {
            assert_eq!(read(document.clone()), None, "{document}");
        }
    }
}
