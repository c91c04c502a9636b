//! The parser of log filters. A misspelt level is an error here; the library would take it for the
//! name of a part, and log no lines.

use tracing_subscriber::EnvFilter;

use crate::suggestion::nearest;

/// The levels, and `off`.
const LEVELS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "off"];

/// Parses a level, or a filter such as `info,weir_upstream=debug`.
///
/// # Errors
///
/// The text is neither: the wrong part of it, and the known levels.
pub(super) fn parse(text: &str) -> Result<EnvFilter, String> {
    // Spaces beside a comma would count as part of a name.
    let text = text.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    // Names of spans and fields may hold commas and signs of equality; the library knows their
    // grammar.
    if !text.contains(['[', '{']) {
        text.split(',').try_for_each(check)?;
    }
    EnvFilter::try_new(&text).map_err(|error| format!("`{text}` is not a log filter: {error}"))
}

/// Checks one directive: `LEVEL` or `TARGET=LEVEL`.
fn check(directive: &str) -> Result<(), String> {
    let (level, alone) = match directive.rsplit_once('=') {
        Some((_, level)) => (level, false),
        None => (directive, true),
    };
    let lower = level.to_ascii_lowercase();
    if LEVELS.contains(&lower.as_str()) || matches!(level.as_bytes(), [b'0'..=b'5']) {
        return Ok(());
    }
    let near =
        nearest(&lower, LEVELS).map_or(".".to_owned(), |near| format!(", did you mean `{near}`?"));
    let named = alone && directive.contains(['_', ':']);
    let part = if named {
        format!("; for one part write {directive}=debug")
    } else {
        String::new()
    };
    Err(format!(
        "`{level}` is not a log level{near} Levels are {}{part}",
        LEVELS.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_read() {
        for good in [
            "info",
            "WARN",
            "off",
            "3",
            "info,weir_upstream=debug",
            "warn, weir=trace",
            "info,weir[call{tool=x}]=debug",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good).err());
        }
    }

    #[test]
    fn a_misspelt_level_is_an_error_with_the_known_ones() {
        for (bad, words) in [
            ("inof", "`inof` is not a log level, did you mean `info`?"),
            ("dbug", "did you mean `debug`?"),
            (
                "info,weir_upstream=debgu",
                "`debgu` is not a log level, did you mean `debug`?",
            ),
            ("loud", "Levels are trace, debug, info, warn, error, off"),
            ("weir_upstream", "for one part write weir_upstream=debug"),
            ("weir=", "`` is not a log level"),
            ("", "`` is not a log level"),
            ("info,", "`` is not a log level"),
        ] {
            let said = parse(bad).expect_err(bad);
            assert!(said.contains(words), "{bad}: {said}");
        }
    }
}
