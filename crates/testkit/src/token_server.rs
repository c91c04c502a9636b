//! An authorization server over real loopback TCP that issues numbered tokens, answers as scripted,
//! and remembers its requests. It does not verify them: tests inspect the received ones.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::accept::{answer_all, listen_on_loopback};
use crate::owned_task::OwnedTask;

/// A running authorization server. Dropping it closes every connection.
#[derive(Debug)]
pub struct TokenServer {
    address: SocketAddr,
    shared: Arc<TokenServerState>,
    _server: OwnedTask,
}

#[derive(Debug)]
struct TokenServerState {
    inner: Mutex<TokenServerRecords>,
    /// False while the token endpoint holds all requests.
    open: watch::Sender<bool>,
    pulse: watch::Sender<usize>,
}

#[derive(Debug)]
struct TokenServerRecords {
    documents: HashMap<String, String>,
    answers: VecDeque<(u16, String)>,
    requests: Vec<TokenRequest>,
    lifetime: Value,
    issued: usize,
}

/// A request to the token endpoint.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The form. A repeated name is a panic in the test.
    pub form: HashMap<String, String>,
}

impl TokenServer {
    /// Starts one on a free loopback port, with metadata at the root. Its tokens are `token-1`,
    /// `token-2` and so on, and live for an hour.
    pub async fn start() -> Self {
        let (listener, address) = listen_on_loopback().await;
        let (documents, answers, requests) = (HashMap::new(), VecDeque::new(), Vec::new());
        let inner = Mutex::new(TokenServerRecords {
            documents,
            answers,
            requests,
            lifetime: json!(3600),
            issued: 0,
        });
        let shared = Arc::new(TokenServerState {
            inner,
            open: watch::Sender::new(true),
            pulse: watch::Sender::new(0),
        });
        let asked = shared.clone();
        let serving = OwnedTask::spawn(answer_all(listener, move |request| {
            let shared = asked.clone();
            async move { answer(&shared, request).await }
        }));
        let server = Self {
            address,
            shared,
            _server: serving,
        };
        server.serve_document(
            "/.well-known/oauth-authorization-server",
            &server.metadata(),
        );
        server
    }

    /// Its issuer identifier.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its token endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}/token", self.address)
    }

    /// Its metadata, as served unless a test replaces it.
    pub fn metadata(&self) -> Value {
        json!({ "issuer": self.issuer(), "token_endpoint": self.endpoint() })
    }

    /// Serves a document.
    pub fn serve_document(&self, path: &str, document: &Value) {
        self.shared
            .inner
            .lock()
            .documents
            .insert(path.to_owned(), document.to_string());
    }

    /// Answers the next token request with this status and body; answers are used in the order
    /// given.
    pub fn queue_answer(&self, status: u16, body: &Value) {
        self.shared
            .inner
            .lock()
            .answers
            .push_back((status, body.to_string()));
    }

    /// The `expires_in` of tokens from now on.
    pub fn set_lifetime(&self, expires_in: Value) {
        self.shared.inner.lock().lifetime = expires_in;
    }

    /// Holds token requests, or lets them go on.
    pub fn set_holding(&self, hold: bool) {
        self.shared.open.send_replace(!hold);
    }

    /// The token requests so far, waiting ones included.
    pub fn requests(&self) -> Vec<TokenRequest> {
        self.shared.inner.lock().requests.clone()
    }

    /// Waits until so many token requests have come.
    pub async fn wait_for_requests(&self, requests: usize) {
        let mut pulse = self.shared.pulse.subscribe();
        let came = async {
            while self.requests().len() < requests {
                // The sender lives in `self`.
                let _ = pulse.changed().await;
            }
        };
        let patience = std::time::Duration::from_secs(20);
        assert!(
            tokio::time::timeout(patience, came).await.is_ok(),
            "{requests} token requests never came"
        );
    }
}

async fn answer(shared: &TokenServerState, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if head.uri.path() != "/token" {
        let document = shared.inner.lock().documents.get(head.uri.path()).cloned();
        return document.map_or_else(
            || json_response(404, String::new()),
            |text| json_response(200, text),
        );
    }
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let authorization = head
        .headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let mut form = HashMap::new();
    for (name, value) in url::form_urlencoded::parse(&body) {
        let before = form.insert(name.clone().into_owned(), value.into_owned());
        assert!(before.is_none(), "{name} comes twice");
    }
    let request = TokenRequest {
        authorization: authorization.map(str::to_owned),
        form,
    };
    shared.inner.lock().requests.push(request);
    shared.pulse.send_modify(|pulse| *pulse += 1);
    // An error would mean that the server is gone.
    let _ = shared.open.subscribe().wait_for(|open| *open).await;
    let mut inner = shared.inner.lock();
    if let Some((status, body)) = inner.answers.pop_front() {
        return json_response(status, body);
    }
    inner.issued += 1;
    let token = format!("token-{}", inner.issued);
    let granted =
        json!({ "access_token": token, "token_type": "Bearer", "expires_in": inner.lifetime });
    json_response(200, granted.to_string())
}

fn json_response(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or_else(|error| panic!("{status}: {error}"));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
