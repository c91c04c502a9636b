//! The upstream side against mock servers over loopback TCP and against child processes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod asking_children;
mod both_eras;
mod breaker;
mod calls;
mod cancelled_tasks;
mod child;
mod deadlines;
mod early_questions;
mod fetching;
mod fixtures;
mod http_sse;
mod hung_children;
mod instances;
mod kept_connections;
mod large_results;
mod predecessor_calls;
mod probing;
mod question_answers;
mod repeating;
mod resending;
mod resource_updates;
mod resumed_calls;
mod sessions;
mod stdio;
mod stdio_eras;
mod task_holds;
mod tls;
mod tokens;
mod unreadable_answers;
mod waiting_tasks;
mod watching;
