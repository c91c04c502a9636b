//! Authorization at a mock server: the accepted tokens, its public documents, and the canaries that
//! must never arrive.

use std::collections::{HashMap, HashSet};

use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use super::MockServer;
use super::player::MockBody;
use super::recorded_request::RecordedRequest;
use super::server::{empty, json_text};

/// The prefix of test clients' tokens, headers and secrets that must not leave weir.
pub const CANARY: &str = "CANARY-";

/// The tokens and documents of a mock server.
#[derive(Debug, Default)]
pub(super) struct MockAuthorization {
    documents: HashMap<String, String>,
    /// The accepted `Authorization` headers; absent without authorization.
    accepted: Option<HashSet<String>>,
    /// `WWW-Authenticate` of a refusal.
    challenge: Option<HeaderValue>,
}

impl MockAuthorization {
    /// Returns the answer that precedes all others, if there is one.
    pub(super) fn answer(&self, request: &RecordedRequest) -> Option<Response<MockBody>> {
        if let Some(document) = self
            .documents
            .get(&request.path)
            .filter(|_| request.verb == Method::GET)
        {
            return Some(json_text(StatusCode::OK, document.clone()));
        }
        let accepted = self.accepted.as_ref()?;
        if request
            .header("authorization")
            .is_some_and(|shown| accepted.contains(shown))
        {
            return None;
        }
        let mut refusal = empty(StatusCode::UNAUTHORIZED);
        if let Some(challenge) = &self.challenge {
            refusal
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge.clone());
        }
        Some(refusal)
    }
}

impl MockServer {
    /// Serves a JSON document to every GET of this path, with or without a token.
    pub fn serve_document(&self, path: &str, document: &Value) {
        self.shared.change(|inner| {
            inner
                .authorization
                .documents
                .insert(path.to_owned(), document.to_string())
        });
    }

    /// Answers with 401 from now on, unless `Authorization` is one of these.
    pub fn accept_only(&self, authorizations: &[&str]) {
        let accepted = authorizations.iter().map(|&one| one.to_owned()).collect();
        self.shared
            .change(|inner| inner.authorization.accepted = Some(accepted));
    }

    /// Sets the `WWW-Authenticate` of every 401.
    pub fn set_challenge(&self, text: &[u8]) {
        let challenge = HeaderValue::from_bytes(text).unwrap_or_else(|error| panic!("{error}"));
        self.shared
            .change(|inner| inner.authorization.challenge = Some(challenge));
    }

    /// The requests with this text in path, headers or body.
    pub fn requests_with(&self, text: &str) -> Vec<RecordedRequest> {
        self.requests()
            .into_iter()
            .filter(|request| request.contains_text(text))
            .collect()
    }
}

/// In every suite: no canary ever arrives at a server.
impl Drop for MockServer {
    fn drop(&mut self) {
        let found = self.requests_with(CANARY);
        if let Some(leak) = found.first().filter(|_| !std::thread::panicking()) {
            panic!(
                "{} requests hold a canary; the first: {leak:?}",
                found.len()
            );
        }
    }
}
