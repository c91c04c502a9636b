//! A resumable JSON lexer: strict RFC 8259, one byte at a time in theory, runs of bytes in
//! practice.
//!
//! The whole-body scan and the streaming rewriters need the same grammar and the same limits, so
//! there is one state machine. It keeps a bit per open bracket and never recurses; it stores no
//! text. It does not check UTF-8 (see [`crate::utf8`]) and decodes no escapes.

use crate::run;
use crate::scan::{Limits, ScanError, ScanErrorKind};

/// An event of the lexer. The depth is [`Lexer::depth`] at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
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
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

/// One of the three literals. It is stored as a number, to keep [`State`] small enough for a
/// register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    True,
    False,
    Null,
}

impl Word {
    const fn text(self) -> &'static [u8] {
        match self {
            Self::True => b"true",
            Self::False => b"false",
            Self::Null => b"null",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    Number(Number),
    /// Inside `true`, `false` or `null`: the literal, and the count of letters read.
    Literal {
        word: Word,
        at: u8,
    },
    Done,
}

/// The lexer's state machine. Feed it consecutive pieces of one JSON text with [`Lexer::advance`],
/// then call [`Lexer::finish`].
#[derive(Debug)]
pub(crate) struct Lexer {
    state: State,
    depth: u32,
    objects: [u64; Limits::DEPTH_CEILING as usize / 64],
    report: u32,
    tokens: u32,
    number_len: u32,
    offset: u64,
    limits: Limits,
}

impl Lexer {
    /// A lexer that reports events at depths up to `report`.
    pub(crate) fn new(limits: Limits, report: u32) -> Self {
        let objects = [0; Limits::DEPTH_CEILING as usize / 64];
        Self {
            state: State::Value,
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
        self.state == State::Done
    }

    /// Reads `bytes` up to the next event or their end. Returns the count of consumed bytes, and
    /// the event if there was one.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), ScanError> {
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
            && let State::Number(
                Number::Zero | Number::Integer | Number::Fraction | Number::Exponent,
            ) = self.state
        {
            self.state = State::Done;
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

    fn step(&mut self, bytes: &[u8], pos: &mut usize) -> Result<Option<Event>, ScanErrorKind> {
        match self.state {
            State::Text { key } => self.text(bytes, pos, key),
            State::Number(number) => self.number(bytes, pos, number),
            State::Escape { key } => self.escape(bytes[*pos], pos, key),
            State::Hex { key, left } => self.hex(bytes[*pos], pos, key, left),
            State::Literal { word, at } => self.literal(bytes, pos, word, at),
            _ => match bytes[*pos] {
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
    ) -> Result<Option<Event>, ScanErrorKind> {
        match self.state {
            State::Value if self.depth <= self.report => {
                self.state = State::ValueAnnounced;
                Ok(Some(Event::ValueStart(byte)))
            }
            State::Value | State::ValueAnnounced => self.value(byte, bytes, pos),
            State::FirstElement if byte == b']' => self.close(byte, bytes, pos),
            State::FirstElement => {
                self.state = State::Value;
                Ok(None)
            }
            State::FirstKey if byte == b'}' => self.close(byte, bytes, pos),
            State::FirstKey | State::NextKey if byte == b'"' => {
                *pos += 1;
                self.token()?;
                self.state = State::Text { key: true };
                if self.depth <= self.report {
                    Ok(Some(Event::KeyStart))
                } else {
                    self.text(bytes, pos, true)
                }
            }
            State::Colon if byte == b':' => {
                *pos += 1;
                self.state = State::Value;
                Ok(None)
            }
            State::CommaOrEnd if byte == b',' => {
                self.comma(pos);
                Ok(None)
            }
            State::CommaOrEnd | State::CloseAnnounced if matches!(byte, b'}' | b']') => {
                self.close(byte, bytes, pos)
            }
            State::Done => Err(ScanErrorKind::TrailingBytes),
            _ => Err(ScanErrorKind::Unexpected),
        }
    }

    fn value(
        &mut self,
        byte: u8,
        bytes: &[u8],
        pos: &mut usize,
    ) -> Result<Option<Event>, ScanErrorKind> {
        self.token()?;
        self.number_len = 1;
        let number = match byte {
            b'"' => {
                *pos += 1;
                self.state = State::Text { key: false };
                return self.text(bytes, pos, false);
            }
            b'{' | b'[' => return self.open(byte, pos),
            b't' => return self.literal(bytes, pos, Word::True, 0),
            b'f' => return self.literal(bytes, pos, Word::False, 0),
            b'n' => return self.literal(bytes, pos, Word::Null, 0),
            b'-' => Number::Minus,
            b'0' => Number::Zero,
            b'1'..=b'9' => Number::Integer,
            _ => return Err(ScanErrorKind::Unexpected),
        };
        *pos += 1;
        self.number(bytes, pos, number)
    }

    fn open(&mut self, byte: u8, pos: &mut usize) -> Result<Option<Event>, ScanErrorKind> {
        if self.depth >= self.limits.max_depth.min(Limits::DEPTH_CEILING) {
            return Err(ScanErrorKind::TooDeep);
        }
        let (word, bit) = (self.depth as usize / 64, self.depth % 64);
        let object = byte == b'{';
        self.objects[word] = self.objects[word] & !(1 << bit) | (u64::from(object) << bit);
        self.depth += 1;
        *pos += 1;
        self.state = if object {
            State::FirstKey
        } else {
            State::FirstElement
        };
        Ok((self.depth <= self.report).then_some(Event::Open))
    }

    fn close(
        &mut self,
        byte: u8,
        bytes: &[u8],
        pos: &mut usize,
    ) -> Result<Option<Event>, ScanErrorKind> {
        if (byte == b'}') != self.in_object() {
            return Err(ScanErrorKind::Unexpected);
        }
        if self.depth <= self.report && self.state != State::CloseAnnounced {
            self.state = State::CloseAnnounced;
            return Ok(Some(Event::Closing));
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
    ) -> Result<Option<Event>, ScanErrorKind> {
        *pos += run::plain(&bytes[*pos..]);
        match bytes.get(*pos) {
            None => Ok(None),
            Some(b'"') => {
                *pos += 1;
                if key {
                    self.state = State::Colon;
                    return Ok((self.depth <= self.report).then_some(Event::KeyEnd));
                }
                Ok(self.value_ended(bytes, pos))
            }
            Some(b'\\') => {
                *pos += 1;
                self.state = State::Escape { key };
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
    ) -> Result<Option<Event>, ScanErrorKind> {
        self.state = match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::Text { key },
            b'u' => State::Hex { key, left: 4 },
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
    ) -> Result<Option<Event>, ScanErrorKind> {
        if !byte.is_ascii_hexdigit() {
            return Err(ScanErrorKind::BadEscape);
        }
        *pos += 1;
        self.state = if left == 1 {
            State::Text { key }
        } else {
            State::Hex {
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
        word: Word,
        at: u8,
    ) -> Result<Option<Event>, ScanErrorKind> {
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
        self.state = State::Literal {
            word,
            at: at + u8::try_from(good).unwrap_or(0),
        };
        Ok(None)
    }

    fn number(
        &mut self,
        bytes: &[u8],
        pos: &mut usize,
        mut number: Number,
    ) -> Result<Option<Event>, ScanErrorKind> {
        while let Some(&byte) = bytes.get(*pos) {
            let Some(next) = number_next(number, byte) else {
                if !matches!(
                    number,
                    Number::Zero | Number::Integer | Number::Fraction | Number::Exponent
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
        self.state = State::Number(number);
        Ok(None)
    }

    fn value_ended(&mut self, bytes: &[u8], pos: &mut usize) -> Option<Event> {
        self.state = if self.depth == 0 {
            State::Done
        } else {
            State::CommaOrEnd
        };
        if self.depth <= self.report {
            return Some(Event::ValueEnd);
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
            State::NextKey
        } else {
            State::Value
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

const fn number_next(number: Number, byte: u8) -> Option<Number> {
    Some(match (number, byte) {
        (Number::Minus, b'0') => Number::Zero,
        (Number::Minus, b'1'..=b'9') | (Number::Integer, b'0'..=b'9') => Number::Integer,
        (Number::Zero | Number::Integer, b'.') => Number::Point,
        (Number::Point | Number::Fraction, b'0'..=b'9') => Number::Fraction,
        (Number::Zero | Number::Integer | Number::Fraction, b'e' | b'E') => Number::E,
        (Number::E, b'+' | b'-') => Number::Sign,
        (Number::E | Number::Sign | Number::Exponent, b'0'..=b'9') => Number::Exponent,
        _ => return None,
    })
}
