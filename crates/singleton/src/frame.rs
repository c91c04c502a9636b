//! Frames: the messages in a stream between two replicas.
//!
//! A frame is a kind, and parts of bytes. The first part is a JSON object with the small facts;
//! unknown members are ignored, so that replicas of different versions understand each other. The
//! other parts are the bytes of clients and servers, unchanged.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most parts of a frame: a page of a list has one for each item.
const MAX_PARTS: u32 = 1 << 20;
/// The bytes before the lengths: the kind and the number of parts.
const HEAD_BYTES: usize = 5;
/// The bytes of one length.
const LENGTH_BYTES: usize = 4;

macro_rules! frame_kinds {
    ($($(#[doc = $about:literal])* $name:ident = $byte:literal),* $(,)?) => {
        /// The kind of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum FrameKind {
            $($(#[doc = $about])* $name,)*
        }

        impl FrameKind {
            const fn byte(self) -> u8 {
                match self { $(Self::$name => $byte,)* }
            }

            fn of(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$name),)* _ => None }
            }
        }
    };
}

frame_kinds! {
    /// A call, with its `params`, the client's capabilities and its answers to questions.
    Call = b'c',
    /// The request for a watch of the lists.
    Watch = b'w',
    /// The request for updates of single resources.
    Updates = b'u',
    /// The request for the status notifications of a task, in the form of a call.
    FollowTask = b'f',
    /// The request for the progress of a task.
    TaskProgress = b'p',
    /// News of client sessions.
    SessionChange = b'n',
    /// The answer to a question.
    Answer = b'A',
    /// A progress report of the client about a question.
    AnswerProgress = b'P',
    /// A question that has no answer.
    NoAnswer = b'X',
    /// The request for a page of a list.
    List = b'L',
    /// The subscriptions to single resources.
    Subscribe = b'S',
    /// The request did not run: the replica does not hold the lease.
    Refused = b'R',
    /// A watch or a stream is open.
    Opened = b'O',
    /// A note of a running call.
    Note = b'N',
    /// A question of the server.
    Question = b'Q',
    /// A question that the server withdrew.
    Withdrawn = b'q',
    /// The end of a call.
    End = b'E',
    /// The end of a call, with a result that comes in chunks.
    Chunked = b'C',
    /// A chunk of a result.
    Chunk = b'D',
    /// The end of the chunks.
    ChunksEnd = b'Z',
    /// A page of a list.
    Page = b'G',
    /// A page of a list that failed; the watch goes on.
    PageFailed = b'g',
    /// Changed lists.
    Changed = b'H',
    /// The refused subscriptions.
    Subscribed = b'T',
    /// An update of a resource.
    Updated = b'U',
    /// An item of a stream.
    Item = b'I',
    /// A stream has no further items.
    Ended = b'e',
    /// The failure of a request, or the end of a watch.
    Failed = b'V',
}

/// A frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    /// The JSON object.
    facts: Bytes,
    /// The other parts.
    pub(crate) parts: Vec<Bytes>,
}

/// The bytes of a stream are no frame that this version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame;

impl Frame {
    /// A frame of facts alone.
    pub(crate) fn new(kind: FrameKind, facts: &impl Serialize) -> Self {
        Self {
            kind,
            // The forms have string keys alone, so this cannot fail.
            facts: serde_json::to_vec(facts).unwrap_or_default().into(),
            parts: Vec::new(),
        }
    }

    /// A frame without facts.
    pub(crate) fn empty(kind: FrameKind) -> Self {
        Self {
            kind,
            facts: Bytes::from_static(b"{}"),
            parts: Vec::new(),
        }
    }

    /// The same with one more part.
    pub(crate) fn with(mut self, part: Bytes) -> Self {
        self.parts.push(part);
        self
    }

    /// The facts.
    pub(crate) fn facts<T: DeserializeOwned>(&self) -> Result<T, BadFrame> {
        serde_json::from_slice(&self.facts).map_err(|_| BadFrame)
    }

    /// The part of this number; empty if the other side has none.
    pub(crate) fn part(&self, number: usize) -> Bytes {
        self.parts.get(number).cloned().unwrap_or_default()
    }

