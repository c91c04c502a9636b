//! The names and the bytes by which clients, upstreams, operators and dashboards know weir,
//! compared with a record in the repository.
//!
//! A rename inside weir must change none of them. An intended change of an outward name is a
//! line in CHANGELOG.md; `UPDATE_OUTWARD=1` with these tests writes the records anew.

mod names;
mod wire;

use std::path::Path;

/// Compares `made` with the record `file` in this folder, line by line.
///
/// # Panics
/// If they differ, with the lines that are gone and the lines that are new.
fn compare(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("it/outward")
        .join(file);
    if std::env::var_os("UPDATE_OUTWARD").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let record = std::fs::read_to_string(&path).unwrap_or_default();
    let lines_only_in = |one: &str, other: &str| -> Vec<String> {
        let other: std::collections::HashSet<&str> = other.lines().collect();
        one.lines()
            .filter(|line| !other.contains(line))
            .map(str::to_owned)
            .collect()
    };
    let (gone, new) = (lines_only_in(&record, made), lines_only_in(made, &record));
    assert!(
        record == made,
        "{file}: outward names or bytes changed\ngone: {gone:#?}\nnew: {new:#?}"
    );
}
