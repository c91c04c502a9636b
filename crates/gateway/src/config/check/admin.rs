//! `admin`: the listener for operators. A listener outside loopback needs credentials.

use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};

use super::super::raw::{OrOff, RawAdmin, RawAdminToken, RawMetrics};
use super::super::report::{Path, Problem, Report};
use super::super::{AdminPlan, OperatorKey, Secret, is_local};
use super::auth::api_keys::{digest_of, is_patterned, moment};
use super::listen;

/// The default address, beside the clients' port. It is on loopback, because every caller that
/// reaches it may read all state and change much.
pub(crate) const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);
/// The default scope, with a name that no token has by chance.
const SCOPE: &str = "weir:admin";
/// The name of the operator in the audit log for the one shared token.
const SHARED: &str = "token";
/// The shortest token in characters. A shorter one can be guessed.
const SHORTEST: usize = 16;
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
    report: &mut Report,
) -> Option<AdminPlan> {
    let path = Path::at("admin.listen");
    let address = match raw.and_then(|admin| admin.listen.as_deref()) {
        None => LISTEN,
        Some("off") => return None,
        Some(text) => listen::address(text, &path, report),
    };
    if address.port() != 0 && address.port() == clients.port() && same_host(address, clients) {
        report.add(
            Problem::error(path, format!("{address} is where clients connect"))
                .hint("give the operators' listener a port of its own, or write `off`"),
        );
    }
    let mut plan = AdminPlan::open(address);
    if let Some(raw) = raw {
        plan.keys = keys(raw, report);
        plan.scope = scope(raw, issuers, report);
        plan.hosts = listen::hosts(
            raw.allowed_hosts.as_deref(),
            &Path::at("admin.allowed_hosts"),
            report,
        );
        plan.open_metrics = !matches!(raw.metrics, Some(RawMetrics::Auth));
    }
    guarded(&plan, report);
    Some(plan)
}

/// Requires credentials on a listener that other machines can reach (G14).
fn guarded(plan: &AdminPlan, report: &mut Report) {
    let path = Path::at("admin.auth");
    if plan.is_guarded() || report.blames(&path) || report.blames(&Path::at("admin.listen")) {
        return;
    }
    if !is_local(plan.listen) {
        let message = format!(
            "is missing: everybody who reaches {} could look at everything, and disable upstreams",
            plan.listen
        );
        report.add(
            Problem::error(path, message)
                .hint("listen on 127.0.0.1, or write auth: { token: \"${WEIR_ADMIN_TOKEN}\" }"),
        );
    } else if !plan.open_metrics {
        report.add(Problem::error(
            Path::at("admin.metrics"),
            "means nothing without `auth`",
        ));
    }
}

fn same_host(a: SocketAddr, b: SocketAddr) -> bool {
    a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified()
}

fn keys(raw: &RawAdmin, report: &mut Report) -> Vec<OperatorKey> {
    let Some(auth) = OrOff::section(raw.auth.as_ref()) else {
        return Vec::new();
    };
    let mut keys: Vec<OperatorKey> = Vec::new();
    if let Some(token) = &auth.token {
        match shared(token) {
            Ok(key) => keys.push(key),
            Err(message) => report.add(Problem::error(Path::at("admin.auth.token"), message).hint(
                "`weir apikey NAME --operator` prints a random one; keep it in the environment",
            )),
        }
    }
    for (n, raw) in auth.tokens.iter().flatten().enumerate() {
        let path = Path::at("admin.auth.tokens").key(n);
        match one(raw) {
            Ok(key) if keys.iter().any(|other| other.name == key.name) => {
                report.add(Problem::error(
                    path.key("name"),
                    format!("two tokens have the name {}", key.name),
                ));
            }
            Ok(key) => keys.push(key),
            Err((part, message)) if !report.blames(&path) => report.add(
                Problem::error(path.key(part), message)
                    .hint("`weir apikey NAME --operator` prints a token and its entry"),
            ),
            Err(_) => {}
        }
    }
    let nothing = auth.token.is_none() && auth.tokens.is_none() && auth.oauth.is_none();
    if nothing && !report.blames(&Path::at("admin.auth")) {
        let problem = Problem::error(
            Path::at("admin.auth"),
            "names nobody: nobody could be let in",
        );
        report.add(problem.hint("add token, tokens or oauth"));
    }
    keys
}

fn shared(token: &Secret) -> Result<OperatorKey, &'static str> {
    let text = token.expose();
    if text.len() < SHORTEST {
        return Err("has fewer than 16 characters");
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has characters that no header can have");
    }
    let lower = text.to_ascii_lowercase();
    let mut seen = text.as_bytes().to_vec();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() < 8 || PLACEHOLDERS.iter().any(|word| lower.contains(word)) {
        return Err("is a placeholder, not a random token");
    }
    Ok(OperatorKey {
        name: SHARED.into(),
        digest: Sha256::digest(text).into(),
        expires: None,
    })
}

fn one(raw: &RawAdminToken) -> Result<OperatorKey, (&'static str, &'static str)> {
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
    let digest = raw.sha256.as_deref().ok_or(("sha256", "is missing"))?;
    let digest =
        digest_of(digest).ok_or(("sha256", "is no SHA-256: 64 hex digits, or 44 of base64"))?;
    if is_patterned(digest) {
        return Err(("sha256", "is a placeholder, not the digest of a token"));
    }
    let expires = raw.expires.as_deref().map(|text| {
        moment(text).ok_or((
            "expires",
            "is no date such as 2027-01-31 or 2027-01-31T12:00:00Z",
        ))
    });
    Ok(OperatorKey {
        name: name.into(),
        digest,
        expires: expires.transpose()?,
    })
}

fn scope(raw: &RawAdmin, issuers: bool, report: &mut Report) -> Option<std::sync::Arc<str>> {
    let oauth = OrOff::section(raw.auth.as_ref())?.oauth.as_ref()?;
    let path = Path::at("admin.auth.oauth");
    if !issuers && !report.blames(&Path::at("auth")) {
        let problem = Problem::error(path.clone(), "needs somebody who issues tokens");
        report
            .add(problem.hint(
                "write auth: { mode: oauth, issuers: [{ issuer: https://id.example.com }] }",
            ));
    }
    let scope = oauth.scope.as_deref().unwrap_or(SCOPE);
    if scope.is_empty() || scope.contains(char::is_whitespace) {
        report.add(Problem::error(path.key("scope"), "is no scope"));
    }
    Some(scope.into())
}
