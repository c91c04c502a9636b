//! Checks of the credentials of a waiting stream: a stream ends soon after its API key is removed,
//! its token revoked, its scopes, groups or other claims changed, or its endpoint requires scopes
//! that its principal does not have.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context as Task;
use std::time::SystemTime;

use http::HeaderMap;
use tokio::time::{Duration, Instant, Sleep, sleep_until};
use weir_core::port::{BoxFuture, jittered};
use weir_core::{FailureKind, Principal, authenticate};
use weir_session::StreamCredentials;

use crate::request::request_context::HttpRequestContext;
use crate::request::stream_credentials::stream_credentials;
use crate::state::FrontState;

/// The longest time between two checks. Most cost no more than a look at what the verifier knows: a
/// token is verified again, and its issuer asked, at most once in a minute.
const MAX_INTERVAL: Duration = Duration::from_secs(20);
/// The mean time after a check that could not be made. Each attempt asks the issuer of the token.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The check of the credentials of one stream, again and again.
pub struct CredentialCheck {
    stream: Arc<CheckedStream>,
    interval: Duration,
    retry_interval: Duration,
    next: Pin<Box<Sleep>>,
    checking: Option<BoxFuture<'static, CheckOutcome>>,
}

impl fmt::Debug for CredentialCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialCheck(<secret>)")
    }
}

struct CheckedStream {
    shared: Arc<FrontState>,
    credentials: StreamCredentials,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The credentials are valid, up to this time, and trusted for this one.
    Valid {
        /// The end of the credentials, if it is known.
        expires: Option<SystemTime>,
        /// The time for which the verifier trusts them without another check.
        trusted: Option<Duration>,
    },
    /// They are not valid, or no longer those of the principal, or it may not use the endpoint. Or
    /// its claims have changed: the stream was opened with the rights of the earlier ones.
    Refused,
    /// The check cannot be made now.
    Unavailable,
}

impl CredentialCheck {
    /// The check of a stream that a request with these headers opened, for its principal.
    pub fn new(
        context: &HttpRequestContext,
        principal: &Principal,
        headers: &HeaderMap,
    ) -> Box<Self> {
        let stream = CheckedStream {
            shared: context.shared().clone(),
            credentials: stream_credentials(context, principal, headers),
        };
        let random = &*context.ports().random;
        let interval = jittered(context.limits().keep_alive.min(MAX_INTERVAL), random);
        let wait = next_wait(interval, stream.trust_time());
        Box::new(Self {
            stream: Arc::new(stream),
            interval,
            retry_interval: jittered(RETRY_INTERVAL, random),
            next: Box::pin(sleep_until(Instant::now() + wait)),
            checking: None,
        })
    }

    /// Goes on with these credentials in place of those before, beginning with a check of them.
    pub fn replace(&mut self, credentials: StreamCredentials) {
        self.stream = Arc::new(CheckedStream {
            shared: self.stream.shared.clone(),
            credentials,
        });
        self.checking = None;
        self.next.as_mut().reset(Instant::now());
    }

    /// The outcome of a check that has ended, if one has. The task is woken for the next one.
    pub fn poll_outcome(&mut self, cx: &mut Task<'_>) -> Option<CheckOutcome> {
        if self.checking.is_none() {
            if self.next.as_mut().poll(cx).is_pending() {
                return None;
            }
            let stream = self.stream.clone();
            self.checking = Some(Box::pin(async move { stream.check().await }));
        }
        let checking = self.checking.as_mut()?;
        let std::task::Poll::Ready(outcome) = checking.as_mut().poll(cx) else {
            return None;
        };
        self.checking = None;
        let wait = match outcome {
            CheckOutcome::Valid { trusted, .. } => next_wait(self.interval, trusted),
            CheckOutcome::Refused | CheckOutcome::Unavailable => self.retry_interval,
        };
        self.next.as_mut().reset(Instant::now() + wait);
        // Registers the task for the next check.
        let _ = self.next.as_mut().poll(cx);
        Some(outcome)
    }
}

impl CheckedStream {
    async fn check(&self) -> CheckOutcome {
        let ports = &self.shared.ports;
        let evidence = self.credentials.evidence();
        let sender = match authenticate(&*ports.verifier, &evidence).await {
            Ok(sender) => sender,
            Err(failure) if matches!(failure.kind(), FailureKind::Unauthenticated(_)) => {
                return CheckOutcome::Refused;
            }
            Err(_) => return CheckOutcome::Unavailable,
        };
        let principal = sender.principal();
        if !principal.has_same_claims(&self.credentials.principal)
            || ports
                .authorizer
                .may_enter(principal, evidence.endpoint)
                .is_err()
        {
            return CheckOutcome::Refused;
        }
        CheckOutcome::Valid {
            expires: principal.expires(),
            trusted: self.trust_time(),
        }
    }

    fn trust_time(&self) -> Option<Duration> {
        let verifier = &self.shared.ports.verifier;
        verifier.trust_time(&self.credentials.evidence())
    }
}

/// The time until the next check: at the end of trust, if that is earlier.
fn next_wait(interval: Duration, trusted: Option<Duration>) -> Duration {
    trusted.map_or(interval, |trusted| trusted.min(interval))
}
