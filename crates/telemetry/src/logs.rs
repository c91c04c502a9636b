//! The log: for people on a terminal, with the local time of day and in color, JSON otherwise. A
//! thread of its own writes it; see [`super::log_queue`].
//!
//! Text of a client or an upstream is always a field, never part of a message, so that one event is
//! one line.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::panic;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::Handle;
use weir_text::local_time::TimeZone;

use crate::log_filter;
use crate::log_plan::{LogFormat, LogPlan};
use crate::log_queue::{LineWriter, LogQueue};
use crate::log_rate::LogRateLimit;

/// The exporter logs its own start, of no interest to operators.
const DEFAULT: &str = "info,opentelemetry=warn";

/// The most time that the end of the process waits for standard error.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The log of this process, from its first line on.
static LOG: OnceLock<(Arc<LogQueue>, LogRateLimit)> = OnceLock::new();

fn log() -> &'static (Arc<LogQueue>, LogRateLimit) {
    LOG.get_or_init(|| {
        let queue = Arc::new(LogQueue::default());
        let limit = LogRateLimit::new(queue.clone());
        // A duplicate descriptor, because the standard library's lock would be held while a write
        // hangs.
        if let Ok(stderr) = io::stderr().as_fd().try_clone_to_owned() {
            let (writer, limit) = (
                LineWriter::new(queue.clone(), File::from(stderr)),
                limit.clone(),
            );
            // Without a thread all lines are dropped and counted: the queue is full soon.
            let _thread = std::thread::Builder::new()
                .name("log".to_owned())
                .spawn(move || write_log(writer, &limit));
        }
        (queue, limit)
    })
}

/// Writes lines as they come. Ends with the process.
fn write_log(mut writer: LineWriter<File>, limit: &LogRateLimit) {
    loop {
        let again = limit.report(false);
        if writer.write_next(again) {
            let lines = writer.take_dropped();
            if lines > 0 {
                tracing::warn!(lines, "log lines dropped: standard error blocked");
            }
        }
    }
}

/// Writes a text and a line break to standard error as the log does: without blocking, and without
/// a panic on failure.
pub fn print_error(text: impl std::fmt::Display) {
    log().0.push(format!("{text}\n").as_bytes());
}

/// Writes a text to standard error as [`print_error`] does, and leaves the line open.
pub fn print_prompt(text: impl std::fmt::Display) {
    log().0.push(text.to_string().as_bytes());
}

/// Waits until the log is written, at most one second. Call it at the end of the process.
pub fn finish_log() {
    if let Some((queue, limit)) = LOG.get() {
        limit.report(true);
        queue.drain(FLUSH_TIMEOUT);
    }
}

/// The writer by which the formatter puts lines into the queue.
#[derive(Clone, Debug)]
pub(super) struct QueueWriter(pub(super) Arc<LogQueue>);

impl MakeWriter<'_> for QueueWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for QueueWriter {
    /// Accepts a whole line, as the log's formatter writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log on standard error. `wanted` (from `--log`) overrides `RUST_LOG`, and that
/// overrides the config.
///
/// # Errors
///
/// The filter is invalid, or a log was started before.
pub fn start_log(plan: &LogPlan, wanted: Option<&str>) -> Result<LogControl, String> {
    let from_environment = std::env::var("RUST_LOG")
        .ok()
        .filter(|filter| !filter.is_empty());
    let given = [
        ("--log", wanted),
        ("RUST_LOG", from_environment.as_deref()),
        ("log.level", plan.filter.as_deref()),
    ];
    let given = given
        .into_iter()
        .find_map(|(place, text)| Some((place, text?)));
    let (place, text) = given.unwrap_or(("the default filter", DEFAULT));
    let filter = log_filter::parse(text).map_err(|why| format!("{place}: {why}"))?;
    let terminal = std::io::stderr().is_terminal();
    let human = match plan.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let log_terminal = (terminal && human).then(|| LogTerminal {
        colors: wants_colors(),
    });
    let (queue, limit) = log().clone();
    let ansi = log_terminal.is_some_and(|log_terminal| log_terminal.colors);
    let log = fmt()
        .with_env_filter(filter)
        .with_writer(QueueWriter(queue))
        .with_ansi(ansi);
    // The formatter would print its own errors to standard error, and panic if that is full.
    let log = log.log_internal_errors(false);
    // Messages of libraries that use the crate `log` are left out. Those of the Redis client repeat
    // what weir says itself, several times a second while a node of a cluster is down.
    let (control, started) = if log_terminal.is_some() {
        // A person at a terminal knows the date.
        let log = log
            .compact()
            .with_timer(LocalTimer(TimeZone::own()))
            .with_filter_reloading();
        (
            LogControl::new(log.reload_handle(), text, log_terminal),
            set_global_default(log.finish().with(limit)),
        )
    } else if human {
        let log = log.compact().with_filter_reloading();
        (
            LogControl::new(log.reload_handle(), text, log_terminal),
            set_global_default(log.finish().with(limit)),
        )
    } else {
        let log = log
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .with_filter_reloading();
        (
            LogControl::new(log.reload_handle(), text, log_terminal),
            set_global_default(log.finish().with(limit)),
        )
    };
    started.map(|()| control).map_err(|error| error.to_string())
}

/// A terminal at which a person reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTerminal {
    /// True if colors are wanted.
    pub colors: bool,
}

/// Reports if colors are allowed: `NO_COLOR` (no-color.org) is not set, and the terminal is not
/// dumb.
fn wants_colors() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var("TERM").map_or(true, |term| term != "dumb")
}

/// The timestamps of lines for people.
#[derive(Debug)]
struct LocalTimer(TimeZone);

impl FormatTime for LocalTimer {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        line.write_str(&self.0.time_of_day(SystemTime::now()))
    }
}

/// The control of the log level at run time.
#[derive(Clone)]
pub struct LogControl {
    take: Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
    /// The filter that weir began with.
    usual: Arc<str>,
    terminal: Option<LogTerminal>,
}

impl LogControl {
    fn new<S: 'static>(
        handle: Handle<EnvFilter, S>,
        usual: &str,
        terminal: Option<LogTerminal>,
    ) -> Self {
        let take = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        Self {
            take: Arc::new(take),
            usual: usual.into(),
            terminal,
        }
    }

    /// Returns the terminal of the person who reads the log; `None` if programs do.
    pub fn terminal(&self) -> Option<LogTerminal> {
        self.terminal
    }

    /// Sets another filter.
    ///
    /// # Errors
    ///
    /// The filter is invalid: the reason.
    pub fn set(&self, filter: &str) -> Result<(), String> {
        (self.take)(log_filter::parse(filter)?)
    }

    /// Restores the filter that weir began with.
    ///
    /// # Errors
    /// The log is gone.
    pub fn reset(&self) -> Result<(), String> {
        self.set(&self.usual)
    }
}

impl std::fmt::Debug for LogControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogControl({})", self.usual)
    }
}

/// Logs panics with their place, without the backtrace.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or(payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("a panic without a text");
        tracing::error!(place, message, "internal error: panic");
    }));
}

/// Checks that a text is a log filter, for the config's checks.
///
/// # Errors
///
/// The filter is invalid: the reason.
pub fn check_filter(text: &str) -> Result<(), String> {
    log_filter::parse(text).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_crate_log_are_left_out() {
        start_log(&LogPlan::default(), Some("trace")).expect("the first log");
        assert_eq!(log::max_level(), log::LevelFilter::Off);
        assert!(tracing::enabled!(tracing::Level::TRACE));
    }
}
