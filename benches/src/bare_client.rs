//! A client that costs the generator as little as possible. It sends a prepared request, and reads
//! the status, the length and the id of the answer.
//!
//! It is for loads beyond weir's capacity, with one processor for the generator and the upstream.
//! [`LoadClient`](crate::client::LoadClient) is the one that checks all parts of an answer.

use crate::client::ToolAddress;
use crate::load_clients::message;
use crate::protocol::{self, Era};
use anyhow::{Context as _, Result, bail, ensure};
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderMap, StatusCode};
use std::fmt::Write as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The first id. Ids have ten digits, so that each takes the place of the one before.
const FIRST_ID: u64 = 1_000_000_000;
/// The most bytes of an answer: more than the head and the body of any answer here.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// One kept connection to an echo tool of a modern endpoint.
#[derive(Debug)]
pub(crate) struct BareClient {
    address: ToolAddress,
    stream: TcpStream,
    request: Vec<u8>,
    /// The position of the id in the request.
    id: std::ops::Range<usize>,
    /// The message that the answer must contain.
    message: String,
    sent: u64,
    received: Vec<u8>,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareCallOutcome {
    /// The answer was right.
    Made,
    /// The call was refused for lack of capacity, by weir (503) or by the upstream.
    Refused,
}

impl BareClient {
    /// Connects, and prepares the request that all calls send; `number` makes its message distinct.
    ///
    /// # Errors
    /// No connection, or a target that makes no valid request.
    pub(crate) async fn connect(site: &ToolAddress, number: usize, payload: usize) -> Result<Self> {
        let message = message(number, 0, payload);
        let (request, id) = request(site, &message)?;
        let stream = connect(site).await?;
        Ok(Self {
            address: site.clone(),
            stream,
            request,
            id,
            message,
            sent: 0,
            received: Vec::with_capacity(MAX_ANSWER_BYTES),
        })
    }

    /// Calls once. A connection that the server closed with its last answer is reopened.
    ///
    /// # Errors
    /// No answer, or any other than the right one and 503.
    pub(crate) async fn call(&mut self) -> Result<BareCallOutcome> {
        self.sent += 1;
        let id = (FIRST_ID + self.sent).to_string();
        self.request[self.id.clone()].copy_from_slice(id.as_bytes());
        self.stream.write_all(&self.request).await?;
        self.received.clear();
        let head = loop {
            self.read().await?;
            if let Some(head) = AnswerHead::of(&self.received)? {
                break head;
            }
        };
        while self.received.len() < head.end + head.length {
            self.read().await?;
        }
        if head.is_last {
            self.stream = connect(&self.address).await?;
        }
        let body = std::str::from_utf8(&self.received[head.end..])?;
        match head.status {
            // The upstream has as many calls as it may.
            StatusCode::OK if body.contains(r#""reason":"busy""#) => Ok(BareCallOutcome::Refused),
            StatusCode::OK => {
                ensure!(
                    body.contains(&id) && body.contains(&self.message),
                    "another answer than to {id}: {body}"
                );
                Ok(BareCallOutcome::Made)
            }
            StatusCode::SERVICE_UNAVAILABLE => Ok(BareCallOutcome::Refused),
            other => bail!("{other}: {body}"),
        }
    }

    async fn read(&mut self) -> Result<()> {
        ensure!(
            self.received.len() < MAX_ANSWER_BYTES,
            "an answer that does not end"
        );
        let count = self.stream.read_buf(&mut self.received).await?;
        ensure!(count > 0, "the connection ended before its answer");
        Ok(())
    }
}

async fn connect(site: &ToolAddress) -> Result<TcpStream> {
    let stream = TcpStream::connect(site.addr)
        .await
        .with_context(|| format!("cannot connect to {}", site.addr))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns a whole request, and the position of its id.
fn request(site: &ToolAddress, message: &str) -> Result<(Vec<u8>, std::ops::Range<usize>)> {
    let id = FIRST_ID.to_string();
    let body = protocol::call(
        Era::Modern,
        FIRST_ID,
        &site.tool,
        &format!(r#"{{"message":"{message}"}}"#),
    );
    let mut headers: HeaderMap = protocol::headers(
        Era::Modern,
        &site.addr.to_string(),
        "tools/call",
        Some(&site.tool),
    )?;
    headers.insert(CONTENT_LENGTH, body.len().into());
    if let Some(credential) = &site.credential {
        headers.insert(AUTHORIZATION, credential.clone());
    }
    let mut text = format!("POST {} HTTP/1.1\r\n", site.path);
    for (name, value) in &headers {
        // Writing into a String cannot fail.
        let _ = write!(text, "{name}: {}\r\n", value.to_str()?);
    }
    text.push_str("\r\n");
    let at = text.len() + body.find(&id).context("a request without its id")?;
    text.push_str(&body);
    Ok((text.into_bytes(), at..at + id.len()))
}

/// The fields of an answer's head that the client needs.
#[derive(Debug, PartialEq, Eq)]
struct AnswerHead {
    status: StatusCode,
    /// The offset of the body.
    end: usize,
    /// The length of the body in bytes.
    length: usize,
    is_last: bool,
}

impl AnswerHead {
    /// Parses a head; no value until it is complete.
    fn of(received: &[u8]) -> Result<Option<Self>> {
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let mut lines = std::str::from_utf8(&received[..end])?.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .context("no status line")?;
        let (mut length, mut is_last) = (None, false);
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse()?);
            } else if name.eq_ignore_ascii_case("connection") {
                is_last = value.eq_ignore_ascii_case("close");
            }
        }
        let length = length.context("an answer without Content-Length")?;
        Ok(Some(Self {
            status: status.parse()?,
            end: end + 4,
            length,
            is_last,
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn request_is_complete_and_locates_its_id() {
        let site = ToolAddress {
            addr: "127.0.0.1:1".parse().unwrap(),
            path: "/mcp".parse().unwrap(),
            tool: "u0__echo".to_owned(),
            credential: None,
        };
        let (bytes, id) = request(&site, "0-0-x").unwrap();
        assert_eq!(bytes[id], *FIRST_ID.to_string().as_bytes());
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /mcp HTTP/1.1\r\n"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["params"]["arguments"]["message"], "0-0-x");
    }

    #[test]
    fn head_has_the_body_length() {
        assert_eq!(
            AnswerHead::of(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n").unwrap(),
            None
        );
        let head =
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\nConnection: close\r\n\r\n{}";
        let expected = AnswerHead {
            status: StatusCode::SERVICE_UNAVAILABLE,
            end: head.len() - 2,
            length: 2,
            is_last: true,
        };
        assert_eq!(AnswerHead::of(head).unwrap(), Some(expected));
        assert!(AnswerHead::of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
