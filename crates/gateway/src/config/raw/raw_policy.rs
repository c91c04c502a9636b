//! `policy:`, for all endpoints and for one.

use schemars::JsonSchema;
use serde::Deserialize;

/// Rules in Cedar. A call is allowed only if a rule permits it. See docs/policy.md.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawPolicy {
    /// Files with rules. They are read again when they change.
    pub(crate) files: Option<Vec<String>>,
    /// Rules in this file.
    pub(crate) inline: Option<String>,
}
