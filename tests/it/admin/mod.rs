//! The views and changes of operators, over a real weir: each change shows in the answers to a real
//! client.

mod admin_access;
mod admin_commands;
mod live_sessions;
mod parked_calls;
mod status_page;
mod team_files;
mod upstream_actions;

use http::{HeaderMap, HeaderValue, Method, header};
pub use live_sessions::with_two;
use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, RawClient};

use crate::harness::{Weir, within_test_timeout};

/// An operator's client.
pub struct OperatorClient {
    url: String,
    headers: HeaderMap,
}

impl OperatorClient {
    /// Returns a client without a token.
    pub fn of(weir: &Weir) -> Self {
        Self::at(&weir.admin_url())
    }

    /// Returns a client of another listener.
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            headers: HeaderMap::new(),
        }
    }

    /// Adds a header.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers
            .insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    pub async fn send(&self, method: Method, path: &str, body: &str) -> ClientAnswer {
        let client = RawClient::new(&format!("{}{path}", self.url));
        let exchange = within_test_timeout(
            path,
            client.send(method, self.headers.clone(), body.to_owned()),
        )
        .await
        .unwrap();
        within_test_timeout(path, exchange.finish()).await.unwrap()
    }

    /// Gets a path and returns the answer, with any status.
    pub async fn get(&self, path: &str) -> ClientAnswer {
        self.send(Method::GET, path, "").await
    }

    /// Gets a path as JSON; the status must be 200.
    pub async fn get_json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", body(&answer));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Posts a change and returns the answer, with any status.
    pub async fn try_change(&self, path: &str, wish: &Value) -> ClientAnswer {
        let mut headers = self.headers.clone();
        headers
            .entry(header::CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json"));
        Self {
            url: self.url.clone(),
            headers,
        }
        .send(Method::POST, path, &wish.to_string())
        .await
    }

    /// Posts a change that must succeed.
    pub async fn change(&self, path: &str, wish: Value) -> Value {
        let answer = self.try_change(path, &wish).await;
        assert_eq!(answer.status, 200, "{path}: {}", body(&answer));
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// Returns a token that `weir apikey` prints, and its digest.
pub fn new_api_key(name: &str) -> (String, String) {
    let printed = String::from_utf8(Weir::run_cli(&["apikey", name]).stdout).unwrap();
    let after = |start: &str, end: char| {
        let rest = printed.split_once(start).unwrap().1;
        rest.split_once(end).unwrap().0.to_owned()
    };
    (after("WEIR_API_KEY=", '\n'), after("sha256: \"", '"'))
}

/// Returns the body of an answer as text.
pub fn body(answer: &ClientAnswer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Returns a config over these upstreams.
pub fn config_over(upstreams: &[(&str, &weir_testkit::MockServer)]) -> Value {
    let upstreams: serde_json::Map<String, Value> = upstreams
        .iter()
        .map(|(id, mock_server)| ((*id).to_owned(), json!({ "url": mock_server.url() })))
        .collect();
    json!({ "upstreams": upstreams })
}
