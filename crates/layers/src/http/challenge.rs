//! The `WWW-Authenticate` challenge for a client without the right credentials: it points to the
//! metadata that names the authorization server.
//!
//! Source: RFC 6750 section 3, RFC 9728 section 5.1, basic/authorization of 2025-06-18 and later.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::EndpointId;
use weir_core::failure::AuthenticationDenial;

use crate::request::request_context::HttpRequestContext;
use crate::settings::FrontSettings;

/// The path of an endpoint's RFC 9728 metadata, before the endpoint's own path.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// The challenge of a 401. A request without credentials gets no error code (RFC 6750, 3.1). The
/// reason that a token is invalid stays secret.
pub(crate) fn unauthenticated(
    context: &HttpRequestContext,
    denial: AuthenticationDenial,
) -> String {
    let error = match denial {
        AuthenticationDenial::Missing => None,
        AuthenticationDenial::Invalid(_) => Some("invalid_token"),
    };
    let scopes = context
        .route
        .settings
        .oauth
        .as_ref()
        .map(|oauth| oauth.scopes(context.endpoint()))
        .unwrap_or_default();
    challenge(&context.route.settings, context.endpoint(), error, scopes)
}

/// The challenge of a 403: all scopes that the request needs, so that the client asks once.
pub(crate) fn insufficient(context: &HttpRequestContext, scopes: &[Arc<str>]) -> String {
    challenge(
        &context.route.settings,
        context.endpoint(),
        Some("insufficient_scope"),
        scopes,
    )
}

/// The same challenge for an answer without a context.
pub fn insufficient_at(
    settings: &FrontSettings,
    endpoint: &EndpointId,
    scopes: &[Arc<str>],
) -> String {
    challenge(settings, endpoint, Some("insufficient_scope"), scopes)
}

fn challenge(
    settings: &FrontSettings,
    endpoint: &EndpointId,
    error: Option<&str>,
    scopes: &[Arc<str>],
) -> String {
    let mut out = "Bearer realm=\"weir\"".to_owned();
    let mut add = |name: &str, value: &str| {
        // Writing to a `String` cannot fail.
        let _ = write!(out, ", {name}=\"{value}\"");
    };
    if let Some(error) = error {
        add("error", error);
    }
    let scopes = scope_list(scopes);
    if !scopes.is_empty() {
        add("scope", &scopes);
    }
    if let Some(oauth) = &settings.oauth {
        add(
            "resource_metadata",
            &format!("{}{METADATA_PATH}{endpoint}", oauth.base),
        );
    }
    out
}

/// The scopes that a challenge can name, in its form (RFC 6749, section 3.3). The token of a sender may
/// have others, which would end the quotes.
fn scope_list(scopes: &[Arc<str>]) -> String {
    let is_permitted = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    let is_token = |scope: &&str| !scope.is_empty() && scope.bytes().all(is_permitted);
    let scopes = scopes.iter().map(|scope| &**scope).filter(is_token);
    scopes.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_names_scope_tokens_alone() {
        let named = |scopes: &[&str]| {
            let scopes: Vec<Arc<str>> = scopes.iter().map(|scope| Arc::from(*scope)).collect();
            scope_list(&scopes)
        };
        let others = ["x\", error=\"none", "a b", "ü", "", "a\\", "\r\n"];
        assert_eq!(named(&others), "");
        let scopes = [&["mail:read"][..], &others, &["~!#[]"]].concat();
        assert_eq!(named(&scopes), "mail:read ~!#[]");
    }
}
