//! Standard input and output as lines. A thread each, because a read of standard input cannot be
//! cancelled, and must not block the end of the process.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot};
use weir_wire::{EnvelopeOutline, RequestId};

/// The number of lines that are read ahead.
const READ_AHEAD: usize = 1;
/// The number of messages that wait for the writing thread.
const WAITING: usize = 1;
/// The size in bytes up to which a line is one write to the system.
const SHORT_LINE: usize = 64 << 10;
/// The longest wait for a host that reads its last messages slowly.
const STDOUT_GRACE: Duration = Duration::from_secs(2);

/// A line of standard input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StdinLine {
    /// The line without its end.
    Whole(Bytes),
    /// A line longer than the longest message. Its bytes are dropped, except for the id of the
    /// request that it is, if it is one.
    TooLong(Option<RequestId>),
}

/// The lines of standard input that are not empty.
#[derive(Debug)]
pub(super) struct StdinLines(mpsc::Receiver<StdinLine>);

impl StdinLines {
    /// Starts to read lines of at most `longest` bytes.
    ///
    /// # Errors
    /// The system has no descriptor or no thread left.
    pub(crate) fn open(longest: usize) -> io::Result<Self> {
        Self::read(File::from(own(io::stdin())?), longest)
    }

    fn read(file: impl io::Read + Send + 'static, longest: usize) -> io::Result<Self> {
        let (sender, lines) = mpsc::channel(READ_AHEAD);
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || {
                let mut input = BufReader::new(file);
                // A read error counts as the end of the input.
                while let Ok(Some(line)) = next_line(&mut input, longest) {
                    if sender.blocking_send(line).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self(lines))
    }

    /// Returns the next line; `None` at the end of standard input. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<StdinLine> {
        self.0.recv().await
    }
}

