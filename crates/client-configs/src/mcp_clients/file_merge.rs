//! Inserts a server into the text of a client's file. Comments, the order of entries and the rest
//! of the file stay.

use jsonc_parser::cst::{CstObject, CstRootNode};
use serde_json::{Map, Value as Json};
use weir_config_file::edit::json_tree;
use weir_config_file::json::options as json_options;

use crate::mcp_clients::client_entry::{EndpointConnection, EntryValue};
use crate::mcp_clients::{ClientFormat, McpClient};

/// The result of inserting a server into a client's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergedFile {
    /// The file already has this entry.
    Unchanged,
    /// The new text of the file.
    Changed(String),
}

/// The reason why a file is not edited.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The file cannot be parsed.
    #[error("{0}; fix it first")]
    Broken(String),
    /// The name is taken.
    #[error("already has another server `{0}`: choose another --name, or replace it with --force")]
    Taken(String),
    /// The file is valid, but in a form that an edit would not preserve.
    #[error("is written in a way that weir does not edit; add the entry by hand")]
    Unedited,
}

impl McpClient {
    /// Returns the text of a client's file with this one server.
    pub fn snippet(self, connection: &EndpointConnection<'_>) -> String {
        match self.merged("", connection, false) {
            Ok(MergedFile::Changed(text)) => text,
            // An entry can always be added to an empty text.
            Ok(MergedFile::Unchanged) | Err(_) => String::new(),
        }
    }

    /// Returns the text of a file with the server. An entry of the same name is replaced only with
    /// `force`.
    ///
    /// # Errors
    /// The text cannot be parsed, has another server of this name, or is written in a way that weir
    /// does not edit.
    pub fn merged(
        self,
        text: &str,
        connection: &EndpointConnection<'_>,
        force: bool,
    ) -> Result<MergedFile, MergeError> {
        let file_name = match self.format() {
            ClientFormat::Json => "file.json",
            ClientFormat::Toml => "file.toml",
        };
        let tree = |text: &str| match self.is_empty(text) {
            true => Ok(Json::Object(Map::new())),
            false => json_tree(file_name, text)
                .map_err(|problem| MergeError::Broken(problem.to_string())),
        };
        let before = tree(text)?;
        let entry = self.entry(connection);
        let wanted = self
            .expected_content(&before, connection, &entry)
            .ok_or(MergeError::Unedited)?;
        if wanted == before {
            return Ok(MergedFile::Unchanged);
        }
        let is_taken = before
            .get(self.container())
            .and_then(|servers| servers.get(connection.name))
            .is_some();
        let is_same = before[self.container()][connection.name] == object(&entry);
        if is_taken && !is_same && !force {
            return Err(MergeError::Taken(connection.name.to_owned()));
        }
        let edited = match self.format() {
            ClientFormat::Json => self.into_json(text, connection, &entry),
            ClientFormat::Toml => Some(self.into_toml(text, connection.name, &entry)),
        };
        // The edit is verified: the result must equal the old content plus the entry.
        let is_right = |text: &String| tree(text).is_ok_and(|tree| tree == wanted);
        edited
            .filter(is_right)
            .map(MergedFile::Changed)
            .ok_or(MergeError::Unedited)
    }

    /// Reports if a text has no value: it is empty, or has comments only.
    fn is_empty(self, text: &str) -> bool {
        let is_bare =
            || CstRootNode::parse(text, &json_options()).is_ok_and(|root| root.value().is_none());
        text.trim().is_empty() || self.format() == ClientFormat::Json && is_bare()
    }

    /// Returns the content that the edited file must have. `None` if the container of servers is
    /// not a map.
    fn expected_content(
        self,
        before: &Json,
        connection: &EndpointConnection<'_>,
        entry: &[(String, EntryValue)],
    ) -> Option<Json> {
        let mut wanted = before.clone();
        let top = wanted.as_object_mut()?;
        if let Some(input) = self.input(connection) {
            let inputs = top
                .entry("inputs")
                .or_insert_with(|| Json::Array(Vec::new()))
                .as_array_mut()?;
            let input = object(&input);
            if !inputs.iter().any(|other| other["id"] == input["id"]) {
                inputs.push(input);
            }
        }
        let servers = top
            .entry(self.container())
            .or_insert_with(|| Json::Object(Map::new()));
        servers
            .as_object_mut()?
            .insert(connection.name.to_owned(), object(entry));
        Some(wanted)
    }

    fn into_json(
        self,
        text: &str,
        connection: &EndpointConnection<'_>,
        entry: &[(String, EntryValue)],
    ) -> Option<String> {
        // Windows programs put a byte order mark before the text.
        let (mark, text) = match text.strip_prefix('\u{feff}') {
            Some(text) => ("\u{feff}", text),
            None => ("", text),
        };
        let root = CstRootNode::parse(text, &json_options()).ok()?;
        let top = root.object_value_or_create()?;
        if let Some(input) = self.input(connection) {
            let inputs = top.array_value_or_create("inputs")?;
            let is_there = inputs
                .elements()
                .iter()
                .filter_map(jsonc_parser::cst::CstNode::as_object)
                .any(|other| {
                    let id = other
                        .get("id")
                        .and_then(|id| id.value()?.as_string_lit()?.decoded_value().ok());
                    input.iter().any(|(key, value)| {
                        key == "id" && id.clone().map(EntryValue::Text).as_ref() == Some(value)
                    })
                });
            if !is_there {
                inputs.append(EntryValue::Object(input).to_cst());
            }
        }
        let servers: CstObject = top.object_value_or_create(self.container())?;
        let value = EntryValue::Object(entry.to_vec()).to_cst();
        match servers.get(connection.name) {
            Some(old) => old.set_value(value),
            None => {
                servers.append(connection.name, value);
            }
        }
        Some(format!("{mark}{root}"))
    }

