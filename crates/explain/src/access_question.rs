//! The question, in the form of a URL's query.

use serde_json::{Map, Value};
use url::form_urlencoded;
use weir_config::DEFAULT_ENDPOINT;
use weir_core::names::EndpointId;

/// The path of the admin API that answers a question.
pub const EXPLAIN_PATH: &str = "/admin/explain";

/// The question if a sender with these claims may call this tool.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessQuestion {
    /// The claims of the sender's token, or `{"api_key": ID}`, or `{"certificate": NAME}`. They
    /// hold no secret.
    pub claims: Map<String, Value>,
    /// The endpoint that the sender uses.
    pub endpoint: EndpointId,
    /// The tool, by the name that clients see, or as `upstream/tool`.
    pub tool: String,
    /// Arguments of the call, a JSON object.
    pub arguments: Option<String>,
}

impl AccessQuestion {
    /// Checks the text that a person typed.
    ///
    /// # Errors
    /// A message for people: the part that is not a JSON object.
    pub fn new(
        claims: &str,
        endpoint: &str,
        tool: &str,
        arguments: Option<&str>,
    ) -> Result<Self, String> {
        if let Some(arguments) = arguments {
            object("arguments", arguments)?;
        }
        Ok(Self {
            claims: object("as", claims)?,
            endpoint: EndpointId::new(endpoint),
            tool: tool.to_owned(),
            arguments: arguments.map(str::to_owned),
        })
    }

    /// Reads a query: `tool`, and optionally `as`, `endpoint` and `arguments`.
    ///
    /// # Errors
    /// A message for people.
    pub fn read(query: &str) -> Result<Self, String> {
        let (mut claims, mut endpoint, mut tool, mut arguments) = (None, None, None, None);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*key {
                "as" => &mut claims,
                "endpoint" => &mut endpoint,
                "tool" => &mut tool,
                "arguments" => &mut arguments,
                _ => {
                    return Err(format!(
                        "`{key}` is not a known parameter (known: as, endpoint, tool, arguments)"
                    ));
                }
            };
            if place.replace(value).is_some() {
                return Err(format!("`{key}` is given twice"));
            }
        }
        let tool = tool
            .ok_or("`tool` is missing: the name of a tool, as clients see it, or upstream/tool")?;
        let claims = claims.as_deref().unwrap_or("{}");
        Self::new(
            claims,
            endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT),
            &tool,
            arguments.as_deref(),
        )
    }

    /// Returns the query that [`Self::read`] reads.
    pub fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("as", &Value::Object(self.claims.clone()).to_string());
        query
            .append_pair("endpoint", self.endpoint.as_str())
            .append_pair("tool", &self.tool);
        if let Some(arguments) = &self.arguments {
            query.append_pair("arguments", arguments);
        }
        query.finish()
    }
}

fn object(what: &str, text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(format!("`{what}` is not a JSON object")),
        Err(error) => Err(format!("`{what}` is not a JSON object: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_question_goes_through_a_url_unchanged() {
        for (claims, tool, arguments) in [
            ("{}", "files__read", None),
            (
                r#"{"sub":"a&b=c #é","groups":["x y"]}"#,
                "files/rea d+?",
                Some(r#"{"path":"/srv/a b&c=1%"}"#),
            ),
        ] {
            let question = AccessQuestion::new(claims, "/mcp/x", tool, arguments).unwrap();
            assert_eq!(AccessQuestion::read(&question.query()), Ok(question));
        }
        assert_eq!(
            AccessQuestion::read("tool=x").unwrap().endpoint.as_str(),
            DEFAULT_ENDPOINT
        );
    }

    #[test]
    fn invalid_question_is_an_error() {
        for (query, why) in [
            ("", "`tool` is missing"),
            ("tool=a&tool=b", "given twice"),
            ("tool=a&to=b", "not a known parameter"),
            ("tool=a&as=5", "not a JSON object"),
            ("tool=a&as=%7B", "not a JSON object"),
            ("tool=a&arguments=[]", "not a JSON object"),
        ] {
            let error = AccessQuestion::read(query).unwrap_err();
            assert!(error.contains(why), "{query}: {error}");
        }
    }
}
