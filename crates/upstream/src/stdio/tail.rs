//! The end of what a child wrote to its error stream: kept for operators, and cut into lines for the log.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Bytes kept.
const KEPT: usize = 64 << 10;
/// The longest line that is logged as one.
const LINE: usize = 8 << 10;

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tail(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: VecDeque<u8>,
    line: Vec<u8>,
}

impl Tail {
    /// Takes bytes and gives out the lines they complete.
    pub(crate) fn take(&self, bytes: &[u8], mut log: impl FnMut(&str)) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { kept, line } = &mut *inner;
        let over = (kept.len() + bytes.len()).saturating_sub(KEPT).min(kept.len());
        kept.drain(..over);
        kept.extend(bytes.iter().skip(bytes.len().saturating_sub(KEPT)));
        for &byte in bytes {
            if byte == b'\n' || line.len() >= LINE {
                log(String::from_utf8_lossy(line).trim_end());
                line.clear();
            }
            if byte != b'\n' {
                line.push(byte);
            }
        }
    }

    /// The last line that says something, for the text of a failure.
    pub(crate) fn last_line(&self) -> Option<String> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (front, back) = inner.kept.as_slices();
        let text = String::from_utf8_lossy(&[front, back].concat()).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.chars().take(300).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e22_a_flood_is_kept_to_its_end_and_cut_into_lines() {
        let tail = Tail::default();
        let mut lines = 0;
        for n in 0..50_000 {
            tail.take(format!("line {n}\n").as_bytes(), |_| lines += 1);
        }
        tail.take(&[b'x'; 3 * LINE], |_| lines += 1);
        assert_eq!(lines, 50_002);
        tail.take(b"\nlast\n\n", |_| {});
        assert_eq!(tail.last_line().as_deref(), Some("last"));
        let kept = tail.0.lock().map_or(0, |inner| inner.kept.len());
        assert_eq!(kept, KEPT);
        tail.take(&vec![b'y'; 2 * KEPT], |_| {});
        assert_eq!(tail.0.lock().map_or(0, |inner| inner.kept.len()), KEPT);
    }
}
