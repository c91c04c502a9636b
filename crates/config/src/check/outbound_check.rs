//! `upstreams.<id>.auth`.

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{RawOutbound, RawOutboundMode, RawSecretPlace, RawSubjectToken};
use weir_upstream::{ClientAuthMethod, SecretText, TokenAuthority, TokenExchange, UpstreamOAuth};

use crate::check::toolsets_check::is_scope;
use weir_config_file::http_url::{check_authority_url, check_issuer_url};
use weir_config_file::placeholder;

const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
/// The largest number of scopes.
const MAX_SCOPES: usize = 64;

/// The settings of an upstream that `auth` must agree with.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutboundContext {
    /// True if the upstream has `headers`.
    pub(super) headers: bool,
    /// True if one of them is `Authorization`.
    pub(super) authorization: bool,
    /// True if the config sets `session: shared`.
    pub(super) shared: bool,
    /// True if the upstream is on another machine and reached without TLS.
    pub(super) in_the_clear: bool,
}

/// Returns the OAuth client of an upstream, if it has one.
pub(super) fn check(
    raw: Option<RawOutbound>,
    beside: OutboundContext,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<Box<UpstreamOAuth>> {
    let raw = raw?;
    let mode = raw.mode.unwrap_or(RawOutboundMode::None);
    let is_oauth = matches!(
        mode,
        RawOutboundMode::ClientCredentials | RawOutboundMode::TokenExchange
    );
    report_misplaced(&raw, mode, path, report);
    if mode == RawOutboundMode::Headers && !beside.headers {
        let problem = ConfigProblem::error(
            path.key("mode"),
            "is `headers`, but no headers are configured",
        );
        report.add(problem.hint("write headers: { Authorization: \"Bearer ${TOKEN}\" }"));
    }
    if !is_oauth {
        return None;
    }
    report_conflicts(mode, beside, path, report);
    let allow_http = raw.allow_http.unwrap_or(false);
    let authority = authority(raw.issuer, raw.token_endpoint, allow_http, path, report);
    let client_id = required(
        raw.client_id.filter(|id| !id.is_empty()),
        "client_id",
        path,
        report,
    );
    let client_secret = raw
        .client_secret
        .filter(|secret| !secret.expose().is_empty());
    if client_secret
        .as_ref()
        .is_some_and(|secret| placeholder::is_placeholder(secret.expose()))
    {
        report.add(placeholder::error(path.key("client_secret")));
    }
    let client_secret = required(client_secret, "client_secret", path, report);
    let scopes = scopes(raw.scopes, &path.key("scopes"), report);
    let step_up = self::scopes(raw.step_up, &path.key("step_up"), report);
    let exchange = (mode == RawOutboundMode::TokenExchange).then(|| TokenExchange {
        audience: raw.audience,
        subject_type: match raw.subject_token {
            None | Some(RawSubjectToken::AccessToken) => TokenExchange::ACCESS_TOKEN.to_owned(),
            Some(RawSubjectToken::Jwt) => JWT.to_owned(),
        },
    });
    Some(Box::new(UpstreamOAuth {
        authority: authority?,
        client_id: client_id?,
        client_secret: SecretText::new(client_secret?.expose()),
        client_auth: match raw.client_auth {
            None => ClientAuthMethod::Discovered,
            Some(RawSecretPlace::Basic) => ClientAuthMethod::Basic,
            Some(RawSecretPlace::Post) => ClientAuthMethod::Post,
        },
        scopes,
        step_up,
        resource: raw.resource,
        exchange,
    }))
}

/// Reports keys that have no meaning in this mode.
fn report_misplaced(
    raw: &RawOutbound,
    mode: RawOutboundMode,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    let oauth = [
        ("issuer", raw.issuer.is_some()),
        ("token_endpoint", raw.token_endpoint.is_some()),
        ("allow_http", raw.allow_http.is_some()),
        ("client_id", raw.client_id.is_some()),
        ("client_secret", raw.client_secret.is_some()),
        ("client_auth", raw.client_auth.is_some()),
        ("scopes", raw.scopes.is_some()),
        ("step_up", raw.step_up.is_some()),
        ("resource", raw.resource.is_some()),
    ];
    let exchange = [
        ("audience", raw.audience.is_some()),
        ("subject_token", raw.subject_token.is_some()),
    ];
    let (meant, word): (&[&[(&str, bool)]], _) = match mode {
        RawOutboundMode::None => (&[&oauth, &exchange], "none"),
        RawOutboundMode::Headers => (&[&oauth, &exchange], "headers"),
        RawOutboundMode::ClientCredentials => (&[&exchange], "client_credentials"),
        RawOutboundMode::TokenExchange => (&[], "token_exchange"),
    };
    for (key, present) in meant.iter().copied().flatten() {
        if *present {
            report.add(ConfigProblem::error(
                path.key(key),
                format!("has no effect with `mode: {word}`"),
            ));
        }
    }
}

/// Reports settings that conflict with tokens.
fn report_conflicts(
    mode: RawOutboundMode,
    beside: OutboundContext,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    if beside.authorization {
        let problem = ConfigProblem::error(
            path.key("mode"),
            "and `headers.Authorization` both write the same header",
        );
        report.add(problem.hint("remove one of them"));
    }
    if mode == RawOutboundMode::TokenExchange && beside.shared {
        let problem = ConfigProblem::error(
            path.key("mode"),
            "is `token_exchange`, but `session: shared` would mix callers",
        );
        report.add(problem.hint("remove `session`"));
    }
    if beside.in_the_clear {
        let problem = ConfigProblem::warning(
            path.key("mode"),
            "sends tokens over a connection without encryption",
        );
        report.add(problem.hint("give the server an https URL"));
    }
}

fn authority(
    issuer: Option<String>,
    endpoint: Option<String>,
    allow_http: bool,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<TokenAuthority> {
    match (issuer, endpoint) {
        (Some(issuer), None) => check_issuer_url(&issuer, allow_http, &path.key("issuer"), report)
            .then_some(TokenAuthority::Issuer(issuer)),
        (None, Some(endpoint)) => {
            let path = path.key("token_endpoint");
            check_authority_url(&endpoint, allow_http, &path, report)
                .then_some(TokenAuthority::TokenEndpoint(endpoint))
        }
        (Some(_), Some(_)) => {
            report.add(
                ConfigProblem::error(path.clone(), "has both `issuer` and `token_endpoint`")
                    .hint("keep `issuer`"),
            );
            None
        }
        (None, None) => {
            let problem = ConfigProblem::error(path.clone(), "names no authorization server");
            report.add(problem.hint("write issuer: https://id.example.com"));
            None
        }
    }
}

fn required<T>(
    value: Option<T>,
    key: &str,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<T> {
    if value.is_none() && !report.has_error_under(&path.key(key)) {
        report.add(ConfigProblem::error(path.key(key), "is missing or empty"));
    }
    value
}

/// Checks scope tokens (RFC 6749, 3.3).
fn scopes(raw: Option<Vec<String>>, path: &ConfigPath, report: &mut ConfigReport) -> Vec<String> {
    let raw = raw.unwrap_or_default();
    if raw.len() > MAX_SCOPES || !raw.iter().all(|text| is_scope(text)) {
        report.add(
            ConfigProblem::error(path.clone(), "has an item that is not a scope")
                .hint("write one scope per item"),
        );
    }
    raw
}
