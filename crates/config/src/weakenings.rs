//! The comparison of two checked configs: it finds the protections that the old one has, and that
//! the new one neither has nor gives up explicitly. A file that was truncated, or lost a section,
//! parses like a config that never had it. The comparison detects the loss.
//!
//! It has no side effects, and both a reload and `weir check --against` use it. All protections are
//! in one table, [`PROTECTIONS`]. A test compares the table with the config's schema, so that a new
//! key is either in the table or declared as no protection.

mod access_losses;
mod audit_losses;
mod rate_losses;
mod rule_losses;
mod served_parts;
pub(crate) mod weakening;

use weir_policy::rules::EndpointPolicies;

use crate::checked_config::Config;
use crate::config_part::ConfigPart;
use served_parts::ServedParts;
use weakening::ProtectionLoss;
pub use weakening::{Protection, Weakening};

/// The comparison of a row.
enum LossComparison {
    /// Compares settings that only the main file has.
    Whole(fn(&Config, &Config) -> Vec<ProtectionLoss>),
    /// Compares upstreams and endpoints, which teams' files have, too.
    Served(fn(&ServedParts<'_>, &ServedParts<'_>) -> Vec<ProtectionLoss>),
}

/// A row of the table of protections.
struct ProtectionRow {
    protection: Protection,
    /// The keys of the config whose absence it compares: `*` stands for any name, `[]` for any
    /// item.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test holds the schema of the config against it")
    )]
    keys: &'static [&'static str],
    comparison: LossComparison,
}

/// All protections of a config.
const PROTECTIONS: &[ProtectionRow] = &[
    ProtectionRow {
        protection: Protection::Credentials,
        keys: &["auth", "auth.mode"],
        comparison: LossComparison::Whole(access_losses::credentials),
    },
    ProtectionRow {
        protection: Protection::Credentials,
        keys: &["auth.issuers[].strict_type"],
        comparison: LossComparison::Whole(access_losses::token_types),
    },
    ProtectionRow {
        protection: Protection::Credentials,
        keys: &["auth.api_keys[].expires"],
        comparison: LossComparison::Whole(access_losses::key_expiries),
    },
    ProtectionRow {
        protection: Protection::Operators,
        keys: &["admin", "admin.auth"],
        comparison: LossComparison::Whole(access_losses::operators),
    },
    ProtectionRow {
        protection: Protection::Operators,
        keys: &["admin.metrics"],
        comparison: LossComparison::Whole(access_losses::metrics),
    },
    ProtectionRow {
        protection: Protection::Operators,
        keys: &["admin.auth.tokens[].expires"],
        comparison: LossComparison::Whole(access_losses::operator_expiries),
    },
    ProtectionRow {
        protection: Protection::Tls,
        keys: &[
            "tls",
            "tls.cert",
            "tls.key",
            "tls.client_ca",
            "tls.client_auth",
        ],
        comparison: LossComparison::Whole(access_losses::tls),
    },
    ProtectionRow {
        protection: Protection::Endpoints,
        keys: &["endpoints"],
        comparison: LossComparison::Whole(rule_losses::endpoints),
    },
    ProtectionRow {
        protection: Protection::Selection,
        keys: &[
            "endpoints.*.tools",
            "endpoints.*.tools.include",
            "endpoints.*.tools.exclude",
        ],
        comparison: LossComparison::Served(rule_losses::selection),
    },
    ProtectionRow {
        protection: Protection::Policy,
        keys: &[
            "endpoints.*.tools.annotations",
            "endpoints.*.tools.annotations.*",
        ],
        comparison: LossComparison::Served(rule_losses::annotations),
    },
    ProtectionRow {
        protection: Protection::Policy,
        keys: &["policy", "policy.files", "policy.inline"],
        comparison: LossComparison::Whole(rule_losses::common_policy),
    },
    ProtectionRow {
        protection: Protection::Policy,
        keys: &[
            "endpoints.*.policy",
            "endpoints.*.policy.files",
            "endpoints.*.policy.inline",
        ],
        comparison: LossComparison::Served(rule_losses::endpoint_policies),
    },
    ProtectionRow {
        protection: Protection::Scopes,
        keys: &[
            "endpoints.*.scopes",
            "endpoints.*.scopes[]",
            "endpoints.*.tools.scopes",
            "endpoints.*.tools.scopes.*",
            "endpoints.*.tools.scopes.*[]",
            "upstreams.*.tools.*.scopes",
            "upstreams.*.tools.*.scopes[]",
        ],
        comparison: LossComparison::Served(rule_losses::scopes),
    },
    ProtectionRow {
        protection: Protection::Rates,
        keys: &["rates"],
        comparison: LossComparison::Whole(rate_losses::all_limits),
    },
    ProtectionRow {
        protection: Protection::Rates,
        keys: &[
            "rates.address",
            "rates.address.rate",
            "rates.principal",
            "rates.principal.rate",
            "rates.principal.daily",
            "rates.endpoints",
            "rates.endpoints.*",
            "rates.endpoints.*.rate",
            "rates.endpoints.*.daily",
            "rates.groups",
            "rates.groups.*",
            "rates.groups.*.rate",
            "rates.groups.*.daily",
            "rates.clients",
            "rates.clients.*",
            "rates.clients.*.rate",
            "rates.clients.*.daily",
            "rates.tools",
            "rates.tools.*",
            "rates.tools.*.rate",
            "rates.tools.*.daily",
            "rates.tools.*.shared",
            "rates.upstreams",
            "rates.upstreams.*",
            "rates.upstreams.*.rate",
            "rates.upstreams.*.daily",
        ],
        comparison: LossComparison::Whole(rate_losses::single_limits),
    },
    ProtectionRow {
        protection: Protection::Rates,
        keys: &["rates.uncounted"],
        comparison: LossComparison::Whole(rate_losses::uncounted),
    },
    ProtectionRow {
        protection: Protection::Validation,
        keys: &[
            "validation",
            "validation.input",
            "validation.output",
            "upstreams.*.validation",
            "upstreams.*.validation.input",
            "upstreams.*.validation.output",
            "upstreams.*.tools.*.validation",
            "upstreams.*.tools.*.validation.input",
            "upstreams.*.tools.*.validation.output",
        ],
        comparison: LossComparison::Served(served_parts::validation),
    },
    ProtectionRow {
        protection: Protection::Asks,
        keys: &["upstreams.*.asks"],
        comparison: LossComparison::Served(served_parts::asks),
    },
    ProtectionRow {
        protection: Protection::Secrets,
        keys: &[
            "upstreams.*.secrets",
            "upstreams.*.secrets.patterns",
            "upstreams.*.secrets.arguments",
        ],
        comparison: LossComparison::Served(served_parts::secrets),
    },
    ProtectionRow {
        protection: Protection::Audit,
        keys: &[
            "audit",
            "audit.file",
            "audit.stdout",
            "audit.otlp",
            "audit.on_failure",
            "audit.key",
        ],
        comparison: LossComparison::Whole(audit_losses::losses),
    },
];

