//! The search for a word in many texts.

use std::sync::OnceLock;

use memchr::memmem::Finder;

/// A word that many texts are searched for, anywhere in them: a cheap check before a costly one, for
/// a word that has no other spelling in JSON, or if missing another spelling is acceptable. The
/// search is prepared once, because that costs more than the search of a short text.
#[derive(Debug)]
pub struct WordSearch {
    word: &'static str,
    finder: OnceLock<Finder<'static>>,
}

impl WordSearch {
    /// The search for these very bytes.
    #[must_use]
    pub const fn new(word: &'static str) -> Self {
        Self {
            word,
            finder: OnceLock::new(),
        }
    }

    /// Reports if the word occurs in `text`.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        let finder = self.finder.get_or_init(|| Finder::new(self.word));
        finder.find(text).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_is_found_anywhere_in_a_text() {
        let search = WordSearch::new("\"uri\"");
        for text in [r#"{"uri":1}"#, r#"[{"a":["uri"]}]"#, "\"uri\""] {
            assert!(search.is_in(text.as_bytes()), "{text}");
        }
        let long = format!("{}\"uri\"", "x".repeat(5000));
        assert!(search.is_in(long.as_bytes()));
        for text in ["", r#"{"url":1}"#, r#"{"uris":1}"#, "\"uri"] {
            assert!(!search.is_in(text.as_bytes()), "{text}");
        }
    }
}
