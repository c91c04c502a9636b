//! The documents about authorization under `/.well-known/`, open to every caller and every page.
//!
//! weir is a resource server and issues no tokens: there is no `/authorize`, `/token` or
//! `/register` here. Sources: RFC 9728 section 3; for clients of 2025-03-26, which look for an
//! authorization server at the server's own origin, RFC 8414.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::uri::Uri;
use http::{HeaderValue, Method, Request, header};
use serde_json::json;
use tower::Service;
use weir_core::EndpointId;

use crate::failure;
use crate::failure::RequestFailure;
use crate::failure::request_refusal::RequestRefusal;
use crate::http::body::HttpAnswer;
use crate::http::challenge::METADATA_PATH;
use crate::settings::ResourceMetadata;

/// The path that a client of 2025-03-26 reads.
const AUTHORIZATION_SERVER_PATH: &str = "/.well-known/oauth-authorization-server";
/// The paths of the documents, for the test that compares them with `openapi/weir.yaml`; the first
/// one also has the path of an endpoint appended.
pub const WELL_KNOWN_PATHS: [&str; 2] = [METADATA_PATH, AUTHORIZATION_SERVER_PATH];
/// Metadata changes with the config; clients need not ask more often.
const CACHE: HeaderValue = HeaderValue::from_static("max-age=300");
const ANY: HeaderValue = HeaderValue::from_static("*");

/// The documents, made when the settings are taken.
#[derive(Clone, Debug, Default)]
pub struct WellKnownDocuments {
    documents: HashMap<String, Bytes>,
    /// The metadata URL of the only authorization server.
    server: Option<HeaderValue>,
}

impl WellKnownDocuments {
    /// The documents of these endpoints; empty if no authorization server issues tokens for weir.
    pub fn new<'a>(
        oauth: Option<&ResourceMetadata>,
        endpoints: impl Iterator<Item = &'a EndpointId>,
    ) -> Self {
        let Some(oauth) = oauth else {
            return Self::default();
        };
        let endpoints: Vec<&EndpointId> = endpoints.collect();
        let mut documents = HashMap::new();
        for endpoint in &endpoints {
            documents.insert(
                format!("{METADATA_PATH}{endpoint}"),
                resource_document(oauth, endpoint),
            );
        }
        // The root document is about the root endpoint, or about the only endpoint. For several
        // endpoints it could only name a wrong one.
        let root = match endpoints.as_slice() {
            [only] => Some(*only),
            several => several
                .iter()
                .copied()
                .find(|endpoint| endpoint.as_str() == "/"),
        };
        if let Some(endpoint) = root {
            documents.insert(METADATA_PATH.to_owned(), resource_document(oauth, endpoint));
        }
        let server = match oauth.servers.as_slice() {
            [only] => server_metadata_url(only),
            _ => None,
        };
        Self { documents, server }
    }

    /// The documents with their paths.
    pub fn into_services(self) -> impl Iterator<Item = (String, WellKnownDocument)> {
        let service = |content| WellKnownDocument(Arc::new(content));
        let documents = self
            .documents
            .into_iter()
            .map(move |(path, document)| (path, service(DocumentContent::Document(document))));
        let server = self.server.map(move |server| {
            let path = AUTHORIZATION_SERVER_PATH.to_owned();
            (path, service(DocumentContent::Redirect(server)))
        });
        documents.chain(server)
    }
}

/// The service of one document.
#[derive(Clone)]
pub struct WellKnownDocument(Arc<DocumentContent>);

impl std::fmt::Debug for WellKnownDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WellKnownDocument").finish_non_exhaustive()
    }
}

enum DocumentContent {
    Document(Bytes),
    /// The document is elsewhere.
    Redirect(HeaderValue),
}

impl WellKnownDocument {
    fn answer(&self, method: &Method) -> HttpAnswer {
        let mut answer = match (method, &*self.0) {
            // The preflight of a page that sends `MCP-Protocol-Version`.
            (&Method::OPTIONS, _) => failure::no_content(),
            (&Method::GET | &Method::HEAD, DocumentContent::Document(document)) => {
                failure::ok(document.clone())
            }
            (&Method::GET | &Method::HEAD, DocumentContent::Redirect(server)) => {
                failure::redirect(server.clone())
            }
            _ => failure::refusal_answer(RequestRefusal::ReadOnlyDocument),
        };
        let headers = answer.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ANY);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET"),
        );
        headers.insert(header::CACHE_CONTROL, CACHE);
        answer
    }
}

impl Service<Request<Body>> for WellKnownDocument {
    type Response = HttpAnswer;
    type Error = RequestFailure;
    type Future = Ready<Result<HttpAnswer, RequestFailure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(self.answer(request.method())))
    }
}

fn resource_document(oauth: &ResourceMetadata, endpoint: &EndpointId) -> Bytes {
    // An identifier has no slash at its end (basic/authorization, "Canonical Server URI").
    let resource = format!("{}{}", oauth.base, endpoint.as_str().trim_end_matches('/'));
    let mut document = json!({
        "resource": resource,
        "authorization_servers": oauth.servers,
        "bearer_methods_supported": ["header"],
        "resource_name": "weir",
    });
    let scopes = oauth.scopes(endpoint);
    if !scopes.is_empty() {
        document["scopes_supported"] = scopes.iter().map(|scope| scope.to_string()).collect();
    }
    document.to_string().into()
}

