//! Texts, times and tables of a page. Every text from outside goes through [`text`].

use std::time::{Duration, SystemTime};

use maud::{Markup, html};
use weir_core::instant::rfc3339;
use weir_core::log_text::sanitize_text;

use crate::views::Rfc3339Time;

/// The most characters of a text on a page.
const MAX_CHARACTERS: usize = 500;
/// The most lines of a text on a page.
const LINES: usize = 20;

/// Returns a text from outside with a bounded length, and without hidden or bidirectional control
/// characters. The template escapes it.
pub(crate) fn text(given: &str) -> String {
    let mut cut = sanitize_text(given, MAX_CHARACTERS);
    if given.chars().nth(MAX_CHARACTERS).is_some() {
        cut.push('…');
    }
    cut
}

/// Returns a text with several lines, each as [`text`] returns it.
pub(super) fn lines(given: &str) -> String {
    let lines: Vec<String> = given.lines().take(LINES).map(text).collect();
    lines.join("\n")
}

/// Formats a time relative to now, with the absolute time as title.
pub(super) fn relative_time(Rfc3339Time(at): Rfc3339Time, now: SystemTime) -> Markup {
    let words = match now.duration_since(at) {
        Ok(ago) if ago < Duration::from_secs(2) => "now".to_owned(),
        Ok(ago) => format!("{} ago", duration(ago)),
        Err(ahead) => format!("in {}", duration(ahead.duration())),
    };
    time(&rfc3339(at), &words)
}

/// Formats a time of today: the clock time, with the whole time as title.
pub(crate) fn clock(at: SystemTime) -> Markup {
    let stamp = rfc3339(at);
    let words = format!("{} UTC", stamp.get(11..19).unwrap_or(&stamp));
    time(&stamp, &words)
}

fn time(stamp: &str, words: &str) -> Markup {
    html! { time datetime=(stamp) title=(stamp) { (words) } }
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

/// Formats a table. On a narrow screen each row is a block, and each cell has its column's head
/// before it.
pub(super) fn table(heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    @for head in heads {
                        th scope="col" { (head) }
                    }
                }
            }
            tbody {
                @for row in rows {
                    tr {
                        @for (head, cell) in heads.iter().zip(row) {
                            td data-head=(head) { (cell) }
                        }
                    }
                }
            }
        }
    }
}

/// Formats names and values.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maud::Render as _;

    use super::*;

    #[test]
    fn texts_from_outside_are_escaped() {
        let hostile = "<script>alert(1)</script>\" onload=x &amp; \u{202e}gnp.exe\u{0}";
        let shown = text(hostile).render().into_string();
        assert!(
            !shown.contains(['<', '>', '"', '\u{202e}', '\u{0}']),
            "{shown}"
        );
        assert!(
            shown.starts_with("&lt;script&gt;") && shown.contains("&amp;amp;"),
            "{shown}"
        );
        assert_eq!(text(&"x".repeat(600)).chars().count(), MAX_CHARACTERS + 1);
        let row = table(&["a\"b"], &[vec![text("<td>").render()]]).into_string();
        assert!(
            row.contains("data-head=\"a&quot;b\"") && row.contains(">&lt;td&gt;</td>"),
            "{row}"
        );
    }

    #[test]
    fn multi_line_text_is_bounded() {
        assert_eq!(lines("a<b>\nc\u{7}"), "a<b>\nc\u{fffd}");
        assert_eq!(lines(&"x\n".repeat(100)).lines().count(), LINES);
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let relative = |at| relative_time(Rfc3339Time(at), now).into_string();
        let shown = |seconds: u64| relative(now - Duration::from_secs(seconds));
        assert!(shown(0).contains(">now<") && shown(90).contains(">1 min ago<"));
        assert!(shown(7200).contains("2 h ago") && shown(300_000).contains("3 days ago"));
        assert!(relative(now + Duration::from_secs(30)).contains("in 30 s"));
        let clock = clock(now).into_string();
        assert!(
            clock.contains(">13:46:40 UTC<") && clock.contains("title=\"1970-01-12T13:46:40"),
            "{clock}"
        );
    }
}
