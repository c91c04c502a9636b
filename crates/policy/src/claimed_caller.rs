//! The subject that certain claims would give: for operators that ask for the rights of a caller.
//!
//! The claims are not proven, so [`ClaimedCaller`] must not authenticate a request. It answers
//! operators' questions alone, and reports the refusal of the real check.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use weir_core::failure::Failure;
use weir_core::names::EndpointId;
use weir_core::port::{BoxFuture, Evidence, Verifier};
use weir_core::principal::VerifiedIdentity;

use crate::api_key::ApiKeys;
use crate::mtls::CertificateReader;
use crate::settings::{TokenIssuer, TokenValidation, VerifierSettings};
use crate::token::claims::{TokenClaims, has_audience};
use crate::token::mapping::subject;
use crate::token::token_refusal::TokenRefusal;

/// A hypothetical caller. As a verifier it gives every request this identity.
#[derive(Debug)]
pub struct ClaimedCaller {
    identity: VerifiedIdentity,
    /// The refusal that real credentials with these claims would get; for people.
    pub refused: Option<String>,
    /// A remark; for people.
    pub note: Option<String>,
}

impl Verifier for ClaimedCaller {
    fn verify<'a>(
        &'a self,
        _: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        Box::pin(std::future::ready(Ok(self.identity.clone())))
    }
}

/// The caller with a token with these claims, or with the API key with the id under `api_key`, or
/// with the certificate with the name under `certificate`; without claims the anonymous one. Claims
/// that a token must have and that are absent (`iss` with a single issuer, `aud`) are assumed to be
/// right.
///
/// # Errors
/// For people: the claims do not give a caller.
pub fn claimed_caller(
    settings: &VerifierSettings,
    endpoint: &EndpointId,
    claims: Map<String, Value>,
    now: SystemTime,
) -> Result<ClaimedCaller, String> {
    if !settings.required {
        let note = (!claims.is_empty())
            .then(|| "this endpoint requires no credentials: the claims have no effect".to_owned());
        return Ok(ClaimedCaller {
            identity: VerifiedIdentity::Anonymous,
            refused: None,
            note,
        });
    }
    if claims.is_empty() {
        let refused = Some("this endpoint requires credentials, and none are given".to_owned());
        return Ok(ClaimedCaller {
            identity: VerifiedIdentity::Anonymous,
            refused,
            note: None,
        });
    }
    match (claims.get("api_key"), claims.get("certificate")) {
        (Some(id), _) => by_key(settings, id, now),
        (None, Some(name)) => by_certificate(settings, name),
        (None, None) => by_token(settings, endpoint, claims, now),
    }
}

fn by_certificate(settings: &VerifierSettings, name: &Value) -> Result<ClaimedCaller, String> {
    let rule = settings
        .certificates
        .as_ref()
        .ok_or("client certificates are not accepted here")?;
    let name = name
        .as_str()
        .ok_or("`certificate` must be the name in a certificate, a string")?;
    let subject = CertificateReader::new(rule, settings).named(name);
    Ok(ClaimedCaller {
        identity: VerifiedIdentity::Subject(Arc::new(subject)),
        refused: None,
        note: None,
    })
}

fn by_key(
    settings: &VerifierSettings,
    id: &Value,
    now: SystemTime,
) -> Result<ClaimedCaller, String> {
    let keys = ApiKeys::new(settings);
    let id = id
        .as_str()
        .ok_or("`api_key` must be the id of a key, a string")?;
    let subject = keys
        .named(id)
        .ok_or_else(|| format!("there is no API key with the id `{id}`"))?;
    let over = subject.expires.is_some_and(|end| end <= now);
    let refused = over.then(|| format!("the API key `{id}` has expired"));
    Ok(ClaimedCaller {
        identity: VerifiedIdentity::Subject(subject.clone()),
        refused,
        note: None,
    })
}

