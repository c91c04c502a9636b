//! The messages of replicas on the shared channel: several in one frame, after the sender's name.
//!
//! A frame is a version byte, the sender's id, and for each message the length of the topic (one
//! byte), the length of the body (four bytes, big endian), the topic and the body.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use weir_core::port::{BusMessage, ReplicaId};

/// The version of the frame. Frames of another one are ignored.
const FRAME_VERSION: u8 = 1;

/// A message of another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) topic: String,
    pub(crate) body: Bytes,
}

/// Writes messages into a frame. A topic is a name in the code, far shorter than its limit of 255
/// bytes.
pub(crate) fn encode_frame(own: &ReplicaId, messages: &[BusMessage]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(FRAME_VERSION);
    frame.put_slice(&own.0);
    for BusMessage { topic, body } in messages {
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

/// Reads the messages of a frame. One of this replica itself has no messages for it. Bytes that are
/// no message end the frame.
pub(crate) fn decode_frame(own: &ReplicaId, mut frame: Bytes) -> Vec<ReceivedMessage> {
    let mut messages = Vec::new();
    let header = 1 + own.0.len();
    if frame.len() < header || frame[0] != FRAME_VERSION || frame[1..header] == own.0 {
        return messages;
    }
    frame.advance(header);
    while frame.len() >= 5 {
        let topic_length = usize::from(frame.get_u8());
        let body_length = frame.get_u32() as usize;
        if frame.len() < topic_length.saturating_add(body_length) {
            break;
        }
        let topic = frame.split_to(topic_length);
        let body = frame.split_to(body_length);
        let topic = String::from_utf8_lossy(&topic).into_owned();
        messages.push(ReceivedMessage { topic, body });
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ReplicaId = ReplicaId([1; 8]);
    const TWO: ReplicaId = ReplicaId([2; 8]);

    #[test]
    fn frame_reaches_others_whole_and_the_sender_never() {
        let messages = [("cancel", "a"), ("change", "")].map(|(topic, body)| BusMessage {
            topic,
            body: body.into(),
        });
        let frame = encode_frame(&ONE, &messages);
        let read = decode_frame(&TWO, frame.clone());
        let read: Vec<_> = read
            .iter()
            .map(|one| (one.topic.as_str(), &*one.body))
            .collect();
        assert_eq!(read, [("cancel", b"a".as_slice()), ("change", b"")]);
        assert_eq!(decode_frame(&ONE, frame.clone()), []);
        for length in 0..frame.len() {
            assert!(decode_frame(&TWO, frame.slice(..length)).len() < 2);
        }
        assert_eq!(decode_frame(&TWO, Bytes::from_static(&[9; 40])), []);
    }
}
