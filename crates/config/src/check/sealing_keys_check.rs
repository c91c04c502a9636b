//! `keys`: the sealing keys.

use data_encoding::{BASE64URL, BASE64URL_NOPAD};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_secret::ConfigSecret;
use weir_config_file::raw::{RawConfig, RawKey};

use crate::checked_config::SealingKey;

pub(super) fn keys(raw: &RawConfig, report: &mut ConfigReport) -> Vec<SealingKey> {
    let path = ConfigPath::at("keys");
    let mut keys: Vec<SealingKey> = Vec::new();
    for (n, raw) in raw.keys.iter().flatten().enumerate() {
        let path = path.key(n);
        match key(raw) {
            Ok(key) if keys.iter().any(|other| other.id == key.id) => {
                report.add(ConfigProblem::error(
                    path.key("id"),
                    format!("two keys have the id {}", key.id),
                ));
            }
            Ok(key) => keys.push(key),
            Err((part, message)) => report_bad_key(path.key(part), message, report),
        }
    }
    if raw.keys.as_ref().is_some_and(Vec::is_empty) {
        report.add(
            ConfigProblem::error(path, "is empty")
                .hint("leave it out for a random key at every start"),
        );
    }
    keys
}

/// Reports a missing or invalid part of a key, unless its value could not be read.
pub(super) fn report_bad_key(at: ConfigPath, message: &'static str, report: &mut ConfigReport) {
    if !report.has_error_under(&at) {
        report.add(
            ConfigProblem::error(at, message)
                .hint("`weir keygen` prints a whole entry; keep its secret in the environment"),
        );
    }
}

pub(super) fn key(raw: &RawKey) -> Result<SealingKey, (&'static str, &'static str)> {
    let id = raw
        .id
        .filter(|&id| id > 0)
        .ok_or(("id", "must be a number from 1 to 255"))?;
    let secret = raw
        .secret
        .as_ref()
        .map(ConfigSecret::expose)
        .ok_or(("secret", "is missing"))?;
    let bytes = BASE64URL_NOPAD
        .decode(secret.as_bytes())
        .or_else(|_| BASE64URL.decode(secret.as_bytes()));
    let secret: [u8; 32] = bytes
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(("secret", "is not 32 bytes of URL-safe base64"))?;
    // A real key has nearly 32 different bytes; `AAAA...` and typed patterns have few.
    let mut seen = secret;
    seen.sort_unstable();
    if seen.chunk_by(|a, b| a == b).count() < 12 {
        return Err(("secret", "is a placeholder, not a random key"));
    }
    Ok(SealingKey { id, secret })
}
