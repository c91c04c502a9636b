//! Discovery of an issuer's token endpoint: first the server's protected resource metadata (RFC
//! 9728), then the authorization server's metadata (RFC 8414, OpenID Connect Discovery).
//!
//! The config names the issuer; discovery can only confirm or stop it. A URL of the same origin as
//! one in the config is the operator's. Every other URL is an outsider's and is guarded.

use std::time::Duration;

use serde::Deserialize;
use url::Url;
use weir_core::port::{DocumentFetcher, FetchRequest, UrlSource};
use weir_oauth::{
    AuthorizationServerMetadata, ProtectedResourceMetadata, is_same_issuer, optional_url,
    quoted_identifier, resource_metadata_urls, server_metadata_urls,
};

use crate::token_error::TokenError;

/// The longest metadata document.
const MAX_METADATA_BYTES: usize = 256 << 10;
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// The token endpoint, and the resource that tokens are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenTarget {
    /// The token endpoint.
    pub(crate) endpoint: String,
    pub(crate) named_by: UrlSource,
    /// The client authentication methods; absent if the authorization server's metadata has no
    /// list.
    pub(crate) methods: Option<Vec<String>>,
    /// The server's resource identifier.
    pub(crate) resource: String,
}

/// The members of an issuer's metadata that a token request needs.
#[derive(Debug, Deserialize)]
struct TokenEndpointMetadata {
    #[serde(default, deserialize_with = "optional_url")]
    token_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Discovery of one issuer's token endpoint for one server.
pub(crate) struct TokenDiscovery<'a> {
    pub(crate) fetch: &'a dyn DocumentFetcher,
    pub(crate) issuer: &'a str,
    /// The server's URL.
    pub(crate) server: &'a Url,
    /// The metadata URL of the server's challenge.
    pub(crate) hint: Option<&'a str>,
}

impl TokenDiscovery<'_> {
    /// Runs the discovery.
    ///
    /// # Errors
    /// The server belongs to another authorization server, or the issuer's metadata cannot be had
    /// or is not its own.
    pub(crate) async fn run(&self) -> Result<TokenTarget, TokenError> {
        let resource = match self.resource_metadata().await {
            None => resource_identifier(self.server),
            Some(found) => {
                if !is_about_server(&found.resource, self.server) {
                    return Err(TokenError::new(
                        "The upstream's metadata is about another resource: no token was asked for",
                    ));
                }
                if !found.authorization_servers.is_empty()
                    && !found
                        .authorization_servers
                        .iter()
                        .any(|one| is_same_issuer(one, self.issuer))
                {
                    return Err(TokenError::new(
                        "The upstream belongs to another authorization server than the configured one: weir's credentials were not used",
                    ));
                }
                found.resource
            }
        };
        let TokenEndpointMetadata {
            token_endpoint,
            token_endpoint_auth_methods_supported: methods,
        } = self.issuer_metadata().await?;
        let endpoint = token_endpoint
            .ok_or_else(|| TokenError::new("The authorization server has no token endpoint"))?;
        let named_by = self.named_by(&endpoint);
        Ok(TokenTarget {
            endpoint,
            named_by,
            methods,
            resource,
        })
    }

    /// Fetches the server's own metadata: at the URL of its challenge, under its path, at its root.
    /// A server need not have any.
    async fn resource_metadata(&self) -> Option<ProtectedResourceMetadata> {
        let well_known = resource_metadata_urls(self.server);
        for url in self
            .hint
            .into_iter()
            .chain(well_known.iter().map(Url::as_str))
        {
            if let Ok(found) = self.fetch_json::<ProtectedResourceMetadata>(url).await {
                return Some(found);
            }
        }
        None
    }

    /// Fetches the issuer's metadata. A document that names another issuer is not used (RFC 8414,
    /// 3.3).
    async fn issuer_metadata(&self) -> Result<TokenEndpointMetadata, TokenError> {
        let issuer = Url::parse(self.issuer)
            .map_err(|_| TokenError::new("The configured issuer is no URL"))?;
        let mut foreign = false;
        let mut failures = Vec::new();
        for url in server_metadata_urls(&issuer) {
            let fetched = self
                .fetch_json::<AuthorizationServerMetadata<_>>(url.as_str())
                .await;
            let failure = match fetched {
                Ok(found) if found.is_about(self.issuer) => return Ok(found.members),
                Ok(found) => {
                    foreign = true;
                    let named = quoted_identifier(&found.issuer);
                    format!("is the metadata of {named}, not of `{}`", self.issuer)
                }
                Err(failure) => failure,
            };
            failures.push(format!("{url}: {failure}"));
        }
        let text = if foreign {
            "The authorization server's metadata is of another issuer: it was not used"
        } else {
            "The authorization server's metadata cannot be had"
        };
        Err(TokenError::new(text).caused_by(&failures.join("; ")))
    }

    /// Fetches a document.
    ///
    /// # Errors
    /// The failure, for operators: the answer is no 200, or no document of this type.
    async fn fetch_json<T: for<'de> Deserialize<'de>>(&self, url: &str) -> Result<T, String> {
        let named_by = self.named_by(url);
        let ask = FetchRequest {
            url,
            form: None,
            authorization: None,
            limit: MAX_METADATA_BYTES,
            timeout: METADATA_TIMEOUT,
            url_source: named_by,
        };
        let fetched = self.fetch.fetch(ask).await;
        let fetched = fetched.map_err(|failure| failure.cause())?;
        if fetched.status != 200 {
            return Err(format!("status {}", fetched.status));
        }
        serde_json::from_slice(&fetched.body).map_err(|_| "is no valid metadata".to_owned())
    }

    /// Classifies a URL: the operator's if the config names its origin.
    fn named_by(&self, url: &str) -> UrlSource {
        let Ok(url) = Url::parse(url) else {
            return UrlSource::Outsider;
        };
        let is_issuers =
            Url::parse(self.issuer).is_ok_and(|issuer| issuer.origin() == url.origin());
        // An opaque origin, such as that of a file URL, is equal to no other.
        if is_issuers || self.server.origin() == url.origin() {
            UrlSource::Operator
        } else {
            UrlSource::Outsider
        }
    }
}

/// Returns the resource identifier of a server (RFC 8707, 2): its URL, without a slash that stands
/// for an empty path.
pub(crate) fn resource_identifier(server: &Url) -> String {
    let mut server = server.clone();
    server.set_fragment(None);
    let text: String = server.into();
    match text.strip_suffix('/') {
        Some(bare) if bare.matches('/').count() == 2 => bare.to_owned(),
        _ => text,
    }
}

/// True if metadata about `resource` is about the server: the same origin, and its path or one
/// above it.
fn is_about_server(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    let (above, below) = (resource.path().trim_end_matches('/'), server.path());
    resource.origin() == server.origin()
        && below
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
