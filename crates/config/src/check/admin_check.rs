//! `admin`: the listener for operators. A listener outside loopback needs credentials.

use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_secret::ConfigSecret;
use weir_config_file::local_host::is_local;
use weir_config_file::raw::{OrOff, RawAdmin, RawAdminToken, RawMetricsAccess};

use crate::admin_plan::{AdminPlan, OperatorKey};
use crate::check::auth_check::api_keys::{checked_digest, checked_expiry, warn_expired};
use crate::check::listen_check;

/// The default address, beside the clients' port. It is on loopback, because every caller that
/// reaches it may read all state and change much.
pub const DEFAULT_ADMIN_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);
/// The default scope, with a name that no token has by chance.
const DEFAULT_SCOPE: &str = "weir:admin";
/// The name of the operator in the audit log for the one shared token.
const SHARED_NAME: &str = "token";
/// The shortest token in characters. A shorter one can be guessed.
const MIN_TOKEN_CHARS: usize = 16;
/// Words from the placeholders of examples.
const PLACEHOLDERS: [&str; 7] = [
    "changeme",
    "change-me",
    "change_me",
    "placeholder",
    "example",
    "your-",
    "replace",
];

/// Checks the operators' listener. Returns `None` if it is off. `issuers` is true if the config has
/// issuers of access tokens.
pub(super) fn check(
    raw: Option<&RawAdmin>,
    clients: SocketAddr,
    issuers: bool,
    report: &mut ConfigReport,
) -> Option<AdminPlan> {
    let path = ConfigPath::at("admin.listen");
    let address = match raw.and_then(|admin| admin.listen.as_deref()) {
        None => DEFAULT_ADMIN_LISTEN,
        Some("off") => return None,
        Some(text) => listen_check::address(text, &path, report),
    };
    if address.port() != 0 && address.port() == clients.port() && same_host(address, clients) {
        report.add(
            ConfigProblem::error(
                path,
                format!("{address} is the address of the listener for clients"),
            )
            .hint("give the operators' listener a port of its own, or write `off`"),
        );
    }
    let mut plan = AdminPlan::open(address);
    if let Some(raw) = raw {
        plan.keys = keys(raw, report);
        plan.scope = scope(raw, issuers, report);
        plan.hosts = listen_check::hosts(
            raw.allowed_hosts.as_deref(),
            &ConfigPath::at("admin.allowed_hosts"),
            report,
        );
        plan.open_metrics = !matches!(raw.metrics, Some(RawMetricsAccess::Auth));
    }
    check_guarded(&plan, report);
    Some(plan)
}

/// Requires credentials on a listener that other machines can reach (G14).
fn check_guarded(plan: &AdminPlan, report: &mut ConfigReport) {
    let path = ConfigPath::at("admin.auth");
    if plan.is_guarded()
        || report.has_error_under(&path)
        || report.has_error_under(&ConfigPath::at("admin.listen"))
    {
        return;
    }
    if !is_local(plan.listen) {
        let message = format!(
            "is missing: every client that reaches {} could read everything and disable upstreams",
            plan.listen
        );
        report.add(
            ConfigProblem::error(path, message)
                .hint("listen on 127.0.0.1, or write auth: { token: \"${WEIR_ADMIN_TOKEN}\" }"),
        );
    } else if !plan.open_metrics {
        report.add(ConfigProblem::error(
            ConfigPath::at("admin.metrics"),
            "has no effect without `auth`",
        ));
    }
}

/// Reports if two listeners with the same port conflict.
pub(super) fn same_host(a: SocketAddr, b: SocketAddr) -> bool {
    a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified()
}

fn keys(raw: &RawAdmin, report: &mut ConfigReport) -> Vec<OperatorKey> {
    let Some(auth) = OrOff::section(raw.auth.as_ref()) else {
        return Vec::new();
    };
    let mut keys: Vec<OperatorKey> = Vec::new();
    if let Some(token) = &auth.token {
        match shared_token(token) {
            Ok(key) => keys.push(key),
            Err(message) => report.add(
                ConfigProblem::error(ConfigPath::at("admin.auth.token"), message).hint(
                    "`weir apikey NAME --operator` prints a random one; keep it in the environment",
                ),
            ),
        }
    }
    for (n, raw) in auth.tokens.iter().flatten().enumerate() {
        let path = ConfigPath::at("admin.auth.tokens").key(n);
        match operator_token(raw) {
            Ok(key) if keys.iter().any(|other| other.name == key.name) => {
                report.add(ConfigProblem::error(
                    path.key("name"),
                    format!("two tokens have the name {}", key.name),
                ));
            }
            Ok(key) => {
                let what = format!("the token of `{}`", key.name);
                warn_expired(key.expires, &what, &path, report);
                keys.push(key);
            }
            Err((part, message)) if !report.has_error_under(&path) => report.add(
                ConfigProblem::error(path.key(part), message)
                    .hint("`weir apikey NAME --operator` prints a token and its entry"),
            ),
            Err(_) => {}
        }
    }
    let nothing = auth.token.is_none() && auth.tokens.is_none() && auth.oauth.is_none();
    if nothing && !report.has_error_under(&ConfigPath::at("admin.auth")) {
        let problem = ConfigProblem::error(
            ConfigPath::at("admin.auth"),
            "names no credentials: no operator could connect",
        );
        report.add(problem.hint("add token, tokens or oauth"));
    }
    keys
}

fn shared_token(token: &ConfigSecret) -> Result<OperatorKey, &'static str> {
    let text = token.expose();
    if text.len() < MIN_TOKEN_CHARS {
        return Err("has fewer than 16 characters");
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has characters that are not allowed in a header");
    }
    let lower = text.to_ascii_lowercase();
    let mut seen = text.as_bytes().to_vec();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < 8 || PLACEHOLDERS.iter().any(|word| lower.contains(word)) {
        return Err("is a placeholder, not a random token");
    }
    Ok(OperatorKey {
        name: SHARED_NAME.into(),
        digest: Sha256::digest(text).into(),
        expires: None,
    })
}

fn operator_token(raw: &RawAdminToken) -> Result<OperatorKey, (&'static str, &'static str)> {
    let name = raw
        .name
        .as_deref()
        .filter(|name| !name.is_empty())
        .ok_or(("name", "is missing"))?;
    if name.len() > 64 || name.chars().any(char::is_control) {
        return Err((
            "name",
            "must have at most 64 characters, none of them a control character",
        ));
    }
    let placeholder = "is a placeholder, not the digest of a token";
    let digest = checked_digest(raw.sha256.as_deref(), placeholder)?;
    let expires = checked_expiry(raw.expires.as_deref())?;
    Ok(OperatorKey {
        name: name.into(),
        digest,
        expires,
    })
}

fn scope(raw: &RawAdmin, issuers: bool, report: &mut ConfigReport) -> Option<std::sync::Arc<str>> {
    let oauth = OrOff::section(raw.auth.as_ref())?.oauth.as_ref()?;
    let path = ConfigPath::at("admin.auth.oauth");
    if !issuers && !report.has_error_under(&ConfigPath::at("auth")) {
        let problem = ConfigProblem::error(path.clone(), "needs an authorization server");
        report
            .add(problem.hint(
                "write auth: { mode: oauth, issuers: [{ issuer: https://id.example.com }] }",
            ));
    }
    let scope = oauth.scope.as_deref().unwrap_or(DEFAULT_SCOPE);
    if scope.is_empty() || scope.contains(char::is_whitespace) {
        report.add(ConfigProblem::error(path.key("scope"), "is not a scope"));
    }
    Some(scope.into())
}
