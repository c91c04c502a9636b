//! The parser of log filters. A misspelt level is an error here; the library would take it for the
//! name of a part, and log no lines.

use tracing_subscriber::EnvFilter;
use weir_text::suggestion::nearest;

/// The levels, and `off`.
const LEVELS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "off"];

/// Crates whose messages a filter by the name of another crate covers: parts of it were split off.
/// Names that begin with the same name need no entry.
const PARTS: [(&str, &[&str]); 5] = [
    ("weir_core", &["weir_catalog", "weir_router"]),
    (
        "weir_front",
        &["weir_listen", "weir_session", "weir_layers"],
    ),
    (
        "weir_upstream",
        &["weir_http_client", "weir_oauth_client", "weir_process"],
    ),
    ("weir_policy", &["weir_audit"]),
    (
        "weir_gateway",
        &[
            "weir_admin",
            "weir_audit",
            "weir_composition",
            "weir_config",
            "weir_handover",
            "weir_memory",
            "weir_program",
            "weir_stdio_server",
            "weir_telemetry",
        ],
    ),
];

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
    EnvFilter::try_new(with_parts(&text))
        .map_err(|error| format!("`{text}` is not a log filter: {error}"))
}

/// Adds the parts of each crate that is named. They come first, so a directive of the text for a
/// part counts.
fn with_parts(text: &str) -> String {
    let parts = text.split(',').flat_map(|directive| {
        let (name, level) = directive.split_once('=').unwrap_or((directive, ""));
        let parts = PARTS.iter().find(|(whole, _)| *whole == name);
        parts
            .map_or(&[][..], |(_, parts)| parts)
            .iter()
            .map(move |part| format!("{part}={level}"))
    });
    parts.chain([text.to_owned()]).collect::<Vec<_>>().join(",")
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
    fn filter_by_a_crate_covers_its_parts_unless_they_are_named() {
        let filter = parse("info,weir_gateway=warn,weir_admin=debug")
            .expect("a filter")
            .to_string();
        let directives: Vec<&str> = filter.split(',').collect();
        for wanted in [
            "info",
            "weir_gateway=warn",
            "weir_config=warn",
            "weir_admin=debug",
        ] {
            assert!(directives.contains(&wanted), "{wanted}: {filter}");
        }
        assert!(!directives.contains(&"weir_admin=warn"), "{filter}");
        assert!(!directives.contains(&"weir_listen=warn"), "{filter}");
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
