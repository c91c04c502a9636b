//! The exit codes of all commands except `weir serve`.

use std::process::ExitCode;

use crate::terminal;

/// The exit code of a negative answer: a tool reported an error, a search had no match, a call
/// would be refused, weir is not ready.
pub(super) const EXIT_NO: u8 = 1;
/// The exit code of a mistake on the command line.
pub(super) const EXIT_USAGE: u8 = 2;
/// The exit code of a server that does not answer, answers without MCP, or refuses.
pub(super) const EXIT_UNREACHABLE: u8 = 3;
/// The exit code of an incomplete list: upstreams are down or still starting.
pub(super) const EXIT_INCOMPLETE: u8 = 4;
/// The exit code of output that cannot be written: a full disk, or a file that cannot be created.
pub(super) const EXIT_UNWRITTEN: u8 = 5;
/// The exit code of a command that a person interrupted.
pub(super) const EXIT_INTERRUPTED: u8 = 130;

/// Prints the error, and returns the exit code.
pub(super) fn exit_with_error(code: u8, why: impl std::fmt::Display) -> ExitCode {
    terminal::note(format_args!("weir: {why}"));
    ExitCode::from(code)
}
