//! A message in parts, as an answer's body: the parts are not copied into one text.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// A message in parts. Each part is dropped once it is sent.
pub struct MessageParts(VecDeque<Bytes>);

impl fmt::Debug for MessageParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageParts({} parts)", self.0.len())
    }
}

impl MessageParts {
    /// The message of these parts.
    pub fn new(parts: impl IntoIterator<Item = Bytes>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The array of these messages.
    pub fn array(items: impl IntoIterator<Item = Bytes>) -> Self {
        let mut parts = VecDeque::new();
        for item in items {
            let before: &[u8] = if parts.is_empty() { b"[" } else { b"," };
            parts.extend([Bytes::from_static(before), item]);
        }
        parts.push_back(Bytes::from_static(if parts.is_empty() {
            b"[]"
        } else {
            b"]"
        }));
        Self(parts)
    }

    /// The message as one text.
    pub fn joined(self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.0.iter().map(Bytes::len).sum());
        self.0.iter().for_each(|part| out.extend_from_slice(part));
        out.freeze()
    }
}

impl Body for MessageParts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_has_its_items_in_order() {
        let array = |items: &[&'static str]| {
            let items = items.iter().map(|item| Bytes::from_static(item.as_bytes()));
            MessageParts::array(items).joined()
        };
        assert_eq!(array(&[]), "[]");
        assert_eq!(array(&["1"]), "[1]");
        assert_eq!(array(&["1", "{}", "3"]), "[1,{},3]");
    }
}
