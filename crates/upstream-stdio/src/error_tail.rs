//! The end of a child's error stream: kept for operators, and cut into lines for the log, with a
//! limit per second.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_upstream_core::secret_mask::SecretMask;

/// The bytes that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// The longest line that is logged as one.
const MAX_LINE_BYTES: usize = 8 << 10;

/// The most lines of an output that are searched for those that explain a failure.
const MAX_SEARCHED_LINES: usize = 64;
/// The most lines that explain a failure. An error before them was not the last one.
const MAX_EXPLAINING_LINES: usize = 8;
/// The most characters of these lines.
const MAX_EXPLANATION: usize = 600;
/// The words of lines that name an error.
const ERROR_WORDS: [&str; 4] = ["error", "exception", "fatal", "panic"];
/// The beginnings of lines that Node.js, Bun, npm and Python add to each error, or that repeat the
/// program's own source.
const ADDED_LINES: [&str; 8] = [
    "Node.js v",
    "Bun v",
    "npm notice",
    "triggerUncaughtException(",
    "throw ",
    "raise ",
    "Traceback (most recent call last)",
    "File \"",
];
/// The last line of npm.
const NPM_LOG: &str = "A complete log of this run can be found in";

/// The lines of one child that the log takes in a second: more than a person reads, and less than
/// fills a disk unnoticed.
const MAX_LINES_PER_SECOND: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// The rate of one error stream's lines in the log. Omitted lines are counted, and reported in one
/// line per second.
#[derive(Debug)]
pub(crate) struct ErrorLineRate {
    second: Instant,
    lines: u32,
    omitted: u64,
}

impl ErrorLineRate {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            second: now,
            lines: 0,
            omitted: 0,
        }
    }

    /// Counts a line; true if it is to be logged. Call [`Self::take_omitted`] before.
    pub(crate) fn admit(&mut self) -> bool {
        let admits = self.lines < MAX_LINES_PER_SECOND;
        self.lines = self.lines.saturating_add(1);
        self.omitted += u64::from(!admits);
        admits
    }

    /// Returns the time at which omitted lines are to be reported; absent if no lines were omitted.
    pub(crate) fn report_at(&self) -> Option<Instant> {
        (self.omitted > 0).then(|| self.second + SECOND)
    }

    /// Begins another second if one has passed. Returns the number of omitted lines of the last.
    pub(crate) fn take_omitted(&mut self, now: Instant) -> Option<u64> {
        if now < self.second + SECOND {
            return None;
        }
        let omitted = std::mem::replace(self, Self::new(now)).omitted;
        Some(omitted).filter(|omitted| *omitted > 0)
    }

    /// Returns the number of omitted lines that were not reported yet, at the end of the stream.
    pub(crate) fn rest(&self) -> Option<u64> {
        Some(self.omitted).filter(|omitted| *omitted > 0)
    }
}

/// The last bytes of a stream, without the secrets of the process's config.
#[derive(Debug, Default)]
pub(crate) struct ErrorTail {
    inner: Mutex<ErrorTailState>,
    mask: SecretMask,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct ErrorTailState {
    kept: VecDeque<u8>,
    line: Vec<u8>,
}

impl ErrorTail {
    /// Makes an empty tail that masks these secrets.
    pub(crate) fn new(mask: SecretMask) -> Self {
        Self {
            mask,
            ..Self::default()
        }
    }

    /// Notes the end of the stream.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Waits for the end of the stream.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Takes bytes and passes the lines that they complete to `log`.
    pub(crate) fn take(&self, bytes: &[u8], mut log: impl FnMut(&str)) {
        let mut inner = self.inner.lock();
        let ErrorTailState { kept, line } = &mut *inner;
        let over = (kept.len() + bytes.len())
            .saturating_sub(KEPT_BYTES)
            .min(kept.len());
        kept.drain(..over);
        kept.extend(bytes.iter().skip(bytes.len().saturating_sub(KEPT_BYTES)));
        for &byte in bytes {
            if byte == b'\n' || line.len() >= MAX_LINE_BYTES {
                log(&self.mask.apply(String::from_utf8_lossy(line).trim_end()));
                line.clear();
            }
            if byte != b'\n' {
                line.push(byte);
            }
        }
    }

    /// Returns the lines that explain a failure best, for its text: from the first of the last lines
    /// that names an error, or else the last line.
    pub(crate) fn explanation(&self) -> Option<String> {
        explanation_of(&self.last_lines(MAX_SEARCHED_LINES))
    }

    /// Returns the last line that is not blank.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.last_lines(1).pop()
    }

    /// Returns the last lines that are not blank, at most `most`, the oldest first. Each is cut to
    /// 300 characters.
    pub(crate) fn last_lines(&self, most: usize) -> Vec<String> {
        let inner = self.inner.lock();
        let (front, back) = inner.kept.as_slices();
        let text = String::from_utf8_lossy(&[front, back].concat()).into_owned();
        drop(inner);
        let newest_first = text
            .lines()
            .rev()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let shown = |line: &str| self.mask.apply(line).chars().take(300).collect();
        let mut lines: Vec<String> = newest_first.take(most).map(shown).collect();
        lines.reverse();
        lines
    }
}

