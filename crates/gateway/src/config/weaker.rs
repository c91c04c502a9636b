//! The comparison of two checked configs: it finds the protections that the old one has, and that
//! the new one neither has nor gives up explicitly. A file that was truncated, or lost a section,
//! parses like a config that never had it. The comparison detects the loss.
//!
//! It has no side effects, and both a reload and `weir check --against` use it. All protections are
//! in one table, [`PROTECTIONS`]. A test compares the table with the config's schema, so that a new
//! key is either in the table or listed as no protection.

mod access;
mod audit;
mod rates;
mod rules;
mod served;

use std::fmt;

use weir_policy::rules::EndpointPolicies;

use super::Config;
use super::check::Part;
use super::report::Path;
use served::Served;

/// A protection that a config can lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Credentials of clients.
    Credentials,
    /// Credentials of operators.
    Operators,
    /// Encrypted connections of clients, and certificates of clients.
    Tls,
    /// The list of endpoints, if these have rules, scopes or a selection of tools.
    Endpoints,
    /// The selection of tools of an endpoint.
    Selection,
    /// Rules.
    Policy,
    /// Scopes.
    Scopes,
    /// Rate limits and quotas.
    Rates,
    /// Schema validation that refuses.
    Validation,
    /// The list of requests that an upstream may send to clients.
    Questions,
    /// The search for secrets in calls.
    Secrets,
    /// The audit log.
    Audit,
}

impl Protection {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Credentials,
        Self::Operators,
        Self::Tls,
        Self::Endpoints,
        Self::Selection,
        Self::Policy,
        Self::Scopes,
        Self::Rates,
        Self::Validation,
        Self::Questions,
        Self::Secrets,
        Self::Audit,
    ];

    /// Returns the key of the config that it concerns, as used in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Credentials => "auth",
            Self::Operators => "admin",
            Self::Tls => "tls",
            Self::Endpoints => "endpoints",
            Self::Selection => "tools",
            Self::Policy => "policy",
            Self::Scopes => "scopes",
            Self::Rates => "rates",
            Self::Validation => "validation",
            Self::Questions => "asks",
            Self::Secrets => "secrets",
            Self::Audit => "audit",
        }
    }
}

/// A protection that the new config lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weakening {
    /// The kind of protection.
    pub protection: Protection,
    /// The path at which the old config had it.
    pub path: Path,
    /// A description of the loss.
    pub message: String,
    /// The change of the file that confirms the loss.
    pub hint: String,
}

impl fmt::Display for Weakening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.message, self.hint)
    }
}

/// A loss found by one row of the table.
struct Loss {
    path: Path,
    message: String,
    /// The hint with the key that gives it up. `None` if it has no key of its own, and
    /// `allow_weaker` must list its path.
    words: Option<&'static str>,
}

impl Loss {
    fn new(path: Path, message: impl Into<String>, words: &'static str) -> Self {
        Self {
            path,
            message: message.into(),
            words: Some(words),
        }
    }

    /// Creates a loss that only `allow_weaker` gives up.
    fn unnamed(path: Path, message: impl Into<String>) -> Self {
        Self {
            path,
            message: message.into(),
            words: None,
        }
    }

    /// Converts it to the reported form.
    fn weakening(self, protection: Protection) -> Weakening {
        let Self {
            path,
            message,
            words,
        } = self;
        let hint = match words {
            Some(words) => format!("if this is wanted, {words}"),
            None => format!("if this is wanted, write allow_weaker: ['{path}']"),
        };
        Weakening {
            protection,
            path,
            message,
            hint,
        }
    }
}

/// The comparison of a row.
enum Comparison {
    /// Compares settings that only the main file has.
    Whole(fn(&Config, &Config) -> Vec<Loss>),
    /// Compares upstreams and endpoints, which teams' files have, too.
    Served(fn(&Served<'_>, &Served<'_>) -> Vec<Loss>),
}

/// A row of the table of protections.
struct Row {
    protection: Protection,
    /// The keys of the config whose absence it compares: `*` stands for any name, `[]` for any
    /// item.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test holds the schema of the config against it")
    )]
    keys: &'static [&'static str],
    comparison: Comparison,
}

