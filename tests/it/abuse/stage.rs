//! The setup of every case: weir in front of one mock server that records all of its requests.

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use weir_testkit::mock_server::{MockServerBuilder, MockTool, RecordedRequest};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::letter::refused;
use super::{Letter, Row};
use crate::harness::Weir;

/// Methods that weir calls at a server on its own account, for its catalog and for a session.
const OWN: [&str; 10] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "subscriptions/listen",
    "initialize",
    "notifications/initialized",
    "logging/setLevel",
    "ping",
];

/// weir and its upstream `up`, the only one of `/mcp`, with its names unchanged.
pub struct Stage {
    pub weir: Weir,
    pub up: MockServer,
    /// The number of client requests that were checked already.
    seen: usize,
    good: usize,
}

impl Stage {
    /// Starts weir with the default config in front of the usual tools.
    pub async fn new() -> Self {
        Self::with(json!({})).await
    }

    /// Starts weir with these limits in front of the usual tools.
    pub async fn limited(limits: Value) -> Self {
        Self::with(json!({ "limits": limits })).await
    }

    /// Starts weir with this config in front of the usual tools; upstreams and endpoints are added.
    pub async fn with(config: Value) -> Self {
        Self::over(usual_tools(MockServer::modern()), config).await
    }

    /// Starts weir with this config in front of this upstream, which must have the tool `echo`.
    pub async fn over(upstream: MockServerBuilder, mut config: Value) -> Self {
        let up = upstream.start().await;
        config["upstreams"] = json!({ "up": { "url": up.url() } });
        config["endpoints"] = json!({ "/mcp": { "upstream": "up" } });
        Self::around(up, config).await
    }

    /// Starts weir with `config`, which must serve the running upstream `up` on `/mcp` with its
    /// names unchanged.
    pub async fn around(up: MockServer, config: Value) -> Self {
        let weir = tokio::task::block_in_place(|| Weir::with(config));
        let mut stage = Self {
            weir,
            up,
            seen: 0,
            good: 0,
        };
        stage.is_well("the start").await;
        stage
    }

    /// Returns the URL of the endpoint.
    pub fn url(&self) -> String {
        self.weir.url("/mcp")
    }

    /// Returns the address as `127.0.0.1:port`.
    pub fn authority(&self) -> String {
        self.weir.url("").trim_start_matches("http://").to_owned()
    }

    /// Returns a client without session or revision that adds no headers.
    pub fn bare(&self) -> RawClient {
        RawClient::new(&self.url())
    }

    pub fn modern(&self) -> RawClient {
        self.bare().with_canary_credentials().modern()
    }

    /// Returns a legacy client with a session.
    pub async fn legacy(&self, revision: Revision) -> RawClient {
        self.bare()
            .with_canary_credentials()
            .legacy(revision)
            .initialize()
            .await
            .unwrap()
    }

    /// Returns a good modern request, for a test to spoil.
    pub fn letter(&self, method: &str, params: Value) -> Letter {
        Letter::of(&self.modern(), method, params)
    }

    /// Returns a good modern call of `echo`, for a test to spoil.
    pub fn call(&self) -> Letter {
        self.letter(
            "tools/call",
            json!({ "name": "echo", "arguments": { "from": "a spoilt call" } }),
        )
    }

    /// POSTs any body with the headers of a client without session and revision, and `extra` ones.
    pub async fn post(&self, extra: &[(&str, &str)], body: impl Into<Vec<u8>>) -> ClientAnswer {
        self.post_as(&self.bare(), extra, body).await
    }

    /// POSTs any body with the headers of `client`, and `extra` ones.
    pub async fn post_as(
        &self,
        client: &RawClient,
        extra: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> ClientAnswer {
        let mut letter = Letter::of(client, "", Value::Null);
        for (name, value) in extra {
            letter.set(name, value);
        }
        self.send(Method::POST, letter.headers, body).await
    }

    /// Sends any request and reads its response to the end.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: impl Into<Vec<u8>>,
    ) -> ClientAnswer {
        let answered = async {
            self.bare()
                .send(method, headers, body.into())
                .await?
                .finish()
                .await
        };
        in_time("an answer", answered).await.unwrap()
    }

    /// Returns the requests of clients that reached the upstream since the last call of this
    /// function.
    pub fn heard(&mut self) -> Vec<RecordedRequest> {
        let own = |request: &RecordedRequest| {
            if request.verb == Method::POST {
                OWN.contains(&request.method())
            } else {
                request.body.is_empty()
            }
        };
        let all: Vec<RecordedRequest> = self
            .up
            .requests()
            .into_iter()
            .filter(|request| !own(request))
            .collect();
        let new = all[self.seen..].to_vec();
        self.seen = all.len();
        new
    }

    /// Asserts that weir answers a good call, that only this call reached the upstream, and that
    /// weir did not panic.
    pub async fn is_well(&mut self, after: &str) {
        self.good += 1;
        let mark = format!("call {} after {after}", self.good);
        let answer = in_time(
            "a good call",
            self.modern().call("echo", json!({ "mark": mark })),
        )
        .await
        .unwrap();
        assert_eq!(answer.status, 200, "after {after}: {:?}", answer.body);
        assert_eq!(
            answer.text(),
            json!({ "mark": mark }).to_string(),
            "after {after}"
        );
        let heard = self.heard();
        let own = heard.len() == 1 && heard[0].message["params"]["arguments"]["mark"] == mark;
        let bodies: Vec<_> = heard
            .iter()
            .map(|request| String::from_utf8_lossy(&request.body))
            .collect();
        assert!(own, "after {after} the upstream heard {bodies:?}");
        assert!(
            !self.weir.process.said().contains("panicked"),
            "after {after}"
        );
    }

    /// Sends each row's spoilt call of `echo`, and checks the answer and its effects.
    pub async fn refuses(&mut self, rows: &[Row]) {
        self.refuses_in(
            "tools/call",
            &json!({ "name": "echo", "arguments": {} }),
            rows,
        )
        .await;
    }

    /// Does the same as `refuses` with another good request to spoil.
    pub async fn refuses_in(&mut self, method: &str, params: &Value, rows: &[Row]) {
        for row in rows {
            let mut letter = self.letter(method, params.clone());
            let id = json!(format!("the id of: {}", row.name));
            letter.body["id"] = id.clone();
            (row.spoil)(&mut letter);
            let answer = letter.post(self).await;
            refused(row.name, &answer, row.status, row.code, &id);
            self.is_well(row.name).await;
        }
    }
}

/// Adds `echo`, and `smuggled`, a tool that no test calls on purpose.
pub fn usual_tools(builder: MockServerBuilder) -> MockServerBuilder {
    builder
        .with(MockTool::new("echo"))
        .tool("smuggled", MockBehaviour::text("smuggled"))
}

/// Returns the outcome of a future that must end.
///
/// # Panics
///
/// If it does not end in time.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(crate::harness::PATIENCE, future).await;
    ended.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
