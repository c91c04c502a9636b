#![allow(clippy::unwrap_used, reason = "a test may panic")]

use weir_testkit::TestFolder;

use super::*;

mod audit_tests;
mod auth_tests;
mod empty_tests;
mod foreign_tests;
mod includes_tests;
mod messages_tests;
mod outbound_tests;
mod secrets_tests;
mod settings_tests;
mod teams_tests;
mod telemetry_tests;
mod tls_tests;
mod weaker_tests;

fn environment(name: &str) -> Option<String> {
    match name {
        "SHARE" => Some("0.5".to_owned()),
        "PORT" => Some("9000".to_owned()),
        "TOKEN" => Some("canary-token".to_owned()),
        "WEIR_KEY" => Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8".to_owned()),
        _ => None,
    }
}

/// A certificate and its key.
pub(super) struct TestCertificate {
    pub(super) cert: String,
    pub(super) key: String,
}

impl TestCertificate {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self {
            cert: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }
}

/// Loads a text called `weir.yaml`.
pub(super) fn load(text: &str) -> LoadOutcome {
    let source = ConfigSource::Text {
        name: "weir.yaml".to_owned(),
        text: text.to_owned(),
    };
    ConfigLoader::new(source, &environment).load()
}

/// Returns the config of a text that must be valid.
fn good(text: &str) -> Config {
    let outcome = load(text);
    assert!(!outcome.report.has_errors(), "{}", outcome.report);
    outcome.config.unwrap()
}