/// All protections of a config.
const PROTECTIONS: &[Row] = &[
    Row {
        protection: Protection::Credentials,
        keys: &["auth", "auth.mode"],
        comparison: Comparison::Whole(access::credentials),
    },
    Row {
        protection: Protection::Credentials,
        keys: &["auth.issuers[].strict_type"],
        comparison: Comparison::Whole(access::token_types),
    },
    Row {
        protection: Protection::Credentials,
        keys: &["auth.api_keys[].expires"],
        comparison: Comparison::Whole(access::key_ends),
    },
    Row {
        protection: Protection::Operators,
        keys: &["admin", "admin.auth"],
        comparison: Comparison::Whole(access::operators),
    },
    Row {
        protection: Protection::Operators,
        keys: &["admin.metrics"],
        comparison: Comparison::Whole(access::metrics),
    },
    Row {
        protection: Protection::Operators,
        keys: &["admin.auth.tokens[].expires"],
        comparison: Comparison::Whole(access::operator_ends),
    },
    Row {
        protection: Protection::Tls,
        keys: &[
            "tls",
            "tls.cert",
            "tls.key",
            "tls.client_ca",
            "tls.client_auth",
        ],
        comparison: Comparison::Whole(access::tls),
    },
    Row {
        protection: Protection::Endpoints,
        keys: &["endpoints"],
        comparison: Comparison::Whole(rules::endpoints),
    },
    Row {
        protection: Protection::Selection,
        keys: &[
            "endpoints.*.tools",
            "endpoints.*.tools.include",
            "endpoints.*.tools.exclude",
        ],
        comparison: Comparison::Served(rules::selection),
    },
    Row {
        protection: Protection::Policy,
        keys: &[
            "endpoints.*.tools.annotations",
            "endpoints.*.tools.annotations.*",
        ],
        comparison: Comparison::Served(rules::annotations),
    },
    Row {
        protection: Protection::Policy,
        keys: &["policy", "policy.files", "policy.inline"],
        comparison: Comparison::Whole(rules::common),
    },
    Row {
        protection: Protection::Policy,
        keys: &[
            "endpoints.*.policy",
            "endpoints.*.policy.files",
            "endpoints.*.policy.inline",
        ],
        comparison: Comparison::Served(rules::own),
    },
    Row {
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
        comparison: Comparison::Served(rules::scopes),
    },
    Row {
        protection: Protection::Rates,
        keys: &["rates"],
        comparison: Comparison::Whole(rates::all),
    },
    Row {
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
        comparison: Comparison::Whole(rates::single),
    },
    Row {
        protection: Protection::Rates,
        keys: &["rates.uncounted"],
        comparison: Comparison::Whole(rates::uncounted),
    },
    Row {
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
        comparison: Comparison::Served(served::validation),
    },
    Row {
        protection: Protection::Questions,
        keys: &["upstreams.*.asks"],
        comparison: Comparison::Served(served::questions),
    },
    Row {
        protection: Protection::Secrets,
        keys: &[
            "upstreams.*.secrets",
            "upstreams.*.secrets.patterns",
            "upstreams.*.secrets.arguments",
        ],
        comparison: Comparison::Served(served::secrets),
    },
    Row {
        protection: Protection::Audit,
        keys: &[
            "audit",
            "audit.file",
            "audit.stdout",
            "audit.otlp",
            "audit.on_failure",
            "audit.key",
        ],
        comparison: Comparison::Whole(audit::losses),
    },
];

/// Returns the protections that `old` has and `new` neither has nor gives up explicitly.
#[must_use]
pub fn weakenings(old: &Config, new: &Config) -> Vec<Weakening> {
    let (was, now) = (Served::by(old), Served::by(new));
    let mut all = Vec::new();
    for row in PROTECTIONS {
        let lost = match row.comparison {
            Comparison::Whole(losses) => losses(old, new),
            Comparison::Served(losses) => losses(&was, &now),
        };
        all.extend(kept_up(row, lost, &now));
    }
    all
}

/// Returns the protections that the new version of a team's file lost against the old one.
pub(super) fn team_weakenings(old: &Part, new: &Part) -> Vec<Weakening> {
    let [before, after] =
        [old, new].map(|part| EndpointPolicies::new(Vec::new(), part.rulings.clone()));
    let (was, now) = (Served::of(old, &before), Served::of(new, &after));
    let mut all = Vec::new();
    for row in PROTECTIONS {
        if let Comparison::Served(losses) = row.comparison {
            all.extend(kept_up(row, losses(&was, &now), &now));
        }
    }
    all
}

/// Returns the losses that the new config does not give up, sorted by path.
fn kept_up(row: &Row, mut lost: Vec<Loss>, new: &Served<'_>) -> impl Iterator<Item = Weakening> {
    lost.retain(|loss| match loss.words {
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
