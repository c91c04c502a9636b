//! The reload of the config at run time: its folders are watched, and SIGHUP triggers it too.
//!
//! A bad file is logged once and changes no setting; a good one is applied whole. Editors and
//! config maps write beside the file, rename, or swap a link. Such events show in the folder, so
//! folders are watched, not files. Some changes cause no event, such as those in a file system of
//! another machine, so the files are also compared at intervals.

mod folder_watch;
mod watched_folders;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use weir_admin::Strictness;
use weir_composition::{ReloadError, Weir};
use weir_config::{Config, ConfigLoader, TeamFileVersion};
use weir_config_file::config_report::{ConfigReport, Severity};

use folder_watch::FolderWatch;
use watched_folders::watched_folders;

/// The quiet time after the last event, so that a half-written file is rarely read.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// The longest delay of a reload, however busy the folder is.
const MAX_DELAY: Duration = Duration::from_secs(2);
/// The interval at which the files are compared. docs/lifecycle.md and a log message name the bound
/// that follows.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The follower of the config's files.
pub(crate) struct ConfigFollower<'a> {
    loader: ConfigLoader<'a>,
    changed: Arc<Notify>,
    folders: FolderWatch,
    next_poll: Instant,
    applied: Arc<Config>,
    last_report: ConfigReport,
    /// True if the last config read was rejected.
    refused: bool,
    /// The reason, if it was rejected as weaker: a new process would accept it.
    weaker: Option<String>,
}

impl<'a> ConfigFollower<'a> {
    /// Follows from here on: `applied` is the running config, `report` the report on it.
    pub(crate) fn new(
        loader: ConfigLoader<'a>,
        applied: Arc<Config>,
        report: ConfigReport,
    ) -> Self {
        let changed = Arc::new(Notify::new());
        let mut follower = Self {
            loader,
            folders: FolderWatch::new(changed.clone()),
            changed,
            next_poll: Instant::now() + POLL_INTERVAL,
            applied,
            last_report: report,
            refused: false,
            weaker: None,
        };
        follower.watch();
        follower
    }

    /// Returns after files changed and a quiet time. Dropping the future loses a noticed change:
    /// then read the files, or stop.
    pub(crate) async fn changed(&mut self) {
        loop {
            tokio::select! {
                () = self.changed.notified() => break,
                () = sleep_until(self.next_poll) => {
                    self.next_poll = Instant::now() + POLL_INTERVAL;
                    self.watch();
                    if self.loader.is_stale() {
                        // The watch did not notice the change, so it may have ended: all begin anew.
                        self.folders.end();
                        break;
                    }
                }
            }
        }
        let latest = Instant::now() + MAX_DELAY;
        loop {
            let quiet = (Instant::now() + DEBOUNCE).min(latest);
            tokio::select! {
                () = sleep_until(quiet) => return,
                () = self.changed.notified(), if Instant::now() < latest => {}
            }
        }
    }

    /// Reloads the files if their contents have changed or had errors.
    pub(crate) fn reload_if_changed(&mut self, weir: &Weir) {
        // A folder may have been replaced by one with the same files.
        self.watch();
        // A certificate that was missing is not among the watched contents.
        if self.last_report.has_errors() || self.loader.is_stale() {
            self.read(weir, None);
        }
    }

    /// Reloads and applies the files even if unchanged: the operator may have moved the audit file.
    pub(crate) fn reload(&mut self, weir: &Weir, strictness: Strictness) {
        self.read(weir, Some(strictness));
    }

    /// Returns the reason why a new process must not take over: it could not read the config, would
    /// accept the weaker config that this one refused, or lacks the last good version of a team's
    /// file.
    pub(crate) fn handover_blocker(&self) -> Option<String> {
        if let Some(why) = self.loader.reread_blocker() {
            return Some(why);
        }
        if let Some(weaker) = &self.weaker {
            return Some(format!(
                "a new process would take a weaker config: {weaker}"
            ));
        }
        let kept = self
            .applied
            .team_files
            .iter()
            .filter(|file| file.version == TeamFileVersion::LastGood);
        let kept: Vec<&str> = kept.map(|file| file.name.as_str()).collect();
        let why = "a new process would not have the last good version of these files of `include`, whose errors must be fixed first";
        (!kept.is_empty()).then(|| format!("{why}: {}", kept.join(", ")))
    }

    /// Reads the files. With the `strictness` of a requested reload, the config is applied even if
    /// unchanged.
    fn read(&mut self, weir: &Weir, strictness: Option<Strictness>) {
        let loader = &mut self.loader;
        let load = || match strictness {
            Some(Strictness::AllowWeaker) => loader.load_weaker(),
            Some(Strictness::NoWeaker) | None => loader.load(),
        };
        // The process serves on, whatever the files are.
        let Ok(outcome) = catch_unwind(AssertUnwindSafe(load)) else {
            self.refused = true;
            let error = weir.record_panicked_load();
            tracing::error!(%error, "config reload failed: not applied, old one in force");
            return;
        };
        self.watch();
        let is_new = outcome.report != self.last_report;
        // An order gets an answer, also the second one with the same errors.
        let is_answered = is_new || (strictness.is_some() && outcome.config.is_none());
        if is_answered {
            log_report(&outcome.report);
            self.last_report = outcome.report;
        }
        let was_refused = std::mem::replace(&mut self.refused, outcome.config.is_none());
        self.weaker = None;
        match outcome.config.map(Arc::new) {
            None if is_answered => {
                weir.record_invalid_config(&format!(
                    "the config has errors:\n{}",
                    self.last_report
                ));
                tracing::error!("config reload failed: errors in the config, old one in force");
            }
            None => {}
            Some(config) if config == self.applied && strictness.is_none() => {
                // Other comments make another digest, which replicas compare.
                let is_rewritten = config.source.digest() != self.applied.source.digest();
                if was_refused || is_rewritten {
                    weir.record_unchanged_config(&config);
                    self.applied = config;
                }
                if was_refused || is_rewritten || is_new {
                    tracing::info!("config unchanged");
                }
            }
            Some(config) => self.apply(weir, config, strictness.unwrap_or(Strictness::NoWeaker)),
        }
        if !self.refused {
            weir.record_held_protections(&outcome.held_back);
        }
    }

    fn apply(&mut self, weir: &Weir, config: Arc<Config>, strictness: Strictness) {
        match weir.reload(&config, strictness) {
            Ok(unmoved) => {
                tracing::info!(
                    upstreams = config.upstreams.len(),
                    endpoints = config.endpoints.len(),
                    "config applied"
                );
                for name in unmoved {
                    tracing::warn!(setting = name, "config setting needs a restart");
                }
                self.applied = config;
            }
            Err(error) => {
                self.refused = true;
                self.weaker = matches!(error, ReloadError::Weaker(_)).then(|| error.to_string());
                tracing::error!(%error, "config reload failed: not applied, old one in force");
            }
        }
    }

    fn watch(&mut self) {
        self.folders.follow(watched_folders(&self.loader.paths()));
    }
}

/// Logs a report, one line per problem.
pub(crate) fn log_report(report: &ConfigReport) {
    for problem in report.problems() {
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
            Severity::Note => tracing::info!("{problem}"),
        }
    }
}
