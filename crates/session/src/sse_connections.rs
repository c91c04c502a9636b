//! The open connections of HTTP+SSE clients, and the writing of answers to their streams.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::port::{Random, ReplicaId};
use weir_core::{EndpointId, Principal};
use weir_era::session::LegacySessionRecord;
use weir_seal::Sealer;
use weir_wire::sse::StreamEncoder;

use crate::pending_answers::PendingAnswers;
use crate::stream_credentials::StreamCredentials;

/// The length of the longest id of a connection.
const MAX_ID_TEXT: usize = 32;

/// The error that breaks an answer off.
type BodyError = Box<dyn Error + Send + Sync>;

/// The open connections, by an unguessable id. Each holds a stream permit, which bounds them.
#[derive(Default)]
pub struct SseConnections(Mutex<HashMap<[u8; 16], Arc<SseConnection>>>);

/// The connection of one client.
pub struct SseConnection {
    /// The principal that opened the connection.
    pub principal: Principal,
    /// The endpoint beside which it is open.
    pub endpoint: EndpointId,
    /// The events that go out on its stream.
    pub out: mpsc::Sender<Bytes>,
    /// Held while an event is written: others must not write into it.
    pub writing: tokio::sync::Mutex<()>,
    /// The id of the session that the last `initialize` opened.
    pub session: Mutex<Option<HeaderValue>>,
    /// The answers that the client waits for.
    pub pending: Arc<PendingAnswers>,
    /// The credentials of the last message that the stream may go on with.
    pub posted: Mutex<Option<StreamCredentials>>,
    /// Cancelled when the credentials of the stream end: it ends once all messages are answered. A
    /// child of `closed`.
    pub expired: CancellationToken,
    /// Cancelled when the connection ends.
    pub closed: CancellationToken,
}

impl std::fmt::Debug for SseConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SseConnection").finish_non_exhaustive()
    }
}

/// The id of a connection, as the path of its messages names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseConnectionId {
    /// An unguessable number.
    pub id: [u8; 16],
    /// The replica that has the stream; absent if replicas share no sessions.
    pub replica: Option<ReplicaId>,
}

impl SseConnectionId {
    /// The query of the path of messages.
    pub fn to_query(&self) -> String {
        let mut bytes = self.id.to_vec();
        bytes.extend(self.replica.iter().flat_map(|replica| replica.0));
        format!("sessionId={}", BASE64URL_NOPAD.encode(&bytes))
    }

    /// The connection that a query names.
    pub fn from_query(query: &str) -> Option<Self> {
        let text = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("sessionId="))
            .filter(|text| text.len() <= MAX_ID_TEXT)?;
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (id, replica) = bytes.split_first_chunk::<16>()?;
        let replica = match replica {
            [] => None,
            name => Some(ReplicaId::from_bytes(name)?),
        };
        Some(Self { id: *id, replica })
    }
}

impl SseConnections {
    /// The connection with this id.
    pub fn find(&self, id: &[u8; 16]) -> Option<Arc<SseConnection>> {
        self.0.lock().get(id).cloned()
    }

    /// Adds a connection.
    pub fn insert(&self, id: [u8; 16], connection: Arc<SseConnection>) {
        self.0.lock().insert(id, connection);
    }

    /// Removes the connection with this id.
    pub fn remove(&self, id: &[u8; 16]) {
        self.0.lock().remove(id);
    }
}

impl SseConnection {
    /// The session of the connection, as its client would name it, if there is one.
    pub fn session(&self) -> Option<HeaderValue> {
        self.session.lock().clone()
    }

    /// The headers of a message as a client of Streamable HTTP would send them: the client's own
    /// ones, with its credentials, and the session of the connection. Those of MCP belong to other
    /// transports.
    pub fn message_headers(&self, mut posted: HeaderMap) -> HeaderMap {
        let is_of_mcp = |name: &&HeaderName| name.as_str().starts_with("mcp-");
        let of_mcp: Vec<_> = posted.keys().filter(is_of_mcp).cloned().collect();
        for name in of_mcp {
            posted.remove(name);
        }
        posted.extend(self.headers());
        posted
    }

    /// The headers that a client of Streamable HTTP would send.
    pub fn headers(&self) -> HeaderMap {
        self.session().map(session_headers).unwrap_or_default()
    }

    /// Makes this the session of the connection; returns the session before it. If the connection
    /// has ended, nothing will end the session, which is the error.
    pub fn set_session(&self, session: HeaderValue) -> Result<Option<HeaderValue>, HeaderValue> {
        let mut own = self.session.lock();
        if self.closed.is_cancelled() {
            return Err(session);
        }
        Ok(own.replace(session))
    }

    /// Keeps the credentials of a message, if the stream may go on with them after the end of its
    /// own.
    pub fn keep_credentials(&self, posted: StreamCredentials) {
        if posted.can_replace(&self.principal) {
            *self.posted.lock() = Some(posted);
        }
    }

    /// Takes no more messages that are answered: the credentials of the stream ended. Notifications
    /// of its session end, too.
    pub fn expire(&self) {
        self.expired.cancel();
        self.pending.close();
    }

    /// True if this is the session of the connection.
    pub fn has_session(&self, session: &HeaderValue) -> bool {
        self.session.lock().as_ref() == Some(session)
    }

    /// Ends the connection; returns its session.
    pub fn end(&self) -> Option<HeaderValue> {
        // In this order: a session that is set later sees the end.
        self.closed.cancel();
        self.session.lock().take()
    }

