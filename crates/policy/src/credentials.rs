//! Authentication: the one verifier, over every kind of credentials that the config accepts.
//!
//! One kind at a time: the credentials of a request are checked by the rules of their kind, and
//! after a failure no other kind is tried. There is no path from an error to an identity.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use weir_core::failure::{AuthenticationDenial, Failure, FailureKind};
use weir_core::names::EndpointId;
use weir_core::port::{Clock, DocumentFetcher, Evidence, Fut, Random, Verifier};
use weir_core::principal::{Subject, VerifiedIdentity};
use weir_core::telemetry::instruments;

use crate::api_key::ApiKeys;
use crate::auth_failure::AuthFailure;
use crate::introspect::{Introspector, PresentedToken};
use crate::jwks::key_keeper::{KeyKeeper, KeyKeeperPorts};
use crate::mtls::CertificateReader;
use crate::settings::{TokenIssuer, TokenValidation, VerifierSettings};
use crate::token;
use crate::token::claims::{TokenClaims, TokenTimes};
use crate::token::jwt::JwtParts;
use crate::token::token_refusal::TokenRefusal;

/// The longest time that a token is trusted without another check, for every lifetime in the token.
const TOKEN_CACHE_TIME: Duration = Duration::from_secs(60);
/// Verified tokens that are remembered.
const TOKEN_CACHE_SIZE: usize = 10_000;

/// The ports that the verifier depends on.
#[derive(Clone)]
pub struct VerifierPorts {
    /// For keys and metadata of issuers.
    pub fetch: Arc<dyn DocumentFetcher>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// For jitter.
    pub random: Arc<dyn Random>,
}

impl std::fmt::Debug for VerifierPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifierPorts").finish_non_exhaustive()
    }
}

/// The verifier. It stays the same object when its settings change.
pub struct CredentialVerifier {
    world: KeyKeeperPorts,
    plan: ArcSwap<VerifierState>,
    changed: Notify,
    was_ready: AtomicBool,
    /// The number of refused credentials of any kind.
    refused: AtomicU64,
}

/// Settings, and the state made from them.
struct VerifierState {
    settings: VerifierSettings,
    issuers: HashMap<Arc<str>, Arc<ActiveIssuer>>,
    api_keys: ApiKeys,
    certified: Option<CertificateReader>,
    /// Verified tokens, by their digest. New settings begin with an empty cache.
    verified: Cache<[u8; 32], Arc<VerifiedToken>>,
}

/// The status of an issuer; for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerStatus {
    /// Its name, the `iss` of its tokens.
    pub issuer: Arc<str>,
    /// True if its tokens can be checked now.
    pub ready: bool,
    /// Attempts in a row to get its keys that failed.
    pub failures: u32,
    /// The age of its keys. `None`: they never came, or it is asked about each token.
    pub keys_age: Option<Duration>,
    /// Tokens of this issuer that were refused since the config was applied.
    pub refused: u64,
}

/// An issuer in use.
pub(crate) struct ActiveIssuer {
    issuer: TokenIssuer,
    way: IssuerCheck,
    refused: AtomicU64,
}

/// The method of checking an issuer's tokens.
enum IssuerCheck {
    Keys(Arc<KeyKeeper>),
    Introspection(Box<Introspector>),
}

impl ActiveIssuer {
    fn new(issuer: TokenIssuer, before: Option<&Self>, world: &KeyKeeperPorts) -> Self {
        let way = match &issuer.validation {
            TokenValidation::Keys {
                source: at,
                algorithms,
                ..
            } => match before.and_then(|before| before.keeper()) {
                Some(same) if same.is_same_source(at, algorithms) => {
                    IssuerCheck::Keys(same.clone())
                }
                _ => IssuerCheck::Keys(KeyKeeper::new(
                    issuer.name.clone(),
                    at.clone(),
                    algorithms.clone(),
                    world.clone(),
                )),
            },
            TokenValidation::Introspection {
                url,
                client_id,
                client_secret,
            } => {
                let introspector = Introspector::new(url, client_id, client_secret);
                IssuerCheck::Introspection(Box::new(introspector))
            }
        };
        Self {
            issuer,
            way,
            refused: AtomicU64::new(0),
        }
    }

    fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn keeper(&self) -> Option<&Arc<KeyKeeper>> {
        match &self.way {
            IssuerCheck::Keys(keeper) => Some(keeper),
            IssuerCheck::Introspection(_) => None,
        }
    }

    /// A number that changes when earlier verifications are no longer valid.
    fn generation(&self) -> u64 {
        self.keeper().map_or(0, |keeper| keeper.generation())
    }

    /// The claims of a token that its issuer signed and that is valid now.
    async fn claims(
        &self,
        token: PresentedToken<'_>,
        parts: Option<JwtParts<'_>>,
        settings: &VerifierSettings,
        world: &KeyKeeperPorts,
    ) -> Result<TokenClaims, AuthFailure> {
        let leeway = settings.leeway;
        match (&self.way, &self.issuer.validation, parts) {
            (
                IssuerCheck::Keys(keeper),
                TokenValidation::Keys { max_lifetime, .. },
                Some(parts),
            ) => {
                let claims = token::verify_signature(parts, &self.issuer, keeper).await?;
                let now = world.clock.wall();
                claims.times().check(now, leeway)?;
                claims.times().check_lifetime(now, leeway, *max_lifetime)?;
                Ok(claims)
            }
            (IssuerCheck::Introspection(asked), _, _) => {
                let claims = asked.ask(token, &self.issuer, world).await?;
                claims.times().check(world.clock.wall(), leeway)?;
                Ok(claims)
            }
            (IssuerCheck::Keys(_), _, _) => Err(TokenRefusal::Malformed.into()),
        }
    }
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

impl CredentialVerifier {
    /// A verifier with these settings. Without [`Self::run`] it has no keys of issuers.
    #[must_use]
    pub fn new(settings: VerifierSettings, ports: VerifierPorts) -> Arc<Self> {
        let VerifierPorts {
            fetch,
            clock,
            random,
        } = ports;
        let world = KeyKeeperPorts {
            fetch,
            clock,
            random,
        };
        let plan = ArcSwap::from_pointee(VerifierState::new(settings, None, &world));
        Arc::new(Self {
            world,
            plan,
            changed: Notify::new(),
            was_ready: AtomicBool::default(),
            refused: AtomicU64::default(),
        })
    }

    /// Replaces the settings. An issuer with an unchanged location of keys keeps them.
    pub fn replace(&self, settings: VerifierSettings) {
        let before = self.plan.load_full();
        if before.settings == settings {
            return;
        }
        self.plan.store(Arc::new(VerifierState::new(
            settings,
            Some(&before),
            &self.world,
        )));
        self.changed.notify_one();
    }

    /// True if callers can be authenticated: the keys of every issuer were fetched once (C17). A
    /// later issuer that is not reachable does not make weir unready, for the others are served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.was_ready.load(Ordering::Acquire) {
            return true;
        }
        let ready = self
            .plan
            .load()
            .issuers
            .values()
            .filter_map(|vouching| vouching.keeper())
            .all(|keeper| keeper.is_ready());
        if ready {
            self.was_ready.store(true, Ordering::Release);
        }
        ready
    }

    /// The number of tokens, API keys and certificates that were refused since weir started.
    /// Requests without credentials are not counted.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The status of every issuer, ordered by name.
    #[must_use]
    pub fn issuers(&self) -> Vec<IssuerStatus> {
        let plan = self.plan.load_full();
        let status = |vouching: &Arc<ActiveIssuer>| {
            let (ready, failures, keys_age) = vouching
                .keeper()
                .map_or((true, 0, None), |keeper| keeper.status());
            let refused = vouching.refused.load(Ordering::Relaxed);
            IssuerStatus {
                issuer: vouching.issuer.name.clone(),
                ready,
                failures,
                keys_age,
                refused,
            }
        };
        let mut all: Vec<_> = plan.issuers.values().map(status).collect();
        all.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        all
    }

    /// Keeps the keys of all issuers fresh, also after [`Self::replace`]. Never ends; drop it to
    /// end it.
    pub async fn run(self: Arc<Self>) {
        let mut work = JoinSet::new();
        let mut running: Vec<(Arc<KeyKeeper>, AbortHandle)> = Vec::new();
        loop {
            let plan = self.plan.load_full();
            let wanted: Vec<&Arc<KeyKeeper>> = plan
                .issuers
                .values()
                .filter_map(|vouching| vouching.keeper())
                .collect();
            running.retain(|(keeper, handle)| {
                let stays = wanted.iter().any(|wanted| Arc::ptr_eq(wanted, keeper));
                if !stays {
                    handle.abort();
                }
                stays
            });
            for keeper in wanted {
                if !running.iter().any(|(own, _)| Arc::ptr_eq(own, keeper)) {
                    running.push((keeper.clone(), work.spawn(keeper.clone().run())));
                }
            }
            self.changed.notified().await;
            while work.try_join_next().is_some() {}
        }
    }
}

