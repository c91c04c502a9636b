//! The files of the workspace, for tests that read its sources.
#![allow(dead_code, reason = "each test binary uses a part of this module")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The folders of `crates/`, in order.
pub(crate) fn crates() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The Rust files under a folder of the workspace, with their paths from its root, in order.
pub(crate) fn rust_files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(&root().join(folder), &mut found);
    found.sort();
    found
}

/// The Rust files under a folder of the workspace without those of tests alone, as [`rust_files`].
pub(crate) fn source_files(folder: &str) -> Vec<String> {
    let files: Vec<String> = rust_files(folder)
        .into_iter()
        .filter(|file| {
            let mut parts = file[folder.len()..].split('/');
            !parts.any(|part| part == "tests" || part == "tests.rs")
        })
        .collect();
    assert!(!files.is_empty(), "{folder} has no sources");
    files
}

/// The code of a file, up to its tests.
pub(crate) fn code(file: &str) -> String {
    let text = read(file);
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    code.unwrap_or_default().to_owned()
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default();
            if name != "target" && name != "node_modules" {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let path = path.strip_prefix(root()).unwrap();
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

/// The text of a file, by its path from the root.
pub(crate) fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Compares a page of `docs/` with what was made from the code. With `UPDATE=1` it is written.
///
/// # Panics
/// If they differ.
pub(crate) fn keep_page(file: &str, made: &str) {
    let path = root().join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let kept = read(file);
    let differing = kept.lines().zip(made.lines()).find(|(old, new)| old != new);
    assert!(
        kept == made,
        "{file} is not current: run this test with UPDATE=1 and review the difference, first {differing:#?}"
    );
}
