//! Escape sequences of terminals, a character at a time.
//!
//! The states are those of the usual parser of terminals (ECMA-48, as xterm reads it). A sequence
//! never reaches beyond its string, nor beyond [`MAX_SEQUENCE`] characters; the characters
//! behind it are text again.

use crate::removals::RemovalCounts;

/// The most characters that an escape sequence removes, its introducer included. So an unfinished
/// sequence hides no more.
pub const MAX_SEQUENCE: u32 = 4096;

const BEL: u32 = 0x07;
const CAN: u32 = 0x18;
const SUB: u32 = 0x1a;
const ESC: u32 = 0x1b;
const ST: u32 = 0x9c;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeParserState {
    #[default]
    Outside,
    /// Behind ESC. One that interrupted a control string is perhaps the first half of its
    /// terminator.
    Escape { perhaps_terminator: bool },
    /// Behind ESC and an intermediate character.
    Intermediate,
    /// Control sequence: parameters and intermediate characters, until a final one.
    Sequence,
    /// Control string, until its terminator.
    Text { is_osc: bool },
}

/// The state between characters.
#[derive(Debug, Default)]
pub(crate) struct EscapeSequence {
    state: EscapeParserState,
    /// Characters that the sequence may still take along.
    left: u32,
}

impl EscapeSequence {
    pub(crate) fn is_open(&self) -> bool {
        self.state != EscapeParserState::Outside
    }

    /// Ends the sequence with its string.
    pub(crate) const fn end(&mut self) {
        self.state = EscapeParserState::Outside;
    }

    /// Returns true if the character is part of a sequence and is removed. Sequences are counted at
    /// their beginning.
    pub(crate) fn takes(&mut self, code: u32, counts: &mut RemovalCounts) -> bool {
        if self.is_open() {
            if self.left == 0 {
                self.state = EscapeParserState::Outside;
            } else {
                self.left -= 1;
                if let Some(state) = self.next(code, counts) {
                    self.state = state;
                    return true;
                }
                self.state = EscapeParserState::Outside;
            }
        }
        let Some(state) = introduced(code) else {
            return false;
        };
        counts.escapes += 1;
        (self.state, self.left) = (state, MAX_SEQUENCE - 1);
        true
    }

    /// The state behind a character of the sequence; `None` for a character that is not part of it.
    fn next(&mut self, code: u32, counts: &mut RemovalCounts) -> Option<EscapeParserState> {
        match (self.state, code) {
            (EscapeParserState::Text { is_osc: true }, BEL)
            | (EscapeParserState::Text { .. }, ST)
            | (_, CAN | SUB) => Some(EscapeParserState::Outside),
            (EscapeParserState::Text { .. }, ESC) => {
                // Perhaps the beginning of another.
                self.left = MAX_SEQUENCE - 1;
                Some(EscapeParserState::Escape {
                    perhaps_terminator: true,
                })
            }
            (EscapeParserState::Text { .. }, _) if introduced(code).is_some() => None,
            (EscapeParserState::Text { .. }, _) => Some(self.state),
            // In the midst of other sequences terminals carry controls out and read on. TAB, LF and
            // CR are text.
            (_, ESC | 0x09 | 0x0a | 0x0d) => None,
            (_, 0x00..=0x1f | 0x7f) => Some(self.state),
            (
                EscapeParserState::Escape {
                    perhaps_terminator: true,
                },
                0x5c,
            ) => Some(EscapeParserState::Outside),
            (EscapeParserState::Escape { perhaps_terminator }, 0x20..=0x7e) => {
                counts.escapes += u64::from(perhaps_terminator);
                Some(match code {
                    0x20..=0x2f => EscapeParserState::Intermediate,
                    // '[', and the letters of DCS, SOS, OSC, PM and APC.
                    0x5b => EscapeParserState::Sequence,
                    0x50 | 0x58 | 0x5d..=0x5f => EscapeParserState::Text {
                        is_osc: code == 0x5d,
                    },
                    _ => EscapeParserState::Outside,
                })
            }
            (EscapeParserState::Intermediate, 0x20..=0x2f) => Some(EscapeParserState::Intermediate),
            (EscapeParserState::Sequence, 0x20..=0x3f) => Some(EscapeParserState::Sequence),
            (EscapeParserState::Intermediate, 0x30..=0x7e)
            | (EscapeParserState::Sequence, 0x40..=0x7e) => Some(EscapeParserState::Outside),
            _ => None,
        }
    }
}

