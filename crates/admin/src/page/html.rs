//! Texts in HTML: every text from outside goes through [`text`].

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use weir_client_configs::mcp_clients::client_sections::escape;
use weir_core::instant::rfc3339;
use weir_core::log_text::sanitize_text;

use super::super::views::Rfc3339Time;

/// The most characters of a text on a page.
const LONGEST: usize = 500;
/// The most lines of a text on a page.
const LINES: usize = 20;

/// Escapes a text from outside: no markup, no hidden or bidirectional control characters, and a
/// bounded length.
pub(crate) fn text(given: &str) -> String {
    let cut = sanitize_text(given, LONGEST);
    let mut out = escape(&cut);
    if given.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

/// Escapes a text with several lines, each on its own.
pub(super) fn lines(given: &str) -> String {
    let lines: Vec<String> = given.lines().take(LINES).map(text).collect();
    lines.join("\n")
}

/// Formats a time relative to now, with the absolute time as title.
pub(super) fn relative_time(Rfc3339Time(at): Rfc3339Time, now: SystemTime) -> String {
    let stamp = rfc3339(at);
    let words = match now.duration_since(at) {
        Ok(ago) if ago < Duration::from_secs(2) => "now".to_owned(),
        Ok(ago) => format!("{} ago", duration(ago)),
        Err(ahead) => format!("in {}", duration(ahead.duration())),
    };
    format!("<time datetime=\"{stamp}\" title=\"{stamp}\">{words}</time>")
}

/// Formats a time of today: the clock time, with the whole time as title.
pub(crate) fn clock(at: SystemTime) -> String {
    let stamp = rfc3339(at);
    let time = stamp.get(11..19).unwrap_or(&stamp);
    format!("<time datetime=\"{stamp}\" title=\"{stamp}\">{time} UTC</time>")
}

/// Formats a duration in its largest fitting unit.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Formats a table; a cell is HTML already. On a narrow screen each row is a block, and each cell
/// has its column's head before it.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<table><thead><tr>");
    for head in heads {
        // Writing to a string cannot fail.
        let _ = write!(out, "<th scope=\"col\">{}</th>", text(head));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (head, cell) in heads.iter().zip(row) {
            let _ = write!(out, "<td data-head=\"{}\">{cell}</td>", text(head));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    out
}

/// Formats names and values; a value is HTML already.
pub(super) fn facts(facts: &[(&str, String)]) -> String {
    let all: String = facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{value}</dd></div>", text(name)))
        .collect();
    format!("<dl>{all}</dl>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_outside_are_escaped() {
        let hostile = "<script>alert(1)</script>\" onload='x' &amp; \u{202e}gnp.exe\u{0}";
        let shown = text(hostile);
        assert!(
            !shown.contains(['<', '>', '"', '\'', '\u{202e}', '\u{0}']),
            "{shown}"
        );
        assert!(
            shown.starts_with("&lt;script&gt;") && shown.contains("&amp;amp;"),
            "{shown}"
        );
        assert_eq!(text(&"x".repeat(600)).chars().count(), LONGEST + 1);
        let row = table(&["a\"b"], &[vec![text("<td>")]]);
        assert!(
            row.contains("data-head=\"a&quot;b\"") && row.contains(">&lt;td&gt;</td>"),
            "{row}"
        );
    }

    #[test]
    fn multi_line_text_is_escaped_and_bounded() {
        assert_eq!(lines("a<b>\nc\u{7}"), "a&lt;b&gt;\nc\u{fffd}");
        assert_eq!(lines(&"x\n".repeat(100)).lines().count(), LINES);
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let shown =
            |seconds: u64| relative_time(Rfc3339Time(now - Duration::from_secs(seconds)), now);
        assert!(shown(0).contains(">now<") && shown(90).contains(">1 min ago<"));
        assert!(shown(7200).contains("2 h ago") && shown(300_000).contains("3 days ago"));
        assert!(relative_time(Rfc3339Time(now + Duration::from_secs(30)), now).contains("in 30 s"));
        assert!(
            clock(now).contains(">13:46:40 UTC<")
                && clock(now).contains("title=\"1970-01-12T13:46:40")
        );
    }
}
