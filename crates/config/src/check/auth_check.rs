//! `auth`: the authentication of clients.

pub(super) mod api_keys;
mod issuers;
mod shared_texts;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weir_front::settings::ResourceMetadata;
use weir_policy::settings::{CertificateName, CertificateRules, VerifierSettings};

use crate::check::toolsets_check::{is_scope, no_scope};
use crate::checked_config::implied_base;
use shared_texts::{scopes, shared};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::local_host::is_local;
use weir_config_file::raw::{RawAuth, RawConfig, RawSubject};

/// The largest `leeway`. Clocks that differ by more are broken, and tokens would live too long.
const MAX_LEEWAY: Duration = Duration::from_secs(300);

/// Checks `auth`, and sets the authorization servers in front's settings.
pub(super) fn check(
    raw: &RawConfig,
    front: &mut weir_front::FrontSettings,
    report: &mut ConfigReport,
) -> VerifierSettings {
    let section = raw.auth.as_ref();
    let path = ConfigPath::at("auth.mode");
    let mut settings = VerifierSettings::open();
    check_not_empty(section, report);
    match section
        .and_then(|auth| auth.mode.as_deref())
        .unwrap_or("none")
    {
        "none" => check_open_mode(section, front, report),
        mode @ ("oauth" | "required") => {
            if let Some(section) = section {
                settings = check_credentials(section, mode, front, report);
            }
        }
        mode => {
            let problem = ConfigProblem::error(path, format!("`{mode}` is not a mode"));
            report.add(problem.hint("one of: none, oauth, required"));
        }
    }
    if !settings.issuers.is_empty() {
        let servers = settings
            .issuers
            .iter()
            .map(|issuer| issuer.name.to_string())
            .collect();
        front.oauth = Some(ResourceMetadata {
            base: settings.base.clone(),
            servers,
            scopes: HashMap::new(),
        });
    }
    settings
}

/// Requires a mode or credentials: an empty section may have lost its mode.
fn check_not_empty(section: Option<&RawAuth>, report: &mut ConfigReport) {
    let Some(section) = section.filter(|_| !report.has_error_under(&ConfigPath::at("auth"))) else {
        return;
    };
    let names_credentials =
        section.issuers.is_some() || section.api_keys.is_some() || section.mtls.is_some();
    if section.mode.is_none() && section.allow_anyone.is_none() && !names_credentials {
        let problem = ConfigProblem::error(
            ConfigPath::at("auth.mode"),
            "is missing: it decides whether clients need credentials",
        );
        report.add(problem.hint("write mode: oauth, mode: required, or mode: none"));
    }
}

/// Reports if the file allows access without credentials explicitly.
pub(super) fn allows_anyone(section: Option<&RawAuth>) -> bool {
    section.and_then(|auth| auth.allow_anyone).unwrap_or(false)
}

/// Checks the mode without credentials. It serves this machine only, unless the operator sets
/// `allow_anyone`.
fn check_open_mode(
    section: Option<&RawAuth>,
    front: &weir_front::FrontSettings,
    report: &mut ConfigReport,
) {
    let (path, listen) = (ConfigPath::at("auth.mode"), front.listen);
    if let Some(section) = section {
        let has_issuers = section.issuers.is_some();
        let hint = match has_issuers {
            true => "write mode: oauth, or mode: required",
            // `oauth` needs issuers.
            false => "write mode: required",
        };
        for (key, given) in [
            ("issuers", has_issuers),
            ("api_keys", section.api_keys.is_some()),
            ("mtls", section.mtls.is_some()),
        ] {
            if given {
                let problem = ConfigProblem::error(
                    ConfigPath::at("auth").key(key),
                    "has no effect, because clients need no credentials",
                );
                report.add(problem.hint(hint));
            }
        }
    }
    if !is_local(listen)
        && !allows_anyone(section)
        && !report.has_error_under(&ConfigPath::at("auth"))
    {
        report.add(
            ConfigProblem::error(
                path,
                format!("with `none`, every client that reaches {listen} could call every tool"),
            )
            .hint("listen on 127.0.0.1, or write auth: { mode: none, allow_anyone: true }"),
        );
    }
}

