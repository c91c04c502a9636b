//! The extent of a response's body.

use bytes::{Bytes, BytesMut};

use crate::MalformedResponse;
use crate::chunk_decoder::ChunkDecoder;

/// The length of a body (RFC 9112, 6.3).
#[derive(Debug)]
pub enum ResponseFraming {
    /// So many bytes more.
    Length(u64),
    /// In chunks, until the last one.
    Chunked(ChunkDecoder),
    /// Until the connection ends.
    Close,
}

impl ResponseFraming {
    /// True if the body is over.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Length(rest) => *rest == 0,
            Self::Chunked(chunked) => chunked.is_over(),
            Self::Close => false,
        }
    }

    /// Takes the next bytes of the body off the read buffer; absent if they are still to come, or
    /// the body is over.
    ///
    /// # Errors
    /// The bytes are not a body of this framing.
    pub fn next(&mut self, unread: &mut BytesMut) -> Result<Option<Bytes>, MalformedResponse> {
        match self {
            Self::Chunked(chunked) => {
                let data = chunked.next(unread)?;
                chunked.read_ahead(unread)?;
                Ok(data)
            }
            Self::Length(_) | Self::Close if unread.is_empty() => Ok(None),
            Self::Close => Ok(Some(unread.split().freeze())),
            Self::Length(rest) => {
                let now = usize::try_from(*rest)
                    .unwrap_or(usize::MAX)
                    .min(unread.len());
                *rest -= now as u64;
                Ok(Some(unread.split_to(now).freeze()))
            }
        }
    }
}
