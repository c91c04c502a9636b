//! Authorization at a mock server: the accepted tokens, its public documents, and the canaries that
//! must never arrive.

use std::collections::{HashMap, HashSet};

use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use crate::mock_server::mock_response::{MockBody, empty, json_text};
use crate::mock_server::recorded_request::RecordedRequest;

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
    /// Serves a JSON document to every GET of this path.
    pub(super) fn serve_document(&mut self, path: &str, document: &Value) {
        self.documents.insert(path.to_owned(), document.to_string());
    }

    /// Refuses every request whose `Authorization` is none of these.
    pub(super) fn accept_only(&mut self, authorizations: HashSet<String>) {
        self.accepted = Some(authorizations);
    }

    /// Sets the `WWW-Authenticate` of every refusal.
    pub(super) fn set_challenge(&mut self, challenge: HeaderValue) {
        self.challenge = Some(challenge);
    }

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
