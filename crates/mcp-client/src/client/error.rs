//! Errors of the commands' client, each with the next step.

use http::Uri;
use serde_json::Value;
use weir_oauth::BearerChallenge;
use weir_text::{one_line, url_without_credentials};
use weir_wire::error_code;

/// As much of a server's own words as one line shows.
const WORDS: usize = 300;

/// The error of a request to a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is none.
    #[error(
        "`{}` is not an http or https URL, such as http://127.0.0.1:8080/mcp",
        url_without_credentials(.0)
    )]
    Url(String),
    /// The URL has a user. It would be no credential of a server of MCP.
    #[error(
        "{} was given with a user or a password, which weir does not send: leave them out, and give a token with --token or WEIR_TOKEN",
        shown(.0)
    )]
    UserInfo(Uri),
    /// The token is none.
    #[error(
        "the token has characters that are not allowed in a header: give it as the server issued it"
    )]
    Token,
    /// No connection.
    #[error("cannot reach {}: {why}", shown(url))]
    Unreachable {
        /// Where.
        url: Uri,
        /// The cause, and the next step.
        why: String,
    },
    /// HTTP 401 or 403: no token, a token that is not taken, or a host that is not served.
    #[error("{}", refused(.0))]
    Unauthorized(Box<HttpRefusal>),
    /// HTTP 429 or 503: the server may accept the request later.
    #[error("{} cannot serve the request now: {why}", shown(url))]
    Busy {
        /// Where.
        url: Uri,
        /// The answer, and the time to wait if the server states it.
        why: String,
    },
    /// The answer is no MCP.
    #[error("{} does not answer as an MCP server does: {why}", shown(url))]
    NotMcp {
        /// Where.
        url: Uri,
        /// The answer, and the next step.
        why: String,
    },
    /// The server answered with an error.
    #[error("the server refused: {message} (code {code}){}", next_step(*code, data))]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The server's words.
        message: String,
        /// The `data` of the error.
        data: Value,
    },
    /// A question of the server that has no answer here.
    #[error("{0}")]
    Unanswered(String),
}

/// A 401 or 403.
#[derive(Debug)]
pub struct HttpRefusal {
    /// Where.
    pub(crate) url: Uri,
    /// 401 or 403.
    pub status: u16,
    /// The server's `WWW-Authenticate`.
    pub challenge: BearerChallenge,
    /// The explanation in the body.
    pub(crate) said: Option<String>,
    /// True if the request had a token.
    pub(crate) with_token: bool,
}

/// Returns the URL without the parts that may be credentials.
fn shown(url: &Uri) -> String {
    url_without_credentials(&url.to_string())
}

fn refused(refusal: &HttpRefusal) -> String {
    let HttpRefusal {
        url, status, said, ..
    } = refusal;
    let said = said
        .as_ref()
        .map(|said| format!(", saying \"{}\"", words(said)))
        .unwrap_or_default();
    format!(
        "{} answered HTTP {status}{said}: {}",
        shown(url),
        advice(refusal)
    )
}

/// The next step after a 401 or 403.
fn advice(refusal: &HttpRefusal) -> String {
    let HttpRefusal {
        url,
        status,
        challenge,
        said,
        with_token,
    } = refusal;
    let shown = shown(url);
    if let (Some(scope), Some("insufficient_scope")) =
        (&challenge.scope, challenge.error.as_deref())
    {
        let scope: String = scope
            .chars()
            .filter(|c| c.is_ascii_graphic() || *c == ' ')
            .collect();
        // A server without an authorization server accepts keys of its own alone.
        if challenge.resource_metadata.is_none() {
            return format!(
                "it requires the scopes `{scope}`: give a token or key with them with --token or WEIR_TOKEN"
            );
        }
        return format!("it requires the scopes `{scope}`: weir login {shown} --scope \"{scope}\"");
    }
    if said
        .as_ref()
        .is_some_and(|said| said.contains("this host is not served here"))
    {
        let host = url.host().unwrap_or_default();
        return format!(
            "use the name or address that weir is served at, or add `{host}` to `allowed_hosts` of its config"
        );
    }
    match (status, with_token) {
        (401, true) => format!(
            "the token is not accepted; log in again with `weir login {shown}`, or give another with --token or WEIR_TOKEN"
        ),
        (403, true) => {
            "ask the server's operator for access, or give another token with --token or WEIR_TOKEN"
                .to_owned()
        }
        _ => {
            format!("log in with `weir login {shown}`, or give a token with --token or WEIR_TOKEN")
        }
    }
}