/// The metadata URL of an authorization server: the well-known part before its own path (RFC 8414,
/// 3.1).
fn server_metadata_url(issuer: &str) -> Option<HeaderValue> {
    let uri: Uri = issuer.parse().ok()?;
    let path = uri.path().trim_end_matches('/');
    HeaderValue::try_from(format!(
        "{}://{}{AUTHORIZATION_SERVER_PATH}{path}",
        uri.scheme_str()?,
        uri.authority()?
    ))
    .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::Value;

    use super::*;

    fn well_known(endpoints: &[&str], servers: &[&str]) -> WellKnownDocuments {
        let ids: Vec<EndpointId> = endpoints.iter().map(|path| EndpointId::new(path)).collect();
        let oauth = ResourceMetadata {
            base: "https://mcp.example.com".to_owned(),
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            scopes: HashMap::from([(EndpointId::new("/mcp"), vec!["read".into()])]),
        };
        WellKnownDocuments::new(Some(&oauth), ids.iter())
    }

    fn ask(known: &WellKnownDocuments, method: &Method, path: &str) -> Option<HttpAnswer> {
        let mut services = known.clone().into_services();
        let (_, document) = services.find(|(served, _)| served == path)?;
        Some(document.answer(method))
    }

    fn read(known: &WellKnownDocuments, path: &str) -> Value {
        assert_eq!(ask(known, &Method::GET, path).unwrap().status(), 200);
        serde_json::from_slice(&known.documents[path]).unwrap()
    }

    // Proves R237, R248.
    #[test]
    fn each_endpoint_has_its_own_document_without_secrets_or_wildcards() {
        let known = well_known(&["/mcp", "/mcp/files"], &["https://id.example.com"]);
        let expected = json!({
            "resource": "https://mcp.example.com/mcp",
            "authorization_servers": ["https://id.example.com"],
            "bearer_methods_supported": ["header"],
            "resource_name": "weir",
            "scopes_supported": ["read"],
        });
        assert_eq!(
            read(&known, "/.well-known/oauth-protected-resource/mcp"),
            expected
        );
        let files = read(&known, "/.well-known/oauth-protected-resource/mcp/files");
        assert_eq!(files["resource"], "https://mcp.example.com/mcp/files");
        assert!(files.get("scopes_supported").is_none());
        for path in [
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-protected-resource/other",
            "/mcp",
        ] {
            assert!(ask(&known, &Method::GET, path).is_none(), "{path}");
        }
    }

    // Proves R237.
    #[test]
    fn root_metadata_describes_the_only_or_the_root_endpoint() {
        let root = "/.well-known/oauth-protected-resource";
        let one = well_known(&["/mcp"], &["https://id.example.com"]);
        assert_eq!(read(&one, root)["resource"], "https://mcp.example.com/mcp");
        let several = well_known(&["/mcp", "/"], &["https://id.example.com"]);
        assert_eq!(read(&several, root)["resource"], "https://mcp.example.com");
        assert_eq!(
            read(&several, "/.well-known/oauth-protected-resource/")["resource"],
            "https://mcp.example.com"
        );
    }

    // Proves R237.
    #[test]
    fn pages_may_read_and_writes_are_refused() {
        let known = well_known(&["/mcp"], &["https://id.example.com"]);
        let path = "/.well-known/oauth-protected-resource/mcp";
        let preflight = ask(&known, &Method::OPTIONS, path).unwrap();
        assert_eq!(preflight.status(), 204);
        assert_eq!(preflight.headers()["access-control-allow-origin"], "*");
        assert!(
            preflight
                .headers()
                .get("access-control-allow-credentials")
                .is_none()
        );
        assert_eq!(ask(&known, &Method::POST, path).unwrap().status(), 405);
    }

    // Proves R253.
    #[test]
    fn clients_of_2025_03_26_are_sent_to_the_one_authorization_server() {
        let known = well_known(&["/mcp"], &["https://id.example.com/tenant"]);
        let answer = ask(&known, &Method::GET, AUTHORIZATION_SERVER_PATH).unwrap();
        assert_eq!(answer.status(), 307);
        assert_eq!(
            answer.headers()["location"],
            "https://id.example.com/.well-known/oauth-authorization-server/tenant"
        );
        let two = well_known(
            &["/mcp"],
            &["https://a.example.com", "https://b.example.com"],
        );
        assert!(ask(&two, &Method::GET, AUTHORIZATION_SERVER_PATH).is_none());
    }

    // Proves C26.
    #[test]
    fn no_token_endpoints_are_served() {
        let known = well_known(&["/mcp"], &["https://id.example.com"]);
        for path in ["/authorize", "/token", "/register"] {
            assert!(ask(&known, &Method::GET, path).is_none(), "{path}");
            assert!(ask(&known, &Method::POST, path).is_none(), "{path}");
        }
        assert!(
            WellKnownDocuments::new(None, std::iter::empty())
                .documents
                .is_empty()
        );
    }
}