/// The state behind a character that begins a sequence.
const fn introduced(code: u32) -> Option<EscapeParserState> {
    match code {
        ESC => Some(EscapeParserState::Escape {
            perhaps_terminator: false,
        }),
        0x9b => Some(EscapeParserState::Sequence),
        0x90 | 0x98 | 0x9d..=0x9f => Some(EscapeParserState::Text {
            is_osc: code == 0x9d,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> (String, u64) {
        let (mut sequence, mut counts) = (EscapeSequence::default(), RemovalCounts::default());
        let kept = text
            .chars()
            .filter(|character| !sequence.takes(u32::from(*character), &mut counts))
            .collect();
        (kept, counts.escapes)
    }

    #[test]
    fn whole_sequences_go() {
        for (text, kept, count) in [
            ("a\u{1b}[31mred\u{1b}[0m.", "ared.", 2),
            ("\u{9b}1;2Hx", "x", 1),
            ("\u{1b}[?25l\u{1b}[38:2:1:2:3mx\u{1b}[ q", "x", 3),
            ("\u{1b}]0;title\u{7}x", "x", 1),
            (
                "\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\",
                "link",
                2,
            ),
            ("\u{9d}0;a\u{9c}x\u{1b}]0;b\u{9c}y", "xy", 2),
            (
                "\u{1b}Pq#0\u{7}still\u{1b}\\x\u{1b}_G\u{1b}\\\u{1b}^p\u{1b}\\\u{1b}Xs\u{1b}\\",
                "x",
                4,
            ),
            (
                "\u{90}a\u{9c}\u{98}a\u{9c}\u{9e}a\u{9c}\u{9f}a\u{9c}x",
                "x",
                4,
            ),
            ("\u{1b}cx\u{1b}(By\u{1b}#8z\u{1b}7", "xyz", 4),
            ("\u{1b}\u{1b}[1mx", "x", 2),
            ("\u{1b}[1\u{0}\u{8}mx", "x", 1),
            ("\u{1b}[1\nm", "\nm", 1),
            ("\u{1b}[1ém", "ém", 1),
            ("\u{1b}é\u{1b}\t\u{1b}", "é\t", 3),
            ("\u{1b}]a\u{18}b\u{1b}[1\u{1a}c", "bc", 2),
            ("\u{1b}]a\u{1b}[1mb", "b", 2),
            ("\u{1b}]a\u{9b}1mb", "b", 2),
            ("\u{1b}]a\nb\u{7}c", "c", 1),
            ("\u{1b}]never ended", "", 1),
            ("\u{1b}\\x", "x", 1),
            ("plain\u{7}\u{85}", "plain\u{7}\u{85}", 0),
        ] {
            assert_eq!(cleaned(text), (kept.to_owned(), count), "{text:?}");
        }
    }

    #[test]
    fn unfinished_sequence_removes_a_bounded_number() {
        let longest = MAX_SEQUENCE as usize;
        for introducer in ["\u{1b}]", "\u{1b}P", "\u{1b}["] {
            let text = format!("{introducer}{}", "1".repeat(longest));
            assert_eq!(cleaned(&text).0.len(), 2, "{introducer:?}");
        }
        assert_eq!(cleaned(&format!("\u{9d}{}", "é".repeat(longest))).0, "é");
        // One behind the other, each with a bound of its own.
        let twice = format!("\u{1b}]{0}\u{1b}]{0}", "1".repeat(longest - 3));
        assert_eq!(cleaned(&twice), (String::new(), 2));
    }
}
