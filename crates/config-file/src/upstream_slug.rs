//! Ids of upstreams from the names that other programs' files give them.

/// Converts any text to an upstream id: lower case, other characters become `-`, at most 24, a
/// letter first.
pub fn upstream_slug(key: &str) -> String {
    let mut slug = String::new();
    for c in key.chars().flat_map(char::to_lowercase) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    if !slug.starts_with(|c: char| c.is_ascii_lowercase()) {
        slug.insert_str(0, "s-");
    }
    slug.truncate(24);
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;
    use weir_core::names::UpstreamId;

    use super::*;

    #[test]
    fn slugs_read_like_their_keys() {
        let table = [
            ("files", "files"),
            ("My Server!", "my-server"),
            ("@scope/server_v2", "scope-server-v2"),
            ("1password", "s-1password"),
            ("日本", "s"),
            ("", "s"),
            (
                "a-very-long-name-of-a-server-for-files",
                "a-very-long-name-of-a-se",
            ),
        ];
        for (key, wanted) in table {
            assert_eq!(upstream_slug(key), wanted);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn every_slug_is_an_upstream_id(key in ".{0,40}") {
            prop_assert!(UpstreamId::new(&upstream_slug(&key)).is_ok());
        }
    }
}
