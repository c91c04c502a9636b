//! The file of `weir serve --address-file`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::Value;

/// Writes the addresses of both listeners as one line of JSON. A regular file is replaced by a
/// rename, so that a reader never finds a part of it. A link stays: its target is replaced, or
/// created. A pipe or device, and the file behind `/dev/stdout`, are written to.
pub(super) fn write_addresses(file: &Path, addresses: &Value) -> io::Result<()> {
    let line = format!("{addresses}\n");
    let target = match fs::metadata(file) {
        Ok(found) => {
            if let Some(mut stream) = own_stream(&found)? {
                return stream.write_all(line.as_bytes());
            }
            if !found.is_file() {
                let mut open = OpenOptions::new().write(true).open(file)?;
                return open.write_all(line.as_bytes());
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
}