    /// Seals the settings of a session of the connection, as the id of an event. A client that
    /// connects again sends the id as `Last-Event-ID`.
    pub fn seal_session(
        &self,
        sealer: &Sealer,
        random: &dyn Random,
        session: &LegacySessionRecord,
    ) -> String {
        sealer.seal(random, &self.sealing_purpose(), &session.encode())
    }

    /// The settings in the id of an event. `None` if no connection of this principal beside this
    /// endpoint wrote the id.
    pub fn open_session(&self, sealer: &Sealer, event_id: &str) -> Option<LegacySessionRecord> {
        let record = sealer.open(&self.sealing_purpose(), event_id).ok()?;
        LegacySessionRecord::decode(&record)
    }

    fn sealing_purpose(&self) -> Vec<u8> {
        let mut purpose = b"weir http+sse session ".to_vec();
        // The principal first: its length is always the same.
        purpose.extend_from_slice(self.principal.digest());
        purpose.extend_from_slice(self.endpoint.as_str().as_bytes());
        purpose
    }

    /// Writes an answer's messages to the stream; the event of a single message has `event_id`. A
    /// body that breaks off in the middle ends the stream.
    pub async fn write<B>(&self, answer: Response<B>, event_id: Option<&str>)
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let kind = answer
            .headers()
            .get(header::CONTENT_TYPE)
            .map(|value| value.as_bytes().to_vec());
        let body = answer.into_body();
        let written = match kind.as_deref() {
            Some(b"application/json") => self.write_json(body, event_id).await,
            Some(b"text/event-stream") => self.write_events(body).await,
            // An empty answer.
            _ => Ok(()),
        };
        if written.is_err() {
            self.closed.cancel();
        }
    }

    async fn write_json<B>(&self, mut body: B, event_id: Option<&str>) -> Result<(), BodyError>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let _writing = self.writing.lock().await;
        let mut encoder = StreamEncoder::default();
        self.send(Bytes::from_static(b"event: message\n")).await?;
        self.send(encoder.begin(event_id)).await?;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let mut pieces = Vec::new();
            encoder.data(data, &mut pieces);
            for piece in pieces {
                self.send(piece).await?;
            }
        }
        self.send(encoder.end()).await
    }

    async fn write_events<B>(&self, mut body: B) -> Result<(), BodyError>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let mut writing = None;
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame?.into_data() else {
                continue;
            };
            // The connection has comments of its own.
            if writing.is_none() && piece.starts_with(b":") {
                continue;
            }
            if writing.is_none() {
                writing = Some(self.writing.lock().await);
                self.send(Bytes::from_static(b"event: message\n")).await?;
            }
            let ends = piece.ends_with(b"\n\n");
            self.send(piece).await?;
            if ends {
                writing = None;
            }
        }
        Ok(())
    }

    async fn send(&self, piece: Bytes) -> Result<(), BodyError> {
        Ok(self.out.send(piece).await?)
    }
}

/// The headers that a client of Streamable HTTP would send in this session.
pub fn session_headers(session: HeaderValue) -> HeaderMap {
    [(crate::SESSION_HEADER.clone(), session)]
        .into_iter()
        .collect()
}

impl fmt::Debug for SseConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SseConnections({})", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use weir_seal::SealerKey;
    use weir_testkit::FixedRandom;
    use weir_wire::{LogLevel, Revision};

    use super::*;

    #[test]
    fn settings_open_for_the_same_principal_endpoint_and_keys_alone() {
        let connection = |name: &str, endpoint: &str| SseConnection {
            principal: Principal::owner(Some(("idp", name))),
            endpoint: EndpointId::new(endpoint),
            out: mpsc::channel(1).0,
            writing: tokio::sync::Mutex::default(),
            session: Mutex::default(),
            pending: Arc::default(),
            posted: Mutex::default(),
            expired: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        let session = LegacySessionRecord {
            revision: Revision::V2024_11_05,
            class: weir_core::CapabilityClass::SAMPLING,
            level: Some(LogLevel::Error),
            initialized: true,
            began: std::time::UNIX_EPOCH,
        };
        let sealer = |secret| Sealer::new(vec![SealerKey::new(1, &[secret; 32])]);
        let ada = connection("ada", "/mcp");
        let id = ada.seal_session(&sealer(1), &FixedRandom(7), &session);
        let open =
            |connection: SseConnection, secret| connection.open_session(&sealer(secret), &id);
        assert_eq!(open(connection("ada", "/mcp"), 1), Some(session));
        assert_eq!(open(connection("bob", "/mcp"), 1), None);
        assert_eq!(open(connection("ada", "/mcp/files"), 1), None);
        assert_eq!(open(connection("ada", "/mcp"), 2), None);
        let changed = format!("{}A", &id[..id.len() - 1]);
        for bad in ["", "7", &changed] {
            assert_eq!(ada.open_session(&sealer(1), bad), None, "{bad}");
        }
    }

    #[test]
    fn connection_id_survives_its_query_with_and_without_a_replica() {
        for replica in [None, Some(ReplicaId(*b"replica1"))] {
            let id = SseConnectionId {
                id: [9; 16],
                replica,
            };
            let query = format!("a=b&{}", id.to_query());
            assert_eq!(SseConnectionId::from_query(&query), Some(id));
        }
        let long = format!("sessionId={}", "A".repeat(64));
        for bad in [
            "",
            "sessionId=",
            "sessionId=AAAA",
            "sessionId=!",
            &long,
            "id=AAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(SseConnectionId::from_query(bad), None, "{bad}");
        }
    }
}