fn by_token(
    settings: &VerifierSettings,
    endpoint: &EndpointId,
    mut claims: Map<String, Value>,
    now: SystemTime,
) -> Result<ClaimedCaller, String> {
    let issuer = issuer(settings, &claims)?;
    let given = claims.contains_key("aud");
    if !given {
        let own = format!("{}{endpoint}", settings.base);
        claims.insert(
            "aud".to_owned(),
            issuer
                .audiences
                .first()
                .map_or(own, ToString::to_string)
                .into(),
        );
    }
    let wrong = |reason: TokenRefusal| {
        format!(
            "a token with these claims is malformed: {}",
            reason.metric_label()
        )
    };
    let claims = TokenClaims::read(claims, issuer).map_err(wrong)?;
    let refused = if !has_audience(claims.audiences(), endpoint, issuer, settings) {
        Some(format!(
            "the token is not for this endpoint: its `aud` is not {}{endpoint}",
            settings.base
        ))
    } else {
        match claims.times().check(now, settings.leeway) {
            Err(TokenRefusal::Expired) => Some("the token has expired".to_owned()),
            Err(_) => Some("the token is not valid yet".to_owned()),
            Ok(()) => refusal_by_kind(&claims, issuer, now, settings.leeway),
        }
    };
    let subject = subject(&claims, issuer, settings).map_err(wrong)?;
    let note = (!given).then(|| "`aud` is assumed to be this endpoint".to_owned());
    Ok(ClaimedCaller {
        identity: VerifiedIdentity::Subject(Arc::new(subject)),
        refused,
        note,
    })
}

/// Returns the refusal of a token by its kind or its lifetime; for people. A lifetime that is not
/// given is right.
fn refusal_by_kind(
    claims: &TokenClaims,
    issuer: &TokenIssuer,
    now: SystemTime,
    leeway: Duration,
) -> Option<String> {
    match &issuer.validation {
        TokenValidation::Introspection { .. } => claims
            .refuse_other_introspected_kinds()
            .is_err()
            .then(|| "by its claims the token is no access token".to_owned()),
        TokenValidation::Keys { max_lifetime, .. } => {
            let times = claims.times();
            let is_too_long = times.end(leeway).is_some()
                && times.check_lifetime(now, leeway, *max_lifetime).is_err();
            if claims.refuse_other_kinds().is_err() {
                let text = "by its claims the token is no access token: only the header `typ: at+jwt` would make it one";
                return Some(text.to_owned());
            }
            is_too_long.then(|| {
                format!(
                    "the token is valid for longer than `max_lifetime`, which is {} s",
                    max_lifetime.as_secs()
                )
            })
        }
    }
}

