//! Atomic writes of files by commands. New files are readable by their owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The mode of a new file: only its owner reads and writes it.
const OWNER_ALONE: u32 = 0o600;

/// Checks if a path is that of a regular file, or free for one. A link counts as its target.
///
/// # Errors
///
/// A rename over the path would destroy a pipe, a device or a link without a target. No other
/// file that exists is an error.
pub fn check_replaceable(file: &Path) -> io::Result<()> {
    let cannot = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match fs::metadata(file) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(found) if found.is_dir() => cannot("it is a folder"),
        Ok(_) => cannot("it is a pipe, a device or a socket, and no regular file"),
        Err(_) if fs::symlink_metadata(file).is_ok_and(|found| found.is_symlink()) => {
            cannot("it is a symbolic link, and its target does not exist or cannot be reached")
        }
        Err(_) => Ok(()),
    }
}

/// Writes a file that must not exist yet.
///
/// # Errors
///
/// The file exists, or cannot be written.
pub fn create(file: &Path, text: &str) -> io::Result<()> {
    check_replaceable(file)?;
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
/// The file cannot be written, or is no regular file.
pub fn replace(file: &Path, text: &str) -> io::Result<()> {
    check_replaceable(file)?;
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
    use std::os::unix::fs::FileTypeExt as _;

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

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = std::env::temp_dir().join(format!("weir-special-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (dangling, to_device) = (folder.join("dangling"), folder.join("device"));
        std::os::unix::fs::symlink(folder.join("missing"), &dangling).unwrap();
        // A link, so that a failure of this test destroys no device.
        std::os::unix::fs::symlink("/dev/null", &to_device).unwrap();
        assert!(check_replaceable(&to_device).is_err());
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (file, why) in [
            (&dangling, "symbolic link"),
            (&socket, "no regular file"),
            (&folder, "folder"),
        ] {
            for written in [create(file, "text"), replace(file, "text")] {
                let error = written.unwrap_err();
                assert_ne!(error.kind(), io::ErrorKind::AlreadyExists, "{why}");
                assert!(error.to_string().contains(why), "{error}");
            }
        }
        assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
        assert!(
            fs::symlink_metadata(&socket)
                .unwrap()
                .file_type()
                .is_socket()
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
