//! `auth.issuers`: the issuers of accepted tokens.

use std::time::Duration;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{RawAuth, RawIntrospection, RawIssuer};
use weir_policy::settings::{
    ClientSecret, KeySource, SignatureAlgorithm, TokenIssuer, TokenValidation,
};

use crate::check::auth_check::shared_texts::shared;
use weir_config_file::http_url::{check_authority_url, check_issuer_url};
use weir_config_file::placeholder;

/// The default of `max_lifetime`: it bounds the use of a stolen token.
const DEFAULT_MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The largest number of issuers. weir keeps the keys of each fresh.
const MAX_ISSUERS: usize = 64;

pub(super) fn check(section: &RawAuth, report: &mut ConfigReport) -> Vec<TokenIssuer> {
    let path = ConfigPath::at("auth.issuers");
    let listed = section.issuers.as_deref().unwrap_or_default();
    if listed.len() > MAX_ISSUERS {
        report.add(ConfigProblem::error(
            path.clone(),
            format!("are more than {MAX_ISSUERS}"),
        ));
    }
    let mut issuers: Vec<TokenIssuer> = Vec::new();
    for (n, raw) in listed.iter().enumerate() {
        let path = path.key(n);
        let Some(issuer) = one(raw, &path, report) else {
            continue;
        };
        if issuers.iter().any(|other| other.name == issuer.name) {
            report.add(ConfigProblem::error(
                path.key("issuer"),
                format!("`{}` is listed twice", issuer.name),
            ));
        } else {
            issuers.push(issuer);
        }
    }
    let with_introspection = issuers
        .iter()
        .filter(|issuer| matches!(issuer.validation, TokenValidation::Introspection { .. }))
        .count();
    if with_introspection > 1 {
        let problem = ConfigProblem::error(
            path,
            "has two entries with `introspection`: a token could be sent to the wrong issuer",
        );
        report.add(problem.hint("use `introspection` for one issuer at most"));
    }
    issuers
}

fn one(raw: &RawIssuer, path: &ConfigPath, report: &mut ConfigReport) -> Option<TokenIssuer> {
    let Some(name) = raw.issuer.as_deref() else {
        if !report.has_error_under(path) {
            let problem = ConfigProblem::error(path.key("issuer"), "is missing");
            report
                .add(problem.hint("write the `iss` of its tokens, such as https://id.example.com"));
        }
        return None;
    };
    let allow_http = raw.allow_http.unwrap_or(false);
    // Without metadata nothing is fetched from the issuer: its name is only compared.
    let is_name = raw.jwks_uri.is_some() || raw.introspection.is_some();
    check_issuer_url(name, allow_http || is_name, &path.key("issuer"), report);
    if let Some(url) = &raw.jwks_uri {
        check_authority_url(url, allow_http, &path.key("jwks_uri"), report);
    }
    let groups = match &raw.groups {
        None => vec!["groups".into()],
        Some(paths) => shared(Some(paths)),
    };
    check_claim_paths(raw.groups.as_ref(), &path.key("groups"), report);
    check_claim_paths(raw.claims.as_ref(), &path.key("claims"), report);
    Some(TokenIssuer {
        name: name.into(),
        validation: match &raw.introspection {
            None => key_proof(raw, path, report),
            Some(asked) => introspection_proof(raw, asked, path, report),
        },
        audiences: shared(raw.audience.as_ref()),
        groups,
        claims: shared(raw.claims.as_ref()),
    })
}

/// Reports paths that no token can have.
fn check_claim_paths(paths: Option<&Vec<String>>, path: &ConfigPath, report: &mut ConfigReport) {
    for (n, text) in paths.into_iter().flatten().enumerate() {
        if text.split('.').any(str::is_empty) {
            let problem = ConfigProblem::error(path.key(n), "has an empty name of a claim");
            report.add(problem.hint("write the name of a claim, or a.b for `b` in `a`"));
        }
    }
}

/// Returns the settings of an issuer whose tokens are verified with its keys.
fn key_proof(raw: &RawIssuer, path: &ConfigPath, report: &mut ConfigReport) -> TokenValidation {
    let max_lifetime = raw.max_lifetime.map_or(DEFAULT_MAX_LIFETIME, |time| time.0);
    if max_lifetime.is_zero() {
        report.add(ConfigProblem::error(
            path.key("max_lifetime"),
            "must not be zero",
        ));
    }
    TokenValidation::Keys {
        source: raw
            .jwks_uri
            .clone()
            .map_or(KeySource::Metadata, KeySource::Url),
        algorithms: algorithms(raw, path, report),
        strict_type: raw.strict_type.unwrap_or(false),
        max_lifetime,
    }
}

/// Returns the settings of an issuer with token introspection.
fn introspection_proof(
    raw: &RawIssuer,
    introspection: &RawIntrospection,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> TokenValidation {
    for (key, given) in [
        ("jwks_uri", raw.jwks_uri.is_some()),
        ("algorithms", raw.algorithms.is_some()),
        ("strict_type", raw.strict_type.is_some()),
        ("max_lifetime", raw.max_lifetime.is_some()),
    ] {
        if given {
            let problem = ConfigProblem::error(
                path.key(key),
                "has no effect with `introspection`: the issuer checks its tokens",
            );
            report.add(problem);
        }
    }
    let path = path.key("introspection");
    let mut missing = |key: &str| {
        if !report.has_error_under(&path.key(key)) {
            report.add(ConfigProblem::error(path.key(key), "is missing"));
        }
        String::new()
    };
    let url = introspection.url.clone().unwrap_or_else(|| missing("url"));
    let client_id = introspection
        .client_id
        .clone()
        .unwrap_or_else(|| missing("client_id"));
    let secret = match &introspection.client_secret {
        Some(secret) => secret.expose().to_owned(),
        None => missing("client_secret"),
    };
    if introspection.url.is_some() {
        check_authority_url(
            &url,
            raw.allow_http.unwrap_or(false),
            &path.key("url"),
            report,
        );
    }
    if introspection.client_secret.is_some() && placeholder::is_placeholder(&secret) {
        let problem =
            ConfigProblem::error(path.key("client_secret"), "is a placeholder, not a secret");
        report.add(
            problem.hint("use the secret that the issuer gave this client, from the environment"),
        );
    }
    TokenValidation::Introspection {
        url,
        client_id,
        client_secret: ClientSecret::new(secret),
    }
}

fn algorithms(
    raw: &RawIssuer,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<SignatureAlgorithm> {
    let Some(names) = &raw.algorithms else {
        return SignatureAlgorithm::DEFAULT.to_vec();
    };
    let path = path.key("algorithms");
    if names.is_empty() {
        report.add(ConfigProblem::error(
            path.clone(),
            "is empty: no token could be valid",
        ));
    }
    let mut algorithms = Vec::new();
    for (n, name) in names.iter().enumerate() {
        match SignatureAlgorithm::parse(name) {
            Some(algorithm) => algorithms.push(algorithm),
            None => {
                let hint = match name.starts_with("HS") {
                    true => {
                        "the key that verifies such tokens can also sign them: use an asymmetric algorithm, such as ES256"
                    }
                    false => {
                        "one of: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA"
                    }
                };
                report.add(
                    ConfigProblem::error(path.key(n), format!("`{name}` is not accepted"))
                        .hint(hint),
                );
            }
        }
    }
    algorithms
}
