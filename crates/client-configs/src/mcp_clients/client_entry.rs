//! The entry of one server in the file of a client, and the client's own command that would write
//! it.

use jsonc_parser::cst::CstInputValue;
use serde_json::Value as Json;

use crate::mcp_clients::McpClient;

/// The environment variable that weir's commands read a token from.
pub const TOKEN_VARIABLE: &str = "WEIR_TOKEN";

/// The connection of a client to an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConnection<'a> {
    /// The name of the entry.
    pub name: &'a str,
    /// The URL of the endpoint.
    pub url: &'a str,
    /// The program that a client without HTTP starts instead.
    pub program: &'a str,
    /// The source of the client's credential.
    pub credential: EntryCredential,
}

/// The source of a client's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryCredential {
    /// The client needs no credential, or logs in by OAuth. The entry has no key for it.
    None,
    /// From this environment variable, if the client supports variables.
    Variable(String),
    /// The credential is written to the file.
    Secret(String),
}

impl EntryCredential {
    /// Returns the credential that clients of a weir write into their files: an environment
    /// variable for API keys, or no credential for OAuth.
    pub fn usual(requires_api_keys: bool) -> Self {
        if requires_api_keys {
            Self::Variable(TOKEN_VARIABLE.to_owned())
        } else {
            Self::None
        }
    }
}