    /// The frame as bytes.
    pub(crate) fn encode(&self) -> Bytes {
        let parts = || std::iter::once(&self.facts).chain(&self.parts);
        let bytes: usize = parts().map(|part| part.len() + LENGTH_BYTES).sum();
        let mut out = BytesMut::with_capacity(HEAD_BYTES + bytes);
        out.put_u8(self.kind.byte());
        out.put_u32(u32::try_from(parts().count()).unwrap_or(u32::MAX));
        for part in parts() {
            out.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        }
        parts().for_each(|part| out.extend_from_slice(part));
        out.freeze()
    }
}

/// Takes a frame from the front of `bytes`; absent if it is not whole yet.
///
/// # Errors
/// The frame is larger than `most`, or of no known kind.
pub(crate) fn take_frame(bytes: &mut BytesMut, most: usize) -> Result<Option<Frame>, BadFrame> {
    let Some(size) = frame_size(bytes, most)? else {
        return Ok(None);
    };
    if bytes.len() < size {
        bytes.reserve(size - bytes.len());
        return Ok(None);
    }
    let mut frame = bytes.split_to(size).freeze();
    let kind = FrameKind::of(frame.get_u8()).ok_or(BadFrame)?;
    let count = frame.get_u32();
    let lengths: Vec<usize> = (0..count).map(|_| frame.get_u32() as usize).collect();
    let mut parts = lengths.into_iter().map(|length| frame.split_to(length));
    let facts = parts.next().ok_or(BadFrame)?;
    Ok(Some(Frame {
        kind,
        facts,
        parts: parts.collect(),
    }))
}

/// The size of the frame at the front; absent if its head is not whole yet.
fn frame_size(bytes: &[u8], most: usize) -> Result<Option<usize>, BadFrame> {
    let Some(mut head) = bytes.get(1..HEAD_BYTES) else {
        return Ok(None);
    };
    let parts = head.get_u32();
    if parts == 0 || parts > MAX_PARTS {
        return Err(BadFrame);
    }
    let head = HEAD_BYTES + parts as usize * LENGTH_BYTES;
    let Some(mut lengths) = bytes.get(HEAD_BYTES..head) else {
        return Ok(None);
    };
    let mut size = head;
    while lengths.has_remaining() {
        size = size.saturating_add(lengths.get_u32() as usize);
    }
    if size > most.saturating_add(head) {
        return Err(BadFrame);
    }
    Ok(Some(size))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Facts {
        number: u32,
    }

    #[test]
    fn frame_survives_any_division_of_its_bytes() {
        let frame = Frame::new(FrameKind::Page, &Facts { number: 7 })
            .with(Bytes::from_static(b"one"))
            .with(Bytes::new());
        let twice = [frame.encode(), frame.encode()].concat();
        for step in 1..=twice.len() {
            let (mut held, mut frames) = (BytesMut::new(), Vec::new());
            for part in twice.chunks(step) {
                held.extend_from_slice(part);
                while let Some(frame) = take_frame(&mut held, 100).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!((frames.len(), held.len()), (2, 0), "{step}");
            let second = &frames[1];
            assert_eq!(second.kind, FrameKind::Page);
            assert_eq!(second.facts(), Ok(Facts { number: 7 }));
            assert_eq!(second.parts, [Bytes::from_static(b"one"), Bytes::new()]);
            assert_eq!(second.part(9), Bytes::new());
        }
    }

    #[test]
    fn frames_that_are_too_large_or_unknown_are_refused() {
        let frame = Frame::empty(FrameKind::Chunk).with(vec![0; 200].into());
        let mut bytes = BytesMut::from(&frame.encode()[..]);
        assert_eq!(take_frame(&mut bytes, 100).err(), Some(BadFrame));
        let mut unknown = BytesMut::from(&b"?\0\0\0\x01\0\0\0\0"[..]);
        assert_eq!(take_frame(&mut unknown, 100).err(), Some(BadFrame));
        let mut none = BytesMut::from(&b"c\0\0\0\0"[..]);
        assert_eq!(take_frame(&mut none, 100).err(), Some(BadFrame));
    }
}
