//! The files of a config: listing, reading, and a fingerprint of their contents.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path as FilePath, PathBuf};

use sha2::{Digest as _, Sha256};
use weir_system::regular_file;

use crate::config_report::{ConfigPath, ConfigProblem};
use crate::config_tree::MAX_BYTES;

/// The most files in a folder, which may hold one per team. A folder with more was probably named
/// by mistake.
const MAX_FILES: usize = 1000;

/// The files that a config names, each with its text or the read error.
pub type ReadFiles = BTreeMap<PathBuf, Result<String, ConfigProblem>>;

/// A digest over the contents of files, in their order: the main one, the teams', the policy files.
#[derive(Debug, Default)]
pub struct FilesFingerprint {
    hash: Sha256,
    folder: PathBuf,
}

impl FilesFingerprint {
    /// Starts a digest. The paths of files below `folder` count without it, so that copies of one
    /// config in different folders have the same digest.
    pub fn below(folder: PathBuf) -> Self {
        Self {
            folder,
            ..Self::default()
        }
    }

    /// Adds bytes, apart from those before and after them.
    pub fn add_bytes(&mut self, part: &[u8]) {
        self.hash.update((part.len() as u64).to_be_bytes());
        self.hash.update(part);
    }

    /// Adds a file by its path and its text, or the error of its read.
    pub fn add_file(&mut self, file: &FilePath, text: &Result<String, ConfigProblem>) {
        let name = file.strip_prefix(&self.folder).unwrap_or(file);
        self.add_bytes(name.as_os_str().as_encoded_bytes());
        match text {
            Ok(text) => self.add_bytes(text.as_bytes()),
            Err(problem) => self.add_bytes(problem.message.as_bytes()),
        }
    }

    /// Returns the digest of all parts so far.
    pub fn digest(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

/// Returns the folder that relative paths in a file start at.
pub fn folder_of(file: &FilePath) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Lists the configs in a folder, sorted by name. A name that cannot be followed to a file is
/// listed too: reading it then fails, whereas a missing name means that the file was deleted.
pub fn files_in(folder: &FilePath) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let config = path
            .extension()
            .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|own| extension == *own));
        if config && !hidden && may_be_file(&path) {
            files.push(path);
        }
    }
    if files.len() > MAX_FILES {
        return Err(format!(
            "{} has {} files, more than {MAX_FILES}",
            folder.display(),
            files.len()
        ));
    }
    files.sort();
    Ok(files)
}

/// Reports if an entry of a folder may be a file: it is not certainly a folder, and was not deleted
/// meanwhile.
fn may_be_file(path: &FilePath) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => !found.is_dir(),
        // A link without a target, or a folder without search permission.
        Err(_) => std::fs::symlink_metadata(path)
            .map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true),
    }
}

/// Reads a regular file, up to the largest size of a config. Anything else is refused, because a
/// read from a pipe would wait for its writer.
pub fn read(file: &FilePath) -> Result<String, ConfigProblem> {
    text_of(regular_file::open(file))
}

/// Reads a file, which may also be a pipe or a device. Only the start of a program may do so.
pub fn read_stream(file: &FilePath) -> Result<String, ConfigProblem> {
    text_of(File::open(file))
}

/// Reports if a file is not a regular one, so that it can be read only once.
pub fn is_stream(file: &FilePath) -> bool {
    file.metadata().is_ok_and(|found| !found.is_file())
}

fn text_of(opened: io::Result<File>) -> Result<String, ConfigProblem> {
    let problem = |message: String| ConfigProblem::error(ConfigPath::root(), message);
    let mut bytes = Vec::new();
    opened
        .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| problem(format!("cannot be read: {error}")))?;
    if bytes.len() > MAX_BYTES {
        return Err(problem(format!(
            "has more than the {MAX_BYTES} bytes that a file may have"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let lines = valid.iter().filter(|byte| **byte == b'\n').count();
        ConfigProblem {
            line: u32::try_from(lines + 1).ok(),
            ..problem("is not UTF-8 text".to_owned())
        }
    })
}

/// Returns the problem of a value that names a file, from that of the file's read.
pub fn unreadable(path: ConfigPath, file: &FilePath, problem: &ConfigProblem) -> ConfigProblem {
    let file = file.display();
    let message = &problem.message;
    let line = problem.line.map(|line| format!(":{line}"));
    let message = format!("{file}{} {message}", line.unwrap_or_default());
    ConfigProblem::error(path, message)
}

/// Returns the text of a file. Each file is read once.
pub fn read_once<'a>(
    file: &FilePath,
    texts: &'a mut ReadFiles,
) -> &'a Result<String, ConfigProblem> {
    texts.entry(file.to_owned()).or_insert_with(|| read(file))
}
