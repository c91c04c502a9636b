//! Text for people: freed of characters that steer a terminal, counts, similar names, local time.

pub mod local_time;
pub mod suggestion;

use serde_json::Value;

/// Removes the characters that steer a terminal: control characters but newline and tab, and
/// bidirectional marks.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| !controls_terminal(*c) || matches!(c, '\n' | '\t'))
        .collect()
}

/// Returns the plain text in one line, so that a name with line breaks cannot look like several
/// names.
#[must_use]
pub fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// Returns a URL for messages, in one line, without its user info, query and fragment: each may be
/// a credential. A text that is not quite a URL loses the same parts.
#[must_use]
pub fn url_without_credentials(url: &str) -> String {
    let url = one_line(url);
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + "://".len()),
        None => ("", url.as_str()),
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let has_port = port.bytes().all(|byte| byte.is_ascii_digit()) || authority.ends_with(']');
    // A password with a slash ends the authority before the host.
    let user_info = if authority.contains('@') || has_port {
        authority.rfind('@')
    } else {
        rest.rfind('@')
    };
    let rest = &rest[user_info.map_or(0, |at| at + 1)..];
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    format!("{scheme}{}", &rest[..end])
}

/// Writes JSON in one line. Characters that steer a terminal are escaped, so that a parser reads
/// the same value.
#[must_use]
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if controls_terminal(c) {
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
fn controls_terminal(c: char) -> bool {
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

    #[test]
    fn shown_urls_have_no_credentials() {
        for (url, shown) in [
            ("http://h:1/mcp", "http://h:1/mcp"),
            ("http://u:pw@h:1/mcp?token=q#f", "http://h:1/mcp"),
            ("http://u@[::1]:1/mcp", "http://[::1]:1/mcp"),
            ("http://[::1]/@scope/a", "http://[::1]/@scope/a"),
            ("http://h/@scope/a?token=q@h", "http://h/@scope/a"),
            ("http://u:p/w@h/mcp", "http://h/mcp"),
            ("http://u:p?w@h/mcp", "http://h/mcp"),
            ("http://u:p@w@h/mcp", "http://h/mcp"),
            ("u:pw@h/mcp?token=q", "h/mcp"),
            ("no url\u{1b}[31m", "no url[31m"),
            ("", ""),
        ] {
            assert_eq!(super::url_without_credentials(url), shown, "{url}");
        }
    }

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
        assert!(text.chars().all(|c| !controls_terminal(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
    }
}
