//! The file of `weir serve --address-file`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde_json::Value;

/// Writes the addresses of both listeners as one line of JSON. A regular file is replaced by a
/// rename, so that a reader never finds a part of it. A link stays: its target is replaced, or
/// created. A pipe or device, and the file behind `/dev/stdout`, are written to, without a wait for
/// their readers: weir serves already.
pub(super) fn write_addresses(file: &Path, addresses: &Value) -> io::Result<()> {
    let line = format!("{addresses}\n");
    let target = match fs::metadata(file) {
        Ok(found) => {
            if !found.is_file() {
                return write_special(file, &found, line.as_bytes());
            }
            if let Some(mut stream) = own_stream(&found)? {
                return stream.write_all(line.as_bytes());
            }
            fs::canonicalize(file)?
        }
        // A link without a target.
        Err(_) if fs::symlink_metadata(file).is_ok_and(|found| found.is_symlink()) => {
            return fs::write(file, line);
        }
        Err(_) => file.to_owned(),
    };
    let mut unfinished = target.clone().into_os_string();
    unfinished.push(".new");
    fs::write(&unfinished, line)?;
    fs::rename(&unfinished, target)
}

/// Writes to a pipe, a device or a socket.
fn write_special(file: &Path, found: &Metadata, line: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits())
        .open(file);
    // A stream of this process that cannot be opened by a path: a socket, or a pipe of another user.
    let stream = opened.or_else(|error| own_stream(found)?.ok_or(error));
    stream?.write_all(line)
}

/// Reports if a pipe or device could not be written because no program reads it.
pub(super) fn lacks_reader(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(Errno::ENXIO as i32)
}

/// Returns standard output or standard error if it is this file: a rename would take the file away
/// from all later output, and with `/dev/stdout` it would replace that link.
fn own_stream(found: &Metadata) -> io::Result<Option<File>> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let streams: [BorrowedFd<'_>; 2] = [stdout.as_fd(), stderr.as_fd()];
    for stream in streams {
        // A closed stream is none.
        let Ok(stream) = stream.try_clone_to_owned().map(File::from) else {
            continue;
        };
        let own = stream.metadata()?;
        if (own.dev(), own.ino()) == (found.dev(), found.ino()) {
            return Ok(Some(stream));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::os::unix::fs::symlink;

    use serde_json::json;
    use weir_testkit::TestFolder;

    use super::*;

    #[test]
    fn links_stay_and_their_targets_get_the_addresses() {
        let folder = TestFolder::new("address-file");
        let [target, link, chain] = ["a", "b", "c"].map(|name| folder.file(name));
        symlink("a", &link).unwrap();
        symlink("b", &chain).unwrap();
        for (file, port) in [(&chain, 1), (&chain, 2), (&link, 3), (&target, 4)] {
            let addresses = json!({ "clients": format!("127.0.0.1:{port}"), "operators": null });
            write_addresses(file, &addresses).unwrap();
            assert_eq!(
                fs::read_to_string(&target).unwrap(),
                format!("{addresses}\n")
            );
            for link in [&link, &chain] {
                assert!(fs::symlink_metadata(link).unwrap().is_symlink(), "{port}");
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// A write that waits would hang this test.
    #[test]
    fn pipe_gets_the_addresses_if_a_program_reads_it() {
        let folder = TestFolder::new("address-pipe");
        let pipe = folder.file("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let addresses = json!({ "clients": "127.0.0.1:1", "operators": null });
        let error = write_addresses(&pipe, &addresses).unwrap_err();
        assert!(lacks_reader(&error), "{error}");
        let read = |flags: OFlag| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags.bits()).open(&pipe)
        };
        let reader = read(OFlag::O_NONBLOCK).unwrap();
        write_addresses(&pipe, &addresses).unwrap();
        let text = io::read_to_string(reader).unwrap();
        assert_eq!(text, format!("{addresses}\n"));
        // A reader that does not read: the pipe is full.
        let _reader = read(OFlag::O_NONBLOCK).unwrap();
        let mut full = OpenOptions::new();
        let flags = OFlag::O_NONBLOCK.bits();
        let mut full = full.write(true).custom_flags(flags).open(&pipe).unwrap();
        while full.write_all(&[0; 4096]).is_ok() {}
        let error = write_addresses(&pipe, &addresses).unwrap_err();
        assert!(lacks_reader(&error), "{error}");
    }
}
