//! Folders of servers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Makes a folder among the temporary files.
pub(crate) fn fresh_folder() -> PathBuf {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("weir-redis-{}-{number}", std::process::id());
    let folder: &Path = &std::env::temp_dir().join(name);
    std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder.to_owned()
}
