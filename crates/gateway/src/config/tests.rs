#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use super::*;

mod audit;
mod auth;
mod empty;
mod foreign;
mod includes;
mod messages;
mod outbound;
mod secrets;
mod settings;
mod teams;
mod telemetry;
mod weaker;

fn environment(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("9000".to_owned()),
        "TOKEN" => Some("canary-token".to_owned()),
        "WEIR_KEY" => Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8".to_owned()),
        _ => None,
    }
}

/// Loads a text called `weir.yaml`.
pub(super) fn load(text: &str) -> Outcome {
    let source = Source::Text {
        name: "weir.yaml".to_owned(),
        text: text.to_owned(),
    };
    Loader::new(source, &environment).load()
}

/// Returns the config of a text that must be valid.
fn good(text: &str) -> Config {
    let outcome = load(text);
    assert!(!outcome.report.has_errors(), "{}", outcome.report);
    outcome.config.unwrap()
}

/// A fresh folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-config-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
