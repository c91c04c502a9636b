//! The messages of replicas on the shared channel: several in one frame, after the sender's name.
//!
//! A frame is a version byte, the sender's id, and for each message the length of the topic (one
//! byte), the length of the body (four bytes, big endian), the topic and the body. The first message
//! has the number of the frame (eight bytes, big endian): versions without numbers ignore its topic,
//! as they do any that they do not know.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use weir_core::port::{BusMessage, ReplicaId};

/// The version of the frame. Frames of another one are ignored.
const FRAME_VERSION: u8 = 1;

/// The topic of a frame's number.
const NUMBER_TOPIC: &str = "frame-number";

/// A frame of another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedFrame {
    pub(crate) sender: ReplicaId,
    /// Absent from versions without numbers.
    pub(crate) number: Option<u64>,
    pub(crate) messages: Vec<ReceivedMessage>,
}

/// A message of another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) topic: String,
    pub(crate) body: Bytes,
}

/// Writes messages into a frame, with a number if its loss must be noticed. A topic is a name in the
/// code, far shorter than its limit of 255 bytes.
pub(crate) fn encode_frame(own: &ReplicaId, number: Option<u64>, messages: &[BusMessage]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(FRAME_VERSION);
    frame.put_slice(&own.0);
    let number = number.map(|number| BusMessage {
        topic: NUMBER_TOPIC,
        body: Bytes::copy_from_slice(&number.to_be_bytes()),
    });
    for BusMessage { topic, body } in number.iter().chain(messages) {
        let lengths = (u8::try_from(topic.len()), u32::try_from(body.len()));
        if let (Ok(topic_length), Ok(body_length)) = lengths {
            frame.put_u8(topic_length);
            frame.put_u32(body_length);
            frame.put_slice(topic.as_bytes());
            frame.put_slice(body);
        }
    }
    frame.freeze()
}

/// Reads a frame. `None` for one of this replica itself, or of another version. Bytes that are no
/// message end the frame.
pub(crate) fn decode_frame(own: &ReplicaId, mut frame: Bytes) -> Option<ReceivedFrame> {
    if frame.try_get_u8().ok()? != FRAME_VERSION || frame.len() < own.0.len() {
        return None;
    }
    let mut sender = ReplicaId([0; 8]);
    frame.copy_to_slice(&mut sender.0);
    if sender == *own {
        return None;
    }
    let (mut number, mut messages) = (None, Vec::new());
    while frame.len() >= 5 {
        let topic_length = usize::from(frame.get_u8());
        let body_length = frame.get_u32() as usize;
        if frame.len() < topic_length.saturating_add(body_length) {
            break;
        }
        let topic = frame.split_to(topic_length);
        let body = frame.split_to(body_length);
        if topic == NUMBER_TOPIC {
            number = body.as_ref().try_into().ok().map(u64::from_be_bytes);
            continue;
        }
        let topic = String::from_utf8_lossy(&topic).into_owned();
        messages.push(ReceivedMessage { topic, body });
    }
    Some(ReceivedFrame {
        sender,
        number,
        messages,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const ONE: ReplicaId = ReplicaId([1; 8]);
    const TWO: ReplicaId = ReplicaId([2; 8]);

    #[test]
    fn frame_reaches_others_whole_and_the_sender_never() {
        let messages = [("cancel", "a"), ("change", "")].map(|(topic, body)| BusMessage {
            topic,
            body: body.into(),
        });
        let frame = encode_frame(&ONE, Some(7), &messages);
        let read = decode_frame(&TWO, frame.clone()).unwrap();
        assert_eq!((read.sender, read.number), (ONE, Some(7)));
        let read: Vec<_> = read
            .messages
            .iter()
            .map(|one| (one.topic.as_str(), &*one.body))
            .collect();
        assert_eq!(read, [("cancel", b"a".as_slice()), ("change", b"")]);
        assert_eq!(decode_frame(&ONE, frame.clone()), None);
        for length in 0..frame.len() {
            let read = decode_frame(&TWO, frame.slice(..length));
            assert!(read.is_none_or(|read| read.messages.len() < 2));
        }
        assert_eq!(decode_frame(&TWO, Bytes::from_static(&[9; 40])), None);
    }

    #[test]
    fn frame_of_a_version_without_numbers_is_read() {
        let message = BusMessage {
            topic: "cancel",
            body: "a".into(),
        };
        let frame = encode_frame(&ONE, None, &[message]);
        assert_eq!(&frame[9..], b"\x06\0\0\0\x01cancela");
        let read = decode_frame(&TWO, frame).unwrap();
        assert_eq!((read.number, read.messages.len()), (None, 1));
        assert_eq!(read.messages[0].topic, "cancel");
    }
}
