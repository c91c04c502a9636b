//! The exit codes of all commands except `weir serve`.

use std::process::ExitCode;

/// The exit code of a negative answer: a tool reported an error, a search had no match, a call
/// would be refused, weir is not ready.
pub const EXIT_NO: u8 = 1;
/// The exit code of a mistake on the command line.
pub const EXIT_USAGE: u8 = 2;
/// The exit code of a config with errors.
pub const EXIT_BAD_CONFIG: u8 = 2;
/// The exit code of a server that does not answer, answers without MCP, or refuses.
pub(super) const EXIT_UNREACHABLE: u8 = 3;
/// The exit code of an incomplete list: upstreams are down or still starting.
pub(super) const EXIT_INCOMPLETE: u8 = 4;
/// The exit code of output that cannot be written: a full disk, or a file that cannot be created.
pub const EXIT_UNWRITTEN: u8 = 5;
/// The exit code of a command that a person interrupted.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Prints the error, and returns the exit code.
pub fn exit_with_error(code: u8, why: impl std::fmt::Display) -> ExitCode {
    weir_terminal::note(format_args!("weir: {why}"));
    ExitCode::from(code)
}
