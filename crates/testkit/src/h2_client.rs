//! A client of HTTP/2 that writes frames by hand, for frames and sequences that no library would
//! send.

use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The type of a frame of data (RFC 9113, section 6).
pub const DATA: u8 = 0;
/// The type of a frame with a header block.
pub const HEADERS: u8 = 1;
/// The type of the obsolete priority of a stream.
pub const PRIORITY: u8 = 2;
/// The type of the abrupt end of a stream.
pub const RST_STREAM: u8 = 3;
/// The type of the settings of a connection.
pub const SETTINGS: u8 = 4;
/// The type of the server's announcement of a stream.
pub const PUSH_PROMISE: u8 = 5;
/// The type of a ping, or with [`ACK`] of its answer.
pub const PING: u8 = 6;
/// The type of the end of a connection.
pub const GOAWAY: u8 = 7;
/// The type of a window increment, of a stream or the connection.
pub const WINDOW_UPDATE: u8 = 8;
/// The type of the rest of a header block.
pub const CONTINUATION: u8 = 9;

/// The flag of the last frame of a stream, on DATA and HEADERS.
pub const END_STREAM: u8 = 1;
/// The flag of an acknowledgment, on SETTINGS and PING.
pub const ACK: u8 = 1;
/// The flag of the last frame of a header block.
pub const END_HEADERS: u8 = 4;

/// The setting `SETTINGS_HEADER_TABLE_SIZE`.
pub const HEADER_TABLE_SIZE: u16 = 1;
/// The setting `SETTINGS_MAX_CONCURRENT_STREAMS`.
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
/// The setting `SETTINGS_INITIAL_WINDOW_SIZE`.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// The error code `NO_ERROR`.
pub const NO_ERROR: u32 = 0;
/// The error code `REFUSED_STREAM`.
pub const REFUSED_STREAM: u32 = 7;
/// The error code `CANCEL`.
pub const CANCEL: u32 = 8;
/// The error code `ENHANCE_YOUR_CALM`.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// An HTTP/2 frame.
#[derive(Clone, Debug)]
pub struct H2Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// The payload behind its head.
    pub payload: Bytes,
}

impl H2Frame {
    /// The error code of a RST_STREAM or GOAWAY.
    pub fn error_code(&self) -> Option<u32> {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        self.payload.get(at..at + 4).map(|mut code| code.get_u32())
    }

    /// The status of a response's HEADERS.
    pub fn status(&self) -> Option<u16> {
        if self.kind == HEADERS {
            status(&self.payload)
        } else {
            None
        }
    }