fn issuer<'a>(
    settings: &'a VerifierSettings,
    claims: &Map<String, Value>,
) -> Result<&'a TokenIssuer, String> {
    match (
        claims.get("iss").and_then(Value::as_str),
        settings.issuers.as_slice(),
    ) {
        (None, [one]) => Ok(one),
        (None, []) => {
            Err("tokens are not accepted here: name an API key, {\"api_key\": \"ID\"}".to_owned())
        }
        (None, _) => Err("there are several issuers: name one in `iss`".to_owned()),
        (Some(name), issuers) => issuers
            .iter()
            .find(|issuer| *issuer.name == *name)
            .ok_or_else(|| format!("tokens of the issuer `{name}` are not accepted here")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;
    use crate::settings::{
        ApiKey, CertificateName, CertificateRules, KeySource, SignatureAlgorithm,
    };

    fn settings() -> VerifierSettings {
        let proof = TokenValidation::Keys {
            source: KeySource::Metadata,
            algorithms: SignatureAlgorithm::DEFAULT.to_vec(),
            strict_type: false,
            max_lifetime: Duration::from_secs(86_400),
        };
        let issuer = TokenIssuer {
            name: "https://id".into(),
            validation: proof,
            audiences: Vec::new(),
            groups: vec!["groups".into()],
            claims: vec!["team".into()],
        };
        let key = ApiKey {
            id: "ci".to_owned(),
            digest: [0; 32],
            subject: "builder".into(),
            groups: vec!["machines".into()],
            scopes: vec!["run".into()],
            expires: Some(UNIX_EPOCH + Duration::from_secs(500)),
        };
        VerifierSettings {
            required: true,
            base: "https://weir".to_owned(),
            issuers: vec![issuer],
            api_keys: vec![key],
            ..VerifierSettings::open()
        }
    }

    fn ask(claims: Value) -> Result<ClaimedCaller, String> {
        let Value::Object(claims) = claims else {
            unreachable!("tests give objects")
        };
        claimed_caller(
            &settings(),
            &EndpointId::new("/mcp"),
            claims,
            UNIX_EPOCH + Duration::from_secs(1000),
        )
    }

    #[test]
    fn claims_are_read_as_the_verifier_reads_them() {
        let found =
            ask(json!({ "sub": "alice", "scope": "a b", "groups": ["staff"], "team": "red", "client_id": "ide" }))
                .unwrap();
        let VerifiedIdentity::Subject(subject) = &found.identity else {
            panic!("{found:?}")
        };
        assert_eq!(
            (
                subject.issuer(),
                subject.subject(),
                subject.client.as_deref()
            ),
            ("https://id", "alice", Some("ide"))
        );
        assert_eq!(
            (subject.scopes.join(" "), subject.groups.join(" ")),
            ("a b".to_owned(), "staff".to_owned())
        );
        assert_eq!((found.refused, found.note.is_some()), (None, true));
    }

    #[test]
    fn refusal_of_the_real_check_is_reported() {
        let refused = |claims| ask(claims).unwrap().refused.unwrap_or_default();
        assert!(refused(json!({})).contains("none are given"));
        assert!(refused(json!({ "sub": "a", "exp": 900 })).contains("expired"));
        assert!(refused(json!({ "sub": "a", "nbf": 2000 })).contains("not valid yet"));
        assert!(
            refused(json!({ "sub": "a", "aud": "https://other/mcp" }))
                .contains("not for this endpoint")
        );
        assert_eq!(
            refused(json!({ "sub": "a", "aud": "https://weir/mcp", "exp": 2000 })),
            ""
        );
        for kind in [
            json!({ "sub": "a", "token_use": "id" }),
            json!({ "sub": "a", "nonce": "n", "exp": 2000 }),
            json!({ "sub": "a", "typ": "Refresh" }),
        ] {
            let text = refused(kind.clone());
            assert!(text.contains("no access token"), "{kind}: {text}");
        }
        for lifetime in [
            json!({ "sub": "a", "exp": 1_000_000 }),
            json!({ "sub": "a", "iat": 0, "exp": 86_900 }),
        ] {
            let text = refused(lifetime.clone());
            assert!(text.contains("`max_lifetime`"), "{lifetime}: {text}");
        }
        assert!(refused(json!({ "api_key": "ci" })).contains("expired"));
        assert!(
            ask(json!({ "api_key": "no" }))
                .unwrap_err()
                .contains("no API key")
        );
        assert!(
            ask(json!({ "iss": "https://evil", "sub": "a" }))
                .unwrap_err()
                .contains("not accepted")
        );
        assert!(
            ask(json!({ "groups": ["staff"] }))
                .unwrap_err()
                .contains("malformed")
        );
        assert!(
            ask(json!({ "certificate": "build" }))
                .unwrap_err()
                .contains("client certificates are not accepted")
        );
    }

    #[test]
    fn certificate_name_gives_its_subject() {
        let rule = CertificateRules {
            subject: CertificateName::Uri,
            groups: vec!["machines".into()],
            scopes: Vec::new(),
        };
        let settings = VerifierSettings {
            certificates: Some(rule),
            ..settings()
        };
        let claims = json!({ "certificate": "spiffe://example.com/build" })
            .as_object()
            .cloned()
            .unwrap();
        let found =
            claimed_caller(&settings, &EndpointId::new("/mcp"), claims, UNIX_EPOCH).unwrap();
        let VerifiedIdentity::Subject(subject) = &found.identity else {
            panic!("{found:?}")
        };
        assert_eq!(
            (subject.issuer(), subject.subject()),
            ("mtls", "spiffe://example.com/build")
        );
        assert_eq!(
            (subject.groups.join(" "), found.refused),
            ("machines".to_owned(), None)
        );
    }
}
