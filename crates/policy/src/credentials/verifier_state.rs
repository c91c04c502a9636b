//! The state of the verifier under one set of settings: issuers, API keys, verified tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};
use weir_core::names::EndpointId;
use weir_core::port::Evidence;
use weir_core::principal::{Subject, VerifiedIdentity};

use crate::api_key::ApiKeys;
use crate::auth_failure::AuthFailure;
use crate::credentials::active_issuer::ActiveIssuer;
use crate::introspect::PresentedToken;
use crate::mtls::CertificateReader;
use crate::settings::{TokenIssuer, VerifierSettings};
use crate::token;
use crate::token::claims::TokenTimes;
use crate::token::jwt::JwtParts;
use crate::token::token_refusal::TokenRefusal;
use crate::verifier_ports::VerifierPorts;

/// The longest time that a token is trusted without another check, for every lifetime in the token.
const TOKEN_CACHE_TIME: Duration = Duration::from_secs(60);
/// Verified tokens that are remembered.
const TOKEN_CACHE_SIZE: usize = 10_000;

/// Settings, and the state made from them.
pub(super) struct VerifierState {
    pub(super) settings: VerifierSettings,
    pub(super) issuers: HashMap<Arc<str>, Arc<ActiveIssuer>>,
    api_keys: ApiKeys,
    certified: Option<CertificateReader>,
    /// Verified tokens, by their digest. New settings begin with an empty cache.
    verified: Cache<[u8; 32], Arc<VerifiedToken>>,
}

/// A verified token.
#[derive(Clone)]
struct VerifiedToken {
    subject: Arc<Subject>,
    audiences: Arc<[Box<str>]>,
    times: TokenTimes,
    by: Arc<ActiveIssuer>,
    /// The generation of the keys that it was checked with.
    generation: u64,
    /// The end of trust, on the monotonic clock.
    until: Duration,
}

/// A sender as far as it is known without a wait.
pub(super) enum KnownSender<'a> {
    Known(VerifiedIdentity),
    /// A token that was not verified before, or not lately.
    NewToken {
        text: &'a str,
        digest: [u8; 32],
    },
}

impl VerifierState {
    /// The state of these settings. Issuers go on as they were `before`.
    pub(super) fn new(
        settings: VerifierSettings,
        before: Option<&Self>,
        ports: &VerifierPorts,
    ) -> Self {
        let api_keys = ApiKeys::new(&settings);
        let certified = settings
            .certificates
            .as_ref()
            .map(|rule| CertificateReader::new(rule, &settings));
        let in_use = |issuer: &TokenIssuer| {
            let same = before.and_then(|before| before.issuers.get(&issuer.name));
            (
                issuer.name.clone(),
                Arc::new(ActiveIssuer::new(
                    issuer.clone(),
                    same.map(|same| &**same),
                    ports,
                )),
            )
        };
        let issuers = settings.issuers.iter().map(in_use).collect();
        Self {
            settings,
            issuers,
            api_keys,
            certified,
            verified: Cache::new(TOKEN_CACHE_SIZE),
        }
    }

