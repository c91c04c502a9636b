//! A resumable JSON lexer: strict RFC 8259, one byte at a time in theory, runs of bytes in
//! practice.
//!
//! The whole-body scan and the streaming rewriters need the same grammar and the same limits, so
//! there is one state machine. It keeps a bit per open bracket and never recurses; it stores no
//! text. It does not check UTF-8 (see [`crate::utf8`]) and decodes no escapes.

use crate::plain_runs;
use crate::scan::json_limits::JsonLimits;
use crate::scan::scan_error::{ScanError, ScanErrorKind};

/// An event of the lexer. The depth is [`JsonLexer::depth`] at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LexerEvent {
    /// An opening bracket was consumed.
    Open,
    /// The opening quote of a key was consumed.
    KeyStart,
    /// The closing quote of a key was consumed.
    KeyEnd,
    /// A value that begins with this byte comes next; the byte is not consumed yet.
    ValueStart(u8),
    /// The last byte of a value was consumed.
    ValueEnd,
    /// The closing bracket of the innermost container comes next; it is not consumed yet.
    Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberState {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

/// One of the three literals. It is stored as a number, to keep [`LexerState`] small enough for a
/// register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonLiteral {
    True,
    False,
    Null,
}

impl JsonLiteral {
    const fn text(self) -> &'static [u8] {
        match self {
            Self::True => b"true",
            Self::False => b"false",
            Self::Null => b"null",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LexerState {
    Value,
    ValueAnnounced,
    FirstElement,
    FirstKey,
    NextKey,
    Colon,
    CommaOrEnd,
    CloseAnnounced,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Number(NumberState),
    /// Inside `true`, `false` or `null`: the literal, and the count of letters read.
    Literal {
        word: JsonLiteral,
        at: u8,
    },
    Done,
}

/// The lexer's state machine. Feed it consecutive pieces of one JSON text with
/// [`JsonLexer::advance`], then call [`JsonLexer::finish`].
#[derive(Debug)]
pub(crate) struct JsonLexer {
    state: LexerState,
    depth: u32,
    objects: [u64; JsonLimits::DEPTH_CEILING as usize / 64],
    report: u32,
    tokens: u32,
    number_len: u32,
    offset: u64,
    limits: JsonLimits,
}

impl JsonLexer {
    /// A lexer that reports events at depths up to `report`.
    pub(crate) fn new(limits: JsonLimits, report: u32) -> Self {
        let objects = [0; JsonLimits::DEPTH_CEILING as usize / 64];
        Self {
            state: LexerState::Value,
            depth: 0,
            objects,
            report,
            tokens: 0,
            number_len: 0,
            offset: 0,
            limits,
        }
    }

    /// The count of open brackets.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes consumed since the start of the text.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reports events at depths up to `report` from here on.
    pub(crate) const fn set_report(&mut self, report: u32) {
        self.report = report;
    }

    /// Reports if the one value is complete (only whitespace may follow).
    pub(crate) fn is_done(&self) -> bool {
        self.state == LexerState::Done
    }

    /// Reads `bytes` up to the next event or their end. Returns the count of consumed bytes, and
    /// the event if there was one.
    pub(crate) fn advance(
        &mut self,
        bytes: &[u8],
    ) -> Result<(usize, Option<LexerEvent>), ScanError> {
        let mut pos = 0;
        let outcome = loop {
            if pos >= bytes.len() {
                break Ok(None);
            }
            match self.step(bytes, &mut pos) {
                Ok(None) => {}
                other => break other,
            }
        };
        self.offset += pos as u64;
        match outcome {
            Ok(event) => Ok((pos, event)),
            Err(kind) => Err(ScanError {
                kind,
                offset: self.offset,
            }),
        }
    }

    /// Ends the text. A number at the top level ends here. Fails if the value is incomplete.
    pub(crate) fn finish(&mut self) -> Result<(), ScanError> {
        if self.depth == 0
            && let LexerState::Number(
                NumberState::Zero
                | NumberState::Integer
                | NumberState::Fraction
                | NumberState::Exponent,
            ) = self.state
        {
            self.state = LexerState::Done;
        }
        if self.is_done() {
            Ok(())
        } else {
            Err(ScanError {
                kind: ScanErrorKind::UnexpectedEnd,
                offset: self.offset,
            })
        }
    }

    fn step(&mut self, bytes: &[u8], pos: &mut usize) -> Result<Option<LexerEvent>, ScanErrorKind> {
        match self.state {
            LexerState::Text { key } => self.text(bytes, pos, key),
            LexerState::Number(number) => self.number(bytes, pos, number),
            LexerState::Escape { key } => self.escape(bytes[*pos], pos, key),
            LexerState::Hex { key, left } => self.hex(bytes[*pos], pos, key, left),
            LexerState::Literal { word, at } => self.literal(bytes, pos, word, at),
            LexerState::Value
            | LexerState::ValueAnnounced
            | LexerState::FirstElement
            | LexerState::FirstKey
            | LexerState::NextKey
            | LexerState::Colon
            | LexerState::CommaOrEnd
            | LexerState::CloseAnnounced
            | LexerState::Done => match bytes[*pos] {
                b' ' | b'\n' | b'\r' | b'\t' => {
                    *pos += 1;
                    Ok(None)
                }
                byte => self.structure(byte, bytes, pos),
            },
        }
    }

    fn structure(
        &mut self,
        byte: u8,
        bytes: &[u8],
        pos: &mut usize,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        match self.state {
            LexerState::Value if self.depth <= self.report => {
                self.state = LexerState::ValueAnnounced;
                Ok(Some(LexerEvent::ValueStart(byte)))
            }
            LexerState::Value | LexerState::ValueAnnounced => self.value(byte, bytes, pos),
            LexerState::FirstElement if byte == b']' => self.close(byte, bytes, pos),
            LexerState::FirstElement => {
                self.state = LexerState::Value;
                Ok(None)
            }
            LexerState::FirstKey if byte == b'}' => self.close(byte, bytes, pos),
            LexerState::FirstKey | LexerState::NextKey if byte == b'"' => {
                *pos += 1;
                self.token()?;
                self.state = LexerState::Text { key: true };
                if self.depth <= self.report {
                    Ok(Some(LexerEvent::KeyStart))
                } else {
                    self.text(bytes, pos, true)
                }
            }
            LexerState::Colon if byte == b':' => {
                *pos += 1;
                self.state = LexerState::Value;
                Ok(None)
            }
            LexerState::CommaOrEnd if byte == b',' => {
                self.comma(pos);
                Ok(None)
            }
            LexerState::CommaOrEnd | LexerState::CloseAnnounced if matches!(byte, b'}' | b']') => {
                self.close(byte, bytes, pos)
            }
            LexerState::Done => Err(ScanErrorKind::TrailingBytes),
            LexerState::FirstKey
            | LexerState::NextKey
            | LexerState::Colon
            | LexerState::CommaOrEnd
            | LexerState::CloseAnnounced
            | LexerState::Text { .. }
            | LexerState::Escape { .. }
            | LexerState::Hex { .. }
            | LexerState::Number(_)
            | LexerState::Literal { .. } => Err(ScanErrorKind::Unexpected),
        }
    }

    fn value(
        &mut self,
        byte: u8,
        bytes: &[u8],
        pos: &mut usize,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        self.token()?;
        self.number_len = 1;
        let number = match byte {
            b'"' => {
                *pos += 1;
                self.state = LexerState::Text { key: false };
                return self.text(bytes, pos, false);
            }
            b'{' | b'[' => return self.open(byte, pos),
            b't' => return self.literal(bytes, pos, JsonLiteral::True, 0),
            b'f' => return self.literal(bytes, pos, JsonLiteral::False, 0),
            b'n' => return self.literal(bytes, pos, JsonLiteral::Null, 0),
            b'-' => NumberState::Minus,
            b'0' => NumberState::Zero,
            b'1'..=b'9' => NumberState::Integer,
            _ => return Err(ScanErrorKind::Unexpected),
        };
        *pos += 1;
        self.number(bytes, pos, number)
    }

    fn open(&mut self, byte: u8, pos: &mut usize) -> Result<Option<LexerEvent>, ScanErrorKind> {
        if self.depth >= self.limits.max_depth.min(JsonLimits::DEPTH_CEILING) {
            return Err(ScanErrorKind::TooDeep);
        }
        let (word, bit) = (self.depth as usize / 64, self.depth % 64);
        let object = byte == b'{';
        self.objects[word] = self.objects[word] & !(1 << bit) | (u64::from(object) << bit);
        self.depth += 1;
        *pos += 1;
        self.state = if object {
            LexerState::FirstKey
        } else {
            LexerState::FirstElement
        };
        Ok((self.depth <= self.report).then_some(LexerEvent::Open))
    }

    fn close(
        &mut self,
        byte: u8,
        bytes: &[u8],
        pos: &mut usize,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        if (byte == b'}') != self.in_object() {
            return Err(ScanErrorKind::Unexpected);
        }
        if self.depth <= self.report && self.state != LexerState::CloseAnnounced {
            self.state = LexerState::CloseAnnounced;
            return Ok(Some(LexerEvent::Closing));
        }
        *pos += 1;
        self.depth -= 1;
        Ok(self.value_ended(bytes, pos))
    }

    fn text(
        &mut self,
        bytes: &[u8],
        pos: &mut usize,
        key: bool,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        *pos += plain_runs::plain_len(&bytes[*pos..]);
        match bytes.get(*pos) {
            None => Ok(None),
            Some(b'"') => {
                *pos += 1;
                if key {
                    self.state = LexerState::Colon;
                    return Ok((self.depth <= self.report).then_some(LexerEvent::KeyEnd));
                }
                Ok(self.value_ended(bytes, pos))
            }
            Some(b'\\') => {
                *pos += 1;
                self.state = LexerState::Escape { key };
                Ok(None)
            }
            Some(_) => Err(ScanErrorKind::ControlCharacter),
        }
    }

    fn escape(
        &mut self,
        byte: u8,
        pos: &mut usize,
        key: bool,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        self.state = match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => LexerState::Text { key },
            b'u' => LexerState::Hex { key, left: 4 },
            _ => return Err(ScanErrorKind::BadEscape),
        };
        *pos += 1;
        Ok(None)
    }

    fn hex(
        &mut self,
        byte: u8,
        pos: &mut usize,
        key: bool,
        left: u8,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        if !byte.is_ascii_hexdigit() {
            return Err(ScanErrorKind::BadEscape);
        }
        *pos += 1;
        self.state = if left == 1 {
            LexerState::Text { key }
        } else {
            LexerState::Hex {
                key,
                left: left - 1,
            }
        };
        Ok(None)
    }

    fn literal(
        &mut self,
        bytes: &[u8],
        pos: &mut usize,
        word: JsonLiteral,
        at: u8,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        let left = &word.text()[usize::from(at)..];
        let here = &bytes[*pos..bytes.len().min(*pos + left.len())];
        let good = here
            .iter()
            .zip(left)
            .take_while(|(byte, letter)| byte == letter)
            .count();
        *pos += good;
        if good < here.len() {
            return Err(ScanErrorKind::Unexpected);
        }
        if good == left.len() {
            return Ok(self.value_ended(bytes, pos));
        }
        self.state = LexerState::Literal {
            word,
            at: at + u8::try_from(good).unwrap_or(0),
        };
        Ok(None)
    }

    fn number(
        &mut self,
        bytes: &[u8],
        pos: &mut usize,
        mut number: NumberState,
    ) -> Result<Option<LexerEvent>, ScanErrorKind> {
        while let Some(&byte) = bytes.get(*pos) {
            let Some(next) = number_next(number, byte) else {
                if !matches!(
                    number,
                    NumberState::Zero
                        | NumberState::Integer
                        | NumberState::Fraction
                        | NumberState::Exponent
                ) {
                    return Err(ScanErrorKind::BadNumber);
                }
                return Ok(self.value_ended(bytes, pos));
            };
            number = next;
            self.number_len += 1;
            if self.number_len > self.limits.max_number_len {
                return Err(ScanErrorKind::NumberTooLong);
            }
            *pos += 1;
        }
        self.state = LexerState::Number(number);
        Ok(None)
    }

    fn value_ended(&mut self, bytes: &[u8], pos: &mut usize) -> Option<LexerEvent> {
        self.state = if self.depth == 0 {
            LexerState::Done
        } else {
            LexerState::CommaOrEnd
        };
        if self.depth <= self.report {
            return Some(LexerEvent::ValueEnd);
        }
        // Nearly always a comma follows at once; taking it here saves a round.
        if bytes.get(*pos) == Some(&b',') {
            self.comma(pos);
        }
        None
    }

    fn comma(&mut self, pos: &mut usize) {
        *pos += 1;
        self.state = if self.in_object() {
            LexerState::NextKey
        } else {
            LexerState::Value
        };
    }

    fn token(&mut self) -> Result<(), ScanErrorKind> {
        self.tokens += 1;
        if self.tokens > self.limits.max_tokens {
            Err(ScanErrorKind::TooManyTokens)
        } else {
            Ok(())
        }
    }

    fn in_object(&self) -> bool {
        let top = self.depth.saturating_sub(1);
        self.objects[top as usize / 64] >> (top % 64) & 1 == 1
    }
}

const fn number_next(number: NumberState, byte: u8) -> Option<NumberState> {
    Some(match (number, byte) {
        (NumberState::Minus, b'0') => NumberState::Zero,
        (NumberState::Minus, b'1'..=b'9') | (NumberState::Integer, b'0'..=b'9') => {
            NumberState::Integer
        }
        (NumberState::Zero | NumberState::Integer, b'.') => NumberState::Point,
        (NumberState::Point | NumberState::Fraction, b'0'..=b'9') => NumberState::Fraction,
        (NumberState::Zero | NumberState::Integer | NumberState::Fraction, b'e' | b'E') => {
            NumberState::E
        }
        (NumberState::E, b'+' | b'-') => NumberState::Sign,
        (NumberState::E | NumberState::Sign | NumberState::Exponent, b'0'..=b'9') => {
            NumberState::Exponent
        }
        _ => return None,
    })
}
