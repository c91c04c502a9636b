//! The incremental decoder of server-sent events.

use bytes::{Buf, Bytes};

/// Bounds of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseCaps {
    /// Bytes of `data` in one event, the newlines between its lines included.
    pub max_event: u64,
    /// Bytes of the value of one `event`, `id` or `retry` field.
    pub max_field: usize,
}

impl Default for SseCaps {
    fn default() -> Self {
        Self {
            max_event: 64 * 1024 * 1024,
            max_field: 64 * 1024,
        }
    }
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseItem {
    /// The next bytes of the current event's data; never empty. Between two `data` lines comes a
    /// chunk of one newline.
    Data(Bytes),
    /// The current event is complete.
    End {
        /// Its type, if given and not empty.
        event: Option<String>,
        /// Its id, if this very event gave one; empty resets the last id.
        id: Option<String>,
        /// True if it had a `data` line. An event without one is not dispatched; only its id
        /// counts.
        has_data: bool,
    },
    /// The reconnection time in milliseconds.
    Retry(u64),
    /// A comment line: a keep-alive, its text dropped.
    Comment,
}

/// The reasons to refuse a stream. The decoder is of no use afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event with more data than [`SseCaps::max_event`].
    #[error("an event of the stream is larger than allowed")]
    EventTooLarge,
    /// A field longer than [`SseCaps::max_field`].
    #[error("a field of the stream is longer than allowed")]
    FieldTooLong,
    /// A field that is not UTF-8.
    #[error("a field of the stream is not UTF-8")]
    NotUtf8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseField {
    Data,
    Event,
    Id,
    Retry,
    Comment,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderState {
    /// At the start of the stream, with this many bytes of a byte order mark behind.
    Mark(usize),
    /// In the name of a field; these many of its bytes are read.
    Name,
    /// Right behind the colon: one space does not count.
    Colon(SseField),
    Value(SseField),
}

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Names longer than this are unknown.
const MAX_FIELD_NAME: usize = 5;

/// Splits a byte stream into [`SseItem`]s, for any chunks and line endings (LF, CRLF, CR).
///
/// Memory is bounded by [`SseCaps::max_field`]; data is passed on as slices of the input.
#[derive(Debug)]
pub struct SseDecoder {
    caps: SseCaps,
    place: DecoderState,
    name: [u8; MAX_FIELD_NAME + 1],
    name_len: usize,
    value: Vec<u8>,
    after_cr: bool,
    data_lines: u64,
    data_len: u64,
    newline_due: bool,
    event: Option<String>,
    id: Option<String>,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub const fn new(caps: SseCaps) -> Self {
        Self {
            caps,
            place: DecoderState::Mark(0),
            name: [0; MAX_FIELD_NAME + 1],
            name_len: 0,
            value: Vec::new(),
            after_cr: false,
            data_lines: 0,
            data_len: 0,
            newline_due: false,
            event: None,
            id: None,
        }
    }

    /// Returns the type of the current event, if it was given so far and is not empty.
    #[must_use]
    pub fn event(&self) -> Option<&str> {
        self.event.as_deref()
    }

    /// Takes bytes off the front of `input` up to the next item. `None` means that `input` is empty
    /// now and more is needed; so call it in a loop until then.
    ///
    /// # Errors
    /// A cap is exceeded, or a field other than `data` is not UTF-8 (data is not checked).
    pub fn feed(&mut self, input: &mut Bytes) -> Result<Option<SseItem>, SseError> {
        loop {
            if self.newline_due {
                self.newline_due = false;
                return Ok(Some(SseItem::Data(Bytes::from_static(b"\n"))));
            }
            let Some(&byte) = input.first() else {
                return Ok(None);
            };
            let end_of_line = byte == b'\n' || byte == b'\r';
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                input.advance(1);
                continue;
            }
            let item = match self.place {
                DecoderState::Mark(seen) if byte == BYTE_ORDER_MARK[seen] => {
                    input.advance(1);
                    self.place = if seen == 2 {
                        DecoderState::Name
                    } else {
                        DecoderState::Mark(seen + 1)
                    };
                    None
                }
                // Half a mark is the beginning of an unknown name.
                DecoderState::Mark(seen) => {
                    self.place = if seen == 0 {
                        DecoderState::Name
                    } else {
                        DecoderState::Value(SseField::Unknown)
                    };
                    None
                }
                _ if end_of_line => {
                    input.advance(1);
                    self.after_cr = byte == b'\r';
                    self.end_line()?
                }
                DecoderState::Name => {
                    input.advance(1);
                    self.name_byte(byte)?;
                    None
                }
                DecoderState::Colon(field) => {
                    if byte == b' ' {
                        input.advance(1);
                    }
                    self.place = DecoderState::Value(field);
                    None
                }
                DecoderState::Value(field) => self.value_bytes(field, input)?,
            };
            if item.is_some() {
                return Ok(item);
            }
        }
    }

    /// Reports if the stream is between two events. If it is not when the stream ends, the last
    /// event is lost: an unfinished event does not count.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        let fresh = matches!(self.place, DecoderState::Mark(_))
            || self.place == DecoderState::Name && self.name_len == 0;
        fresh && self.data_lines == 0 && self.event.is_none() && self.id.is_none()
    }

