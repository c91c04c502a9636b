//! The challenges of a server's 401 or 403.

use weir_oauth::BearerChallenge;

/// Reads the `Bearer` challenges of all lines as one: a proxy may add its own beside the server's.
/// Of a parameter in several challenges the last counts.
pub(super) fn read_challenges<'a>(lines: impl IntoIterator<Item = &'a str>) -> BearerChallenge {
    let challenges = lines.into_iter().filter_map(BearerChallenge::parse);
    challenges.fold(BearerChallenge::default(), |all, one| BearerChallenge {
        resource_metadata: one.resource_metadata.or(all.resource_metadata),
        scope: one.scope.or(all.scope),
        error: one.error.or(all.error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R238.
    #[test]
    fn challenges_of_several_lines_are_read_as_one() {
        let read = read_challenges([
            r#"Bearer realm="proxy", scope="a""#,
            "Negotiate",
            r#"Bearer scope="b", resource_metadata="https://a.example/x""#,
            "Bearer error=insufficient_scope",
        ]);
        assert_eq!(
            read,
            BearerChallenge {
                resource_metadata: Some("https://a.example/x".to_owned()),
                scope: Some("b".to_owned()),
                error: Some("insufficient_scope".to_owned()),
            }
        );
        assert_eq!(
            read_challenges(["Basic realm=\"x\""]),
            BearerChallenge::default()
        );
    }
}
