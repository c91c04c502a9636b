//! The cost of an attack: the latency of a good client beside it, and the resources that weir uses
//! meanwhile.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use weir_testkit::RawClient;

use super::Weir;

/// The variable that names the file for figures, one JSON object a line. `cargo xtask hostile`
/// makes a table of it.
const FIGURES_FILE_VARIABLE: &str = "WEIR_FIGURES";
/// The time between two calls of the good client, and the number of calls between two looks at the
/// process.
const PAUSE_BETWEEN_CALLS: Duration = Duration::from_millis(5);
const CALLS_PER_SAMPLE: usize = 8;

/// A good client that calls a tool over and over beside an attack, and watches weir's process.
/// Ended by [`Bystander::finish`].
pub struct Bystander {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    running: JoinHandle<BystanderSamples>,
    process: ObservedProcess,
    begun: Instant,
    first: ProcessUsage,
}

/// The figures of the good client and of the process.
#[derive(Debug)]
pub struct AttackCost {
    /// Calls of the good client, and those of them that did not get their result.
    pub calls: usize,
    pub refused: usize,
    /// The first refusal.
    pub refusal: Option<String>,
    /// The 99th percentile of the time that a call took.
    pub p99: Duration,
    /// The peak memory of weir, in bytes.
    pub memory: usize,
    /// The peak memory during the attack less that before it, in bytes.
    pub grown: usize,
    /// The highest number of descriptors.
    pub descriptors: usize,
    /// Bytes of log a second.
    pub log: f64,
    pub audit: f64,
    /// The used part of one processor.
    pub processor: f64,
}

/// The samples that the task collects.
#[derive(Default)]
struct BystanderSamples {
    times: Vec<Duration>,
    refused: usize,
    refusal: Option<String>,
    memory: usize,
    descriptors: usize,
}

/// A process, and the files that it writes.
#[derive(Clone)]
struct ObservedProcess {
    id: u32,
    log: Arc<AtomicUsize>,
    audit: Option<PathBuf>,
}

/// Bytes written, and processor time.
#[derive(Clone, Copy)]
struct ProcessUsage {
    log: usize,
    audit: u64,
    processor: f64,
    memory: usize,
}

impl Bystander {
    /// Begins to call the tool `echo` by `client`.
    pub fn start_beside(weir: &Weir, client: RawClient) -> Self {
        Self::calling(weir, client, "echo", None)
    }

    /// Begins to call another tool that returns its arguments; `audit` is the audit's file or its
    /// folder.
    pub fn calling(
        weir: &Weir,
        client: RawClient,
        tool: &'static str,
        audit: Option<&Path>,
    ) -> Self {
        let process = ObservedProcess {
            id: weir.process.id(),
            log: weir.process.output_bytes(),
            audit: audit.map(Path::to_owned),
        };
        let (stop, calls) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let first = process.written();
        let running = tokio::spawn(calling(
            client,
            tool,
            process.clone(),
            stop.clone(),
            calls.clone(),
        ));
        Self {
            stop,
            calls,
            running,
            process,
            begun: Instant::now(),
            first,
        }
    }

    /// Waits until it has made this many more calls.
    pub async fn wait_for_calls(&self, more: usize) {
        let wanted = self.calls.load(Ordering::Acquire) + more;
        let made = async || {
            (self.calls.load(Ordering::Acquire) >= wanted || self.running.is_finished())
                .then_some(())
        };
        super::wait_until_async("calls of the bystander", made).await;
    }

    /// Stops the calls, prints the figures of the attack `name`, and appends them to the file that
    /// `WEIR_FIGURES` names.
    pub async fn finish(self, name: &str) -> AttackCost {
        // Even the shortest attack has some calls beside it.
        self.wait_for_calls(CALLS_PER_SAMPLE).await;
        self.stop.store(true, Ordering::Release);
        let mut seen = self.running.await.unwrap();
        let (last, seconds) = (self.process.written(), self.begun.elapsed().as_secs_f64());
        seen.times.sort_unstable();
        let figures = AttackCost {
            calls: seen.times.len(),
            refused: seen.refused,
            refusal: seen.refusal,
            p99: seen
                .times
                .get(seen.times.len() * 99 / 100)
                .copied()
                .unwrap_or_default(),
            memory: self.process.status("VmHWM:").unwrap_or(seen.memory),
            grown: seen.memory.saturating_sub(self.first.memory),
            descriptors: seen.descriptors,
            log: (last.log - self.first.log) as f64 / seconds,
            audit: last.audit.saturating_sub(self.first.audit) as f64 / seconds,
            processor: (last.processor - self.first.processor) / seconds,
        };
        figures.keep(name);
        figures
    }
}