    fn name_byte(&mut self, byte: u8) -> Result<(), SseError> {
        if byte == b':' {
            let field = self.field();
            self.place = DecoderState::Colon(field);
            return self.begin_value(field);
        }
        if self.name_len < self.name.len() {
            self.name[self.name_len] = byte;
            self.name_len += 1;
        }
        Ok(())
    }

    fn field(&self) -> SseField {
        match &self.name[..self.name_len] {
            b"" => SseField::Comment,
            b"data" => SseField::Data,
            b"event" => SseField::Event,
            b"id" => SseField::Id,
            b"retry" => SseField::Retry,
            _ => SseField::Unknown,
        }
    }

    fn begin_value(&mut self, field: SseField) -> Result<(), SseError> {
        self.value.clear();
        if field == SseField::Data {
            self.data_lines += 1;
            if self.data_lines > 1 {
                self.newline_due = true;
                self.count_data(1)?;
            }
        }
        Ok(())
    }

    fn value_bytes(
        &mut self,
        field: SseField,
        input: &mut Bytes,
    ) -> Result<Option<SseItem>, SseError> {
        let len = memchr::memchr2(b'\n', b'\r', input).unwrap_or(input.len());
        let chunk = input.split_to(len);
        match field {
            SseField::Data => {
                self.count_data(len as u64)?;
                return Ok(Some(SseItem::Data(chunk)));
            }
            SseField::Event | SseField::Id | SseField::Retry => {
                if self.value.len() + len > self.caps.max_field {
                    return Err(SseError::FieldTooLong);
                }
                self.value.extend_from_slice(&chunk);
            }
            SseField::Comment | SseField::Unknown => {}
        }
        Ok(None)
    }

    fn end_line(&mut self) -> Result<Option<SseItem>, SseError> {
        let field = match self.place {
            DecoderState::Name if self.name_len == 0 => return Ok(self.end_event()),
            // A name without a colon is a field with an empty value.
            DecoderState::Name | DecoderState::Mark(_) => {
                let field = self.field();
                self.begin_value(field)?;
                field
            }
            DecoderState::Colon(field) | DecoderState::Value(field) => field,
        };
        self.place = DecoderState::Name;
        self.name_len = 0;
        self.end_field(field)
    }

    fn end_field(&mut self, field: SseField) -> Result<Option<SseItem>, SseError> {
        match field {
            SseField::Comment => return Ok(Some(SseItem::Comment)),
            SseField::Event => {
                self.event = Some(self.take_value()?).filter(|name| !name.is_empty())
            }
            // An id with a NUL is ignored as a whole.
            SseField::Id if self.value.contains(&0) => {}
            SseField::Id => self.id = Some(self.take_value()?),
            SseField::Retry
                if !self.value.is_empty() && self.value.iter().all(u8::is_ascii_digit) =>
            {
                let millis = self.take_value()?.parse().unwrap_or(u64::MAX);
                return Ok(Some(SseItem::Retry(millis)));
            }
            SseField::Retry | SseField::Data | SseField::Unknown => {}
        }
        Ok(None)
    }

    fn end_event(&mut self) -> Option<SseItem> {
        let has_data = std::mem::take(&mut self.data_lines) > 0;
        self.data_len = 0;
        let (event, id) = (self.event.take(), self.id.take());
        (has_data || event.is_some() || id.is_some()).then_some(SseItem::End {
            event,
            id,
            has_data,
        })
    }

    fn take_value(&mut self) -> Result<String, SseError> {
        String::from_utf8(std::mem::take(&mut self.value)).map_err(|_| SseError::NotUtf8)
    }

    fn count_data(&mut self, len: u64) -> Result<(), SseError> {
        self.data_len += len;
        if self.data_len > self.caps.max_event {
            Err(SseError::EventTooLarge)
        } else {
            Ok(())
        }
    }
}
