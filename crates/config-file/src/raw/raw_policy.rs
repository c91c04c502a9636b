//! `policy:`, for all endpoints and for one.

use schemars::JsonSchema;
use serde::Deserialize;

/// Rules in Cedar. A call is allowed only if a rule permits it. See docs/policy.md.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawPolicy {
    /// Files with rules. They are read again when they change.
    pub files: Option<Vec<String>>,
    /// Rules in this file.
    pub inline: Option<String>,
}
