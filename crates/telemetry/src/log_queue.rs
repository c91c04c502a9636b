//! The queue between the log and standard error. A full disk, or a pipe without a reader, blocks
//! only the writer thread. Lines beyond the queue's bound are dropped and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::{Condvar, Mutex};
use weir_core::telemetry::instruments;

/// The most bytes of waiting lines, and the most lines.
const MAX_BYTES: usize = 4 << 20;
const MAX_LINES: usize = 16_384;
/// The time until a descriptor that would block is tried again.
const BLOCKED: Duration = Duration::from_millis(20);

/// Log lines on their way to standard error. Pushing never waits for the writer.
#[derive(Debug, Default)]
pub(super) struct LogQueue {
    state: Mutex<QueueState>,
    filled: Condvar,
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    /// The bytes of the lines that wait and of those that are being written.
    bytes: usize,
    /// The lines dropped since the last report in the log.
    dropped: u64,
    /// True if the writer must wake up, even without a line.
    woken: bool,
}

impl LogQueue {
    /// Adds a line, or counts it as dropped.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.bytes + line.len() > MAX_BYTES || state.lines.len() >= MAX_LINES {
            state.dropped += 1;
            drop(state);
            count_dropped("queue", 1);
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.filled.notify_one();
    }

    /// Wakes the writer.
    pub(super) fn wake(&self) {
        self.state.lock().woken = true;
        self.filled.notify_one();
    }

    /// Waits until all lines are written, at most for `within`.
    pub(super) fn drain(&self, within: Duration) {
        let waiting = |state: &mut QueueState| state.bytes > 0;
        let mut state = self.state.lock();
        self.emptied.wait_while_for(&mut state, waiting, within);
    }

    /// Waits for lines, at most for `within`, and takes them all.
    pub(super) fn take(&self, within: Option<Duration>) -> VecDeque<Vec<u8>> {
        let idle = |state: &mut QueueState| state.lines.is_empty() && !state.woken;
        let mut state = self.state.lock();
        match within {
            Some(within) => {
                self.filled.wait_while_for(&mut state, idle, within);
            }
            None => self.filled.wait_while(&mut state, idle),
        }
        state.woken = false;
        std::mem::take(&mut state.lines)
    }

    /// Records that the writer is done with a line.
    fn done(&self, bytes: usize, written: bool) {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.dropped += u64::from(!written);
        let is_empty = state.bytes == 0;
        drop(state);
        if is_empty {
            self.emptied.notify_all();
        }
        if !written {
            count_dropped("failed", 1);
        }
    }

    /// Returns the lines dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.state.lock().dropped)
    }
}

/// Counts dropped lines.
pub(super) fn count_dropped(reason: &'static str, lines: u64) {
    instruments()
        .log_dropped
        .add(lines, &[KeyValue::new("reason", reason)]);
}

/// The writing end of the queue.
#[derive(Debug)]
pub(super) struct LineWriter<W> {
    queue: Arc<LogQueue>,
    out: W,
    /// True if the last line was written in part: a line break must come before the next one.
    torn: bool,
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(queue: Arc<LogQueue>, out: W) -> Self {
        Self {
            queue,
            out,
            torn: false,
        }
    }

    /// Waits for lines, at most for `within`, and writes them. Returns `false` if the last one
    /// could not be written.
    pub(super) fn write_next(&mut self, within: Option<Duration>) -> bool {
        let mut well = true;
        for line in self.queue.take(within) {
            well = self.write_line(&line);
            self.queue.done(line.len(), well);
        }
        well
    }

    /// Returns the lines dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.queue.take_dropped()
    }

    fn write_line(&mut self, line: &[u8]) -> bool {
        if self.torn && self.write_all(b"\n") < 1 {
            return false;
        }
        let written = self.write_all(line);
        self.torn = written > 0 && written < line.len();
        written == line.len()
    }

    /// Writes until an error. Returns the number of written bytes.
    fn write_all(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.out.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process made the descriptor non-blocking; this thread has no other work,
                // so it waits.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(BLOCKED)
                }
                Err(_) => break,
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// A disk with limited room: a write beyond it fails until there is room again.
    #[derive(Default)]
    struct FakeDisk {
        bytes: Vec<u8>,
        room: usize,
    }

    struct FillingDisk<'a>(&'a Mutex<FakeDisk>);

    impl Write for FillingDisk<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock();
            let count = bytes.len().min(disk.room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.room -= count;
            disk.bytes.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // Proves F13.
    #[test]
    fn a_queue_that_is_not_written_keeps_its_bound_and_counts_the_rest() {
        let queue = LogQueue::default();
        let line = [b'x'; 1024];
        for _ in 0..10_000 {
            queue.push(&line);
        }
        assert_eq!(queue.take_dropped(), 10_000 - 4096);
        queue.drain(Duration::ZERO);
        assert_eq!(queue.take(None).len(), 4096);
        for _ in 0..10 {
            queue.push(&line);
        }
        assert_eq!(
            queue.take_dropped(),
            10,
            "lines that are being written count"
        );
        let queue = LogQueue::default();
        for _ in 0..20_000 {
            queue.push(b"x");
        }
        assert_eq!(queue.take_dropped(), 20_000 - MAX_LINES as u64);
    }

    // Proves F13.
    #[test]
    fn a_full_disk_costs_the_lines_that_it_does_not_take_and_tears_no_other() {
        let queue = Arc::new(LogQueue::default());
        let disk = Mutex::new(FakeDisk {
            room: 8,
            ..FakeDisk::default()
        });
        let mut writer = LineWriter::new(queue.clone(), FillingDisk(&disk));
        for _ in 0..3 {
            queue.push(b"first\n");
        }
        assert!(!writer.write_next(None));
        assert_eq!(queue.take_dropped(), 2);
        disk.lock().room = 1000;
        queue.push(b"later\n");
        assert!(writer.write_next(None));
        assert_eq!(disk.lock().bytes, b"first\nfi\nlater\n");
        queue.drain(Duration::MAX);
    }

    // Proves F13.
    #[test]
    fn log_drain_ends_with_the_last_line_or_at_its_deadline() {
        let queue = Arc::new(LogQueue::default());
        queue.push(b"one\n");
        queue.drain(Duration::from_millis(1));
        let writer = std::thread::spawn({
            let queue = queue.clone();
            move || LineWriter::new(queue, Vec::new()).write_next(None)
        });
        queue.drain(Duration::from_secs(60));
        assert!(writer.join().unwrap());
        queue.wake();
        assert!(queue.take(None).is_empty(), "a wake without a line");
        assert!(queue.take(Some(Duration::ZERO)).is_empty());
    }
}
