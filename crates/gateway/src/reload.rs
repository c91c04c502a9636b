//! The config followed while weir runs: its folders are watched, and SIGHUP asks too.
//!
//! A bad file changes nothing and is said once; a good one is applied whole. What editors and
//! config maps do to a file (write beside it, rename, swap a link) shows in its folder, so folders
//! are watched, not files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::config::{Config, Loader, Report, Severity, TeamFileVersion};
use crate::weir::{ReloadError, Strictness, Weir};

/// Quiet for this long after the last event, so that a half-written file is rarely read.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Read at the latest after this, however busy the folder is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Follows the config's files.
pub(crate) struct Follower<'a> {
    loader: Loader<'a>,
    changed: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: Vec<PathBuf>,
    applied: Arc<Config>,
    said: Report,
    /// Whether what was read last was not taken.
    refused: bool,
    /// Why it was not, where it would take protections away: a new process would take it.
    weaker: Option<String>,
}

impl<'a> Follower<'a> {
    /// Follows from here on: `applied` is what runs, `said` what was said about it.
    pub(crate) fn new(loader: Loader<'a>, applied: Arc<Config>, said: Report) -> Self {
        let changed = Arc::new(Notify::new());
        let signal = changed.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading the files is an event too; following that would never end.
            if event.map_or(true, |event| !event.kind.is_access()) {
                signal.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "config files cannot be watched: use SIGHUP after a change"))
            .ok();
        let mut follower = Self {
            loader,
            changed,
            watcher,
            watched: Vec::new(),
            applied,
            said,
            refused: false,
            weaker: None,
        };
        follower.watch();
        follower
    }

    /// Returns when files changed and have been quiet since. If it is dropped, the change it had
    /// noticed is forgotten: then read the files, or stop.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
        let latest = Instant::now() + PATIENCE;
        loop {
            let quiet = (Instant::now() + DEBOUNCE).min(latest);
            tokio::select! {
                () = sleep_until(quiet) => return,
                () = self.changed.notified(), if Instant::now() < latest => {}
            }
        }
    }

    /// Reads the files again, where what they say has changed or was wrong.
    pub(crate) fn follow(&mut self, weir: &Weir) {
        // A certificate that was missing is no part of the files that name it.
        if self.said.has_errors() || self.loader.is_stale() {
            self.read(weir, None);
        }
    }

    /// Reads the files and applies them, also where they say what they said: whoever asks for it
    /// may have moved the audit file.
    pub(crate) fn reload(&mut self, weir: &Weir, strictness: Strictness) {
        self.read(weir, Some(strictness));
    }

    /// The reason why a new process must not take this one's place: it would take the weaker config
    /// that this one refused, or has no last good version of a team's file.
    pub(crate) fn holds_place(&self) -> Option<String> {
        if let Some(weaker) = &self.weaker {
            return Some(format!(
                "a new process would take a weaker config: {weaker}"
            ));
        }
        let kept = self
            .applied
            .team_files
            .iter()
            .filter(|file| file.serves == TeamFileVersion::LastGood);
        let kept: Vec<&str> = kept.map(|file| file.name.as_str()).collect();
        let why = "a new process would not have the last good version of these files of `include`, whose errors have to be mended first";
        (!kept.is_empty()).then(|| format!("{why}: {}", kept.join(", ")))
    }

    /// Reads the files; where somebody `asked` for it, what they say is applied in any case.
    fn read(&mut self, weir: &Weir, asked: Option<Strictness>) {
        let outcome = match asked {
            Some(Strictness::AllowWeaker) => self.loader.load_weaker(),
            Some(Strictness::NoWeaker) | None => self.loader.load(),
        };
        self.watch();
        let news = outcome.report != self.said;
        if news {
            say(&outcome.report);
            self.said = outcome.report;
        }
        let was_refused = std::mem::replace(&mut self.refused, outcome.config.is_none());
        self.weaker = None;
        match outcome.config.map(Arc::new) {
            None if news => {
                weir.refused_invalid(&format!("the config has errors:\n{}", self.said));
                tracing::error!("the config has errors: nothing was changed");
            }
            None => {}
            Some(config) if config == self.applied && asked.is_none() => {
                if was_refused {
                    weir.kept();
                }
                if was_refused || news {
                    tracing::info!("the config is as it was applied");
                }
            }
            Some(config) => self.apply(weir, config, asked.unwrap_or(Strictness::NoWeaker)),
        }
        if !self.refused {
            weir.holds(&outcome.held);
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
                    tracing::warn!(
                        setting = name,
                        "this setting changes at the next start only"
                    );
                }
                self.applied = config;
            }
            Err(error) => {
                self.refused = true;
                self.weaker = matches!(error, ReloadError::Weaker(_)).then(|| error.to_string());
                tracing::error!(%error, "the config cannot be applied: nothing was changed");
            }
        }
    }

    fn watch(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let wanted = self.loader.folders();
        for folder in &self.watched {
            if !wanted.contains(folder) {
                // It may be gone already, and then there is nothing to stop.
                let _ = watcher.unwatch(folder);
            }
        }
        self.watched.retain(|folder| wanted.contains(folder));
        for folder in wanted {
            if self.watched.contains(&folder) {
                continue;
            }
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => self.watched.push(folder),
                Err(error) => {
                    tracing::warn!(%error, folder = %folder.display(), "this folder cannot be watched")
                }
            }
        }
    }
}

/// Puts a report into the log, a line a problem.
pub(crate) fn say(report: &Report) {
    for problem in report.problems() {
        match problem.severity {
            Severity::Error => tracing::error!("{problem}"),
            Severity::Warning => tracing::warn!("{problem}"),
            Severity::Note => tracing::info!("{problem}"),
        }
    }
}
