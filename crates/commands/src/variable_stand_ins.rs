//! Values in the place of environment variables that are not set where a config is written. They
//! are set where weir starts.

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

#[cfg(test)]
mod tests {
    use super::*;

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
