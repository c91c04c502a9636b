//! `auth.api_keys`: keys of machines without OAuth.

use std::sync::Arc;
use std::time::SystemTime;

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use jiff::Timestamp;
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{RawApiKey, RawAuth};
use weir_policy::settings::ApiKey;

use crate::check::auth_check::shared_texts::{scopes, shared};

pub(super) fn check(section: &RawAuth, report: &mut ConfigReport) -> Vec<ApiKey> {
    let mut keys: Vec<ApiKey> = Vec::new();
    for (n, raw) in section.api_keys.iter().flatten().enumerate() {
        let path = ConfigPath::at("auth.api_keys").key(n);
        let scopes = scopes(raw.scopes.as_ref(), &path.key("scopes"), report);
        match api_key(raw, scopes) {
            Ok(key) if keys.iter().any(|other| other.id == key.id) => {
                report.add(ConfigProblem::error(
                    path.key("id"),
                    format!("two keys have the id {}", key.id),
                ));
            }
            Ok(key) => {
                let what = format!("the key `{}`", key.id);
                warn_expired(key.expires, &what, &path, report);
                keys.push(key);
            }
            Err((part, message)) => {
                if !report.has_error_under(&path) {
                    report.add(
                        ConfigProblem::error(path.key(part), message)
                            .hint("`weir apikey NAME` prints a key and its entry"),
                    );
                }
            }
        }
    }
    keys
}

fn api_key(raw: &RawApiKey, scopes: Vec<Arc<str>>) -> Result<ApiKey, (&'static str, &'static str)> {
    let id = raw.id.as_deref().ok_or(("id", "is missing"))?;
    if id.is_empty() || id.len() > 32 || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    {
        return Err(("id", "must have 1 to 32 letters, digits and `-`"));
    }
    let subject = raw
        .subject
        .as_deref()
        .filter(|subject| !subject.is_empty())
        .ok_or(("subject", "is missing"))?;
    let placeholder = "is a placeholder, not the digest of a key";
    let digest = checked_digest(raw.sha256.as_deref(), placeholder)?;
    let expires = checked_expiry(raw.expires.as_deref())?;
    Ok(ApiKey {
        id: id.to_owned(),
        digest,
        subject: subject.into(),
        groups: shared(raw.groups.as_ref()),
        scopes,
        expires,
    })
}

/// The digest of a secret, or the part of its entry with the error. `placeholder`: the message for a
/// digest that was typed by hand.
pub(crate) fn checked_digest(
    text: Option<&str>,
    placeholder: &'static str,
) -> Result<[u8; 32], (&'static str, &'static str)> {
    let text = text.ok_or(("sha256", "is missing"))?;
    let digest = digest_of(text).ok_or((
        "sha256",
        "is not a SHA-256 digest: write 64 hex digits, or 44 characters of base64",
    ))?;
    match is_patterned(digest) {
        true => Err(("sha256", placeholder)),
        false => Ok(digest),
    }
}

/// The expiry of a secret, or the part of its entry with the error.
pub(crate) fn checked_expiry(
    text: Option<&str>,
) -> Result<Option<SystemTime>, (&'static str, &'static str)> {
    let parsed = text.map(|text| {
        parse_expiry(text).ok_or((
            "expires",
            "is not a date such as 2027-01-31 or 2027-01-31T12:00:00Z",
        ))
    });
    parsed.transpose()
}

/// Warns of a secret that is over now.
pub(crate) fn warn_expired(
    expires: Option<SystemTime>,
    what: &str,
    path: &ConfigPath,
    report: &mut ConfigReport,
) {
    if expires.is_some_and(|end| end <= SystemTime::now()) {
        let message = format!("{what} has expired");
        let problem = ConfigProblem::warning(path.key("expires"), message);
        report.add(problem.hint("remove the entry, or replace it"));
    }
}

/// Reports if a digest was typed by hand: a real one has nearly 32 different bytes.
fn is_patterned(mut digest: [u8; 32]) -> bool {
    digest.sort_unstable();
    digest.chunk_by(|a, b| a == b).count() < 12
}

fn digest_of(text: &str) -> Option<[u8; 32]> {
    let text = text.trim().as_bytes();
    let bytes = HEXLOWER_PERMISSIVE
        .decode(text)
        .ok()
        .filter(|bytes| bytes.len() == 32);
    let bytes = bytes
        .or_else(|| BASE64.decode(text).ok())
        .or_else(|| BASE64URL_NOPAD.decode(text).ok());
    bytes?.try_into().ok()
}

/// Parses a date (its beginning) or a time, in UTC (RFC 3339 with `Z`).
fn parse_expiry(text: &str) -> Option<SystemTime> {
    let time: Timestamp = match text.len() {
        10 => format!("{text}T00:00:00Z").parse().ok()?,
        20 if text.ends_with('Z') && text.as_bytes()[10] == b'T' => text.parse().ok()?,
        _ => return None,
    };
    (time >= Timestamp::UNIX_EPOCH)
        .then(|| time.try_into().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn expiry_accepts_utc_dates_only() {
        let seconds = |text: &str| {
            parse_expiry(text).map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(seconds("1970-01-01"), Some(0));
        assert_eq!(seconds("2000-02-29T00:00:01Z"), Some(951_782_401));
        assert_eq!(seconds("2026-08-01"), Some(1_785_542_400));
        assert_eq!(seconds("2100-03-01T23:59:59Z"), Some(4_107_628_799));
        for bad in [
            "",
            "2026",
            "2026-8-1",
            "2026-02-29",
            "2100-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-32",
            "2026-01-01T00:00:00",
            "2026-01-01T24:00:00Z",
            "2026-01-01-01",
            "1969-01-01",
            "+026-01-01",
            "2026-01-01T1:2:3Z",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
