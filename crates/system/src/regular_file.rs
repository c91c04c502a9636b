//! Reads of regular files, which never wait for another program.
//!
//! A read from a pipe waits until a program writes to it, and would hold up a running weir. A check
//! before the open is not enough: the file may be replaced in between.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens a regular file for reading. A link counts as its target.
///
/// # Errors
///
/// The file cannot be opened, or is a folder, a pipe, a device or a socket.
pub fn open(path: &Path) -> io::Result<File> {
    // Without these flags the open of a pipe would wait for its writer, and a terminal could become
    // that of weir.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path);
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(not_regular()),
        // A socket, or a device without a driver.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Err(not_regular()),
        Err(error) => Err(error),
    }
}

/// Reads a regular file.
///
/// # Errors
///
/// As [`open`], or the file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use nix::sys::stat::Mode;

    use super::*;

    /// A read that waits would hang this test.
    #[test]
    fn files_that_are_not_regular_are_refused_without_a_wait() {
        let folder = std::env::temp_dir().join(format!("weir-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let name = |name: &str| folder.join(name);
        let (file, pipe, link, socket) = (name("a"), name("b"), name("c"), name("d"));
        std::fs::write(&file, "text").unwrap();
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("b", &link).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(read(&file).unwrap(), b"text");
        for special in [&pipe, &link, &socket, &folder, &"/dev/zero".into()] {
            let error = read(special).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{special:?}");
        }
        assert_eq!(
            read(&name("e")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        // A link to a regular file is one.
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("a", &link).unwrap();
        assert_eq!(read(&link).unwrap(), b"text");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
