//! Discovery of an issuer's keys by its metadata, at each of the locations that it may have.
//!
//! Source: RFC 8414 section 3, OpenID Connect Discovery section 4, basic/authorization of
//! 2025-11-25 and later.

use std::time::Duration;

use serde_json::Value;
use url::Url;
use weir_core::port::{DocumentFetcher, FetchRequest, UrlSource};
use weir_oauth::{quoted_identifier, server_metadata_urls};

use crate::strict_json;

/// The largest metadata that is read.
const MAX_METADATA_BYTES: usize = 64 << 10;

/// The location of keys, and the source of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeysLocation {
    pub(super) url: String,
    pub(super) named_by: UrlSource,
}

/// Finds the URL of an issuer's keys.
///
/// # Errors
/// The failures at all locations, for the log.
pub(super) async fn find(
    fetch: &dyn DocumentFetcher,
    issuer: &str,
    within: Duration,
) -> Result<KeysLocation, String> {
    let issuer_url = Url::parse(issuer).map_err(|_| "its name is no URL")?;
    let mut failures = Vec::new();
    for url in server_metadata_urls(&issuer_url) {
        let ask = FetchRequest {
            url: url.as_str(),
            form: None,
            authorization: None,
            limit: MAX_METADATA_BYTES,
            timeout: within,
            // The config names the issuer, and with it these URLs.
            url_source: UrlSource::Operator,
        };
        let failure = match fetch.fetch(ask).await {
            Ok(fetched) if fetched.status == 200 => match keys_of(&fetched.body, issuer) {
                Ok(place) => return Ok(place),
                Err(wrong) => wrong,
            },
            Ok(fetched) => format!("status {}", fetched.status),
            Err(failure) => failure.cause(),
        };
        failures.push(format!("{url}: {failure}"));
    }
    Err(failures.join("; "))
}

/// The location of the keys from metadata that is the issuer's own: it must name itself, character
/// by character (RFC 8414, 3.3).
fn keys_of(text: &[u8], issuer: &str) -> Result<KeysLocation, String> {
    let metadata = strict_json::parse_object(text).ok_or("is no JSON object")?;
    match metadata.get("issuer").and_then(Value::as_str) {
        Some(named) if named == issuer => {}
        Some(named) => {
            let named = quoted_identifier(named);
            return Err(format!("is the metadata of {named}, not of `{issuer}`"));
        }
        None => return Err("names no `issuer`".to_owned()),
    }
    let keys = metadata
        .get("jwks_uri")
        .and_then(Value::as_str)
        .ok_or("names no `jwks_uri`")?;
    let (keys_url, own) = (Url::parse(keys), Url::parse(issuer));
    let (Ok(keys_url), Ok(own)) = (keys_url, own) else {
        return Err("has a `jwks_uri` that is no URL".to_owned());
    };
    if !matches!(keys_url.scheme(), "http" | "https")
        || !keys_url.username().is_empty()
        || keys_url.password().is_some()
    {
        return Err("has a `jwks_uri` that is not http or https".to_owned());
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
    use weir_core::port::{BoxFuture, FetchResponse};
    use weir_core::{Failure, FailureKind};

    use super::*;

    /// No location can be reached.
    #[derive(Debug)]
    struct Unreachable;

    impl DocumentFetcher for Unreachable {
        fn fetch<'a>(
            &'a self,
            _ask: FetchRequest<'a>,
        ) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
            let failure = Failure::new(FailureKind::Unavailable, "cannot be reached");
            Box::pin(async { Err(failure.because("connection refused")) })
        }
    }

    #[tokio::test]
    async fn cause_of_an_unreachable_location_is_named() {
        let found = find(
            &Unreachable,
            "https://id.example.com",
            Duration::from_secs(1),
        );
        let failures = found.await.unwrap_err();
        assert!(
            failures.starts_with(
                "https://id.example.com/.well-known/oauth-authorization-server: \
                 cannot be reached: connection refused; "
            ),
            "{failures}"
        );
    }

    /// Metadata at the first location, and nothing at the others.
    #[derive(Debug)]
    struct FirstLocation(&'static str);

    impl DocumentFetcher for FirstLocation {
        fn fetch<'a>(
            &'a self,
            ask: FetchRequest<'a>,
        ) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
            let is_first = ask.url.ends_with("/oauth-authorization-server/t");
            let (status, body) = if is_first { (200, self.0) } else { (404, "") };
            let answer = FetchResponse {
                status,
                max_age: None,
                body: body.into(),
            };
            Box::pin(async { Ok(answer) })
        }
    }

    #[tokio::test]
    async fn failure_of_every_location_is_named() {
        let fetch = FirstLocation(
            "{\"issuer\":\"https://id.example.com/\\u001b[31mother\",\"jwks_uri\":\"https://id.example.com/keys\"}",
        );
        let found = find(&fetch, "https://id.example.com/t", Duration::from_secs(1)).await;
        assert_eq!(
            found.unwrap_err(),
            "https://id.example.com/.well-known/oauth-authorization-server/t: \
             is the metadata of `https://id.example.com/[31mother`, not of `https://id.example.com/t`; \
             https://id.example.com/.well-known/openid-configuration/t: status 404; \
             https://id.example.com/t/.well-known/openid-configuration: status 404"
        );
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
