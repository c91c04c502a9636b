//! `policy:`, for all endpoints and for one.

use schemars::JsonSchema;
use serde::Deserialize;

/// Rules in Cedar: nothing is allowed that no rule permits. See docs/policy.md.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawPolicy {
    /// Files with rules; they are read again when they change.
    pub(crate) files: Option<Vec<String>>,
    /// Rules right here.
    pub(crate) inline: Option<String>,
}
