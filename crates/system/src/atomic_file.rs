//! Atomic writes of files by commands. New files are readable by their owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The mode of a new file: only its owner reads and writes it.
const OWNER_ALONE: u32 = 0o600;

/// Writes a file that must not exist yet.
///
/// # Errors
///
/// The file exists, or cannot be written.
pub fn create(file: &Path, text: &str) -> io::Result<()> {
    let mut new = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(OWNER_ALONE)
        .open(file)?;
    let written = new.write_all(text.as_bytes()).and_then(|()| new.sync_all());
    if written.is_err() {
        // No partial file is left.
        let _ = fs::remove_file(file);
    }
    written
}

/// Replaces a file as a whole. The new one has the mode of the old one.
///
/// # Errors
///
/// The file cannot be written.
pub fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A symbolic link stays; its target is replaced.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mode = fs::metadata(&file).map_or(OWNER_ALONE, |found| found.permissions().mode() & 0o7777);
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let next = file.with_file_name(name);
    let written = || {
        create(&next, text)?;
        fs::set_permissions(&next, fs::Permissions::from_mode(mode))?;
        fs::rename(&next, &file)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&next);
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_rights() {
        let folder = std::env::temp_dir().join(format!("weir-new-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("a"), folder.join("b"));
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        create(&file, "one").unwrap();
        assert_eq!(mode(), 0o600);
        assert!(create(&file, "two").is_err());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "three").unwrap();
        assert_eq!(
            (fs::read_to_string(&file).unwrap().as_str(), mode()),
            ("three", 0o640)
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            2,
            "nothing is left beside them"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