    /// Writes the TOML table of the server, at the end of the file or in place of the old one.
    fn into_toml(self, text: &str, name: &str, entry: &[(String, EntryValue)]) -> String {
        let header = format!("[{}.{name}]", self.container());
        let below = format!("[{}.{name}.", self.container());
        let mut kept: Vec<&str> = Vec::new();
        // Comments after the last key of an old table are about what follows it.
        let mut comments: Vec<&str> = Vec::new();
        let mut is_old = false;
        let mut place = None;
        for line in text.split_inclusive('\n') {
            let trimmed = line.trim();
            if trimmed.starts_with('[') {
                kept.append(&mut comments);
                is_old = trimmed.starts_with(&header) || trimmed.starts_with(&below);
            }
            if !is_old {
                kept.push(line);
                continue;
            }
            place.get_or_insert(kept.len());
            if trimmed.starts_with('#') || trimmed.is_empty() && !comments.is_empty() {
                comments.push(line);
            } else if !trimmed.is_empty() {
                comments.clear();
            }
        }
        kept.append(&mut comments);
        let keys: String = entry
            .iter()
            .map(|(key, value)| format!("{key} = {}\n", value.to_toml()))
            .collect();
        let table = format!("{header}\n{keys}");
        match place {
            Some(at) => {
                let after = if at < kept.len() { "\n" } else { "" };
                format!(
                    "{}{table}{after}{}",
                    kept[..at].concat(),
                    kept[at..].concat()
                )
            }
            None if text.trim().is_empty() => format!("{text}{table}"),
            None => {
                let end = if text.ends_with('\n') { "" } else { "\n" };
                format!("{text}{end}\n{table}")
            }
        }
    }
}

fn object(keys: &[(String, EntryValue)]) -> Json {
    EntryValue::Object(keys.to_vec()).to_json()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::mcp_clients::client_entry::EntryCredential;

    fn merged(client: McpClient, text: &str) -> String {
        let connection = EndpointConnection {
            name: "weir",
            url: "http://x/mcp",
            program: "weir",
            credential: EntryCredential::None,
        };
        match client.merged(text, &connection, false).unwrap() {
            MergedFile::Changed(text) => text,
            MergedFile::Unchanged => panic!("nothing was changed in {text}"),
        }
    }

    #[test]
    fn merge_keeps_byte_order_mark_line_endings_and_comments() {
        let text =
            "\u{feff}{\r\n  // a\r\n  \"mcpServers\": {\r\n    \"b\": {}, /* c */\r\n  },\r\n}\r\n";
        let now = merged(McpClient::Cursor, text);
        assert!(now.starts_with("\u{feff}{\r\n  // a\r\n"), "{now:?}");
        assert!(
            now.contains("\"b\": {}, /* c */\r\n") && now.ends_with("},\r\n}\r\n"),
            "{now:?}"
        );
        assert_eq!(
            now.matches('\n').count(),
            now.matches("\r\n").count(),
            "{now:?}"
        );
    }

    #[test]
    fn comments_between_a_replaced_table_and_the_next_one_stay() {
        let connection = EndpointConnection {
            name: "weir",
            url: "http://x/mcp",
            program: "weir",
            credential: EntryCredential::None,
        };
        let old = "[mcp_servers.weir]\n# old\nurl = \"http://old\"\n\n";
        for rest in [
            "# about b\n[mcp_servers.b]\nurl = \"c\"\n",
            "# one\n\n# two\n\n[mcp_servers.b]\nurl = \"c\"\n",
            "# the end\n",
        ] {
            let merged =
                McpClient::Codex.merged(&format!("# mine\n{old}{rest}"), &connection, true);
            let expected = format!("# mine\n[mcp_servers.weir]\nurl = \"http://x/mcp\"\n\n{rest}");
            assert_eq!(merged, Ok(MergedFile::Changed(expected)));
        }
    }

    #[test]
    fn files_without_servers_and_without_lines_get_an_entry() {
        for text in [
            "",
            "\n",
            "{}",
            "{\"a\":1}",
            "{\"mcpServers\":{\"b\":{\"command\":\"c\"}}}",
            "// mine\n",
            "{\"mcpServers\":{}}",
        ] {
            let now = merged(McpClient::Cursor, text);
            let tree = json_tree("file.json", &now).unwrap();
            assert_eq!(
                tree["mcpServers"]["weir"]["url"], "http://x/mcp",
                "{text}: {now}"
            );
            assert!(
                !text.starts_with("//") || now.starts_with("// mine\n"),
                "{now}"
            );
        }
        for text in [
            "",
            "a = 1",
            "[mcp_servers.b]\nurl = \"c\"\n",
            "# mine\n",
            "[[list]]\nx = 1\n",
        ] {
            let now = merged(McpClient::Codex, text);
            let tree = json_tree("file.toml", &now).unwrap();
            assert_eq!(
                tree["mcp_servers"]["weir"]["url"], "http://x/mcp",
                "{text}: {now}"
            );
            assert!(now.starts_with(text), "{now}");
        }
    }
}
