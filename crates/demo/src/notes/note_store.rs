//! The stored notes: in memory, a bounded number of bounded texts, shared by all sessions.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// The most notes; the oldest is dropped when one more is added.
pub(super) const MAX_NOTES: usize = 500;
/// Longest text of a note, in bytes.
pub(super) const MAX_TEXT: usize = 4_096;
/// Most tags of a note.
pub(super) const MAX_TAGS: usize = 8;
/// Longest tag, in bytes.
pub(super) const MAX_TAG: usize = 64;

/// One note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredNote {
    pub(super) id: u64,
    pub(super) text: String,
    pub(super) tags: Vec<String>,
}

impl StoredNote {
    pub(super) fn to_json(&self) -> Value {
        json!({"id": self.id, "text": self.text, "tags": self.tags})
    }

    pub(super) fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own.eq_ignore_ascii_case(tag))
    }
}

/// All notes, oldest first. Ids count up and are never used again.
#[derive(Debug, Default)]
pub(super) struct NoteStore {
    notes: VecDeque<StoredNote>,
    added: u64,
}

impl NoteStore {
    /// Keeps a note; the error is a sentence for the model.
    pub(super) fn add(&mut self, text: &str, tags: Vec<String>) -> Result<StoredNote, String> {
        if text.trim().is_empty() {
            return Err("`text` must not be empty.".to_owned());
        }
        if text.len() > MAX_TEXT {
            return Err(format!(
                "`text` is longer than {MAX_TEXT} bytes. Split it into several notes."
            ));
        }
        if tags.len() > MAX_TAGS || tags.iter().any(|tag| tag.len() > MAX_TAG) {
            return Err(format!(
                "A note has at most {MAX_TAGS} tags of at most {MAX_TAG} bytes."
            ));
        }
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.added += 1;
        let note = StoredNote {
            id: self.added,
            text: text.to_owned(),
            tags,
        };
        self.notes.push_back(note.clone());
        Ok(note)
    }

    /// The notes, newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &StoredNote> {
        self.notes.iter().rev()
    }

    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    /// Deletes every note and returns the count.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.notes).len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn the_oldest_note_goes_when_the_store_is_full() {
        let mut store = NoteStore::default();
        for number in 0..=MAX_NOTES {
            store.add(&format!("note {number}"), Vec::new()).unwrap();
        }
        assert_eq!(store.len(), MAX_NOTES);
        assert_eq!(store.newest().last().unwrap().id, 2);
        assert_eq!(store.clear(), MAX_NOTES);
        assert_eq!(
            store.add("after", Vec::new()).unwrap().id,
            MAX_NOTES as u64 + 2
        );
    }

    #[test]
    fn a_note_is_bounded() {
        let mut store = NoteStore::default();
        assert!(store.add(" \n", Vec::new()).is_err());
        assert!(store.add(&"x".repeat(MAX_TEXT + 1), Vec::new()).is_err());
        assert!(store.add("x", vec![String::new(); MAX_TAGS + 1]).is_err());
        assert!(store.add("x", vec!["t".repeat(MAX_TAG + 1)]).is_err());
        assert_eq!(store.len(), 0);
    }
}
