//! The three streams of a child process, each served by a task: messages to it, its messages, and
//! its error stream.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_upstream_core::upstream_context::UpstreamContext;

use crate::child_channel::ChildChannel;
use crate::child_fence::FencedInput;
use crate::error_tail::{ErrorLineRate, ErrorTail};
use crate::message_memory::{MessageMemory, SkippedMessage};
use crate::value_claim::ValueClaims;

/// The bytes of a child's output that are read at once.
pub(super) const READ_SIZE: usize = 16 << 10;

/// Writes messages, one per line, until the input is to be closed or the child no longer reads.
pub(super) async fn write_messages<W: AsyncWrite + Unpin>(
    mut input: FencedInput<W>,
    channel: Arc<ChildChannel>,
    stop: CancellationToken,
    mut claims: ValueClaims<FencedInput<W>>,
) {
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => return,
            claim = claims.next() => match claim.send(input) {
                Ok(()) => return,
                Err(kept) => {
                    input = kept;
                    continue;
                }
            },
            message = channel.next_message() => message,
        };
        let line = weir_wire::write::stdio_line(&message);
        tokio::select! {
            () = stop.cancelled() => return,
            written = input.write_line(&line) => if written.is_err() { return channel.close_input() },
        }
        channel.context.responses.meter.sent(line.len());
    }
}

/// The point that the reading of a child's output reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    ToTheEnd,
    /// Another task has it.
    ToAClaim,
}

/// Reads lines until the child closes its output or sends one that is too long, or until the output
/// is claimed. A line that does not fit into memory is skipped.
pub(super) async fn read_messages<R: AsyncRead + Unpin>(
    mut output: R,
    mut held: BytesMut,
    channel: &ChildChannel,
    mut claims: ValueClaims<(R, BytesMut)>,
) -> ReadOutcome {
    let most = channel.context.responses.max_reply;
    let mut memory = MessageMemory::new(channel.context.budgets.results.clone());
    let mut skipped: Option<SkippedMessage> = None;
    let mut searched = 0;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &held[searched..]) {
            let line = held.split_to(searched + at + 1).freeze();
            searched = 0;
            if let Some(mut skipped) = skipped.take() {
                skipped.feed(&line);
                channel.fail_skipped(skipped.request());
            } else if !line.iter().all(u8::is_ascii_whitespace) {
                let is_large = line.len() > READ_SIZE;
                channel.receive(&memory.hold(line));
                if is_large {
                    // The next lines must not keep the memory of this one.
                    held = BytesMut::from(&held[..]);
                }
            }
        }
        if skipped.is_none() && !memory.cover(held.len()).await {
            memory.release();
            skipped = Some(SkippedMessage::new(&std::mem::take(&mut held)));
        } else if let Some(skipped) = &mut skipped {
            skipped.feed(&held.split());
        }
        searched = held.len();
        if held.len() > most
            || skipped
                .as_ref()
                .is_some_and(|skipped| skipped.length > most)
        {
            channel.context.label.count_dropped("line_too_long");
            channel.close("the process sent a line that is too long");
            return ReadOutcome::ToTheEnd;
        }
        held.reserve(READ_SIZE);
        let read = tokio::select! {
            biased;
            read = output.read_buf(&mut held) => read,
            // The state of a skipped line cannot be handed over.
            claim = claims.next(), if skipped.is_none() => match claim.send((output, held)) {
                Ok(()) => return ReadOutcome::ToAClaim,
                Err(kept) => {
                    (output, held) = kept;
                    continue;
                }
            },
        };
        match read {
            Ok(0) => {
                channel.close("the process closed its output");
                return ReadOutcome::ToTheEnd;
            }
            Ok(bytes) => channel.context.responses.meter.received(bytes),
            Err(error) => {
                channel.close(&format!("its output cannot be read: {error}"));
                return ReadOutcome::ToTheEnd;
            }
        }
    }
}

/// Logs the child's error stream: so many lines a second, and then their count.
pub(super) async fn log_error_stream(
    mut errors: Receiver,
    context: Arc<UpstreamContext>,
    tail: Arc<ErrorTail>,
    mut claims: ValueClaims<Receiver>,
) {
    let omitted = |lines: Option<u64>| {
        if let Some(lines) = lines {
            tracing::warn!(upstream = %context.label.id, lines, "child process log rate limited: stderr lines dropped");
        }
    };
    let mut rate = ErrorLineRate::new(Instant::now());
    let mut chunk = [0; 4096];
    loop {
        let due = rate.report_at();
        let until_report = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            biased;
            read = errors.read(&mut chunk) => read,
            () = until_report => {
                omitted(rate.take_omitted(Instant::now()));
                continue;
            }
            claim = claims.next() => match claim.send(errors) {
                Ok(()) => return omitted(rate.rest()),
                Err(kept) => {
                    errors = kept;
                    continue;
                }
            },
        };
        let Ok(length @ 1..) = read else { break };
        let now = Instant::now();
        tail.take(&chunk[..length], |line| {
            omitted(rate.take_omitted(now));
            if rate.admit() {
                tracing::info!(upstream = %context.label.id, stderr = line, "child process stderr");
            }
        });
    }
    omitted(rate.rest());
    tail.close();
}