impl CredentialVerifier {
    /// Counts a refusal and makes its failure.
    fn count_refusal(&self, refused: AuthFailure) -> Failure {
        if let AuthFailure::Invalid(_) = &refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        failure(refused)
    }
}

impl Verifier for CredentialVerifier {
    fn verify<'a>(
        &'a self,
        evidence: &'a Evidence<'a>,
    ) -> Fut<'a, Result<VerifiedIdentity, Failure>> {
        let plan = self.plan.load_full();
        Box::pin(async move {
            let identified = match plan.identify(evidence, &self.world) {
                Ok(KnownSender::Known(identity)) => Ok(identity),
                Ok(KnownSender::NewToken { text, digest }) => {
                    let token = PresentedToken {
                        text,
                        digest: &digest,
                        peer: evidence.peer,
                    };
                    plan.verify_new_token(token, evidence.endpoint, &self.world)
                        .await
                        .map(VerifiedIdentity::Subject)
                }
                Err(refused) => Err(refused),
            };
            identified.map_err(|refused| self.count_refusal(refused))
        })
    }

    fn verify_at_once(&self, evidence: &Evidence<'_>) -> Option<Result<VerifiedIdentity, Failure>> {
        match self.plan.load().identify(evidence, &self.world) {
            Ok(KnownSender::Known(identity)) => Some(Ok(identity)),
            Ok(KnownSender::NewToken { .. }) => None,
            Err(refused) => Some(Err(self.count_refusal(refused))),
        }
    }
}

impl std::fmt::Debug for CredentialVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

fn failure(refused: AuthFailure) -> Failure {
    let denied = |denial| {
        Failure::new(
            FailureKind::Unauthenticated(denial),
            "The credentials are not valid here",
        )
    };
    let (word, failure) = match refused {
        AuthFailure::Missing => ("missing", denied(AuthenticationDenial::Missing)),
        AuthFailure::Invalid(reason) => (
            reason.metric_label(),
            denied(AuthenticationDenial::Invalid(reason.metric_label())),
        ),
        AuthFailure::Unavailable(why) => {
            let failure = Failure::new(
                FailureKind::Unavailable,
                "Credentials cannot be checked now",
            );
            ("unavailable", failure.because(why))
        }
    };
    instruments()
        .auth_rejections
        .add(1, &[KeyValue::new("reason", word)]);
    failure
}

/// A sender as far as it is known without a wait.
enum KnownSender<'a> {
    Known(VerifiedIdentity),
    /// A token that was not verified before, or not lately.
    NewToken {
        text: &'a str,
        digest: [u8; 32],
    },
}

