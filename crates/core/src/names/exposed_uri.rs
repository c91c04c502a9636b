//! Exposed resource URIs: `x:y` of upstream `u` is `u+x:y`, and `ui://p` is `ui://u/p`, so that a
//! URI names its upstream.
//!
//! An upstream id is the beginning of a URI scheme by its own rules (RFC 3986, 3.1: a letter, then
//! letters, digits, `+`, `-`, `.`). So the exposed text is a URI with a scheme of its own, and the
//! native one can be read off again. Templates (RFC 6570) are treated alike.

use crate::names::UpstreamId;

const APPS: &str = "ui://";

/// The exposed URI, or URI template, of `native` of `upstream`.
#[must_use]
pub fn expose(upstream: &UpstreamId, native: &str) -> String {
    match native.strip_prefix(APPS) {
        // Hosts know the scheme of MCP Apps by its name.
        Some(path) => format!("{APPS}{upstream}/{path}"),
        None => format!("{upstream}+{native}"),
    }
}

/// Splits an exposed URI into upstream and native URI; no value if it has no such form.
#[must_use]
pub fn split_exposed(exposed: &str) -> Option<(UpstreamId, String)> {
    let id = upstream_of(exposed)?;
    let upstream = UpstreamId::new(id).ok()?;
    let native = match exposed.strip_prefix(APPS) {
        Some(rest) => format!("{APPS}{}", &rest[id.len() + 1..]),
        None => exposed[id.len() + 1..].to_owned(),
    };
    Some((upstream, native))
}

/// The text in the place of an upstream's id in a URI; no value if it has none.
#[must_use]
pub fn upstream_of(exposed: &str) -> Option<&str> {
    if let Some(rest) = exposed.strip_prefix(APPS) {
        return rest.split_once('/').map(|(id, _)| id);
    }
    let (id, _) = exposed.split_once('+')?;
    // In `a:b+c` the `+` is not of the scheme.
    (!id.contains(':')).then_some(id)
}

/// True if the exposed form of a URI of the upstream could come from a URI template.
#[must_use]
pub fn may_expand_to(template: &str, upstream: &UpstreamId) -> bool {
    let literal = template.split('{').next().unwrap_or_default();
    let is_whole = literal.len() == template.len();
    [format!("{upstream}+"), format!("{APPS}{upstream}/")]
        .iter()
        .any(|start| literal.starts_with(start) || (!is_whole && start.starts_with(literal)))
}

/// True if a URI could come from a URI template: literal parts in order, with any text between. It
/// may be true too often: the upstream decides. Takes time in proportion to both lengths at most,
/// without backtracking (B22).
#[must_use]
pub fn matches_template(template: &str, uri: &str) -> bool {
    let mut rest = uri;
    let mut parts = template.split('{');
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else {
        return false;
    };
    rest = after;
    let mut open = false;
    for part in parts {
        let Some((_, literal)) = part.split_once('}') else {
            return false;
        };
        open = literal.is_empty();
        if open {
            continue;
        }
        // The first position is as good as any: the following parts are looked for behind it.
        let Some(at) = rest.find(literal) else {
            return false;
        };
        rest = &rest[at + literal.len()..];
    }
    open || rest.is_empty()
        || template
            .rsplit_once('}')
            .is_some_and(|(_, last)| !last.is_empty() && uri.ends_with(last))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    // Proves R134.
    #[test]
    fn exposed_uris_name_their_upstream_and_round_trip() {
        let files = UpstreamId::new("files").unwrap();
        for (own, exposed) in [
            ("file:///a b", "files+file:///a b"),
            ("test://static-text", "files+test://static-text"),
            ("ui://panel/main", "ui://files/panel/main"),
            ("git+ssh://x", "files+git+ssh://x"),
            ("memo:{id}", "files+memo:{id}"),
        ] {
            assert_eq!(expose(&files, own), exposed);
            assert_eq!(
                split_exposed(exposed),
                Some((files.clone(), own.to_owned()))
            );
        }
        for foreign in ["file:///a+b", "", "+x:y", "FILES+x:y", "ui://files", "x:y"] {
            assert_eq!(split_exposed(foreign), None, "{foreign}");
        }
    }

    proptest! {
        // Proves R134.
        #[test]
        fn uri_exposure_is_injective(a in "[a-z][a-z0-9-]{0,8}", b in "[a-z][a-z0-9-]{0,8}", x in "(ui://)?[a-z+:/]{0,12}", y in "(ui://)?[a-z+:/]{0,12}") {
            let (one, two) = (UpstreamId::new(&a).unwrap(), UpstreamId::new(&b).unwrap());
            prop_assert_eq!(expose(&one, &x) == expose(&two, &y), (a, x) == (b, y));
        }

        // Proves B22.
        #[test]
        fn template_matches_every_uri_expanded_from_it(parts in prop::collection::vec(("[a-z/:]{0,5}", "[a-z0-9]{1,5}"), 0..6), tail in "[a-z]{0,3}") {
            let template: String = parts.iter().map(|(literal, _)| format!("{literal}{{v}}")).collect::<String>() + &tail;
            let uri: String = parts.iter().map(|(literal, value)| format!("{literal}{value}")).collect::<String>() + &tail;
            prop_assert!(matches_template(&template, &uri), "{} {}", template, uri);
        }
    }

    #[test]
    fn template_with_a_variable_in_its_scheme_may_expand_to_any_upstream() {
        let git = UpstreamId::new("git").unwrap();
        for template in [
            "git+ssh://{host}",
            "{+uri}",
            "{scheme}://x",
            "g{rest}",
            "git+{rest}",
            "ui://{page}",
            "ui://git/{page}",
            "git+x:fixed",
        ] {
            assert!(may_expand_to(template, &git), "{template}");
        }
        for template in [
            "memo:{id}",
            "gi",
            "gitea+{rest}",
            "ui://other/{page}",
            "git:{rest}",
        ] {
            assert!(!may_expand_to(template, &git), "{template}");
        }
    }

    // Proves B22.
    #[test]
    fn templates_are_matched_without_going_back() {
        assert!(matches_template(
            "test://template/{id}/data",
            "test://template/123/data"
        ));
        assert!(!matches_template(
            "test://template/{id}/data",
            "test://template/123/dat"
        ));
        assert!(!matches_template(
            "test://template/{id}/data",
            "test://other/123/data"
        ));
        assert!(matches_template("plain:x", "plain:x") && !matches_template("plain:x", "plain:xy"));
        assert!(!matches_template("bad:{", "bad:x"));
        let evil = format!("a:{}", "{x}a".repeat(5_000));
        assert!(!matches_template(
            &evil,
            &format!("a:{}", "a".repeat(4_000))
        ));
    }
}
