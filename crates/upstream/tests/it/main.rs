//! The upstream side against mock servers over loopback TCP and against child processes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod bench;
mod both_eras;
mod calls;
mod child;
mod deadlines;
mod fetching;
mod kept;
mod large;
mod probing;
mod repeating;
mod resending;
mod secure;
mod sessions;
mod stdio;
mod stdio_eras;
mod tokens;
mod watching;