impl VerifierState {
    fn new(settings: VerifierSettings, before: Option<&Self>, world: &KeyKeeperPorts) -> Self {
        let api_keys = ApiKeys::new(&settings);
        let certified = settings
            .certificates
            .as_ref()
            .map(|rule| CertificateReader::new(rule, &settings));
        let vouching = |issuer: &TokenIssuer| {
            let same = before.and_then(|before| before.issuers.get(&issuer.name));
            (
                issuer.name.clone(),
                Arc::new(ActiveIssuer::new(
                    issuer.clone(),
                    same.map(|same| &**same),
                    world,
                )),
            )
        };
        let issuers = settings.issuers.iter().map(vouching).collect();
        Self {
            settings,
            issuers,
            api_keys,
            certified,
            verified: Cache::new(TOKEN_CACHE_SIZE),
        }
    }

    /// Identifies the sender as far as that needs no wait.
    fn identify<'a>(
        &self,
        evidence: &Evidence<'a>,
        world: &KeyKeeperPorts,
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
                self.api_keys.check(key.expose(), world.clock.wall())?
            }
            (Some(token), None) => {
                let text = token.expose();
                if text.len() > token::LONGEST {
                    return Err(TokenRefusal::Malformed.into());
                }
                let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
                match self.known_token(&digest, evidence.endpoint, world)? {
                    Some(subject) => subject,
                    None => return Ok(KnownSender::NewToken { text, digest }),
                }
            }
            (None, _) => match (&self.certified, evidence.certificate) {
                // Only if the request has no other credentials: a connection may carry requests of
                // several callers.
                (Some(certified), Some(certificate)) => {
                    certified.subject(certificate, world.clock.wall())?
                }
                _ => return Err(AuthFailure::Missing),
            },
        };
        Ok(KnownSender::Known(VerifiedIdentity::Subject(subject)))
    }

    /// The subject of a token that was verified a short while ago; absent for any other token.
    fn known_token(
        &self,
        digest: &[u8; 32],
        endpoint: &EndpointId,
        world: &KeyKeeperPorts,
    ) -> Result<Option<Arc<Subject>>, TokenRefusal> {
        let Some(verified) = self.verified.get(digest).filter(|verified| {
            verified.by.generation() == verified.generation
                && world.clock.monotonic() < verified.until
        }) else {
            return Ok(None);
        };
        self.check_now(&verified, endpoint, world)?;
        Ok(Some(verified.subject.clone()))
    }

    async fn verify_new_token(
        &self,
        token: PresentedToken<'_>,
        endpoint: &EndpointId,
        world: &KeyKeeperPorts,
    ) -> Result<Arc<Subject>, AuthFailure> {
        let verified = self.verify(token, world).await?;
        self.check_now(&verified, endpoint, world)?;
        let subject = verified.subject.clone();
        self.verified.insert(*token.digest, Arc::new(verified));
        Ok(subject)
    }

    /// The checks that depend on the time and on the endpoint.
    fn check_now(
        &self,
        verified: &VerifiedToken,
        endpoint: &EndpointId,
        world: &KeyKeeperPorts,
    ) -> Result<(), TokenRefusal> {
        let times = verified
            .times
            .check(world.clock.wall(), self.settings.leeway);
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
        world: &KeyKeeperPorts,
    ) -> Result<VerifiedToken, AuthFailure> {
        let (by, parts) = self.issuer_of(token.text)?;
        let generation = by.generation();
        let claims = by.claims(token, parts, &self.settings, world).await;
        let claims = claims.inspect_err(|refused| {
            // A check that is not possible now is not a fault of the token.
            if matches!(refused, AuthFailure::Invalid(_)) {
                by.count_refused();
            }
        })?;
        let subject = token::subject(&claims, &by.issuer, &self.settings)
            .inspect_err(|_| by.count_refused())?;
        let (audiences, times) = (claims.audiences().clone(), claims.times());
        let until = world.clock.monotonic() + TOKEN_CACHE_TIME;
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
        let asked = self
            .issuers
            .values()
            .find(|vouching| vouching.keeper().is_none());
        let all_asked = self
            .issuers
            .values()
            .all(|vouching| vouching.keeper().is_none());
        match asked {
            Some(asked) if all_asked || text.split('.').count() != 3 => {
                let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
                if plain {
                    Ok((asked.clone(), None))
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

#[cfg(test)]
mod tests;