/// Returns the protections that `old` has and `new` neither has nor gives up explicitly.
#[must_use]
pub fn weakenings(old: &Config, new: &Config) -> Vec<Weakening> {
    let (was, now) = (ServedParts::of_config(old), ServedParts::of_config(new));
    let mut all = Vec::new();
    for row in PROTECTIONS {
        let lost = match row.comparison {
            LossComparison::Whole(losses) => losses(old, new),
            LossComparison::Served(losses) => losses(&was, &now),
        };
        all.extend(unwaived(row, lost, &now));
    }
    all
}

/// Returns the protections that the new version of a team's file lost against the old one.
pub(crate) fn team_weakenings(old: &ConfigPart, new: &ConfigPart) -> Vec<Weakening> {
    let [before, after] =
        [old, new].map(|part| EndpointPolicies::new(Vec::new(), part.endpoint_rules.clone()));
    let (was, now) = (
        ServedParts::of_part(old, &before),
        ServedParts::of_part(new, &after),
    );
    let mut all = Vec::new();
    for row in PROTECTIONS {
        if let LossComparison::Served(losses) = row.comparison {
            all.extend(unwaived(row, losses(&was, &now), &now));
        }
    }
    all
}

/// Returns the losses that the new config does not give up, sorted by path.
fn unwaived(
    row: &ProtectionRow,
    mut lost: Vec<ProtectionLoss>,
    new: &ServedParts<'_>,
) -> impl Iterator<Item = Weakening> {
    lost.retain(|loss| match loss.waiver_hint {
        Some(_) => !new.waivers.gives_up(&loss.path),
        None => !new.waivers.gives_up(&loss.path) && !new.waivers.allows(&loss.path),
    });
    lost.sort_by(|a, b| a.path.cmp(&b.path));
    lost.dedup_by(|a, b| a.path == b.path);
    let protection = row.protection;
    lost.into_iter().map(move |loss| loss.weakening(protection))
}

#[cfg(test)]
mod tests;