/// The next step after an error of the protocol.
fn next_step(found: i64, data: &Value) -> String {
    match found {
        error_code::MISSING_REQUIRED_CLIENT_CAPABILITY => {
            let needed = data["requiredCapabilities"].as_object();
            let needed: Vec<String> = needed
                .into_iter()
                .flatten()
                .map(|(name, _)| one_line(name))
                .collect();
            format!(
                "; it asks its user for {}: run the command at a terminal, where you can answer",
                needed.join(" and ")
            )
        }
        error_code::URL_ELICITATION_REQUIRED => {
            let pages = data["elicitations"].as_array().into_iter().flatten();
            let pages: Vec<String> = pages
                .filter_map(|page| page["url"].as_str())
                .map(one_line)
                .collect();
            format!("; open {} and run the command again", pages.join(" and "))
        }
        _ => String::new(),
    }
}

/// A server's words in one line, bounded.
pub(crate) fn words(text: &str) -> String {
    let line = one_line(text.trim());
    match line.chars().count() > WORDS {
        true => line.chars().take(WORDS).chain(['…']).collect(),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(status: u16, said: Option<&str>, with_token: bool) -> HttpRefusal {
        let url = Uri::from_static("http://weir.example/mcp");
        HttpRefusal {
            url,
            status,
            challenge: BearerChallenge::default(),
            said: said.map(str::to_owned),
            with_token,
        }
    }

    #[test]
    fn a_refusal_shows_the_explanation_and_the_next_step() {
        for (refusal, words) in [
            (
                refusal(401, None, false),
                "answered HTTP 401: log in with `weir login http://weir.example/mcp`",
            ),
            (
                refusal(401, None, true),
                "the token is not accepted; log in again",
            ),
            (
                refusal(403, Some("no\u{1b}[2J\nentry"), true),
                "HTTP 403, saying \"no[2J entry\": ask the server's operator",
            ),
            (
                refusal(403, Some("this host is not served here"), false),
                "add `weir.example` to `allowed_hosts`",
            ),
        ] {
            let said = ClientError::Unauthorized(Box::new(refusal)).to_string();
            assert!(
                said.contains(words) && !said.chars().any(char::is_control),
                "{said}"
            );
        }
        for (metadata, words) in [
            (
                Some("http://weir.example/metadata"),
                "it requires the scopes `a b`: weir login http://weir.example/mcp --scope \"a b\"",
            ),
            (
                None,
                "it requires the scopes `a b`: give a token or key with them with --token or WEIR_TOKEN",
            ),
        ] {
            let mut scoped = refusal(403, None, true);
            scoped.challenge = BearerChallenge {
                scope: Some("a b\u{7}".to_owned()),
                error: Some("insufficient_scope".to_owned()),
                resource_metadata: metadata.map(str::to_owned),
            };
            let said = ClientError::Unauthorized(Box::new(scoped)).to_string();
            assert!(said.ends_with(words), "{said}");
        }
    }

    #[test]
    fn client_error_names_missing_capability_and_url_to_open() {
        let refused = |code, data| {
            ClientError::Refused {
                code,
                message: "no".to_owned(),
                data,
            }
            .to_string()
        };
        let said = refused(
            error_code::MISSING_REQUIRED_CLIENT_CAPABILITY,
            json!({ "requiredCapabilities": { "elicitation": {} } }),
        );
        assert!(
            said.contains("it asks its user for elicitation: run the command at a terminal"),
            "{said}"
        );
        let said = refused(
            error_code::URL_ELICITATION_REQUIRED,
            json!({ "elicitations": [{ "url": "https://sso.example/x\n" }] }),
        );
        assert!(
            said.ends_with("; open https://sso.example/x  and run the command again"),
            "{said}"
        );
        assert_eq!(
            refused(-32000, Value::Null),
            "the server refused: no (code -32000)"
        );
    }
}
