//! The errors of a start and of a reload: for people, with advice.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use weir_audit::AuditError;
use weir_config::{Protection, Weakening};
use weir_text::count;

use crate::weir::exposure::Exposure;

/// The reason why weir did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}{}: {why}", if *.operators { " for operators" } else { "" })]
    Listen {
        /// The address.
        address: SocketAddr,
        /// True for the operators' listener.
        operators: bool,
        /// The system's reason, and advice.
        why: String,
    },
    /// The files of `tls` cannot be used.
    #[error("`tls` cannot be used: {0}")]
    Tls(String),
    /// Files of `include` have errors, and the config refuses a start with such files.
    #[error("{} in `include` {} errors, and `include_errors` is refuse_start: {}", count(.0.len(), "file"), if .0.len() == 1 { "has" } else { "have" }, .0.join(", "))]
    TeamFiles(Vec<String>),
    /// A listener is bound to an address that the config may not be served at.
    #[error(transparent)]
    Exposed(#[from] Exposure),
    /// An upstream cannot be built from its settings.
    #[error(transparent)]
    Upstream(#[from] weir_upstream::UpstreamBuildError),
    /// Audit records cannot be kept.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The collector's TLS settings are invalid.
    #[error("telemetry cannot be sent: {0}")]
    Telemetry(#[from] weir_upstream::TlsError),
    /// The settings of the shared store are invalid.
    #[error("the shared store cannot be used: {0}")]
    Store(String),
    /// The listener for other replicas cannot be used.
    #[error("the cluster listener cannot be used: {0}")]
    Cluster(String),
}

/// The reason why a reload was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A listener is bound to an address that the config may not be served at.
    #[error(transparent)]
    Exposed(#[from] Exposure),
    /// The config lost protections, and does not give them up by name.
    #[error("the config gives up protections without confirming it:\n{}\na restart would apply it; `weir admin reload --allow-weaker` applies it once", lines(.0))]
    Weaker(Vec<Weakening>),
    /// An upstream cannot be built from its settings.
    #[error(transparent)]
    Upstream(#[from] weir_upstream::UpstreamBuildError),
    /// Audit records cannot be kept.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The collector's TLS settings are invalid.
    #[error("telemetry cannot be sent: {0}")]
    Telemetry(#[from] weir_upstream::TlsError),
    /// The client side refused its settings.
    #[error("{0}")]
    Front(String),
    /// The sealing keys cannot replace those in force.
    #[error("`keys` cannot be replaced: {0}")]
    Keys(String),
    /// A panic ended the reload.
    #[error("internal error: the log has the place{}", if *.has_begun { "; parts of the new config may be in force: restart weir" } else { "" })]
    Panicked {
        /// True if the first part was replaced before.
        has_begun: bool,
    },
}

impl ReloadError {
    /// Returns the reasons as metrics name them: the protections that would be lost, or the kind of
    /// error.
    pub(super) fn reasons(&self) -> Vec<&'static str> {
        match self {
            Self::Weaker(lost) => lost.iter().map(|lost| lost.protection.label()).collect(),
            Self::Exposed(_) => vec![EXPOSED],
            Self::Panicked { .. } => vec![INTERNAL],
            Self::Upstream(_)
            | Self::Audit(_)
            | Self::Telemetry(_)
            | Self::Front(_)
            | Self::Keys(_) => vec![UNUSABLE],
        }
    }

    /// Reports if a restart would accept the config, and serve it with less protection.
    pub(super) fn is_weaker(&self) -> bool {
        matches!(self, Self::Weaker(_) | Self::Exposed(_))
    }
}

/// A listener is bound to an address that the config may not be served at.
const EXPOSED: &str = "exposed";
/// The config has errors.
pub(super) const INVALID: &str = "invalid";
/// A resource that the config names is not usable.
const UNUSABLE: &str = "unusable";
/// weir failed on the config by a fault of its own.
pub(super) const INTERNAL: &str = "internal";

/// Returns every reason for a refusal of a config, as metrics name it.
pub(super) fn refusal_reasons() -> impl Iterator<Item = &'static str> {
    [INVALID, UNUSABLE, EXPOSED, INTERNAL]
        .into_iter()
        .chain(Protection::ALL.map(Protection::label))
}

fn lines(lost: &[Weakening]) -> String {
    lost.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Unwraps the error, because a transparent wrapper would hide the type of its cause.
pub(super) fn front_reason(error: &weir_front::BindError) -> String {
    match error {
        weir_front::BindError::Address(error) => reason(error),
        weir_front::BindError::Tls(error) => reason(error),
    }
}

/// Returns an error and its causes, with a hint for the usual ones.
pub(super) fn reason(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            text.push_str(hint(error.kind()));
        }
        next = cause.source();
    }
    text
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "`io::ErrorKind` is non-exhaustive, with dozens of variants"
)]
fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AddrInUse => " (another program has this port; is weir running already?)",
        ErrorKind::PermissionDenied => " (ports below 1024 need a privilege; take a higher one)",
        ErrorKind::AddrNotAvailable => " (this machine does not have that address)",
        _ => "",
    }
}