/// See [`ErrorTail::explanation`]. Lines of a stack, and those that programs add to each of their
/// errors, explain nothing.
fn explanation_of(lines: &[String]) -> Option<String> {
    let mut own: Vec<&str> = lines.iter().map(String::as_str).collect();
    own.retain(|line| !is_addition(line));
    let recent = &own[own.len().saturating_sub(MAX_EXPLAINING_LINES)..];
    let Some(last) = recent.last() else {
        return lines.last().cloned();
    };
    let names_error = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ERROR_WORDS.iter().any(|word| line.contains(word))
    };
    let text = match recent.iter().position(names_error) {
        Some(first) => recent[first..].join(" | "),
        None => (*last).to_owned(),
    };
    Some(text.chars().take(MAX_EXPLANATION).collect())
}

/// True for a line of a stack, or a line that a program adds to each of its errors.
fn is_addition(line: &str) -> bool {
    let is_frame = line.starts_with("at ") && line.contains(['(', ':']);
    let is_usage =
        (line.starts_with("Run '") || line.starts_with("See '")) && line.contains("--help");
    is_frame
        || is_usage
        || !line.contains(char::is_alphanumeric)
        || line.contains(NPM_LOG)
        || ADDED_LINES.iter().any(|begin| line.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the explanation in the output of a program.
    fn explained(output: &str) -> String {
        let tail = ErrorTail::default();
        tail.take(output.as_bytes(), |_| {});
        tail.explanation().unwrap_or_default()
    }

    #[test]
    fn error_is_found_among_the_lines_that_programs_put_around_it() {
        let thrown = r#"/srv/wiki.js:1
throw new Error("WIKI_TOKEN is not set")
^

Error: WIKI_TOKEN is not set
    at Object.<anonymous> (/srv/wiki.js:1:7)
    at Module._compile (node:internal/modules/cjs/loader:1929:14)
    at node:internal/main/run_main_module:33:47

Node.js v22.21.0
"#;
        let module = r"node:internal/modules/cjs/loader:1568
  throw err;
  ^

Error: Cannot find module 'express'
Require stack:
- /srv/wiki.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1564:15)
    at Module._compile (node:internal/modules/cjs/loader:1929:14) {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/srv/wiki.js' ]
}

Node.js v22.21.0
";
        let python = r#"Traceback (most recent call last):
  File "/srv/wiki.py", line 1, in <module>
    import requests
ModuleNotFoundError: No module named 'requests'
"#;
        let npx = "npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/wiki-mcp
npm error 404
npm error A complete log of this run can be found in: /root/.npm/_logs/debug-0.log
";
        let docker = "docker: Cannot connect to the Docker daemon. Is the docker daemon running?

Run 'docker run --help' for more information
";
        let image = "Unable to find image 'wiki:latest' locally
docker: Error response from daemon: pull access denied for wiki

Run 'docker run --help' for more information
";
        for (output, expected) in [
            (thrown, "Error: WIKI_TOKEN is not set"),
            (
                module,
                "Error: Cannot find module 'express' | Require stack: | - /srv/wiki.js \
                 | code: 'MODULE_NOT_FOUND', | requireStack: [ '/srv/wiki.js' ]",
            ),
            (python, "ModuleNotFoundError: No module named 'requests'"),
            (
                npx,
                "npm error code E404 \
                 | npm error 404 Not Found - GET https://registry.npmjs.org/wiki-mcp \
                 | npm error 404",
            ),
            (
                docker,
                "docker: Cannot connect to the Docker daemon. Is the docker daemon running?",
            ),
            (
                image,
                "docker: Error response from daemon: pull access denied for wiki",
            ),
            (
                "starting\nsh: 1: wiki: not found\n",
                "sh: 1: wiki: not found",
            ),
            ("Node.js v22.21.0\n", "Node.js v22.21.0"),
            ("", ""),
        ] {
            assert_eq!(explained(output), expected, "{output}");
        }
        let early = format!("an error of long ago\n{}", "a line\n".repeat(20));
        assert_eq!(explained(&early), "a line");
        let long = "error: x\n".repeat(MAX_SEARCHED_LINES) + &"y".repeat(2_000);
        assert!(explained(&long).chars().count() <= MAX_EXPLANATION);
    }

    // Proves E22.
    #[test]
    fn log_takes_a_hundred_lines_a_second_and_counts_the_rest() {
        let began = Instant::now();
        let mut rate = ErrorLineRate::new(began);
        assert_eq!((0..250).filter(|_| rate.admit()).count(), 100);
        assert_eq!(rate.report_at(), Some(began + SECOND));
        assert_eq!(
            rate.take_omitted(began + SECOND / 2),
            None,
            "the second is not over"
        );
        assert_eq!(rate.take_omitted(began + SECOND), Some(150));
        assert_eq!((rate.report_at(), rate.rest()), (None, None));
        assert!(rate.admit());
        assert_eq!(
            rate.take_omitted(began + 5 * SECOND),
            None,
            "nothing was left out"
        );
    }

    // Proves E22.
    #[test]
    fn error_tail_keeps_the_last_bytes_of_a_flood_and_splits_lines() {
        let tail = ErrorTail::default();
        let mut lines = 0;
        for n in 0..50_000 {
            tail.take(format!("line {n}\n").as_bytes(), |_| lines += 1);
        }
        tail.take(&[b'x'; 3 * MAX_LINE_BYTES], |_| lines += 1);
        assert_eq!(lines, 50_002);
        tail.take(b"\nlast\n\n", |_| {});
        assert_eq!(tail.last_line().as_deref(), Some("last"));
        assert_eq!(tail.last_lines(2)[1], "last");
        let kept = tail.inner.lock().kept.len();
        assert_eq!(kept, KEPT_BYTES);
        tail.take(&vec![b'y'; 2 * KEPT_BYTES], |_| {});
        assert_eq!(tail.inner.lock().kept.len(), KEPT_BYTES);
    }
}
