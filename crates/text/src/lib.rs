//! Text for people: freed of characters that steer a terminal, counts, similar names, local time.

pub mod local_time;
pub mod suggestion;

use serde_json::Value;

/// Removes the characters that steer a terminal: control characters but newline and tab, and
/// bidirectional marks.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| !steers(*c) || matches!(c, '\n' | '\t'))
        .collect()
}

/// Returns the plain text in one line, so that a name with line breaks cannot look like several
/// names.
#[must_use]
pub fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// Writes JSON in one line. Characters that steer a terminal are escaped, so that a parser reads
/// the same value.
#[must_use]
pub fn json(value: &Value) -> String {
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

/// Formats a count: `1 tool`, `2 tools`.
#[must_use]
pub fn count(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("{what}s beyond counting"),
    }
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
