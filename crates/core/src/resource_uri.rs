//! URIs of resources and of their parts.

/// A URI and the resources that it may be a part of: its beginnings up to each boundary, with and
/// without it.
pub fn containing_uris(uri: &str) -> impl Iterator<Item = &str> {
    let boundaries = uri
        .char_indices()
        .filter(|(_, c)| matches!(c, '/' | '?' | '#'));
    let beginnings = boundaries.flat_map(move |(at, _)| [&uri[..at], &uri[..=at]]);
    std::iter::once(uri).chain(beginnings.filter(move |beginning| *beginning != uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R205.
    #[test]
    fn parent_uris_are_prefixes_up_to_a_separator() {
        let all = |uri| containing_uris(uri).collect::<Vec<_>>();
        assert_eq!(all("a:b"), ["a:b"]);
        assert_eq!(all("a:b/c"), ["a:b/c", "a:b", "a:b/"]);
        assert_eq!(all("a:b/"), ["a:b/", "a:b"]);
        assert_eq!(
            all("a:b?c#d"),
            ["a:b?c#d", "a:b", "a:b?", "a:b?c", "a:b?c#"]
        );
        assert_eq!(all("a:/b?c"), ["a:/b?c", "a:", "a:/", "a:/b", "a:/b?"]);
    }
}