/// Duplicates a descriptor, because the standard library's lock would be held while a read or a
/// write blocks.
fn own(stream: impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// Returns the next line that is not empty.
fn next_line(input: &mut impl BufRead, longest: usize) -> io::Result<Option<StdinLine>> {
    let mut line = BytesMut::new();
    // Present for a line that is too long.
    let mut outline: Option<EnvelopeOutline> = None;
    loop {
        let read = input.fill_buf()?;
        let end = read.iter().position(|byte| *byte == b'\n');
        let part = &read[..end.unwrap_or(read.len())];
        if outline.is_none() && line.len() + part.len() > longest {
            outline = Some(EnvelopeOutline::of(&std::mem::take(&mut line)));
        }
        match &mut outline {
            Some(outline) => outline.feed(part),
            None => line.put_slice(part),
        }
        let (is_over, taken) = (read.is_empty(), part.len() + usize::from(end.is_some()));
        input.consume(taken);
        if end.is_none() && !is_over {
            continue;
        }
        if let Some(outline) = outline {
            return Ok(Some(StdinLine::TooLong(outline.requested_id().cloned())));
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            return Ok(Some(StdinLine::Whole(Bytes::copy_from_slice(text))));
        }
        if is_over {
            return Ok(None);
        }
        line.clear();
    }
}

/// Writes a message as one line without a copy of a long one. Line breaks between its tokens become
/// blanks; inside strings they are escaped.
fn write_line(lines: &mut impl io::Write, message: &[u8]) -> io::Result<()> {
    let mut parts = message.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.write_all(parts.next().unwrap_or_default())?;
    for part in parts {
        lines.write_all(b" ")?;
        lines.write_all(part)?;
    }
    lines.write_all(b"\n")?;
    lines.flush()
}

/// Standard output, a message a line. Clones write to the same one.
#[derive(Clone, Debug)]
pub(super) struct StdoutWriter(mpsc::Sender<QueuedMessage>);

/// A message that the writing thread takes next.
#[derive(Debug)]
struct QueuedMessage {
    message: Bytes,
    /// Dropped with the message, which tells that it is written.
    _written: Option<oneshot::Sender<()>>,
}

/// The end of standard output.
#[derive(Debug)]
pub(super) struct StdoutEnd(oneshot::Receiver<()>);

impl StdoutWriter {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system has no descriptor or no thread left.
    pub(crate) fn open() -> io::Result<(Self, StdoutEnd)> {
        Self::write_to(File::from(own(io::stdout())?))
    }

    fn write_to(file: impl io::Write + Send + 'static) -> io::Result<(Self, StdoutEnd)> {
        let (sender, mut messages) = mpsc::channel::<QueuedMessage>(WAITING);
        let (ended, end) = oneshot::channel();
        std::thread::Builder::new()
            .name("stdout".to_owned())
            .spawn(move || {
                let mut lines = BufWriter::with_capacity(SHORT_LINE, file);
                while let Some(queued) = messages.blocking_recv() {
                    if write_line(&mut lines, &queued.message).is_err() {
                        break;
                    }
                }
                // Closed first, so that a waiting writer returns.
                drop(messages);
                let _ = ended.send(());
            })?;
        Ok((Self(sender), StdoutEnd(end)))
    }

    /// Writes a message as one line; waits while the host reads slowly, and for a long line until
    /// the host has read it, so that no second one is kept for the host. Messages after the host
    /// closed its end are dropped.
    pub(super) async fn write(&self, message: Bytes) {
        let (written, is_written) = oneshot::channel();
        let is_short = message.len() <= SHORT_LINE;
        let queued = QueuedMessage {
            message,
            _written: Some(written).filter(|_| !is_short),
        };
        if self.0.send(queued).await.is_ok() && !is_short {
            // The sender is dropped unused.
            let _dropped = is_written.await;
        }
    }

    /// Waits until the host has closed its end. Cancel safe.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

impl StdoutEnd {
    /// Waits until all messages are written, at most [`STDOUT_GRACE`]. All writers must be
    /// dropped.
    pub(crate) async fn finish(self) {
        let _ = tokio::time::timeout(STDOUT_GRACE, self.0).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn lines_are_whole_bounded_and_never_empty() {
        let text: &[u8] = b"{}\r\n\n  \n0123456789\n01234567890\n{\"a\":1}";
        let mut lines = StdinLines::read(text, 10).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.next().await {
            read.push(line);
        }
        let whole = |text: &'static [u8]| StdinLine::Whole(Bytes::from_static(text));
        assert_eq!(
            read,
            [
                whole(b"{}"),
                whole(b"0123456789"),
                StdinLine::TooLong(None),
                whole(b"{\"a\":1}")
            ]
        );
    }

    #[tokio::test]
    async fn line_that_is_too_long_keeps_the_id_of_its_request() {
        let text = "x".repeat(100_000);
        let request = format!(r#"{{"jsonrpc":"2.0","method":"m","params":"{text}","id":7}}"#);
        let response = format!(r#"{{"jsonrpc":"2.0","id":8,"result":{{"text":"{text}"}}}}"#);
        let input = format!("{request}\n{response}\n{{}}\n");
        let mut lines = StdinLines::read(io::Cursor::new(input), 1000).unwrap();
        let id = RequestId::from(7_u64);
        assert_eq!(lines.next().await, Some(StdinLine::TooLong(Some(id))));
        assert_eq!(lines.next().await, Some(StdinLine::TooLong(None)));
        let rest = Bytes::from_static(b"{}");
        assert_eq!(lines.next().await, Some(StdinLine::Whole(rest)));
    }

    #[derive(Clone, Default)]
    struct WrittenBytes(Arc<Mutex<Vec<u8>>>);

    impl io::Write for WrittenBytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_message_is_one_line_and_all_are_written_before_the_end() {
        let written = WrittenBytes::default();
        let (writer, end) = StdoutWriter::write_to(written.clone()).unwrap();
        writer
            .write(Bytes::from_static(b"{\n  \"a\": \"\\n\"\r\n}"))
            .await;
        writer.write(Bytes::from_static(b"{}")).await;
        drop(writer);
        end.finish().await;
        assert_eq!(written.0.lock().as_slice(), b"{   \"a\": \"\\n\"  }\n{}\n");
    }

    #[tokio::test]
    async fn a_closed_output_is_noticed() {
        struct ClosedWriter;
        impl io::Write for ClosedWriter {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (writer, end) = StdoutWriter::write_to(ClosedWriter).unwrap();
        writer.write(Bytes::from_static(b"{}")).await;
        writer.closed().await;
        writer.write(Bytes::from_static(b"{}")).await;
        end.finish().await;
    }
}
