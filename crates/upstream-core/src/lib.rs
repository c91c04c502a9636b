//! The parts of the server side that every transport uses: the handles of one upstream, messages on
//! shared channels, lists, questions of servers, backoff, and what is known of a failed attempt.
//!
//! It opens no connection and starts no process.

pub mod background_tasks;
pub mod exported;
pub mod failed_attempt;
pub mod keyed_slots;
pub mod lease_fence;
pub mod list_changes;
pub mod list_items;
pub mod list_page;
pub mod list_subscription;
pub mod message_budget;
pub mod message_limits;
pub mod out_of_call_requests;
pub mod outbox;
pub mod own_requests;
pub mod pending_updates;
pub mod predecessor_calls;
pub mod repeat_budget;
pub mod request_ids;
pub mod request_inbox;
pub mod response_limits;
pub mod result_expectation;
pub mod retry_backoff;
pub mod secret;
pub mod secret_mask;
pub mod server_permissions;
pub mod server_questions;
pub mod session_log_level;
pub mod settings;
pub mod subscription_outcome;
pub mod task_holds;
pub mod task_progress;
pub mod upstream_clock;
pub mod upstream_context;
pub mod upstream_label;
pub mod upstream_record;