impl AttackCost {
    /// Asserts that no call was refused.
    ///
    /// # Panics
    ///
    /// If a call of the good client got no result.
    pub fn assert_none_refused(&self) -> &Self {
        assert_eq!(
            self.refused, 0,
            "of {} calls beside the attack: {:?}",
            self.calls, self.refusal
        );
        self
    }

    fn keep(&self, name: &str) {
        let mut line = String::new();
        let _ = write!(line, "{name}: ");
        let _ = write!(
            line,
            "{} calls beside it, {} refused, p99 {:?}; ",
            self.calls, self.refused, self.p99
        );
        let _ = write!(
            line,
            "{} MiB at most, {} descriptors, ",
            self.memory >> 20,
            self.descriptors
        );
        let _ = write!(
            line,
            "{:.0} B/s of log, {:.0} B/s of audit, ",
            self.log, self.audit
        );
        println!("{line}{:.2} processors", self.processor);
        let Some(file) = std::env::var_os(FIGURES_FILE_VARIABLE) else {
            return;
        };
        let row: Value = json!({
            "attack": name, "calls": self.calls, "refused": self.refused, "p99_ms": self.p99.as_secs_f64() * 1e3,
            "memory": self.memory, "grown": self.grown, "descriptors": self.descriptors,
            "log": self.log, "audit": self.audit, "processor": self.processor,
        });
        // One write, so that tests that run at the same time do not mix their lines.
        let appended = fs::OpenOptions::new().create(true).append(true).open(&file);
        appended
            .and_then(|mut file| file.write_all(format!("{row}\n").as_bytes()))
            .unwrap();
    }
}

async fn calling(
    client: RawClient,
    tool: &str,
    process: ObservedProcess,
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
) -> BystanderSamples {
    let mut seen = BystanderSamples::default();
    for number in 0.. {
        if number % CALLS_PER_SAMPLE == 0 {
            seen.memory = seen
                .memory
                .max(process.status("VmRSS:").unwrap_or_default());
            seen.descriptors = seen.descriptors.max(process.descriptors());
            if stop.load(Ordering::Acquire) {
                break;
            }
        }
        let begun = Instant::now();
        let answer = client.call(tool, json!({ "n": number })).await;
        seen.times.push(begun.elapsed());
        let refusal = match answer {
            Ok(answer) if answer.body.windows(8).any(|part| part == br#""result""#) => {
                let expected = format!(r#"{{"n":{number}}}"#);
                let text = &answer.result()["content"][0]["text"];
                (*text != expected).then(|| answer.last().to_string())
            }
            Ok(answer) => Some(format!("{} {:?}", answer.status, answer.body)),
            Err(error) => Some(error.to_string()),
        };
        seen.refused += usize::from(refusal.is_some());
        seen.refusal = seen.refusal.or(refusal);
        calls.fetch_add(1, Ordering::AcqRel);
        tokio::time::sleep(PAUSE_BETWEEN_CALLS).await;
    }
    seen
}

impl ObservedProcess {
    /// Returns a value of `/proc/ID/status`; `None` if the process has ended.
    fn status(&self, line: &str) -> Option<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).ok()?;
        let line = status.lines().find_map(|text| text.strip_prefix(line))?;
        Some(
            line.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<usize>()
                .ok()?
                * 1024,
        )
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.id)).map_or(0, Iterator::count)
    }

    fn written(&self) -> ProcessUsage {
        ProcessUsage {
            log: self.log.load(Ordering::Relaxed),
            audit: self.audit.as_deref().map_or(0, size),
            processor: self.processor().unwrap_or_default(),
            memory: self.status("VmRSS:").unwrap_or_default(),
        }
    }

    /// Returns the seconds of processor time, from the 14th and 15th field of `/proc/ID/stat` in
    /// ticks of 10 ms.
    fn processor(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        Some((ticks()? + ticks()?) / 100.0)
    }
}

/// Returns the bytes of a file, or of all files in a folder.
fn size(path: &Path) -> u64 {
    let files = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let inside: u64 = files.map(|file| size(&file)).sum();
    inside
        + fs::metadata(path)
            .ok()
            .filter(|about| about.is_file())
            .map_or(0, |about| about.len())
}
