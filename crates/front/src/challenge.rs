//! What a client without the right credentials is told: which header says where to get them.
//!
//! Source: RFC 6750 section 3, RFC 9728 section 5.1, basic/authorization of 2025-06-18 and later.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::EndpointId;
use weir_core::failure::Denial;

use crate::settings::Settings;
use crate::stack::Context;

/// The path under which RFC 9728 metadata of an endpoint is found, before the endpoint's own path.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// For a 401. Where nothing was shown there is no error to name (RFC 6750, 3.1); why something is
/// not valid is nobody's business.
pub(crate) fn unauthenticated(context: &Context, denial: Denial) -> String {
    let error = match denial {
        Denial::Missing => None,
        Denial::Invalid(_) => Some("invalid_token"),
    };
    let scopes = context
        .settings
        .oauth
        .as_ref()
        .map(|oauth| oauth.scopes(&context.endpoint))
        .unwrap_or_default();
    challenge(&context.settings, &context.endpoint, error, scopes)
}

/// For a 403: all the scopes that the request takes, so that the client asks once.
pub(crate) fn insufficient(context: &Context, scopes: &[Arc<str>]) -> String {
    challenge(
        &context.settings,
        &context.endpoint,
        Some("insufficient_scope"),
        scopes,
    )
}

/// The same for an answer whose context is gone.
pub(crate) fn insufficient_at(
    settings: &Settings,
    endpoint: &EndpointId,
    scopes: &[Arc<str>],
) -> String {
    challenge(settings, endpoint, Some("insufficient_scope"), scopes)
}

fn challenge(
    settings: &Settings,
    endpoint: &EndpointId,
    error: Option<&str>,
    scopes: &[Arc<str>],
) -> String {
    let mut out = "Bearer realm=\"weir\"".to_owned();
    let mut add = |name: &str, value: &str| {
        // A `String` takes everything.
        let _ = write!(out, ", {name}=\"{value}\"");
    };
    if let Some(error) = error {
        add("error", error);
    }
    if !scopes.is_empty() {
        add("scope", &scopes.join(" "));
    }
    if let Some(oauth) = &settings.oauth {
        add(
            "resource_metadata",
            &format!("{}{WELL_KNOWN}{endpoint}", oauth.base),
        );
    }
    out
}
