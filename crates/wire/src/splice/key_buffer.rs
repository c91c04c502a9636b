//! The key of the member that a lexer reads.

use crate::scan::json_members::MemberKey;

/// The longest key that is read. Longer ones are none of those that are looked for.
const MAX_KEY_BYTES: usize = 128;

/// The last key, as it was written.
#[derive(Debug, Default)]
pub(super) struct KeyBuffer {
    /// With the closing quote.
    bytes: Vec<u8>,
    is_open: bool,
}

impl KeyBuffer {
    /// A key begins.
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.is_open = true;
    }

    /// The key ends.
    pub(super) fn end(&mut self) {
        self.is_open = false;
    }

    /// Takes the bytes between two events of the lexer.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.is_open {
            let room = MAX_KEY_BYTES.saturating_sub(self.bytes.len());
            self.bytes.extend(bytes.iter().take(room));
        }
    }

    /// Forgets the key.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// True if the last key is this name, however it was escaped.
    pub(super) fn is(&self, name: &str) -> bool {
        self.bytes
            .split_last()
            .is_some_and(|(_, key)| MemberKey::new(key).eq_str(name))
    }
}
