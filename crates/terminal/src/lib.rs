//! Output of the commands. Texts of servers, files and other processes cannot steer a terminal.
//!
//! Every command prints through this crate. A closed pipe ends a command quietly; a full disk is
//! an error at the command's end. Neither is a panic.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;

use weir_text::plain;

/// The first error of a write to standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output.
pub fn write(text: impl Display) {
    if is_closed() {
        return;
    }
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(plain(&text.to_string()).as_bytes())
        .and_then(|()| stdout.flush());
    if let Err(error) = written {
        // A second error cannot occur, because writing stops after the first.
        let _first = LOST.set(error);
    }
}

/// True after a write to standard output has failed. A command that watches ends then.
pub fn is_closed() -> bool {
    LOST.get().is_some()
}

/// Returns the failed write to standard output, unless its reader closed the pipe.
pub fn lost_output() -> Option<&'static io::Error> {
    LOST.get()
        .filter(|error| error.kind() != ErrorKind::BrokenPipe)
}

/// Returns the width of the terminal on standard output, in columns; `None` if standard output is
/// another file.
pub fn width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    terminal_size::terminal_size_of(stdout).map(|(width, _)| usize::from(width.0))
}

/// True if a person can be asked: standard input and standard error are a terminal.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Writes a line to standard output.
pub fn line(text: impl Display) {
    write(format_args!("{text}\n"));
}

/// Writes a line to standard error, as the log does.
pub fn note(text: impl Display) {
    weir_telemetry::print_error(plain(&text.to_string()));
}

/// Writes a prompt to standard error, without the end of the line.
pub fn prompt(text: &str) {
    weir_telemetry::print_prompt(plain(text));
}
