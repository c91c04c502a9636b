//! The capabilities of clients that a server may use.

use std::fmt;

use bytes::Bytes;
use weir_core::failure::UpstreamError;
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::upstream_messages::{self, RevisionDialect};
use weir_era::{capabilities, capability_forwarding};
use weir_wire::{error_code, scan};

use crate::upstream_label::UpstreamLabel;

/// The cause of a failure in place of a server's error that no client may get.
#[derive(Debug)]
pub struct WithheldError(String);

impl WithheldError {
    /// True for a failure that stands for such an error.
    pub fn is_cause_of(failure: &Failure) -> bool {
        let cause = std::error::Error::source(failure);
        cause.is_some_and(|cause| cause.is::<Self>())
    }
}

impl fmt::Display for WithheldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WithheldError {}

/// The capabilities of clients that a server may use, by the config.
#[derive(Clone, Debug)]
pub struct ServerPermissions {
    label: UpstreamLabel,
    /// The capabilities that the server may use of clients.
    asks: CapabilityClass,
    /// True if the server may send callers to web pages.
    allows_url_elicitation: bool,
}

impl ServerPermissions {
    /// Makes the permissions for these capabilities; web pages are a further right.
    pub fn new(
        label: UpstreamLabel,
        client_capabilities: CapabilityClass,
        allows_url_elicitation: bool,
    ) -> Self {
        let no_visits = if allows_url_elicitation {
            CapabilityClass::BASE
        } else {
            CapabilityClass::ELICITATION_URL
        };
        Self {
            label,
            asks: client_capabilities.without(no_visits),
            allows_url_elicitation,
        }
    }

    /// Returns the part of a client's class that is carried to a server of this dialect.
    pub fn carries(&self, dialect: RevisionDialect) -> CapabilityClass {
        dialect
            .forwarded_class()
            .cut(self.asks.with(capability_forwarding::EXTENSIONS))
    }

    /// Returns the capabilities that the server may use of clients, in any dialect.
    pub fn asks(&self) -> CapabilityClass {
        self.asks
    }

    /// Makes a call's failure of a server's error. An error that demands more capabilities of a
    /// client, or a visit to a page, passes only if the config lets the server ask for that.
    pub fn call_failure(&self, error: &Bytes) -> Failure {
        let failure = upstream_messages::failure(error).with_upstream(&self.label.id);
        let FailureKind::Upstream(said) = failure.kind() else {
            let malformed = std::error::Error::source(&failure).map(ToString::to_string);
            return failure.because(WithheldError(malformed.unwrap_or_default()));
        };
        let text = match said.code {
            error_code::URL_ELICITATION_REQUIRED if !self.allows_url_elicitation => {
                "The upstream wants a URL visited first, which the config does not let it ask for"
            }
            error_code::MISSING_REQUIRED_CLIENT_CAPABILITY if !self.may_ask_for_all(said) => {
                "The upstream wants to ask what the config does not let it ask"
            }
            _ => return failure,
        };
        let cause = WithheldError(format!("error {}", said.code));
        self.label.fail(FailureKind::BadAnswer, text).because(cause)
    }

    /// True if the config lets the server ask for all capabilities that it misses.
    fn may_ask_for_all(&self, error: &UpstreamError) -> bool {
        let needed = error
            .data
            .as_ref()
            .and_then(|data| Some(&data[scan::find(data, "requiredCapabilities")?]));
        let needed = needed.map(capabilities::class_of).unwrap_or_default();
        self.asks
            .with(capability_forwarding::EXTENSIONS)
            .has(needed)
    }
}
