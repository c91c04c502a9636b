//! Output of the commands. Texts of servers, files and other processes cannot steer a terminal.
//!
//! Every command prints through this module. A closed pipe ends a command quietly; a full disk is
//! an error at the command's end. Neither is a panic.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;

use serde_json::Value;

/// Removes the characters that steer a terminal: control characters but newline and tab, and
/// bidirectional marks.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| !steers(*c) || matches!(c, '\n' | '\t'))
        .collect()
}

/// Returns the plain text in one line, so that a name with line breaks cannot look like several
/// names.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// Writes JSON in one line. Characters that steer a terminal are escaped, so that a parser reads
/// the same value.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if steers(c) {
            // All of them are in the basic plane, so no surrogate pair is needed.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Reports if a character steers a terminal: C0, DEL and C1 begin escape sequences; bidirectional
/// marks reorder the shown text.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first error of a write to standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output.
pub(super) fn write(text: impl Display) {
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
pub(super) fn is_closed() -> bool {
    LOST.get().is_some()
}

/// Returns the failed write to standard output, unless its reader closed the pipe.
pub(super) fn lost_output() -> Option<&'static io::Error> {
    LOST.get()
        .filter(|error| error.kind() != ErrorKind::BrokenPipe)
}

/// Returns the width of the terminal on standard output, in columns; `None` if standard output is
/// another file.
pub(super) fn width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    terminal_size::terminal_size_of(stdout).map(|(width, _)| usize::from(width.0))
}

/// True if a person can be asked: standard input and standard error are a terminal.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Formats a count: `1 tool`, `2 tools`.
pub(crate) fn count(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("{what}s beyond counting"),
    }
}

/// Writes a line to standard output.
pub(super) fn line(text: impl Display) {
    write(format_args!("{text}\n"));
}

/// Writes a line to standard error, as the log does.
pub(super) fn note(text: impl Display) {
    crate::telemetry::print_error(plain(&text.to_string()));
}

/// Writes a prompt to standard error, without the end of the line.
pub(super) fn prompt(text: &str) {
    crate::telemetry::print_prompt(plain(text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn count_of_one_is_singular() {
        assert_eq!(count(1_usize, "tool"), "1 tool");
        assert_eq!(
            (count(0_u64, "tool"), count(2_usize, "call")),
            ("0 tools".to_owned(), "2 calls".to_owned())
        );
    }

    #[test]
    fn control_characters_of_servers_are_removed() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{7}\rd\u{202e}e\u{7f}\n\tf";
        assert_eq!(plain(hostile), "a[2Jb31mcde\n\tf");
        assert_eq!(one_line(hostile), "a[2Jb31mcde  f");
        let value = json!({ hostile: [hostile] });
        let text = super::json(&value);
        assert!(text.chars().all(|c| !steers(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
    }
}
