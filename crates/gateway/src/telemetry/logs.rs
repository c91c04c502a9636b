//! The log: for people on a terminal, JSON otherwise.
//!
//! What a client or an upstream said is always a field, never part of a message, so that one event is one line.

use std::io::IsTerminal;
use std::panic;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, LogPlan};

/// The exporter speaks of its own start; that is nobody's news.
const DEFAULT: &str = "info,opentelemetry=warn";

/// Starts the log on standard error. `wanted` (from `--log`) wins over `RUST_LOG`, and that over the config.
///
/// # Errors
/// The filter is none, or a log was started before.
pub fn start_log(plan: &LogPlan, wanted: Option<&str>) -> Result<LogControl, String> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let text = wanted.map(str::to_owned).or(from_environment).or(plan.filter.clone());
    let text = text.as_deref().unwrap_or(DEFAULT);
    let filter = EnvFilter::try_new(text).map_err(|error| format!("`{text}` is no log filter: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let human = match plan.format {
        LogFormat::Human => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let log = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal && human);
    let (control, started) = if human {
        let log = log.compact().with_filter_reloading();
        (LogControl::new(log.reload_handle(), text), log.finish().try_init())
    } else {
        let log = log.json().flatten_event(true).with_span_list(false).with_filter_reloading();
        (LogControl::new(log.reload_handle(), text), log.finish().try_init())
    };
    started.map(|()| control).map_err(|error| error.to_string())
}

/// What is logged, while weir runs.
#[derive(Clone)]
pub struct LogControl {
    take: Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
    /// The filter that weir began with.
    usual: Arc<str>,
}

impl LogControl {
    fn new<S: 'static>(handle: Handle<EnvFilter, S>, usual: &str) -> Self {
        let take = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        Self { take: Arc::new(take), usual: usual.into() }
    }

    /// Logs by another filter from now on.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn set(&self, filter: &str) -> Result<(), String> {
        (self.take)(EnvFilter::try_new(filter).map_err(|error| error.to_string())?)
    }

    /// Logs as from the beginning.
    ///
    /// # Errors
    /// The log is gone.
    pub(crate) fn reset(&self) -> Result<(), String> {
        self.set(&self.usual)
    }
}

impl std::fmt::Debug for LogControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogControl({})", self.usual)
    }
}

/// Panics go to the log like everything else, with their place and without their backtrace's noise.
pub fn hook_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("a panic without a text");
        tracing::error!(place, message, "panic: this is a bug of weir's");
    }));
}

/// Whether a text is a log filter, for the config's checks.
///
/// # Errors
/// Why it is not.
pub(crate) fn check_filter(text: &str) -> Result<(), String> {
    EnvFilter::try_new(text).map(drop).map_err(|error| error.to_string())
}
