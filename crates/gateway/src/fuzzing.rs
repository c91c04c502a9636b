//! Bodies of fuzz targets, so that they run as ordinary tests too.

use crate::config::{Loader, Source};

/// Parses and checks any bytes as a config.
///
/// # Panics
/// If the rules are broken: a config comes out exactly where no error is reported, and whatever is
/// said about a value says where it stands.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // Files that a config names are the machine's, not the target's.
    if ["include", "tls", "ca_file", "cwd", "command", "envFile"]
        .iter()
        .any(|key| text.contains(key))
    {
        return;
    }
    let environment = |name: &str| (name == "SET").then(|| "value".to_owned());
    // The extension makes it TOML, as which the files of one client are written.
    for name in ["fuzz", "fuzz.toml"] {
        let source = Source::Text {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let outcome = Loader::new(source, &environment).load();
        assert_eq!(outcome.config.is_none(), outcome.report.has_errors());
        for problem in outcome.report.problems() {
            let said = problem.to_string();
            assert!(problem.path.is_root() || problem.line.is_some(), "{said}");
            assert!(!problem.message.is_empty(), "{said}");
        }
    }
}
