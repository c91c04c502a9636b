//! The bodies of fuzz targets, so that they run as ordinary tests too.

use crate::config_loader::{ConfigLoader, ConfigSource};

/// Parses and checks any bytes as a config.
///
/// # Panics
///
/// If a rule is broken: a config results exactly if no error is reported, and each problem of a
/// value has its line.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // The files that a config refers to are the machine's, not the target's.
    if ["include", "tls", "ca_file", "cwd", "command", "envFile"]
        .iter()
        .any(|key| text.contains(key))
    {
        return;
    }
    let environment = |name: &str| (name == "SET").then(|| "value".to_owned());
    // The extension selects TOML, the format of one client's files.
    for name in ["fuzz", "fuzz.toml"] {
        let source = ConfigSource::Text {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let outcome = ConfigLoader::new(source, &environment).load();
        assert_eq!(outcome.config.is_none(), outcome.report.has_errors());
        for problem in outcome.report.problems() {
            let said = problem.to_string();
            assert!(problem.path.is_root() || problem.line.is_some(), "{said}");
            assert!(!problem.message.is_empty(), "{said}");
        }
    }
}
