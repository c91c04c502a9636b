//! One listening client of a fan-out run, as lean as possible: a bare socket, chunked decoding,
//! events.
//!
//! 19,000 of these must read one event each without slowing the measured process, so there is no
//! HTTP library between the socket and the event. The handshake before the stream does use one.

use crate::client::LoadClient;
use crate::protocol::{self, Era, SESSION, TOOLS_CHANGED};
use crate::sse::EventLines;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use http::{HeaderMap, HeaderValue, Uri};
use serde::Deserialize;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// The longest head of a response that is read.
const MAX_HEAD: usize = 16 << 10;

thread_local! {
    /// The read buffer, shared by all listeners of a thread, because it keeps no bytes across an
    /// await.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct StreamListener {
    stream: TcpStream,
    decoder: ChunkedDecoder,
    era: Era,
    id: u64,
    acknowledged: bool,
}

/// Reads an HTTP/1.1 response with a chunked event stream in any chunks.
#[derive(Debug)]
struct ChunkedDecoder {
    phase: ChunkedDecoderPhase,
    events: EventLines,
}

#[derive(Debug)]
enum ChunkedDecoderPhase {
    Head(Vec<u8>),
    /// In the line of a chunk's size; `true` once its extension began.
    Size(u64, bool),
    Data(u64),
    /// Behind a chunk's data.
    LineEnd,
    Ended,
}

#[derive(Deserialize)]
struct ListenerNotification<'a> {
    method: Option<&'a str>,
    params: Option<ListenerParams>,
}

#[derive(Deserialize)]
struct ListenerParams {
    #[serde(rename = "_meta")]
    meta: Option<ListenerMeta>,
}

#[derive(Deserialize)]
struct ListenerMeta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<u64>,
}

impl StreamListener {
    /// Opens a stream: a legacy session and its GET, or a modern `subscriptions/listen` until it is
    /// acknowledged.
    ///
    /// # Errors
    /// Any answer that is not such a stream.
    pub(crate) async fn open(addr: SocketAddr, path: &Uri, era: Era, id: u64) -> Result<Self> {
        let (mut stream, head, body) = match era {
            Era::Modern => {
                let stream = TcpStream::connect(addr).await.context("cannot connect")?;
                stream.set_nodelay(true)?;
                let mut headers =
                    protocol::headers(era, &addr.to_string(), "subscriptions/listen", None)?;
                let body = protocol::listen(id);
                headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(body.len()));
                (stream, head("POST", path, &headers), body)
            }
            Era::Legacy => {
                let (stream, session) = LoadClient::connect(addr, path, era)
                    .await?
                    .into_stream()
                    .await?;
                let mut headers = protocol::headers(era, &addr.to_string(), "GET", None)?;
                headers.remove(http::header::CONTENT_TYPE);
                headers.insert(SESSION, session.context("no session id")?);
                (stream, head("GET", path, &headers), String::new())
            }
        };
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let decoder = ChunkedDecoder {
            phase: ChunkedDecoderPhase::Head(Vec::new()),
            events: EventLines::default(),
        };
        let mut listener = Self {
            stream,
            decoder,
            era,
            id,
            acknowledged: false,
        };
        while !listener.is_open() {
            let changes = listener.read().await?;
            ensure!(changes == 0, "a change before the stream was acknowledged");
        }
        Ok(listener)
    }

    /// Waits for bytes and returns the count of changes in them; 0 for a comment or part of an
    /// event. Dropping the future is safe: no bytes are lost.
    ///
    /// # Errors
    /// The stream ended or broke, or an event was invalid.
    pub(crate) async fn read(&mut self) -> Result<usize> {
        loop {
            self.stream.readable().await?;
            let Self {
                stream,
                decoder,
                era,
                id,
                acknowledged,
            } = self;
            let read = BUFFER.with_borrow_mut(|buffer| match stream.try_read(buffer) {
                Ok(0) => Some(Err(anyhow!("the stream ended"))),
                Ok(read) => Some(changes(decoder, &buffer[..read], *era, *id, acknowledged)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => Some(Err(error.into())),
            });
            if let Some(read) = read {
                return read;
            }
        }
    }

    const fn is_open(&self) -> bool {
        match self.era {
            Era::Modern => self.acknowledged,
            Era::Legacy => !matches!(self.decoder.phase, ChunkedDecoderPhase::Head(_)),
        }
    }
}

/// Feeds bytes and counts the changes in them.
fn changes(
    decoder: &mut ChunkedDecoder,
    bytes: &[u8],
    era: Era,
    id: u64,
    acknowledged: &mut bool,
) -> Result<usize> {
    let mut changes = 0;
    let mut wrong = None;
    decoder.push(bytes, |data| match read_event(data, era, id) {
        Ok(Some(ListenerEvent::Changed)) => changes += 1,
        Ok(Some(ListenerEvent::Acknowledged)) => *acknowledged = true,
        Ok(None) => {}
        Err(error) => wrong = Some(error),
    })?;
    wrong.map_or(Ok(changes), Err)
}

enum ListenerEvent {
    Acknowledged,
    Changed,
}

