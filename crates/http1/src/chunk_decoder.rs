//! The decoder of a chunked body (RFC 9112, section 7.1). Extensions and trailers are skipped.

use bytes::{Buf, Bytes, BytesMut};

use crate::MalformedResponse;

/// The longest line before a chunk, extensions included.
const MAX_LINE_BYTES: usize = 4 << 10;
/// The most bytes of all trailers.
const MAX_TRAILER_BYTES: usize = 16 << 10;

/// The decoder, by its position.
#[derive(Debug, Default)]
pub enum ChunkDecoder {
    /// Before the line with a chunk's size.
    #[default]
    Size,
    /// In a chunk, with so many bytes to come.
    Data(u64),
    /// Before the line end after a chunk.
    End,
    /// After the last chunk, with so many bytes of trailers read.
    Trailers(usize),
    Over,
}

impl ChunkDecoder {
    /// True if the body's end was read.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Takes the next bytes of the body off `unread`; absent if it has no such bytes, or the body
    /// is over.
    ///
    /// # Errors
    /// The bytes are not a chunked body.
    pub(crate) fn next(
        &mut self,
        unread: &mut BytesMut,
    ) -> Result<Option<Bytes>, MalformedResponse> {
        loop {
            match self {
                Self::Data(rest) => {
                    if unread.is_empty() {
                        return Ok(None);
                    }
                    let now = usize::try_from(*rest)
                        .unwrap_or(usize::MAX)
                        .min(unread.len());
                    *rest -= now as u64;
                    if *rest == 0 {
                        *self = Self::End;
                    }
                    return Ok(Some(unread.split_to(now).freeze()));
                }
                Self::Size | Self::End | Self::Trailers(_) | Self::Over => {
                    if !self.step(unread)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Reads on as far as the next chunk's first byte, or the body's end, if that is in `unread`.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn read_ahead(&mut self, unread: &mut BytesMut) -> Result<(), MalformedResponse> {
        while !matches!(self, Self::Data(_)) && self.step(unread)? {}
        Ok(())
    }

    /// Reads one line; false if it is not complete.
    fn step(&mut self, unread: &mut BytesMut) -> Result<bool, MalformedResponse> {
        let most = match self {
            Self::Data(_) | Self::Over => return Ok(false),
            Self::Size => MAX_LINE_BYTES,
            Self::End => 2,
            Self::Trailers(read) => MAX_TRAILER_BYTES - *read,
        };
        let Some(end) = memchr::memchr(b'\n', unread) else {
            return if unread.len() > most {
                Err(TOO_LONG)
            } else {
                Ok(false)
            };
        };
        if end + 1 > most {
            return Err(TOO_LONG);
        }
        let Some(line) = unread[..end].strip_suffix(b"\r") else {
            return Err(MalformedResponse("a line of a chunk has no proper end"));
        };
        let next = match self {
            Self::Size => match parse_size(line)? {
                0 => Self::Trailers(0),
                size => Self::Data(size),
            },
            Self::End if line.is_empty() => Self::Size,
            Self::Trailers(_) if line.is_empty() => Self::Over,
            Self::Trailers(read) => Self::Trailers(*read + end + 1),
            Self::Data(_) | Self::End | Self::Over => {
                return Err(MalformedResponse("a chunk is longer than it says"));
            }
        };
        *self = next;
        unread.advance(end + 1);
        Ok(true)
    }
}

const TOO_LONG: MalformedResponse = MalformedResponse("a line of a chunk is too long");

/// Parses the size of a chunk's first line, in hexadecimal digits, before extensions.
fn parse_size(line: &[u8]) -> Result<u64, MalformedResponse> {
    let digits = line
        .iter()
        .position(|byte| !byte.is_ascii_hexdigit())
        .unwrap_or(line.len());
    let (number, rest) = line.split_at(digits);
    let is_end = rest
        .trim_ascii_start()
        .first()
        .is_none_or(|byte| *byte == b';');
    let number = std::str::from_utf8(number).ok().filter(|_| is_end);
    number
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(MalformedResponse("a chunk's size is no number"))
}
