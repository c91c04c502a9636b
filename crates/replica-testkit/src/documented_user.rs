//! The user of Redis that the documentation describes.

const DOCUMENT: &str = include_str!("../../../docs/replicas.md");

/// Returns the words of the documented command that adds the user `weir`, with this password.
///
/// # Panics
/// The documentation has no such command.
#[must_use]
pub fn documented_user(password: &str) -> Vec<String> {
    let mut lines = DOCUMENT.lines();
    let line = lines.find(|line| line.starts_with("ACL SETUSER weir "));
    let line = line.unwrap_or_else(|| panic!("docs/replicas.md has no user of Redis"));
    let password = format!(">{password}");
    let words = line.split(' ');
    words
        .map(|word| word.replace(">PASSWORD", &password))
        .collect()
}
