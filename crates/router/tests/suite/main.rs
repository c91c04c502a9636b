//! The catalog and the router from outside, over scripted upstreams and on a paused clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test panics on every other variant"
)]

mod access;
mod announced_lists;
mod awaited_tasks;
mod bare_uris;
mod both_eras;
mod calls;
mod changes;
mod classes;
mod cursors;
mod filtered_views;
mod freshness;
mod hidden_upstreams;
mod list_faults;
mod names;
mod outages;
mod outputs;
mod reloads;
mod reserved_names;
mod results;
mod running_replies;

mod sessions;
mod support;
mod task_answers;
mod toolsets;
mod updates;
mod walks;
