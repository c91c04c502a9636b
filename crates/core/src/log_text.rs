//! Texts of servers in logs and in labels of metrics.

/// A text of an upstream's for logs and labels. It is cut, and freed of control, formatting and
/// direction characters, which could forge lines or hide text from a reader (B25).
#[must_use]
pub fn sanitize_text(text: &str, most: usize) -> String {
    let unseen = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars()
        .map(|c| if unseen(c) { '\u{fffd}' } else { c })
        .take(most)
        .collect()
}

/// Reports if a character is invisible or steers the text around it: control characters (C0, DEL,
/// C1), line and paragraph separators, marks of direction, invisible characters and tags.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves B25.
    #[test]
    fn texts_for_logs_and_labels_cannot_forge_or_hide() {
        assert_eq!(
            sanitize_text("a\u{1b}[31mb\u{202e}c\nd\u{e0041}", 64),
            "a\u{fffd}[31mb\u{fffd}c\u{fffd}d\u{fffd}"
        );
        assert_eq!(sanitize_text(&"x".repeat(1_000_000), 64).len(), 64);
    }
}
