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

    #[test]
    fn uri_is_followed_by_its_beginnings() {
        let all: Vec<_> = containing_uris("a:/b?c").collect();
        assert_eq!(all, ["a:/b?c", "a:", "a:/", "a:/b", "a:/b?"]);
    }
}