fn check_credentials(
    section: &RawAuth,
    mode: &str,
    front: &weir_front::FrontSettings,
    report: &mut ConfigReport,
) -> VerifierSettings {
    let leeway = section
        .leeway
        .map_or(VerifierSettings::LEEWAY, |time| time.0);
    if leeway > MAX_LEEWAY {
        report.add(ConfigProblem::error(
            ConfigPath::at("auth.leeway"),
            "is more than the maximum of 5m",
        ));
    }
    let settings = VerifierSettings {
        required: true,
        base: base(front, report),
        leeway,
        issuers: issuers::check(section, report),
        implied: implied(section, report),
        api_keys: api_keys::check(section, report),
        certificates: certificates(section, front, report),
    };
    if mode == "oauth"
        && settings.issuers.is_empty()
        && !report.has_error_under(&ConfigPath::at("auth.issuers"))
    {
        let problem = ConfigProblem::error(
            ConfigPath::at("auth.issuers"),
            "is missing: `oauth` needs an authorization server",
        );
        report.add(problem.hint("write issuers: [{ issuer: https://id.example.com }]"));
    }
    let nothing = settings.issuers.is_empty()
        && settings.api_keys.is_empty()
        && settings.certificates.is_none();
    if mode == "required" && nothing && !report.has_error_under(&ConfigPath::at("auth")) {
        let problem = ConfigProblem::error(
            ConfigPath::at("auth.mode"),
            "requires credentials, but none are configured: no client could connect",
        );
        report.add(problem.hint("add issuers, api_keys or mtls"));
    }
    if section.allow_anyone.is_some() {
        report.add(ConfigProblem::error(
            ConfigPath::at("auth.allow_anyone"),
            "is allowed with `mode: none` only",
        ));
    }
    settings
}

fn certificates(
    section: &RawAuth,
    front: &weir_front::FrontSettings,
    report: &mut ConfigReport,
) -> Option<CertificateRules> {
    let raw = section.mtls.as_ref()?;
    if front.tls.as_ref().is_none_or(|tls| tls.clients.is_none())
        && !report.has_error_under(&ConfigPath::at("tls"))
    {
        let problem = ConfigProblem::error(
            ConfigPath::at("auth.mtls"),
            "needs the certificate authorities of clients",
        );
        report.add(problem.hint("write tls: { cert: .., key: .., client_ca: clients.pem }"));
    }
    let subject = match raw.subject {
        None | Some(RawSubject::Cn) => CertificateName::CommonName,
        Some(RawSubject::Uri) => CertificateName::Uri,
        Some(RawSubject::Dns) => CertificateName::Dns,
    };
    Some(CertificateRules {
        subject,
        groups: shared(raw.groups.as_ref()),
        scopes: scopes(
            raw.scopes.as_ref(),
            &ConfigPath::at("auth.mtls.scopes"),
            report,
        ),
    })
}

/// Returns the URL of weir that tokens name as their audience.
fn base(front: &weir_front::FrontSettings, report: &mut ConfigReport) -> String {
    if let Some(url) = &front.public_url {
        return url.to_ascii_lowercase();
    }
    let listen = front.listen;
    if listen.ip().is_unspecified() {
        let problem = ConfigProblem::error(
            ConfigPath::at("public_url"),
            "is required with `auth`: tokens are issued for the URL that clients use",
        );
        report.add(problem.hint("write public_url: https://mcp.example.com"));
    }
    implied_base(front, listen)
}

fn implied(section: &RawAuth, report: &mut ConfigReport) -> HashMap<Arc<str>, Vec<Arc<str>>> {
    let listed = section
        .scope_implies
        .as_ref()
        .map(|listed| listed.0.as_slice())
        .unwrap_or_default();
    listed
        .iter()
        .map(|(scope, more)| {
            let path = ConfigPath::at("auth.scope_implies").key(scope);
            if !is_scope(scope) {
                report.add(no_scope(path.clone()));
            }
            (scope.as_str().into(), scopes(Some(more), &path, report))
        })
        .collect()
}
