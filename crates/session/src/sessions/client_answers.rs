//! Requests that a session's client is asked, and its answers: on this replica, or sent to the
//! replica that asked.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use tokio::sync::mpsc;
use weir_core::port::BusMessage;
use weir_core::telemetry::instruments;
use weir_core::{Principal, SessionKey};
use weir_wire::header::ReceivedHeader;

use crate::sessions::local_session::ClientReply;
use crate::sessions::session_guards::AskGuard;
use crate::sessions::session_table::{LegacySessions, session_key};

/// The bus topic of a client's answer: session key, 1 for a result and 0 for an error, the id's
/// length and the id, the result or error object.
pub(super) const ANSWER_TOPIC: &str = "answer";

/// Capacity of the channel: progress reports that wait, and a place for the answer.
const REPLIES_QUEUED: usize = 8;

/// A result or an error object.
type AnswerResult = Result<Bytes, Bytes>;

impl LegacySessions {
    /// Registers a request to the client, by the JSON of the request's id; dropping the guard
    /// removes it.
    pub fn register_ask(
        self: &Arc<Self>,
        key: SessionKey,
        id: Bytes,
    ) -> (mpsc::Receiver<ClientReply>, AskGuard) {
        let (sender, receiver) = mpsc::channel(REPLIES_QUEUED);
        self.shard(&key)
            .entry(key)
            .or_default()
            .asks
            .insert(id.clone(), sender);
        (
            receiver,
            AskGuard {
                sessions: self.clone(),
                key,
                id,
            },
        )
    }

    /// The key of the session that a request names by a sealed id, which only its own client has.
    /// The session may have ended.
    pub fn sealed_key(&self, principal: &Principal, headers: &HeaderMap) -> Option<SessionKey> {
        let id = ReceivedHeader::of(headers.get_all(&crate::SESSION_HEADER)).once()?;
        let named = self.ports.ids.read(principal, id)?;
        named.opened_by.map(|_| session_key(&named.id))
    }

    /// Takes the client's answer to a request of this replica; false if no request with this id is
    /// open here.
    pub fn answer_here(&self, key: &SessionKey, id: &[u8], outcome: AnswerResult) -> bool {
        self.answer_local(key, id, outcome).is_ok()
    }

    /// Takes the client's answer to the request with this id, on any replica. It reaches another
    /// one by a message that can be lost.
    pub fn answer(&self, key: &SessionKey, id: &[u8], outcome: AnswerResult) {
        if let Err(outcome) = self.answer_local(key, id, outcome) {
            let (kind, text) = match outcome {
                Ok(result) => (1, result),
                Err(error) => (0, error),
            };
            let mut body = BytesMut::with_capacity(21 + id.len() + text.len());
            body.put_slice(&key.0);
            body.put_u8(kind);
            body.put_u32(u32::try_from(id.len()).unwrap_or(u32::MAX));
            body.put_slice(id);
            body.put_slice(&text);
            self.ports.bus.publish(BusMessage {
                topic: ANSWER_TOPIC,
                body: body.freeze(),
            });
        }
    }

    /// Delivers an answer to its local asker; returns it as an error if no request with this id is
    /// open here.
    fn answer_local(
        &self,
        key: &SessionKey,
        id: &[u8],
        outcome: AnswerResult,
    ) -> Result<(), AnswerResult> {
        let asker = self
            .shard(key)
            .get_mut(key)
            .and_then(|live| live.asks.remove(id));
        let Some(asker) = asker else {
            return Err(outcome);
        };
        // The last place in the channel is the answer's. A closed request needs no answer.
        let _late = asker.try_send(ClientReply::Answer(outcome));
        Ok(())
    }

    /// Takes an answer from the bus, sent by another replica or by this one.
    pub(super) fn answer_from_bus(&self, body: &Bytes) {
        let Some((key, rest)) = body.split_first_chunk::<16>() else {
            return;
        };
        let [kind, a, b, c, d, rest @ ..] = rest else {
            return;
        };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some((id, text)) = rest.split_at_checked(length) else {
            return;
        };
        let text = body.slice_ref(text);
        let outcome = if *kind == 1 { Ok(text) } else { Err(text) };
        if self.answer_local(&SessionKey(*key), id, outcome).is_err() {
            instruments().unexpected_responses.add(1, &[]);
        }
    }

    /// Takes the client's progress report on the request with this id.
    pub fn report_progress(&self, key: &SessionKey, id: &[u8], params: Bytes) {
        let shard = self.shard(key);
        let Some(asker) = shard.get(key).and_then(|live| live.asks.get(id)) else {
            return;
        };
        // The last place is the answer's.
        if asker.capacity() > 1 {
            let _outdated = asker.try_send(ClientReply::Progress(params));
        }
    }
}
