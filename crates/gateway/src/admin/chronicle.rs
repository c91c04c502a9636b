//! Which config is applied, since when, and how the last reload went: for operators.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;

use crate::config::Config;

/// What there is to say of the config.
pub(crate) struct Chronicle {
    config: ArcSwap<Config>,
    book: Mutex<Book>,
}

#[derive(Clone)]
pub(super) struct Book {
    pub(super) started: SystemTime,
    pub(super) applied: SystemTime,
    /// Settings that another config has and only a start takes up.
    pub(super) unmoved: Vec<&'static str>,
    pub(super) last: Option<Reloaded>,
}

/// A reload.
#[derive(Clone)]
pub(super) struct Reloaded {
    pub(super) at: SystemTime,
    /// Why it was not taken.
    pub(super) error: Option<String>,
}

impl Chronicle {
    /// weir starts with this config.
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

    /// Another config was applied, but for these settings.
    pub(crate) fn applied(&self, config: Arc<Config>, unmoved: Vec<&'static str>, now: SystemTime) {
        self.config.store(config);
        let mut book = self.lock();
        (book.applied, book.unmoved) = (now, unmoved);
        book.last = Some(Reloaded {
            at: now,
            error: None,
        });
    }

    /// The one that was not taken is gone; this one was read again.
    pub(crate) fn kept(&self, now: SystemTime) {
        self.lock().last = Some(Reloaded {
            at: now,
            error: None,
        });
    }

    /// Another config was not taken.
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
