//! Values in the place of environment variables that are not set where a config is written. They
//! are set where weir starts.

use weir_config_file::env::reference::{EnvReference, ReferenceSyntax, TextPiece, pieces};

/// The stand-in for a credential.
const CREDENTIAL: &str = "7f3a9c2e51b8d604";
/// The stand-in for the beginning of a URL.
const URL: &str = "http://127.0.0.1:9";
/// The stand-in for a port.
const PORT: &str = "9";

/// Returns a value with which the upstream of this URL can be checked.
pub(super) fn stand_in(name: &str, url: Option<&str>) -> &'static str {
    let url = url.unwrap_or_default();
    // `${NAME}` or `${NAME:-default}`.
    let names = |text: &str| {
        text.strip_prefix("${")
            .and_then(|rest| rest.split(['}', ':']).next())
            == Some(name)
    };
    if names(url) {
        URL
    } else if url.match_indices(':').any(|(at, _)| names(&url[at + 1..])) {
        PORT
    } else {
        CREDENTIAL
    }
}

/// Reports if a text of a config refers to a variable without a default that is not set.
pub(super) fn names_unset(text: &str, is_set: impl Fn(&str) -> bool) -> bool {
    let pieces = pieces(text, ReferenceSyntax::Own).unwrap_or_default();
    pieces.into_iter().any(|piece| {
        matches!(piece, TextPiece::Reference(EnvReference::Variable { name, default: None }) if !is_set(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_without_a_value_are_found() {
        let is_set = |name: &str| name == "A";
        for (text, expected) in [
            ("${B}/x", true),
            ("/x/${A}${B}", true),
            ("${A}/x", false),
            ("${B:-/srv}", false),
            ("$${B}", false),
            ("/srv", false),
        ] {
            assert_eq!(names_unset(text, is_set), expected, "{text}");
        }
    }

    #[test]
    fn stand_ins_fit_their_place_in_a_url() {
        for (url, expected) in [
            (Some("${A}/mcp"), URL),
            (Some("${A:-http://h}/mcp"), URL),
            (Some("http://h:${A}/mcp"), PORT),
            (Some("http://${A}/mcp"), CREDENTIAL),
            (Some("http://h/mcp?token=${A}"), CREDENTIAL),
            (Some("${AB}/mcp"), CREDENTIAL),
            (None, CREDENTIAL),
        ] {
            assert_eq!(stand_in("A", url), expected, "{url:?}");
        }
    }
}
