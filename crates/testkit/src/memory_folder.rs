//! A folder for files that are synchronized often.

use std::path::{Path, PathBuf};

/// Returns a folder in memory, or the folder for temporary files where the system has none. A disk
/// that is busy with a build takes seconds for each file that is synchronized.
#[must_use]
pub fn memory_folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}
