//! The setup of every case: weir in front of one mock server that records all of its requests.

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use weir_testkit::mock_server::{MockServerBuilder, MockTool, RecordedRequest};
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, RawClient};
use weir_wire::Revision;

use super::request_draft::assert_refused;
use super::{RefusalRow, RequestDraft};
use crate::harness::Weir;

/// Methods that weir calls at a server on its own account, for its catalog and for a session.
const WEIRS_OWN_METHODS: [&str; 10] = [
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
pub struct WeirWithUpstream {
    pub weir: Weir,
    pub up: MockServer,
    /// The number of client requests that were checked already.
    checked_requests: usize,
    good_calls: usize,
}

impl WeirWithUpstream {
    /// Starts weir with the default config in front of the usual tools.
    pub async fn new() -> Self {
        Self::with_config(json!({})).await
    }

    /// Starts weir with these limits in front of the usual tools.
    pub async fn with_limits(limits: Value) -> Self {
        Self::with_config(json!({ "limits": limits })).await
    }

    /// Starts weir with this config in front of the usual tools; upstreams and endpoints are added.
    pub async fn with_config(config: Value) -> Self {
        Self::with_upstream(usual_tools(MockServer::modern()), config).await
    }

    /// Starts weir with this config in front of this upstream, which must have the tool `echo`.
    pub async fn with_upstream(upstream: MockServerBuilder, mut config: Value) -> Self {
        let up = upstream.start().await;
        config["upstreams"] = json!({ "up": { "url": up.url() } });
        config["endpoints"] = json!({ "/mcp": { "upstream": "up" } });
        Self::with_running_upstream(up, config).await
    }

    /// Starts weir with `config`, which must serve the running upstream `up` on `/mcp` with its
    /// names unchanged.
    pub async fn with_running_upstream(up: MockServer, config: Value) -> Self {
        let weir = tokio::task::block_in_place(|| Weir::with_config(config));
        let mut stage = Self {
            weir,
            up,
            checked_requests: 0,
            good_calls: 0,
        };
        stage.assert_still_serving("the start").await;
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
    pub fn bare_client(&self) -> RawClient {
        RawClient::new(&self.url())
    }

    pub fn modern_client(&self) -> RawClient {
        self.bare_client().with_canary_credentials().modern()
    }

    /// Returns a legacy client with a session.
    pub async fn legacy_client(&self, revision: Revision) -> RawClient {
        self.bare_client()
            .with_canary_credentials()
            .legacy(revision)
            .initialize()
            .await
            .unwrap()
    }

    /// Returns a good modern request, for a test to spoil.
    pub fn draft_request(&self, method: &str, params: Value) -> RequestDraft {
        RequestDraft::of(&self.modern_client(), method, params)
    }

    /// Returns a good modern call of `echo`, for a test to spoil.
    pub fn draft_call(&self) -> RequestDraft {
        self.draft_request(
            "tools/call",
            json!({ "name": "echo", "arguments": { "from": "a spoilt call" } }),
        )
    }

    /// POSTs any body with the headers of a client without session and revision, and `extra` ones.
    pub async fn post(&self, extra: &[(&str, &str)], body: impl Into<Vec<u8>>) -> ClientAnswer {
        self.post_as(&self.bare_client(), extra, body).await
    }

    /// POSTs any body with the headers of `client`, and `extra` ones.
    pub async fn post_as(
        &self,
        client: &RawClient,
        extra: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> ClientAnswer {
        let mut draft = RequestDraft::of(client, "", Value::Null);
        for (name, value) in extra {
            draft.set_header(name, value);
        }
        self.send(Method::POST, draft.headers, body).await
    }

    /// Sends any request and reads its response to the end.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: impl Into<Vec<u8>>,
    ) -> ClientAnswer {
        let answered = async {
            self.bare_client()
                .send(method, headers, body.into())
                .await?
                .finish()
                .await
        };
        within_timeout("an answer", answered).await.unwrap()
    }

    /// Returns the requests of clients that reached the upstream since the last call of this
    /// function.
    pub fn take_client_requests(&mut self) -> Vec<RecordedRequest> {
        let own = |request: &RecordedRequest| {
            if request.verb == Method::POST {
                WEIRS_OWN_METHODS.contains(&request.method())
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
        let new = all[self.checked_requests..].to_vec();
        self.checked_requests = all.len();
        new
    }

    /// Asserts that weir answers a good call, that only this call reached the upstream, and that
    /// weir did not panic.
    pub async fn assert_still_serving(&mut self, after: &str) {
        self.good_calls += 1;
        let mark = format!("call {} after {after}", self.good_calls);
        let answer = within_timeout(
            "a good call",
            self.modern_client().call("echo", json!({ "mark": mark })),
        )
        .await
        .unwrap();
        assert_eq!(answer.status, 200, "after {after}: {:?}", answer.body);
        assert_eq!(
            answer.text(),
            json!({ "mark": mark }).to_string(),
            "after {after}"
        );
        let heard = self.take_client_requests();
        let own = heard.len() == 1 && heard[0].message["params"]["arguments"]["mark"] == mark;
        let bodies: Vec<_> = heard
            .iter()
            .map(|request| String::from_utf8_lossy(&request.body))
            .collect();
        assert!(own, "after {after} the upstream heard {bodies:?}");
        assert!(
            !self.weir.process.output().contains("panicked"),
            "after {after}"
        );
    }

    /// Sends each row's spoilt call of `echo`, and checks the answer and its effects.
    pub async fn assert_refuses_calls(&mut self, rows: &[RefusalRow]) {
        self.assert_refuses_requests(
            "tools/call",
            &json!({ "name": "echo", "arguments": {} }),
            rows,
        )
        .await;
    }

    /// Does the same as `refuses` with another good request to spoil.
    pub async fn assert_refuses_requests(
        &mut self,
        method: &str,
        params: &Value,
        rows: &[RefusalRow],
    ) {
        for row in rows {
            let mut draft = self.draft_request(method, params.clone());
            let id = json!(format!("the id of: {}", row.name));
            draft.body["id"] = id.clone();
            (row.spoil)(&mut draft);
            let answer = draft.post(self).await;
            assert_refused(row.name, &answer, row.status, row.code, &id);
            self.assert_still_serving(row.name).await;
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
pub async fn within_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(crate::harness::TEST_TIMEOUT, future).await;
    ended.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
