//! The applied config, the time it was applied at, and the outcome of the last reload: for
//! operators.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;

use crate::config::Config;

/// The config in force and its history.
pub(crate) struct Chronicle {
    config: ArcSwap<Config>,
    book: Mutex<Book>,
}

#[derive(Clone)]
pub(super) struct Book {
    pub(super) started: SystemTime,
    pub(super) applied: SystemTime,
    /// Changed settings that take effect only at a restart.
    pub(super) unmoved: Vec<&'static str>,
    pub(super) last: Option<Reloaded>,
}

/// The outcome of a reload.
#[derive(Clone)]
pub(super) struct Reloaded {
    pub(super) at: SystemTime,
    /// The error, if the config was rejected.
    pub(super) error: Option<String>,
}

impl Chronicle {
    /// Begins the history with the config of the start.
    pub(crate) fn new(config: Arc<Config>, now: SystemTime) -> Self {
        let book = Book {
            started: now,
            applied: now,
            unmoved: Vec::new(),
            last: None,
        };
        Self {
            config: ArcSwap::new(config),
            book: Mutex::new(book),
        }
    }

    /// Records a newly applied config, with the settings that wait for a restart.
    pub(crate) fn applied(&self, config: Arc<Config>, unmoved: Vec<&'static str>, now: SystemTime) {
        self.config.store(config);
        let mut book = self.lock();
        (book.applied, book.unmoved) = (now, unmoved);
        book.last = Some(Reloaded {
            at: now,
            error: None,
        });
    }

    /// Records a reload that found the config in force unchanged. It clears the error of an earlier
    /// rejection.
    pub(crate) fn kept(&self, now: SystemTime) {
        self.lock().last = Some(Reloaded {
            at: now,
            error: None,
        });
    }

    /// Records a rejected config.
    pub(crate) fn refused(&self, why: String, now: SystemTime) {
        self.lock().last = Some(Reloaded {
            at: now,
            error: Some(why),
        });
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub(super) fn book(&self) -> Book {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Chronicle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chronicle")
    }
}
