//! The writer of events: one event in, one event out, for any bytes.

use bytes::{BufMut, Bytes, BytesMut};

/// Appends one event. Line breaks in `data` become further `data` lines, so no data can begin a
/// field or end the event; `id` loses line breaks and NUL. `retry` is in milliseconds.
pub fn write_event(out: &mut BytesMut, id: Option<&str>, retry: Option<u64>, data: &[u8]) {
    out.reserve(data.len() + 64);
    head(out, id, retry);
    out.put_slice(b"data: ");
    let mut rest = data;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
        out.put_slice(&rest[..at]);
        out.put_slice(b"\ndata: ");
        let both = rest[at..].starts_with(b"\r\n");
        rest = &rest[at + 1 + usize::from(both)..];
    }
    out.put_slice(rest);
    out.put_slice(b"\n\n");
}

/// Appends a `retry` field without an event: the reconnection time in milliseconds.
pub fn write_retry(out: &mut BytesMut, millis: u64) {
    head(out, None, Some(millis));
    out.put_u8(b'\n');
}

/// Appends a `retry` field and an empty comment: the beginning of a stream that has no event yet.
pub fn write_opening(out: &mut BytesMut, millis: u64) {
    head(out, None, Some(millis));
    write_comment(out, "");
}

/// Appends a comment line (a keep-alive). Line breaks in `text` become spaces.
pub fn write_comment(out: &mut BytesMut, text: &str) {
    out.put_u8(b':');
    out.extend(text.bytes().map(|byte| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            byte
        }
    }));
    out.put_slice(b"\n\n");
}

fn head(out: &mut BytesMut, id: Option<&str>, retry: Option<u64>) {
    if let Some(id) = id {
        out.put_slice(b"id: ");
        out.extend(id.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r' | 0)));
        out.put_u8(b'\n');
    }
    if let Some(millis) = retry {
        out.put_slice(format!("retry: {millis}\n").as_bytes());
    }
}

/// Writes one event whose data comes in chunks, passing the chunks on without copying.
#[derive(Debug, Default)]
pub struct StreamEncoder {
    after_cr: bool,
}

impl StreamEncoder {
    /// Begins the event; returns the bytes to send before any data.
    #[must_use]
    pub fn begin(&mut self, id: Option<&str>) -> Bytes {
        self.after_cr = false;
        let mut out = BytesMut::with_capacity(64);
        head(&mut out, id, None);
        out.put_slice(b"data: ");
        out.freeze()
    }

    /// Passes data on to `out`; line breaks become further `data` lines, even if CR and LF come in
    /// two chunks.
    pub fn data(&mut self, mut chunk: Bytes, out: &mut Vec<Bytes>) {
        // An empty chunk is not what follows a CR.
        if chunk.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_cr) && chunk.first() == Some(&b'\n') {
            let _rest_of_break = chunk.split_to(1);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', &chunk) {
            let line = chunk.split_to(at);
            if !line.is_empty() {
                out.push(line);
            }
            out.push(Bytes::from_static(b"\ndata: "));
            let both = chunk.starts_with(b"\r\n");
            self.after_cr = !both && chunk.len() == 1 && chunk[0] == b'\r';
            let _break = chunk.split_to(1 + usize::from(both));
        }
        if !chunk.is_empty() {
            out.push(chunk);
        }
    }

    /// Ends the event; returns the bytes to send after all data.
    #[must_use]
    pub fn end(&mut self) -> Bytes {
        self.after_cr = false;
        Bytes::from_static(b"\n\n")
    }
}
