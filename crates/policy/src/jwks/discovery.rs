//! Discovery of an issuer's keys by its metadata, at each of the locations that it may have.
//!
//! Source: RFC 8414 section 3, OpenID Connect Discovery section 4, basic/authorization of
//! 2025-11-25 and later.

use std::time::Duration;

use serde_json::Value;
use url::Url;
use weir_core::port::{DocumentFetcher, FetchRequest, UrlSource};

use crate::strict_json;

/// The largest metadata that is read.
const LARGEST: usize = 64 << 10;

/// The location of keys, and the source of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeysLocation {
    pub(super) url: String,
    pub(super) named_by: UrlSource,
}

/// Finds the URL of an issuer's keys.
///
/// # Errors
/// The failure, for the log.
pub(super) async fn find(
    fetch: &dyn DocumentFetcher,
    issuer: &str,
    within: Duration,
) -> Result<KeysLocation, String> {
    let mut why = "its name is no URL".to_owned();
    for url in metadata_urls(issuer) {
        let ask = FetchRequest {
            url: &url,
            form: None,
            authorization: None,
            limit: LARGEST,
            timeout: within,
            // The config names the issuer, and with it these URLs.
            url_source: UrlSource::Operator,
        };
        match fetch.fetch(ask).await {
            Ok(fetched) if fetched.status == 200 => match keys_of(&fetched.body, issuer) {
                Ok(place) => return Ok(place),
                Err(wrong) => why = format!("{url}: {wrong}"),
            },
            Ok(fetched) => why = format!("{url}: status {}", fetched.status),
            Err(failure) => why = format!("{url}: {failure}"),
        }
    }
    Err(why)
}

/// The URLs that metadata may have, in the order of trial.
fn metadata_urls(issuer: &str) -> Vec<String> {
    let Ok(url) = Url::parse(issuer) else {
        return Vec::new();
    };
    let path = url.path().trim_end_matches('/').to_owned();
    let at = |path: String| {
        let mut place = url.clone();
        place.set_path(&path);
        place.set_query(None);
        place.to_string()
    };
    let mut places = vec![
        at(format!("/.well-known/oauth-authorization-server{path}")),
        at(format!("/.well-known/openid-configuration{path}")),
    ];
    if !path.is_empty() {
        places.push(at(format!("{path}/.well-known/openid-configuration")));
    }
    places
}

/// The location of the keys from metadata that is the issuer's own: it must name itself, character
/// by character (RFC 8414, 3.3).
fn keys_of(text: &[u8], issuer: &str) -> Result<KeysLocation, &'static str> {
    let metadata = strict_json::parse_object(text).ok_or("is no JSON object")?;
    if metadata.get("issuer").and_then(Value::as_str) != Some(issuer) {
        return Err("is the metadata of another issuer");
    }
    let keys = metadata
        .get("jwks_uri")
        .and_then(Value::as_str)
        .ok_or("names no `jwks_uri`")?;
    let (keys_url, own) = (Url::parse(keys), Url::parse(issuer));
    let (Ok(keys_url), Ok(own)) = (keys_url, own) else {
        return Err("has a `jwks_uri` that is no URL");
    };
    if !matches!(keys_url.scheme(), "http" | "https")
        || !keys_url.username().is_empty()
        || keys_url.password().is_some()
    {
        return Err("has a `jwks_uri` that is not http or https");
    }
    // The issuer's own origin is named by the operator; any other is requested only if it is public
    // (C18).
    let named_by = if keys_url.origin() == own.origin() {
        UrlSource::Operator
    } else {
        UrlSource::Outsider
    };
    Ok(KeysLocation {
        url: keys.to_owned(),
        named_by,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    // Proves R257.
    #[test]
    fn issuer_metadata_urls_are_listed_in_order() {
        assert_eq!(
            metadata_urls("https://id.example.com"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
        let with_path = [
            "https://id.example.com:8443/.well-known/oauth-authorization-server/a/b",
            "https://id.example.com:8443/.well-known/openid-configuration/a/b",
            "https://id.example.com:8443/a/b/.well-known/openid-configuration",
        ];
        assert_eq!(metadata_urls("https://id.example.com:8443/a/b"), with_path);
        assert_eq!(metadata_urls("https://id.example.com:8443/a/b/"), with_path);
        assert!(metadata_urls("nonsense").is_empty());
    }

    // Proves R258.
    #[test]
    fn metadata_of_another_issuer_is_not_used() {
        let issuer = "https://id.example.com/t";
        let read = |text: &str| keys_of(text.as_bytes(), issuer);
        let good = read(
            r#"{"issuer":"https://id.example.com/t","jwks_uri":"https://id.example.com/keys"}"#,
        )
        .unwrap();
        assert_eq!(good.named_by, UrlSource::Operator);
        for foreign in [
            "http://id.example.com/keys",
            "https://169.254.169.254/keys",
            "https://id.example.com:1/keys",
        ] {
            let text = format!(r#"{{"issuer":"{issuer}","jwks_uri":"{foreign}"}}"#);
            assert_eq!(
                read(&text).unwrap().named_by,
                UrlSource::Outsider,
                "{foreign}"
            );
        }
        for bad in [
            r#"{"issuer":"https://id.example.com/t/","jwks_uri":"https://id.example.com/keys"}"#,
            r#"{"issuer":"https://ID.example.com/t","jwks_uri":"https://id.example.com/keys"}"#,
            r#"{"issuer":["https://id.example.com/t"],"jwks_uri":"https://id.example.com/keys"}"#,
            r#"{"jwks_uri":"https://id.example.com/keys"}"#,
            r#"{"issuer":"https://id.example.com/t"}"#,
            r#"{"issuer":"https://id.example.com/t","jwks_uri":"file:///etc/passwd"}"#,
            r#"{"issuer":"https://id.example.com/t","jwks_uri":"https://u:p@id.example.com/"}"#,
            "<html>",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
