//! An upstream entry, and its text for a config.

use serde_json::{Map, Value};

use crate::import::command_line::{has_words, line_credentials};
use crate::import::credentials::{argument_credential, split_credential, url_credentials};

/// Words that YAML does not read as text, and a few that other parsers do not.
const WORDS: [&str; 10] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "~",
];

/// The keys of an upstream, with the texts of a config: `${NAME}` is a reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamEntry {
    /// The URL of a server over HTTP.
    pub url: Option<String>,
    /// True for HTTP+SSE.
    pub is_sse: bool,
    /// The program of a server that weir starts.
    pub command: Option<String>,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The program's environment variables.
    pub env: Vec<(String, String)>,
    /// The folder that the program starts in.
    pub cwd: Option<String>,
    /// The headers of requests to the server.
    pub headers: Vec<(String, String)>,
}

impl UpstreamEntry {
    /// Reports if the entry has a credential that is not a reference.
    pub fn has_credential(&self) -> bool {
        let found = |text: &str| !text.contains("${");
        let in_maps = self.env.iter().chain(&self.headers);
        let mut in_maps = in_maps.filter_map(|(name, value)| split_credential(name, value));
        let befores =
            std::iter::once(None).chain(self.args.iter().map(|argument| Some(argument.as_str())));
        let mut in_args = befores.zip(&self.args).map(|(before, argument)| {
            if has_words(before, argument) {
                let all = line_credentials(argument);
                return all.into_iter().any(|one| found(&argument[one.place]));
            }
            argument_credential(before, argument).is_some_and(|(_, _, text)| found(text))
        });
        in_maps.any(|(_, text)| found(text))
            || in_args.any(|is_found| is_found)
            || self
                .url
                .as_deref()
                .is_some_and(|url| !url_credentials(url).is_empty())
    }

    /// Returns the entry as YAML. `indent` starts each line, and `step` is the indent of one more
    /// level.
    pub fn block(&self, indent: &str, step: &str) -> String {
        let mut lines = Vec::new();
        let mut one = |key: &str, text: Option<&String>| {
            lines.extend(text.map(|text| format!("{indent}{key}: {}", scalar(text))))
        };
        one("url", self.url.as_ref());
        one("protocol", self.is_sse.then(|| "sse".to_owned()).as_ref());
        one("command", self.command.as_ref());
        if !self.args.is_empty() {
            let args: Vec<String> = self.args.iter().map(|arg| scalar(arg)).collect();
            lines.push(format!("{indent}args: [{}]", args.join(", ")));
        }
        lines.extend(
            self.cwd
                .as_ref()
                .map(|cwd| format!("{indent}cwd: {}", scalar(cwd))),
        );
        for (key, map) in [("env", &self.env), ("headers", &self.headers)] {
            if !map.is_empty() {
                lines.push(format!("{indent}{key}:"));
                lines.extend(map.iter().map(|(name, text)| {
                    format!("{indent}{step}{}: {}", scalar(name), scalar(text))
                }));
            }
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Returns the entry as JSON, which is also YAML in braces.
pub fn flow(entry: &UpstreamEntry) -> String {
    let mut keys = Map::new();
    let mut one = |key: &str, text: &Option<String>| {
        if let Some(text) = text {
            keys.insert(key.to_owned(), text.clone().into());
        }
    };
    one("url", &entry.url);
    one("protocol", &entry.is_sse.then(|| "sse".to_owned()));
    one("command", &entry.command);
    one("cwd", &entry.cwd);
    if !entry.args.is_empty() {
        keys.insert("args".to_owned(), entry.args.clone().into());
    }
    for (key, map) in [("env", &entry.env), ("headers", &entry.headers)] {
        if !map.is_empty() {
            let map: Map<String, Value> = map
                .iter()
                .map(|(name, text)| (name.clone(), text.clone().into()))
                .collect();
            keys.insert(key.to_owned(), map.into());
        }
    }
    spaced(&Value::Object(keys))
}

/// Returns JSON with a space after each comma and colon. YAML needs the one after the colon.
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), spaced(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(spaced).collect::<Vec<_>>().join(", ")
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Writes a text as YAML: plain if it cannot be read as another value, and in quotes otherwise.
pub fn scalar(text: &str) -> String {
    let begins = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'/')
        // `-y` is a text; `-1` and `-` are not.
        || text.strip_prefix("--").or_else(|| text.strip_prefix('-')).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    let goes_on = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-./=+".contains(&b));
    let is_word = WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_url = (text.starts_with("http://") || text.starts_with("https://"))
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-./:".contains(&b))
        && !text.ends_with(':');
    let is_number = text.trim_start_matches('-').parse::<f64>().is_ok();
    if is_url || begins && goes_on && !is_word && !is_number {
        text.to_owned()
    } else {
        // A JSON string is also a YAML string.
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_texts_stay_plain() {
        for text in [
            "npx",
            "-y",
            "--port",
            "/srv/docs",
            "http://127.0.0.1:3001/mcp",
            "a-b_c.d=e",
            "--a=b",
        ] {
            assert_eq!(scalar(text), text);
        }
        for text in [
            "", "1", "-1", "true", "Off", "a b", "@x/y", "${A}", "a: b", "#x", "nan", "inf", "-",
            "a,b", "*", "&a",
        ] {
            assert_eq!(scalar(text), Value::from(text).to_string(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn every_text_is_read_back_as_it_was(text in "[ -~äé\\n\\t]{0,30}", name in "[ -~]{1,10}") {
            let entry = UpstreamEntry {
                command: Some(text.clone()),
                args: vec![text.clone(), name.clone()],
                env: vec![(name.clone(), text.clone())],
                ..UpstreamEntry::default()
            };
            let wanted = serde_json::json!({ "command": text, "args": [text, name], "env": { name: text } });
            for written in [entry.block("  ", "  "), flow(&entry)] {
                let read: Value = serde_saphyr::from_str(&written).map_err(|error| TestCaseError::fail(format!("{written}: {error}")))?;
                prop_assert_eq!(&read, &wanted, "{}", written);
            }
        }
    }
}
