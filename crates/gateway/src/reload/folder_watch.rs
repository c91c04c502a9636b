//! The notifications of the system about changes in folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use crate::reload::watched_folders::FolderIdentity;

/// The watch over a set of folders. The system follows a folder, not its path: a folder that
/// replaces another one needs a watch of its own.
pub(super) struct FolderWatch {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, FolderIdentity>,
    /// The folders whose watch failed, so that each failure is logged once.
    failed: BTreeSet<PathBuf>,
}

impl FolderWatch {
    /// Creates a watch over no folder yet. Each change in one notifies `changed`.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading the files is an event too; following that would never end.
            if event.map_or(true, |event| !event.kind.is_access()) {
                changed.notify_one();
            }
        });
        let watcher = watcher
            .inspect_err(
                |error| tracing::warn!(%error, "config watch failed: changes apply after up to 8 s"),
            )
            .ok();
        Self {
            watcher,
            watched: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Watches these folders and no others. A folder that was replaced is watched anew.
    pub(super) fn follow(&mut self, wanted: BTreeMap<PathBuf, FolderIdentity>) {
        self.end_unless(|folder, identity| wanted.get(folder) == Some(identity));
        self.failed.retain(|folder| wanted.contains_key(folder));
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        for (folder, identity) in wanted {
            if self.watched.contains_key(&folder) {
                continue;
            }
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.failed.remove(&folder);
                    self.watched.insert(folder, identity);
                }
                Err(error) => {
                    if self.failed.insert(folder.clone()) {
                        tracing::warn!(%error, folder = %folder.display(), "config folder watch failed");
                    }
                }
            }
        }
    }

    /// Ends all watches, so that the next [`Self::follow`] begins them anew.
    pub(super) fn end(&mut self) {
        self.end_unless(|_, _| false);
    }

    fn end_unless(&mut self, is_kept: impl Fn(&PathBuf, &FolderIdentity) -> bool) {
        let watcher = &mut self.watcher;
        self.watched.retain(|folder, identity| {
            let is_kept = is_kept(folder, identity);
            if let Some(watcher) = watcher.as_mut().filter(|_| !is_kept) {
                // The folder may be gone already, and then its watch has ended.
                let _ = watcher.unwatch(folder);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use weir_testkit::TestFolder;

    use super::super::watched_folders::watched_folders;
    use super::*;

    #[tokio::test]
    async fn a_replaced_folder_is_watched_anew() {
        let folder = TestFolder::new("replaced");
        folder.write("teams/red.yaml", "a");
        folder.write("next/red.yaml", "b");
        let teams = folder.file("teams");
        let wanted = || watched_folders(std::slice::from_ref(&teams));
        let changed = Arc::new(Notify::new());
        let mut watch = FolderWatch::new(changed.clone());
        watch.follow(wanted());
        let seen = async || {
            tokio::time::timeout(Duration::from_secs(10), changed.notified())
                .await
                .expect("a change is seen");
        };
        std::fs::rename(&teams, folder.file("old")).unwrap();
        seen().await;
        std::fs::rename(folder.file("next"), &teams).unwrap();
        watch.follow(wanted());
        folder.write("teams/red.yaml", "c");
        seen().await;
        // After its end no folder is watched, and the next call watches it again.
        watch.end();
        assert!(watch.watched.is_empty());
        watch.follow(wanted());
        assert_eq!(watch.watched, wanted());
    }
}
