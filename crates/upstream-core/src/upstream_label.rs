//! The id of an upstream in failures, metrics, budgets and log messages.

use std::borrow::Cow;

use opentelemetry::KeyValue;
use weir_core::budget::BudgetOwner;
use weir_core::names::UpstreamId;
use weir_core::telemetry::instruments;
use weir_core::{Failure, FailureKind};

/// The id of an upstream, which labels its failures and metrics.
#[derive(Clone, Debug)]
pub struct UpstreamLabel {
    /// The configured id.
    pub id: UpstreamId,
}

impl UpstreamLabel {
    /// Makes a failure of this upstream.
    pub fn fail(&self, kind: FailureKind, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(kind, text).with_upstream(&self.id)
    }

    /// Returns the attribute of its metrics.
    pub fn attribute(&self) -> KeyValue {
        KeyValue::new("upstream", self.id.to_string())
    }

    /// Returns the owner of this server's messages within the budgets of the process.
    pub fn owner(&self) -> BudgetOwner {
        BudgetOwner::of_upstream(&self.id)
    }

    /// Counts a message that was dropped as invalid.
    pub fn count_dropped(&self, why: &'static str) {
        tracing::debug!(upstream = %self.id, why, "upstream message dropped");
        instruments()
            .upstream_protocol_errors
            .add(1, &[self.attribute(), KeyValue::new("reason", why)]);
    }

    /// Counts a session or a child that is ended because the server does not read its messages.
    pub fn count_unread_session(&self) {
        tracing::warn!(upstream = %self.id, "session ended: upstream does not read its messages");
        let labels = [self.attribute(), KeyValue::new("reason", "posts_waiting")];
        instruments().upstream_sessions_ended.add(1, &labels);
    }

    /// Counts open sessions and children.
    pub fn add_open_sessions(&self, change: i64) {
        instruments()
            .upstream_sessions
            .add(change, &[self.attribute()]);
    }
}
