//! Bytes that no HTTP library would send, and a plain reader of the answers.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::WeirWithUpstream;
use super::weir_with_upstream::within_timeout;

/// More bytes than any answer here has.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// A connection to weir.
pub struct RawConnection {
    pub stream: TcpStream,
    read: Vec<u8>,
}

/// An HTTP/1.1 response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl RawReply {
    /// Returns a response without a body, even if its head declares one.
    pub fn of_head(text: &str) -> Self {
        let head = text
            .strip_suffix("\r\n\r\n")
            .unwrap_or_else(|| panic!("not one head: {text:?}"));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap();
        Self {
            status,
            head: head.to_owned(),
            body: String::new(),
        }
    }

    /// Returns a header's value; the case of the name is ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

impl RawConnection {
    pub async fn to(stage: &WeirWithUpstream) -> Self {
        let stream = TcpStream::connect(stage.authority()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Writes bytes. weir may close the connection at any time, which these tests are about.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Returns the next response; no value if the connection ends before one.
    ///
    /// # Panics
    ///
    /// If it ends inside a response, or weir never answers.
    pub async fn reply(&mut self) -> Option<RawReply> {
        within_timeout("an answer", async {
            loop {
                if let Some((reply, length)) = parse(&self.read, false) {
                    self.read.drain(..length);
                    if reply.status != 100 {
                        return Some(reply);
                    }
                } else if !self.more().await {
                    return parse(&self.read, true).map(|(reply, length)| {
                        self.read.drain(..length);
                        reply
                    });
                }
            }
        })
        .await
    }

    /// Returns every response until weir closes the connection.
    ///
    /// # Panics
    ///
    /// If weir does not close it.
    pub async fn replies(mut self) -> Vec<RawReply> {
        within_timeout("the connection to be closed", async {
            while self.more().await {}
        })
        .await;
        let mut replies = Vec::new();
        while let Some((reply, length)) = parse(&self.read, true) {
            self.read.drain(..length);
            replies.push(reply);
        }
        assert!(
            self.read.is_empty(),
            "not HTTP: {:?}",
            String::from_utf8_lossy(&self.read)
        );
        replies
    }

    /// Reads on; false at the end of the connection, orderly or not.
    async fn more(&mut self) -> bool {
        assert!(self.read.len() < MAX_ANSWER_BYTES, "an endless answer");
        matches!(self.stream.read_buf(&mut self.read).await, Ok(read) if read > 0)
    }
}

/// Sends all bytes on a connection of its own and returns every response until weir closes it.
pub async fn send_and_read_all(stage: &WeirWithUpstream, bytes: &[u8]) -> Vec<RawReply> {
    let mut line = RawConnection::to(stage).await;
    // A connection that is cut off in the middle is an answer too.
    let _ = line.write(bytes).await;
    line.replies().await
}

/// Returns a POST to the endpoint: these lines after the usual ones, each ended by CRLF, and this
/// body with its length.
pub fn post(stage: &WeirWithUpstream, lines: &[&str], body: &str) -> String {
    let length = format!("Content-Length: {}", body.len());
    head(
        stage,
        "POST /mcp HTTP/1.1",
        &[lines, &[length.as_str()]].concat(),
    ) + body
}

/// Returns a request head for JSON with `StdioHost`, and these lines.
pub fn head(stage: &WeirWithUpstream, first: &str, lines: &[&str]) -> String {
    let mut text = format!(
        "{first}\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n",
        stage.authority()
    );
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text + "\r\n"
}

/// Returns the header lines of a modern request of this method, and its body: a call of `tool`, or
/// a request without params of its own.
pub fn modern_request_parts(method: &str, tool: Option<&str>, id: &str) -> (Vec<String>, String) {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let mut lines = vec![
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        format!("Mcp-Method: {method}"),
    ];
    let name = tool.map_or_else(String::new, |tool| {
        lines.push(format!("Mcp-Name: {tool}"));
        format!(r#""name":"{tool}","arguments":{{}},"#)
    });
    (
        lines,
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{{name}{meta}}}}}"#),
    )
}

/// Returns a whole good request as text; `close` asks weir to close the connection after it.
pub fn good_request(
    stage: &WeirWithUpstream,
    method: &str,
    tool: Option<&str>,
    close: bool,
) -> String {
    let (mut lines, body) = modern_request_parts(method, tool, "raw");
    if close {
        lines.push("Connection: close".to_owned());
    }
    post(
        stage,
        &lines.iter().map(String::as_str).collect::<Vec<_>>(),
        &body,
    )
}

fn parse(bytes: &[u8], ended: bool) -> Option<(RawReply, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("not HTTP: {head:?}"));
    let mut reply = RawReply {
        status,
        head,
        body: String::new(),
    };
    let (body, length) = if status < 200 || status == 204 || status == 304 {
        (Vec::new(), 0)
    } else if reply.header("transfer-encoding").is_some() {
        chunks(&bytes[end..])?
    } else if let Some(length) = reply
        .header("content-length")
        .map(|length| length.parse::<usize>().unwrap())
    {
        (bytes[end..].get(..length)?.to_vec(), length)
    } else if ended {
        (bytes[end..].to_vec(), bytes.len() - end)
    } else {
        return None;
    };
    reply.body = String::from_utf8_lossy(&body).into_owned();
    Some((reply, end + length))
}

/// Returns a chunked body and its length on the wire; no value if it is incomplete.
fn chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let size =
            usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).ok()?, 16).ok()?;
        at += line + 2;
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
        if size == 0 {
            return (at <= bytes.len()).then_some((body, at));
        }
    }
}
