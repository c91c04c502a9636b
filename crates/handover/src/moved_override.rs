//! An operator's change, in the form in which one process hands it over to another.

use serde::{Deserialize, Serialize};

/// A change as it is handed over. Times are milliseconds of the Unix epoch.
#[derive(Debug, Serialize, Deserialize)]
pub struct MovedOverride {
    /// The target of the change.
    pub of: MovedOverrideTarget,
    /// The name of the action.
    pub what: String,
    /// The operator.
    pub who: String,
    /// The operator's reason.
    pub reason: Option<String>,
    /// The begin of the change.
    pub since: u64,
    /// The end of the change; without one it is in force until an operator reverts it.
    pub ends: Option<u64>,
}

/// The target of a change as it is handed over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovedOverrideTarget {
    /// A disabled or drained upstream, by its id.
    Upstream(String),
    /// A blocked principal.
    Principal {
        /// The principal's issuer.
        issuer: String,
        /// The principal's subject.
        subject: String,
    },
    /// The log level or filter.
    Log(String),
}
