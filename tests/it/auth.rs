//! Authentication: the weir binary with an identity provider beside it that behaves and misbehaves.

mod bearer_tokens;
mod client_certificates;
mod clock_jumps;
mod identity_provider;
pub mod opaque_credentials;
mod resource_metadata;
mod session_owners;

pub use client_certificates::{IssuedCertificate, IssuingAuthority, TlsTunnel, pem};
pub use clock_jumps::library as faketime;
pub use opaque_credentials::api_key;

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, IdentityProvider, MockServer, RawClient};

use crate::harness::Weir;

/// weir with `auth: oauth` over one upstream with one tool.
pub struct WeirWithIdp {
    pub idp: IdentityProvider,
    pub upstream: MockServer,
    pub weir: Weir,
}

impl WeirWithIdp {
    pub async fn start() -> Self {
        Self::with(json!({})).await
    }

    /// Starts it with further keys under `auth`.
    pub async fn with(more: Value) -> Self {
        let idp = IdentityProvider::start().await;
        let issuer = json!({ "issuer": idp.issuer() });
        Self::over(idp, issuer, more).await
    }

    /// Starts it with this issuer.
    pub async fn over(idp: IdentityProvider, issuer: Value, more: Value) -> Self {
        let upstream = MockServer::dual().tools(1).start().await;
        let mut auth = json!({ "mode": "oauth", "issuers": [issuer] });
        for (name, value) in more.as_object().unwrap() {
            auth[name] = value.clone();
        }
        let weir = Weir::with_config(
            json!({ "upstreams": { "one": { "url": upstream.url() } }, "auth": auth }),
        );
        Self {
            idp,
            upstream,
            weir,
        }
    }

    /// Returns a good token for the endpoint `/mcp`.
    pub fn token(&self) -> String {
        self.idp.token("ada", &self.weir.url("/mcp"))
    }

    /// Returns a client that sends this token.
    pub fn client(&self, token: &str) -> RawClient {
        bearer(&self.weir.url("/mcp"), token).modern()
    }

    /// Returns the status with which a call with this token ends.
    pub async fn status(&self, token: &str) -> u16 {
        self.client(token)
            .call("one__tool_0000", json!({ "n": 1 }))
            .await
            .unwrap()
            .status
            .as_u16()
    }

    /// Returns the challenge that a refused client of `/mcp` gets.
    pub fn challenge(&self, error: Option<&str>) -> String {
        let error = error
            .map(|error| format!(", error=\"{error}\""))
            .unwrap_or_default();
        let metadata = self.weir.url("/.well-known/oauth-protected-resource/mcp");
        format!("Bearer realm=\"weir\"{error}, resource_metadata=\"{metadata}\"")
    }
}

pub fn bearer(url: &str, token: &str) -> RawClient {
    RawClient::new(url).with_header("authorization", &format!("Bearer {token}"))
}

/// Sends a plain GET.
pub async fn get(url: &str) -> ClientAnswer {
    RawClient::new(url)
        .send(Method::GET, HeaderMap::new(), "")
        .await
        .unwrap()
        .finish()
        .await
        .unwrap()
}