/// A value of an entry. The keys of an object keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryValue {
    Flag(bool),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl EntryValue {
    fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn object<const N: usize>(keys: [(&str, Self); N]) -> Self {
        Self::Object(keys.map(|(key, value)| (key.to_owned(), value)).to_vec())
    }

    /// Converts the value for the editor of JSON texts.
    pub(super) fn to_cst(&self) -> CstInputValue {
        match self {
            Self::Flag(flag) => (*flag).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => CstInputValue::Array(items.iter().map(Self::to_cst).collect()),
            Self::Object(keys) => CstInputValue::Object(
                keys.iter()
                    .map(|(key, value)| (key.clone(), value.to_cst()))
                    .collect(),
            ),
        }
    }

    /// Converts the value to JSON, without the order of keys.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Flag(flag) => (*flag).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Object(keys) => keys
                .iter()
                .map(|(key, value)| (key.clone(), value.to_json()))
                .collect(),
        }
    }

    /// Returns the value in one line of TOML.
    pub(super) fn to_toml(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            // A JSON string is also a TOML string.
            Self::Text(text) => Json::from(text.as_str()).to_string(),
            Self::List(items) => format!(
                "[{}]",
                items
                    .iter()
                    .map(Self::to_toml)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Self::Object(keys) => {
                let keys = keys
                    .iter()
                    .map(|(key, value)| format!("{key} = {}", value.to_toml()));
                format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl McpClient {
    /// Reports if a file of this client can refer to an environment variable, or to an input that
    /// the client asks for.
    pub fn has_variables(self) -> bool {
        !matches!(self, Self::ClaudeDesktop | Self::Zed)
    }

    /// Reports if the client's file supports programs only, and no URLs.
    pub fn supports_programs_only(self) -> bool {
        self == Self::ClaudeDesktop
    }

    /// Returns the entry of a connection.
    pub(super) fn entry(self, connection: &EndpointConnection<'_>) -> Vec<(String, EntryValue)> {
        let mut keys: Vec<(&str, EntryValue)> = Vec::new();
        let url = EntryValue::text(connection.url);
        match self {
            Self::ClaudeDesktop => {
                keys.push(("command", EntryValue::text(connection.program)));
                keys.push((
                    "args",
                    EntryValue::List(vec![EntryValue::text("stdio"), url]),
                ));
            }
            Self::ClaudeCode | Self::VsCode => {
                keys.extend([("type", EntryValue::text("http")), ("url", url)])
            }
            Self::Gemini => keys.push(("httpUrl", url)),
            Self::Windsurf => keys.push(("serverUrl", url)),
            Self::Cursor | Self::Codex | Self::Zed => keys.push(("url", url)),
        }
        keys.extend(self.credential(connection));
        keys.into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }

    /// Returns the key and value of the credential in the entry.
    fn credential(self, connection: &EndpointConnection<'_>) -> Option<(&'static str, EntryValue)> {
        match (&connection.credential, self) {
            (EntryCredential::None, _) => None,
            (EntryCredential::Secret(secret), Self::ClaudeDesktop) => Some((
                "env",
                EntryValue::object([(TOKEN_VARIABLE, EntryValue::text(secret.as_str()))]),
            )),
            (EntryCredential::Secret(secret), Self::Codex) => {
                Some(("http_headers", authorization(secret)))
            }
            (EntryCredential::Secret(secret), _) => Some(("headers", authorization(secret))),
            (EntryCredential::Variable(variable), Self::Codex) => {
                Some(("bearer_token_env_var", EntryValue::text(variable.as_str())))
            }
            (EntryCredential::Variable(variable), _) => Some((
                "headers",
                authorization(&self.reference(variable, connection.name)?),
            )),
        }
    }

    /// Returns a variable in the client's own syntax, or `None` if the client has no variables.
    fn reference(self, variable: &str, name: &str) -> Option<String> {
        match self {
            Self::ClaudeCode | Self::Gemini => Some(format!("${{{variable}}}")),
            Self::Cursor | Self::Windsurf => Some(format!("${{env:{variable}}}")),
            Self::VsCode => Some(format!("${{input:{}}}", input_id(name))),
            Self::ClaudeDesktop | Self::Codex | Self::Zed => None,
        }
    }

    /// Returns the input that the client prompts for, if the entry refers to one.
    pub(super) fn input(
        self,
        connection: &EndpointConnection<'_>,
    ) -> Option<Vec<(String, EntryValue)>> {
        let asks =
            self == Self::VsCode && matches!(connection.credential, EntryCredential::Variable(_));
        let keys = [
            ("type", EntryValue::text("promptString")),
            ("id", EntryValue::Text(input_id(connection.name))),
            (
                "description",
                EntryValue::Text(format!("API key for {}", connection.name)),
            ),
            ("password", EntryValue::Flag(true)),
        ];
        asks.then(|| keys.map(|(key, value)| (key.to_owned(), value)).to_vec())
    }

    /// Returns the client's own command that writes the entry. `None` if the client has no such
    /// command, or if the command line would show a credential.
    pub fn command(self, connection: &EndpointConnection<'_>) -> Option<String> {
        let EndpointConnection { name, url, .. } = connection;
        let url = quoted(url);
        let header = |option: &str| match &connection.credential {
            EntryCredential::None => Some(String::new()),
            EntryCredential::Variable(variable) => {
                let reference = self.reference(variable, name)?;
                Some(format!(" {option} 'Authorization: Bearer {reference}'"))
            }
            EntryCredential::Secret(_) => None,
        };
        Some(match (self, &connection.credential) {
            (Self::ClaudeCode, _) => format!(
                "claude mcp add --transport http {name} {url}{}",
                header("--header")?
            ),
            (Self::Gemini, _) => format!(
                "gemini mcp add --transport http {name} {url}{}",
                header("--header")?
            ),
            (Self::Codex, EntryCredential::None) => format!("codex mcp add {name} --url {url}"),
            (Self::Codex, EntryCredential::Variable(variable)) => {
                format!("codex mcp add {name} --url {url} --bearer-token-env-var {variable}")
            }
            (Self::VsCode, EntryCredential::None) => {
                let mut entry = vec![("name".to_owned(), EntryValue::text(*name))];
                entry.extend(self.entry(connection));
                format!(
                    "code --add-mcp {}",
                    quoted(&EntryValue::Object(entry).to_line())
                )
            }
            _ => return None,
        })
    }
}

impl EntryValue {
    /// Returns the value in one line of JSON, with its keys in order.
    fn to_line(&self) -> String {
        match self {
            Self::Object(keys) => {
                let keys = keys.iter().map(|(key, value)| {
                    format!("{}:{}", Json::from(key.as_str()), value.to_line())
                });
                format!("{{{}}}", keys.collect::<Vec<_>>().join(","))
            }
            Self::Flag(_) | Self::Text(_) | Self::List(_) => self.to_json().to_string(),
        }
    }
}

fn authorization(credential: &str) -> EntryValue {
    EntryValue::object([(
        "Authorization",
        EntryValue::Text(format!("Bearer {credential}")),
    )])
}

fn input_id(name: &str) -> String {
    format!("{name}-key")
}

/// Quotes a word for a shell. Inside single quotes the shell expands no variables.
fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&byte));
    if is_plain {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