/// Reads an event, if it is one that a listener waits for. A modern one must carry the id of its
/// listen request.
fn read_event(data: &[u8], era: Era, id: u64) -> Result<Option<ListenerEvent>> {
    let note: ListenerNotification<'_> =
        serde_json::from_slice(data).context("an event that is no message")?;
    let told = match note.method {
        Some(TOOLS_CHANGED) => ListenerEvent::Changed,
        Some("notifications/subscriptions/acknowledged") => ListenerEvent::Acknowledged,
        _ => return Ok(None),
    };
    let subscription = note
        .params
        .and_then(|params| params.meta)
        .and_then(|meta| meta.subscription);
    ensure!(
        era == Era::Legacy || subscription == Some(id),
        "subscription id {subscription:?} instead of {id}"
    );
    Ok(Some(told))
}

fn head(method: &str, path: &Uri, headers: &HeaderMap) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        // Every value here was made from text.
        head.push_str(&format!(
            "{name}: {}\r\n",
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    head + "\r\n"
}

impl ChunkedDecoder {
    fn push(&mut self, mut bytes: &[u8], mut found: impl FnMut(&[u8])) -> Result<()> {
        while let Some(&first) = bytes.first() {
            match &mut self.phase {
                ChunkedDecoderPhase::Data(left) => {
                    let size = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    let (data, rest) = bytes.split_at(size);
                    *left -= size as u64;
                    if *left == 0 {
                        self.phase = ChunkedDecoderPhase::LineEnd;
                    }
                    bytes = rest;
                    self.events
                        .push(data, &mut found)
                        .map_err(|_| anyhow!("an event without end"))?;
                }
                ChunkedDecoderPhase::Ended => bail!("the stream ended"),
                phase @ (ChunkedDecoderPhase::Head(_)
                | ChunkedDecoderPhase::Size(..)
                | ChunkedDecoderPhase::LineEnd) => {
                    phase.step(first)?;
                    bytes = &bytes[1..];
                }
            }
        }
        Ok(())
    }
}

impl ChunkedDecoderPhase {
    /// Takes one byte of the framing around the data.
    fn step(&mut self, byte: u8) -> Result<()> {
        match self {
            Self::Head(head) => {
                head.push(byte);
                if head.ends_with(b"\r\n\r\n") {
                    check_head(head)?;
                    *self = Self::Size(0, false);
                } else if head.len() > MAX_HEAD {
                    bail!("a head without end");
                }
            }
            Self::Size(size, extension) => match (byte, char::from(byte).to_digit(16)) {
                (b'\n', _) => {
                    *self = if *size == 0 {
                        Self::Ended
                    } else {
                        Self::Data(*size)
                    }
                }
                (b'\r', _) => {}
                (_, Some(digit)) if !*extension => *size = (*size << 4) | u64::from(digit),
                (b';', _) => *extension = true,
                _ if *extension => {}
                _ => bail!("not the size of a chunk"),
            },
            Self::LineEnd => match byte {
                b'\r' => {}
                b'\n' => *self = Self::Size(0, false),
                _ => bail!("a chunk longer than its size"),
            },
            Self::Data(_) | Self::Ended => bail!("the stream ended"),
        }
        Ok(())
    }
}

fn check_head(head: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    ensure!(
        text.starts_with("http/1.1 200"),
        "no stream: {}",
        text.lines().next().unwrap_or_default()
    );
    ensure!(
        text.contains("content-type: text/event-stream"),
        "no event stream: {text}"
    );
    ensure!(
        text.contains("transfer-encoding: chunked"),
        "not chunked: {text}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn decoder() -> ChunkedDecoder {
        ChunkedDecoder {
            phase: ChunkedDecoderPhase::Head(Vec::new()),
            events: EventLines::default(),
        }
    }

    const STREAM: &str = concat!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        "a;x=y\r\ndata: {\"me\r\n3d\r\nthod\":\"notifications/tools/list_changed\"}\n\n",
        ": keep-alive\n\ndata\r\n34\r\n: {\"method\":\"notifications/tools/list_changed\"}\n\n:\n\n\r\n",
    );

    #[test]
    fn stream_cut_anywhere_has_the_same_changes() {
        for size in 1..STREAM.len() {
            let mut decoder = decoder();
            let mut told = 0;
            for chunk in STREAM.as_bytes().chunks(size) {
                told += changes(&mut decoder, chunk, Era::Legacy, 0, &mut false).unwrap();
            }
            assert_eq!(told, 2, "chunks of {size}");
        }
    }

    #[test]
    fn a_modern_event_must_carry_the_id_of_its_listen_request() {
        let note = |id: u64| {
            format!(
                r#"{{"method":"{TOOLS_CHANGED}","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
            )
        };
        assert!(matches!(
            read_event(note(3).as_bytes(), Era::Modern, 3),
            Ok(Some(ListenerEvent::Changed))
        ));
        assert!(read_event(note(4).as_bytes(), Era::Modern, 3).is_err());
        assert!(read_event(b"{", Era::Modern, 3).is_err());
    }

    #[test]
    fn anything_but_an_event_stream_is_refused() {
        for head in [
            "HTTP/1.1 503 Busy\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n",
        ] {
            assert!(decoder().push(head.as_bytes(), |_| {}).is_err());
        }
    }

    #[test]
    fn the_last_chunk_ends_the_stream() {
        let mut decoder = decoder();
        decoder.push(STREAM.as_bytes(), |_| {}).unwrap();
        assert!(decoder.push(b"0\r\n\r\n", |_| {}).is_err());
    }
}
