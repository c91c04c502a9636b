//! Flags that are spelled in tag characters: the black flag, a region's letters and the cancel tag.

use crate::removals::RemovalCounts;

/// The regions of the sequences that are recommended for general interchange (RGI): England,
/// Scotland and Wales.
const REGIONS: [&[u8]; 3] = [b"gbeng", b"gbsct", b"gbwls"];
const REGION_LEN: usize = 5;
/// The last character of such a flag, U+E007F.
const CANCEL: u32 = 0xe_007f;
const FIRST_TAG: u32 = 0xe_0000;

/// Tags of a flag: its letters and the cancel tag.
pub(crate) const FLAG_TAGS: usize = REGION_LEN + 1;

/// The outcome of taking a tag.
pub(crate) enum TagOutcome {
    /// It is removed, or held.
    Taken,
    /// It is the last of a flag: the held tags are emitted.
    CompletesFlag,
}

/// The state between characters.
#[derive(Debug, Default)]
pub(crate) struct FlagTags {
    /// Directly behind a black flag, and perhaps the first tags of a region.
    is_open: bool,
    letters: [u8; REGION_LEN],
    len: usize,
    /// The tags as they are spelled.
    held: Vec<u8>,
}

impl FlagTags {
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes a tag as it is spelled.
    pub(crate) fn tag(
        &mut self,
        code: u32,
        bytes: &[u8],
        counts: &mut RemovalCounts,
    ) -> TagOutcome {
        if self.is_open {
            if self.len == REGION_LEN && code == CANCEL {
                self.held.extend_from_slice(bytes);
                self.is_open = false;
                return TagOutcome::CompletesFlag;
            }
            if let (Some(place), Ok(letter)) = (
                self.letters.get_mut(self.len),
                u8::try_from(code - FIRST_TAG),
            ) {
                *place = letter;
                self.len += 1;
                if REGIONS
                    .iter()
                    .any(|region| region.starts_with(&self.letters[..self.len]))
                {
                    self.held.extend_from_slice(bytes);
                    return TagOutcome::Taken;
                }
                // This one was not held.
                self.len -= 1;
            }
            self.end(counts);
        }
        counts.tags += 1;
        TagOutcome::Taken
    }

    /// The spelled tags of a complete flag.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.len = 0;
        std::mem::take(&mut self.held)
    }

    /// Another character follows, perhaps a black flag: the held tags do not belong to a flag.
    pub(crate) fn other(&mut self, is_black_flag: bool, counts: &mut RemovalCounts) {
        if self.is_open {
            self.end(counts);
        }
        self.is_open = is_black_flag;
    }

    /// The string ends, or the held tags do not belong to a flag.
    pub(crate) fn end(&mut self, counts: &mut RemovalCounts) {
        counts.tags += self.len as u64;
        self.len = 0;
        self.held.clear();
        self.is_open = false;
    }
}
