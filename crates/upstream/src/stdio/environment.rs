//! The environment of a child process: cleared, then what every program needs, then what the config lists.
//!
//! weir's own environment holds its secrets, so only these names are handed on; they are the ones that MCP's SDKs
//! hand on too.

use crate::settings::SecretText;

/// The variables of weir's own environment that a child gets.
pub(crate) const INHERITED: [&str; 9] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// The child's variables. What is listed wins over what is inherited.
pub(crate) fn variables(
    own: impl Fn(&str) -> Option<String>,
    listed: &[(String, SecretText)],
) -> Vec<(String, SecretText)> {
    let inherited = INHERITED.iter().filter_map(|name| {
        let value = own(name)?;
        // An exported shell function is code.
        (!value.starts_with("()")).then(|| ((*name).to_owned(), SecretText::new(value)))
    });
    inherited.filter(|(name, _)| !listed.iter().any(|(other, _)| other == name)).chain(listed.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_variables_are_handed_on() {
        let own = |name: &str| match name {
            "PATH" => Some("/bin".to_owned()),
            "HOME" => Some("() { evil; }".to_owned()),
            "USER" => Some("weir".to_owned()),
            _ => None,
        };
        let listed = [("USER".to_owned(), SecretText::new("tool")), ("KEY".to_owned(), SecretText::new("k"))];
        let got = variables(own, &listed);
        let got: Vec<_> = got.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(got, [("PATH", "/bin"), ("USER", "tool"), ("KEY", "k")]);
    }
}
