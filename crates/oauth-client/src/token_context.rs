//! The handles of one upstream that its tokens need.

use weir_upstream_core::background_tasks::BackgroundTasks;
use weir_upstream_core::request_ids::RequestIds;
use weir_upstream_core::upstream_clock::UpstreamClock;
use weir_upstream_core::upstream_label::UpstreamLabel;

/// The handles of one upstream that its tokens need.
#[derive(Clone, Debug)]
pub struct TokenContext {
    /// The id of the upstream, for failures and the log.
    pub label: UpstreamLabel,
    /// The time and randomness.
    pub clock: UpstreamClock,
    /// The tasks in which token requests go on without their callers.
    pub tasks: BackgroundTasks,
    /// The ids of the messages that ask the server for a challenge.
    pub request_ids: RequestIds,
}
