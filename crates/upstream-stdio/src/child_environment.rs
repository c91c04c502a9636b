//! The environment of a child process: only the variables that every program needs, and those that
//! the config lists.
//!
//! weir's own environment holds its secrets, so only these names are handed on: those that MCP's
//! SDKs hand on too, and those of network access, without which a server behind a proxy or a
//! company's own authority cannot be downloaded.

use weir_upstream_core::secret::SecretText;

/// The variables of weir's own environment that a child gets.
const INHERITED: [&str; 13] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "USER",
];

/// The variables of proxies, in both spellings. One with a password is handed on only if the config
/// lists it.
const PROXIES: [&str; 8] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// Returns the child's variables. Listed variables override inherited ones.
pub(crate) fn child_variables(
    own: impl Fn(&str) -> Option<String>,
    listed: &[(String, SecretText)],
) -> Vec<(String, SecretText)> {
    let inherited = INHERITED.iter().chain(&PROXIES).filter_map(|name| {
        let value = own(name)?;
        // An exported shell function is code.
        let is_kept_back =
            value.starts_with("()") || PROXIES.contains(name) && has_credentials(&value);
        (!is_kept_back).then(|| ((*name).to_owned(), SecretText::new(value)))
    });
    inherited
        .filter(|(name, _)| !listed.iter().any(|(other, _)| other == name))
        .chain(listed.iter().cloned())
        .collect()
}

/// Returns the proxy variables that a child does not get, because they have a password and the
/// config does not list them.
pub(crate) fn withheld_proxies(
    own: impl Fn(&str) -> Option<String>,
    listed: &[(String, SecretText)],
) -> impl Iterator<Item = &'static str> {
    let is_withheld = move |name: &&str| own(name).is_some_and(|value| has_credentials(&value));
    let unlisted = PROXIES
        .into_iter()
        .filter(|name| !listed.iter().any(|(other, _)| other == name));
    unlisted.filter(is_withheld)
}

/// True if a proxy's URL names a user.
fn has_credentials(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#'])
        .next()
        .is_some_and(|authority| authority.contains('@'))
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
        let listed = [
            ("USER".to_owned(), SecretText::new("tool")),
            ("KEY".to_owned(), SecretText::new("k")),
        ];
        let got = child_variables(own, &listed);
        let got: Vec<_> = got
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()))
            .collect();
        assert_eq!(got, [("PATH", "/bin"), ("USER", "tool"), ("KEY", "k")]);
    }

    #[test]
    fn authorities_and_proxies_are_handed_on_but_no_password() {
        let own = |name: &str| match name {
            "SSL_CERT_FILE" | "NODE_EXTRA_CA_CERTS" => Some("/etc/own.pem".to_owned()),
            "HTTPS_PROXY" | "https_proxy" => Some("http://me:secret@proxy:3128/".to_owned()),
            "http_proxy" => Some("http://proxy:3128/?at=@".to_owned()),
            "NO_PROXY" => Some("localhost".to_owned()),
            _ => None,
        };
        let names = |listed: &[(String, SecretText)]| -> Vec<String> {
            child_variables(own, listed)
                .into_iter()
                .map(|(name, _)| name)
                .collect()
        };
        assert_eq!(
            names(&[]),
            [
                "NODE_EXTRA_CA_CERTS",
                "SSL_CERT_FILE",
                "NO_PROXY",
                "http_proxy"
            ]
        );
        assert_eq!(
            withheld_proxies(own, &[]).collect::<Vec<_>>(),
            ["HTTPS_PROXY", "https_proxy"]
        );
        let listed = [(
            "HTTPS_PROXY".to_owned(),
            SecretText::new("http://me:secret@proxy:3128/"),
        )];
        assert!(
            names(&listed).contains(&"HTTPS_PROXY".to_owned()),
            "the config's word"
        );
        assert_eq!(
            withheld_proxies(own, &listed).collect::<Vec<_>>(),
            ["https_proxy"]
        );
    }
}