    /// Identifies the sender as far as that needs no wait.
    pub(super) fn identify<'a>(
        &self,
        evidence: &Evidence<'a>,
        ports: &VerifierPorts,
    ) -> Result<KnownSender<'a>, AuthFailure> {
        if !self.settings.required {
            return Ok(KnownSender::Known(VerifiedIdentity::Anonymous));
        }
        let subject = match (evidence.bearer, evidence.api_key) {
            // It must not be a guess which one counts.
            (Some(_), Some(_)) => return Err(TokenRefusal::Malformed.into()),
            (Some(key), None) | (None, Some(key))
                if evidence.bearer.is_none() || ApiKeys::is_key(key.expose()) =>
            {
                self.api_keys.check(key.expose(), ports.clock.wall())?
            }
            (Some(token), None) => {
                let text = token.expose();
                if text.len() > token::MAX_TOKEN_BYTES {
                    return Err(TokenRefusal::Malformed.into());
                }
                let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
                match self.known_token(&digest, evidence.endpoint, ports)? {
                    Some(subject) => subject,
                    None => return Ok(KnownSender::NewToken { text, digest }),
                }
            }
            (None, _) => match (&self.certified, evidence.certificate) {
                // Only if the request has no other credentials: a connection may carry requests of
                // several callers.
                (Some(certified), Some(certificate)) => {
                    certified.subject(certificate, ports.clock.wall())?
                }
                _ => return Err(AuthFailure::Missing),
            },
        };
        Ok(KnownSender::Known(VerifiedIdentity::Subject(subject)))
    }

    /// The time until the token of this evidence is checked again; absent for other credentials.
    pub(super) fn trust_time(
        &self,
        evidence: &Evidence<'_>,
        ports: &VerifierPorts,
    ) -> Option<Duration> {
        let digest: [u8; 32] = Sha256::digest(evidence.bearer?.expose().as_bytes()).into();
        let verified = self.verified.get(&digest)?;
        Some(verified.until.saturating_sub(ports.clock.monotonic()))
    }

    /// The subject of a token that was verified a short while ago; absent for any other token.
    fn known_token(
        &self,
        digest: &[u8; 32],
        endpoint: &EndpointId,
        ports: &VerifierPorts,
    ) -> Result<Option<Arc<Subject>>, TokenRefusal> {
        let Some(verified) = self.verified.get(digest).filter(|verified| {
            verified.by.generation() == verified.generation
                && ports.clock.monotonic() < verified.until
        }) else {
            return Ok(None);
        };
        self.check_now(&verified, endpoint, ports)?;
        Ok(Some(verified.subject.clone()))
    }

    /// Verifies a token, and remembers it.
    pub(super) async fn verify_new_token(
        &self,
        token: PresentedToken<'_>,
        endpoint: &EndpointId,
        ports: &VerifierPorts,
    ) -> Result<Arc<Subject>, AuthFailure> {
        let verified = self.verify(token, ports).await?;
        self.check_now(&verified, endpoint, ports)?;
        let subject = verified.subject.clone();
        self.verified.insert(*token.digest, Arc::new(verified));
        Ok(subject)
    }

    /// The checks that depend on the time and on the endpoint.
    fn check_now(
        &self,
        verified: &VerifiedToken,
        endpoint: &EndpointId,
        ports: &VerifierPorts,
    ) -> Result<(), TokenRefusal> {
        let times = verified
            .times
            .check(ports.clock.wall(), self.settings.leeway);
        let is_for = || {
            token::has_audience(
                &verified.audiences,
                endpoint,
                &verified.by.issuer,
                &self.settings,
            )
        };
        let good = times.and_then(|()| {
            if is_for() {
                Ok(())
            } else {
                Err(TokenRefusal::Audience)
            }
        });
        good.inspect_err(|_| verified.by.count_refused())
    }

    async fn verify(
        &self,
        token: PresentedToken<'_>,
        ports: &VerifierPorts,
    ) -> Result<VerifiedToken, AuthFailure> {
        let (by, parts) = self.issuer_of(token.text)?;
        let generation = by.generation();
        let claims = by.claims(token, parts, &self.settings, ports).await;
        let claims = claims.inspect_err(|refused| {
            // A check that is not possible now is not a fault of the token.
            if matches!(refused, AuthFailure::Invalid(_)) {
                by.count_refused();
            }
        })?;
        let subject = token::subject(&claims, &by.issuer, &self.settings)
            .inspect_err(|_| by.count_refused())?;
        let (audiences, times) = (claims.audiences().clone(), claims.times());
        let until = ports.clock.monotonic() + TOKEN_CACHE_TIME;
        Ok(VerifiedToken {
            subject: Arc::new(subject),
            audiences,
            times,
            by,
            generation,
            until,
        })
    }

    /// The issuer to check a token with: a JWT names its issuer, any other goes to the
    /// introspection issuer.
    fn issuer_of<'a>(
        &self,
        text: &'a str,
    ) -> Result<(Arc<ActiveIssuer>, Option<JwtParts<'a>>), TokenRefusal> {
        let introspecting = self
            .issuers
            .values()
            .find(|issuer| issuer.keeper().is_none());
        let all_introspect = self
            .issuers
            .values()
            .all(|issuer| issuer.keeper().is_none());
        match introspecting {
            Some(introspecting) if all_introspect || text.split('.').count() != 3 => {
                let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
                if plain {
                    Ok((introspecting.clone(), None))
                } else {
                    Err(TokenRefusal::Malformed)
                }
            }
            _ => {
                let parts = JwtParts::of(text)?;
                let named = parts
                    .claimed_issuer()
                    .and_then(|issuer| self.issuers.get(issuer));
                let by = named.ok_or(TokenRefusal::Issuer)?.clone();
                Ok((by, Some(parts)))
            }
        }
    }
}
