//! The table of characters that are removed.

use std::ops::{AddAssign, RangeInclusive};

/// Kinds of removed characters. The order is that of [`REMOVALS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalKind {
    /// Escape sequences of terminals.
    Escape,
    /// Control characters outside of escape sequences.
    Control,
    /// Tag characters.
    Tag,
    /// The supplementary variation selectors.
    Variation,
    /// Bidirectional controls.
    Bidi,
    /// Private-use characters.
    Private,
}

/// One row of the table: a kind, its characters, and the condition of their removal.
#[derive(Clone, Copy, Debug)]
pub struct RemovalRule {
    /// The kind.
    pub kind: RemovalKind,
    /// The name in metrics and in the audit.
    pub name: &'static str,
    /// The code points that may be removed as this kind.
    pub characters: &'static [RangeInclusive<u32>],
    /// The condition, for the documentation.
    pub removed: &'static str,
    /// The exceptions, for the documentation.
    pub kept: &'static str,
}

/// All kinds. `docs/outputs.md` has the same rows.
pub const REMOVALS: [RemovalRule; 6] = [
    RemovalRule {
        kind: RemovalKind::Escape,
        name: "escapes",
        characters: &[
            0x1b..=0x1b,
            0x90..=0x90,
            0x98..=0x98,
            0x9b..=0x9b,
            0x9d..=0x9f,
        ],
        removed: "whole escape sequences of terminals: CSI, OSC, DCS, SOS, PM and APC, with ESC or their C1 control, and ESC with one or more characters",
        kept: "what follows an unfinished sequence",
    },
    RemovalRule {
        kind: RemovalKind::Control,
        name: "controls",
        characters: &[0x00..=0x08, 0x0b..=0x0c, 0x0e..=0x1f, 0x7f..=0x9f],
        removed: "C0 controls, DEL and C1 controls",
        kept: "TAB, LF and CR",
    },
    RemovalRule {
        kind: RemovalKind::Tag,
        name: "tags",
        characters: &[0xe_0000..=0xe_007f],
        removed: "tag characters",
        kept: "those of the flags of England, Scotland and Wales",
    },
    RemovalRule {
        kind: RemovalKind::Variation,
        name: "variation",
        characters: &[0xe_0100..=0xe_01ef],
        removed: "supplementary variation selectors",
        kept: "none",
    },
    RemovalRule {
        kind: RemovalKind::Bidi,
        name: "bidi",
        characters: &[0x202a..=0x202e, 0x2066..=0x2069],
        removed: "LRO and RLO with the PDF that ends them; LRE, RLE, LRI, RLI, FSI, PDF and PDI without partner in the same string",
        kept: "embeddings and isolates that are closed within 4,096 characters",
    },
    RemovalRule {
        kind: RemovalKind::Private,
        name: "private",
        characters: &[0xe000..=0xf8ff, 0xf_0000..=0x10_ffff],
        removed: "private-use characters, four or more in a row",
        kept: "up to three in a row",
    },
];

/// The shortest run of private-use characters that is removed.
pub(crate) const PRIVATE_RUN: u64 = 4;

/// The number of removals of each kind. A sequence of [`RemovalKind::Escape`] counts as one, at any
/// length; all others count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalCounts {
    /// Escape sequences.
    pub escapes: u64,
    /// Control characters.
    pub controls: u64,
    /// Tag characters.
    pub tags: u64,
    /// Variation selectors.
    pub variation: u64,
    /// Bidirectional controls.
    pub bidi: u64,
    /// Private-use characters.
    pub private: u64,
}

impl RemovalCounts {
    /// The sum over all kinds.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.escapes + self.controls + self.tags + self.variation + self.bidi + self.private
    }

    /// The number for one kind.
    #[must_use]
    pub const fn of(&self, kind: RemovalKind) -> u64 {
        match kind {
            RemovalKind::Escape => self.escapes,
            RemovalKind::Control => self.controls,
            RemovalKind::Tag => self.tags,
            RemovalKind::Variation => self.variation,
            RemovalKind::Bidi => self.bidi,
            RemovalKind::Private => self.private,
        }
    }
}

impl AddAssign for RemovalCounts {
    fn add_assign(&mut self, other: Self) {
        self.escapes += other.escapes;
        self.controls += other.controls;
        self.tags += other.tags;
        self.variation += other.variation;
        self.bidi += other.bidi;
        self.private += other.private;
    }
}

/// The part a character plays in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CharacterClass {
    /// Without a rule.
    Plain,
    Control,
    /// U+1F3F4, the beginning of a flag that is spelled in tags.
    Flag,
    Tag,
    Variation,
    /// LRE and RLE.
    Embedding,
    /// LRO and RLO.
    Override,
    /// PDF, which ends an embedding or an override.
    EndOfEmbedding,
    /// LRI, RLI and FSI.
    Isolate,
    /// PDI.
    EndOfIsolate,
    Private,
}

/// The class of a code point. Half a surrogate pair and numbers beyond the code points are plain.
pub(crate) const fn classify(code: u32) -> CharacterClass {
    match code {
        0x09 | 0x0a | 0x0d => CharacterClass::Plain,
        0x00..=0x1f | 0x7f..=0x9f => CharacterClass::Control,
        0x202a | 0x202b => CharacterClass::Embedding,
        0x202c => CharacterClass::EndOfEmbedding,
        0x202d | 0x202e => CharacterClass::Override,
        0x2066..=0x2068 => CharacterClass::Isolate,
        0x2069 => CharacterClass::EndOfIsolate,
        0xe000..=0xf8ff | 0xf_0000..=0x10_ffff => CharacterClass::Private,
        0x1_f3f4 => CharacterClass::Flag,
        0xe_0000..=0xe_007f => CharacterClass::Tag,
        0xe_0100..=0xe_01ef => CharacterClass::Variation,
        _ => CharacterClass::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_table() {
        for code in 0..=0x11_0000 {
            let in_table = REMOVALS
                .iter()
                .any(|row| row.characters.iter().any(|range| range.contains(&code)));
            let plain = matches!(classify(code), CharacterClass::Plain | CharacterClass::Flag);
            assert_eq!(in_table, !plain, "U+{code:04X}");
        }
    }

    #[test]
    fn removal_total_is_the_sum_of_its_kinds() {
        let mut counts = RemovalCounts {
            escapes: 1,
            controls: 2,
            tags: 4,
            variation: 8,
            bidi: 16,
            private: 32,
        };
        assert_eq!(counts.total(), 63);
        assert_eq!(
            REMOVALS.map(|row| counts.of(row.kind)),
            [1, 2, 4, 8, 16, 32]
        );
        counts += counts;
        assert_eq!(
            REMOVALS.map(|row| counts.of(row.kind)),
            [2, 4, 8, 16, 32, 64]
        );
    }
}
