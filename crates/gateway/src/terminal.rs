//! Output of the commands: what servers, files and other processes wrote cannot steer a terminal.
//!
//! Everything that a command prints goes through here. A reader that left early, or a full disk behind it, is no panic.

use std::fmt::Display;
use std::io::Write as _;

use serde_json::Value;

/// A text without what steers a terminal: control characters but newline and tab, and marks that reorder what is shown.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !steers(*c) || matches!(c, '\n' | '\t')).collect()
}

/// The same in one line: a name that has several cannot look like more than one.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// JSON in one line, with what steers a terminal escaped: it is the same value to whoever parses it.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if steers(c) {
            // None of them is beyond the basic plane, so there is no pair of surrogates.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// C0, DEL and C1 begin escape sequences; bidirectional marks show a text in another order than it has.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes to standard output.
pub(super) fn write(text: impl Display) {
    let _ = std::io::stdout().write_all(plain(&text.to_string()).as_bytes());
}

/// Writes a line to standard output.
pub(super) fn line(text: impl Display) {
    write(format_args!("{text}\n"));
}

/// Writes a line to standard error, as the log does.
pub(super) fn note(text: impl Display) {
    crate::telemetry::print_error(plain(&text.to_string()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_a_server_wrote_steers_the_terminal() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{7}\rd\u{202e}e\u{7f}\n\tf";
        assert_eq!(plain(hostile), "a[2Jb31mcde\n\tf");
        assert_eq!(one_line(hostile), "a[2Jb31mcde  f");
        let value = json!({ hostile: [hostile] });
        let text = super::json(&value);
        assert!(text.chars().all(|c| !steers(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
    }
}
