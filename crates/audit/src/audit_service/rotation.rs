//! Rotated files of records: their names and their retention.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Digits of a record's number in a name: names sort as their records do.
const DIGITS: usize = 16;

/// Returns the unused name for the file at `path`, with the number of its last record.
pub(super) fn rotated_name(path: &Path, last: u64) -> PathBuf {
    let first = with_suffix(path, &format!(".{last:0DIGITS$}"));
    // A chain that began anew may reach the same number.
    let others = (2..1000).map(|n| with_suffix(path, &format!(".{last:0DIGITS$}-{n:03}")));
    std::iter::once(first.clone())
        .chain(others)
        .find(|name| !name.exists())
        .unwrap_or(first)
}

/// Removes rotated files: the oldest beyond `keep`, and those not written to for `keep_for`.
pub(super) fn remove_old(path: &Path, keep: usize, keep_for: Option<Duration>, now: SystemTime) {
    let files = rotated_files(path);
    let surplus = files.len().saturating_sub(keep);
    for (n, file) in files.iter().enumerate() {
        let age = fs::metadata(file)
            .and_then(|about| about.modified())
            .ok()
            .and_then(|then| now.duration_since(then).ok());
        let is_old = matches!((age, keep_for), (Some(age), Some(most)) if age > most);
        if n < surplus || is_old {
            match fs::remove_file(file) {
                Ok(()) => {
                    tracing::info!(file = %file.display(), "rotated audit file removed")
                }
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "rotated audit file not removed")
                }
            }
        }
    }
}

/// Returns the rotated files of `path`, oldest first.
pub(super) fn rotated_files(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(own)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Vec::new();
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let is_aside = |name: &str| {
        let rest = name
            .strip_prefix(own)
            .and_then(|rest| rest.strip_prefix('.'))
            .unwrap_or_default();
        let (number, again) = rest.split_once('-').unwrap_or((rest, "000"));
        let digits =
            |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
        digits(number, DIGITS) && digits(again, 3)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_aside(name)).collect();
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
