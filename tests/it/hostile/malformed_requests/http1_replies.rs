//! Answers over HTTP/1.1, read one behind the other and checked.

use std::io;

use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// The longest head of an answer, and the longest body, in bytes.
const MAX_REPLY_BYTES: usize = 4 << 20;

/// An answer.
pub struct Http1Reply {
    pub status: u16,
    pub kind: String,
    pub body: Vec<u8>,
    /// True if the connection ends behind it.
    pub closes: bool,
}

impl std::fmt::Debug for Http1Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.status,
            self.kind,
            self.body[..self.body.len().min(2000)].escape_ascii()
        )
    }
}

/// The answers on a connection.
#[derive(Default)]
pub struct Http1ReplyReader {
    read: Vec<u8>,
    /// True once the other side has closed.
    pub closed: bool,
}

impl Http1ReplyReader {
    /// Returns the next answer; `None` at the end of the connection, or after a reset. Interim
    /// answers are skipped.
    pub async fn next(&mut self, stream: &mut TcpStream) -> io::Result<Option<Http1Reply>> {
        loop {
            let Some(end) = self.until(stream, b"\r\n\r\n", 0).await? else {
                return Ok(None);
            };
            let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
            // An input may be in HTTP/1.0, and is answered in that version.
            let status = head
                .strip_prefix("HTTP/1.1 ")
                .or_else(|| head.strip_prefix("HTTP/1.0 "));
            let status = status.and_then(|rest| rest.get(..3)?.parse().ok());
            let status: u16 =
                status.ok_or_else(|| io::Error::other(format!("no answer but {head:?}")))?;
            self.read.drain(..end);
            if status < 200 {
                continue;
            }
            let field = |name: &str| {
                let fields = head.lines().filter_map(|line| line.split_once(':'));
                fields
                    .filter(|(own, _)| own.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.trim().to_owned())
                    .next()
            };
            let body = if let Some(length) = field("content-length") {
                self.exactly(stream, length.parse().map_err(io::Error::other)?)
                    .await?
            } else if field("transfer-encoding").is_some_and(|coding| coding == "chunked") {
                self.chunked(stream).await?
            } else if matches!(status, 204 | 304) {
                Some(Vec::new())
            } else if head.starts_with("HTTP/1.0") {
                while self.more(stream).await? {}
                Some(std::mem::take(&mut self.read))
            } else {
                return Err(io::Error::other(format!(
                    "an answer without a length: {head:?}"
                )));
            };
            let kind = field("content-type").unwrap_or_default();
            let closes =
                field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
            return Ok(body.map(|body| Http1Reply {
                status,
                kind,
                body,
                closes,
            }));
        }
    }

    /// Reads until `mark` stands behind `from`; returns the position of its end.
    async fn until(
        &mut self,
        stream: &mut TcpStream,
        mark: &[u8],
        from: usize,
    ) -> io::Result<Option<usize>> {
        loop {
            if let Some(at) = self.read[from.min(self.read.len())..]
                .windows(mark.len())
                .position(|part| part == mark)
            {
                return Ok(Some(from + at + mark.len()));
            }
            if !self.more(stream).await? {
                return Ok(None);
            }
        }
    }

    async fn exactly(
        &mut self,
        stream: &mut TcpStream,
        length: usize,
    ) -> io::Result<Option<Vec<u8>>> {
        while self.read.len() < length {
            if !self.more(stream).await? {
                return Ok(None);
            }
        }
        Ok(Some(self.read.drain(..length).collect()))
    }

    /// Reads a chunked body. A stream that its client left ends in the middle: the part that came
    /// is returned.
    async fn chunked(&mut self, stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        loop {
            let Some(end) = self.until(stream, b"\r\n", 0).await? else {
                return Ok(Some(body));
            };
            let size = std::str::from_utf8(&self.read[..end - 2])
                .ok()
                .and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.ok_or_else(|| io::Error::other("a chunk without a size"))?;
            self.read.drain(..end);
            let Some(part) = self.exactly(stream, size + 2).await? else {
                return Ok(Some(body));
            };
            body.extend_from_slice(&part[..size]);
            if size == 0 {
                return Ok(Some(body));
            }
        }
    }

    /// Reads on; false at the end.
    async fn more(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        if self.read.len() > MAX_REPLY_BYTES {
            return Err(io::Error::other("an answer that is too long"));
        }
        let read = match stream.read_buf(&mut self.read).await {
            Ok(read) => read,
            // Closed before weir read all bytes that were sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error),
        };
        self.closed |= read == 0;
        Ok(read > 0)
    }
}

/// Checks that an answer is one that any input may get.
pub fn judge(reply: &Http1Reply) -> Result<(), &'static str> {
    let json = || serde_json::from_slice::<Value>(&reply.body).map_err(|_| "no JSON");
    match reply.status {
        202 | 204 => reply
            .body
            .is_empty()
            .then_some(())
            .ok_or("a body of nothing"),
        200 if reply.kind.starts_with("text/event-stream") => events(&reply.body),
        200 => is_message(&json()?)
            .then_some(())
            .ok_or("no message of JSON-RPC"),
        400..500 if reply.kind.starts_with("application/json") => {
            let message = json()?;
            (is_message(&message) && message.get("error").is_some())
                .then_some(())
                .ok_or("no error of JSON-RPC")
        }
        400..500 => Ok(()),
        _ => Err("an answer that nothing malformed may get"),
    }
}

/// Checks that the data of each event is a message, or empty.
fn events(body: &[u8]) -> Result<(), &'static str> {
    let text = String::from_utf8_lossy(body);
    // The last one may have been cut off.
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    let data = whole
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim);
    for one in data.filter(|data| !data.is_empty()) {
        let message = serde_json::from_str(one).map_err(|_| "an event of no JSON")?;
        if !is_message(&message) {
            return Err("an event of no message");
        }
    }
    Ok(())
}

/// Reports if it is a message of JSON-RPC 2.0, or a batch of them.
pub fn is_message(value: &Value) -> bool {
    if let Value::Array(items) = value {
        return !items.is_empty() && items.iter().all(is_message);
    }
    let Some(message) = value.as_object() else {
        return false;
    };
    let id = message.get("id");
    // Whole numbers of any size, also -0, come back unchanged.
    let is_whole = |id: &Value| id.as_f64().is_some_and(|number| number.fract() == 0.0);
    let is_id = id.is_some_and(|id| id.is_string() || is_whole(id));
    if message.get("jsonrpc") != Some(&"2.0".into()) {
        return false;
    }
    match (
        message.get("method"),
        message.get("result"),
        message.get("error"),
    ) {
        (Some(method), None, None) => method.is_string() && (id.is_none() || is_id),
        (None, Some(result), None) => result.is_object() && is_id,
        // An error for a request whose id is unknown has a null id.
        (None, None, Some(error)) => {
            error["code"].is_i64()
                && error["message"].is_string()
                && id.is_none_or(|id| is_id || id.is_null())
        }
        _ => false,
    }
}
