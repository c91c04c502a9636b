//! A lost protection, as one row of the table finds it and as it is reported.

use std::fmt;

use weir_config_file::config_report::ConfigPath;

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
    Asks,
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
        Self::Asks,
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
            Self::Asks => "asks",
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
    pub path: ConfigPath,
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
pub(crate) struct ProtectionLoss {
    pub path: ConfigPath,
    pub message: String,
    /// The hint with the key that gives it up. `None` if it has no key of its own, and
    /// `allow_weaker` must list its path.
    pub(crate) waiver_hint: Option<&'static str>,
}

impl ProtectionLoss {
    pub(crate) fn new(path: ConfigPath, message: impl Into<String>, words: &'static str) -> Self {
        Self {
            path,
            message: message.into(),
            waiver_hint: Some(words),
        }
    }

    /// Creates a loss that only `allow_weaker` gives up.
    pub(crate) fn without_own_key(path: ConfigPath, message: impl Into<String>) -> Self {
        Self {
            path,
            message: message.into(),
            waiver_hint: None,
        }
    }

    /// Converts it to the reported form.
    pub(crate) fn weakening(self, protection: Protection) -> Weakening {
        let Self {
            path,
            message,
            waiver_hint: words,
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