    /// True for the last frame of a stream, a reset included.
    pub fn ends_stream(&self) -> bool {
        self.kind == RST_STREAM
            || matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// A connection with frames written by the test. It answers only SETTINGS and PING by itself.
#[derive(Debug)]
pub struct H2Client<S = TcpStream> {
    io: S,
    authority: String,
    read: BytesMut,
    next: u32,
}

impl H2Client {
    /// Connects to the host and port of `url` in clear text, and writes preface and settings.
    pub async fn connect(url: &str, settings: &[(u16, u32)]) -> io::Result<Self> {
        let url: Uri = url.parse().map_err(io::Error::other)?;
        let authority = url
            .authority()
            .ok_or_else(|| io::Error::other("an absolute URL is needed"))?;
        let stream = TcpStream::connect(authority.as_str()).await?;
        stream.set_nodelay(true)?;
        Self::over(stream, authority.as_str(), settings).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> H2Client<S> {
    /// Starts HTTP/2 on an open stream. The header table is switched off, so that a status can be
    /// read alone.
    pub async fn over(mut io: S, authority: &str, settings: &[(u16, u32)]) -> io::Result<Self> {
        io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        let mut client = Self {
            io,
            authority: authority.to_owned(),
            read: BytesMut::new(),
            next: 1,
        };
        let mut payload = Vec::new();
        for (name, value) in [(HEADER_TABLE_SIZE, 0)].iter().chain(settings) {
            payload.put_u16(*name);
            payload.put_u32(*value);
        }
        client.send(SETTINGS, 0, 0, &payload).await?;
        Ok(client)
    }

    /// Writes a frame.
    pub async fn send(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        self.io
            .write_all(&frame(kind, flags, stream, payload))
            .await
    }

    /// Writes frames, or any bytes, as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await
    }

    /// The next unused stream id.
    pub fn next_stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// The header block of a request with these headers beside the pseudo-headers.
    pub fn block(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        let pseudo = [
            (":method", method),
            (":scheme", "http"),
            (":path", path),
            (":authority", &self.authority),
        ];
        for (name, value) in pseudo.iter().chain(headers) {
            literal(&mut block, name, value);
        }
        block
    }

    /// Sends a request without a body; gives its stream.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<u32> {
        let (stream, block) = (self.next_stream(), self.block("GET", path, headers));
        self.send_raw(&head(stream, END_STREAM, &block)).await?;
        Ok(stream)
    }

    /// Sends a POST with a body that fits into one frame; gives its stream.
    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<u32> {
        let (stream, block) = (self.next_stream(), self.block("POST", path, headers));
        let mut bytes = head(stream, 0, &block);
        bytes.extend(frame(DATA, END_STREAM, stream, body));
        self.send_raw(&bytes).await?;
        Ok(stream)
    }

    /// Grants window to a stream, or with 0 to the connection.
    pub async fn grant(&mut self, stream: u32, bytes: u32) -> io::Result<()> {
        self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
            .await
    }

    /// Returns the next frame, or no frame when the connection ends. Errors if it is reset.
    pub async fn next_frame(&mut self) -> io::Result<Option<H2Frame>> {
        loop {
            let Some(frame) = self.take().await? else {
                return Ok(None);
            };
            match (frame.kind, frame.flags & ACK) {
                (SETTINGS, 0) => self.send(SETTINGS, ACK, 0, b"").await?,
                (PING, 0) => self.send(PING, ACK, 0, &frame.payload).await?,
                _ => {}
            }
            // Acknowledgments of this client's own frames are dropped.
            if frame.kind != SETTINGS && (frame.kind, frame.flags) != (PING, ACK) {
                return Ok(Some(frame));
            }
        }
    }

    /// Reads until a frame matches. Errors if the connection ends before.
    pub async fn until(&mut self, wanted: impl Fn(&H2Frame) -> bool) -> io::Result<H2Frame> {
        loop {
            match self.next_frame().await? {
                Some(frame) if wanted(&frame) => return Ok(frame),
                Some(_) => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Reads to the end of a stream; returns its status and body. Frames of other streams are
    /// dropped.
    pub async fn response(&mut self, stream: u32) -> io::Result<(u16, Bytes)> {
        let (mut status, mut body) = (0, BytesMut::new());
        loop {
            let frame = self.until(|frame| frame.stream == stream).await?;
            if frame.kind == RST_STREAM {
                return Err(io::Error::other(format!(
                    "stream {stream} was reset: {:?}",
                    frame.error_code()
                )));
            }
            status = frame.status().unwrap_or(status);
            if frame.kind == DATA {
                body.extend_from_slice(&frame.payload);
            }
            if frame.ends_stream() {
                return Ok((status, body.freeze()));
            }
        }
    }

    async fn take(&mut self) -> io::Result<Option<H2Frame>> {
        take_frame(&mut self.io, &mut self.read).await
    }
}

/// Reads the next frame from `io`; `read` holds the bytes read beyond the last one. Returns no
/// frame when the connection ends.
pub(crate) async fn take_frame(
    io: &mut (impl AsyncRead + Unpin),
    read: &mut BytesMut,
) -> io::Result<Option<H2Frame>> {
    loop {
        if read.len() >= 9 {
            let length =
                usize::from(read[0]) << 16 | usize::from(read[1]) << 8 | usize::from(read[2]);
            if read.len() >= 9 + length {
                let mut head = read.split_to(9);
                head.advance(3);
                let (kind, flags, stream) =
                    (head.get_u8(), head.get_u8(), head.get_u32() & 0x7fff_ffff);
                return Ok(Some(H2Frame {
                    kind,
                    flags,
                    stream,
                    payload: read.split_to(length).freeze(),
                }));
            }
        }
        if io.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}

/// Returns a header block in as many frames as it needs.
pub fn head(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = block.chunks(16 << 10).collect();
    let frames = parts.iter().enumerate().flat_map(|(number, part)| {
        let kind = if number == 0 { HEADERS } else { CONTINUATION };
        let flags = if number == 0 { flags } else { 0 };
        let last = if number + 1 == parts.len() {
            END_HEADERS
        } else {
            0
        };
        frame(kind, flags | last, stream, part)
    });
    frames.collect()
}

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + payload.len());
    out.put_uint(payload.len() as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
    out.put_slice(payload);
    out
}

/// Appends a header as a literal without indexing (RFC 7541, 6.2.2).
pub fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        length(block, text.len());
        block.extend_from_slice(text.as_bytes());
    }
}

/// Appends an integer with a prefix of 7 bits (RFC 7541, 5.1).
fn length(block: &mut Vec<u8>, mut length: usize) {
    if length < 127 {
        block.push(length as u8);
        return;
    }
    block.push(127);
    length -= 127;
    while length >= 128 {
        block.push((length % 128 + 128) as u8);
        length /= 128;
    }
    block.push(length as u8);
}

/// Reads the status at the beginning of a header block that uses no dynamic table.
fn status(block: &[u8]) -> Option<u16> {
    // Updates of the table's size come before it.
    let mut block = &block[block.iter().position(|byte| byte & 0xe0 != 0x20)?..];
    match block.get_u8() {
        indexed @ 0x88..=0x8e => {
            Some([200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)])
        }
        // A literal with the static table's `:status` as its name: 6 bits of index, or 4.
        literal if (8..=14).contains(&(literal & 0x3f)) => {
            let length = block.get_u8();
            let value = block.get(..usize::from(length & 0x7f))?;
            let digits = if length & 0x80 == 0 {
                value.to_vec()
            } else {
                huffman_digits(value)
            };
            std::str::from_utf8(&digits).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// The digits of a Huffman-coded number (RFC 7541, Appendix B): 0 to 2 have five bits, 3 to 9 six.
fn huffman_digits(coded: &[u8]) -> Vec<u8> {
    let bits = coded
        .iter()
        .fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let (mut left, mut digits) = (coded.len() * 8, Vec::new());
    while left >= 5 {
        let five = (bits >> (left - 5)) & 0x1f;
        if five <= 2 {
            digits.push(b'0' + five as u8);
            left -= 5;
        } else if left >= 6 && (0x19..=0x1f).contains(&((bits >> (left - 6)) & 0x3f)) {
            digits.push(b'3' + (((bits >> (left - 6)) & 0x3f) - 0x19) as u8);
            left -= 6;
        } else {
            break;
        }
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_every_coding() {
        assert_eq!(status(&[0x20, 0x88]), Some(200));
        assert_eq!(status(&[0x48, 3, b'4', b'3', b'1']), Some(431));
        // RFC 7541, C.6.1: 302 in Huffman code.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), Some(302));
        assert_eq!(status(&[0x88, 0x00]), Some(200));
    }

    #[test]
    fn long_values_have_long_lengths() {
        let mut block = Vec::new();
        literal(&mut block, "a", &"b".repeat(1337));
        // RFC 7541, C.1.2, with seven bits: 1337 - 127 = 1210 = 9 * 128 + 58.
        assert_eq!(block[..6], [0, 1, b'a', 127, 58 + 128, 9]);
    }
}
