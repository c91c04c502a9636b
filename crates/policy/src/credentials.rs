//! Authentication: the one verifier, over every kind of credentials that the config accepts.
//!
//! One kind at a time: the credentials of a request are checked by the rules of their kind, and
//! after a failure no other kind is tried. There is no path from an error to an identity.

mod active_issuer;
mod verifier_state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use opentelemetry::KeyValue;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use weir_core::failure::{AuthenticationDenial, Failure, FailureKind};
use weir_core::port::{BoxFuture, Evidence, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::supervision::run_supervised;
use weir_core::telemetry::instruments;

pub use self::active_issuer::{AnsweringIssuer, IssuerStatus, examine_issuer};
use self::verifier_state::{KnownSender, VerifierState};
use crate::auth_failure::AuthFailure;
use crate::introspect::PresentedToken;
use crate::jwks::key_keeper::KeyKeeper;
use crate::settings::VerifierSettings;
use crate::verifier_ports::VerifierPorts;

/// The verifier. It stays the same object when its settings change.
pub struct CredentialVerifier {
    ports: VerifierPorts,
    state: ArcSwap<VerifierState>,
    changed: Notify,
    was_ready: AtomicBool,
    /// The number of refused credentials of any kind.
    refused: AtomicU64,
}

impl CredentialVerifier {
    /// A verifier with these settings. Without [`Self::run`] it has no keys of issuers.
    #[must_use]
    pub fn new(settings: VerifierSettings, ports: VerifierPorts) -> Arc<Self> {
        let state = ArcSwap::from_pointee(VerifierState::new(settings, None, &ports));
        Arc::new(Self {
            ports,
            state,
            changed: Notify::new(),
            was_ready: AtomicBool::default(),
            refused: AtomicU64::default(),
        })
    }

    /// Replaces the settings. An issuer with an unchanged location of keys keeps them.
    pub fn replace(&self, settings: VerifierSettings) {
        let before = self.state.load_full();
        if before.settings == settings {
            return;
        }
        self.state.store(Arc::new(VerifierState::new(
            settings,
            Some(&before),
            &self.ports,
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
            .state
            .load()
            .issuers
            .values()
            .filter_map(|issuer| issuer.keeper())
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
        let state = self.state.load_full();
        let mut all: Vec<_> = state
            .issuers
            .values()
            .map(|issuer| issuer.status())
            .collect();
        all.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        all
    }

    /// Keeps the keys of all issuers fresh, also after [`Self::replace`]. Never ends; drop it to
    /// end it.
    pub async fn run(self: Arc<Self>) {
        let mut work = JoinSet::new();
        let mut running: Vec<(Arc<KeyKeeper>, AbortHandle)> = Vec::new();
        loop {
            let state = self.state.load_full();
            let wanted: Vec<&Arc<KeyKeeper>> = state
                .issuers
                .values()
                .filter_map(|issuer| issuer.keeper())
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
                    let own = keeper.clone();
                    let keeping = run_supervised("keys of an issuer", move || own.clone().run());
                    running.push((keeper.clone(), work.spawn(keeping)));
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
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        let state = self.state.load_full();
        Box::pin(async move {
            let identified = match state.identify(evidence, &self.ports) {
                Ok(KnownSender::Known(identity)) => Ok(identity),
                Ok(KnownSender::NewToken { text, digest }) => {
                    let token = PresentedToken {
                        text,
                        digest: &digest,
                        peer: evidence.peer,
                    };
                    state
                        .verify_new_token(token, evidence.endpoint, &self.ports)
                        .await
                        .map(VerifiedIdentity::Subject)
                }
                Err(refused) => Err(refused),
            };
            identified.map_err(|refused| self.count_refusal(refused))
        })
    }

    fn verify_at_once(&self, evidence: &Evidence<'_>) -> Option<Result<VerifiedIdentity, Failure>> {
        match self.state.load().identify(evidence, &self.ports) {
            Ok(KnownSender::Known(identity)) => Some(Ok(identity)),
            Ok(KnownSender::NewToken { .. }) => None,
            Err(refused) => Some(Err(self.count_refusal(refused))),
        }
    }

    fn trust_time(&self, evidence: &Evidence<'_>) -> Option<Duration> {
        self.state.load().trust_time(evidence, &self.ports)
    }
}

impl std::fmt::Debug for CredentialVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialVerifier").finish_non_exhaustive()
    }
}

fn failure(refused: AuthFailure) -> Failure {
    let denied = |denial| {
        Failure::new(
            FailureKind::Unauthenticated(denial),
            "The credentials are not valid here",
        )
    };
    let unavailable = |why| {
        let text = "Credentials cannot be checked now";
        Failure::new(FailureKind::Unavailable, text).because(why)
    };
    let (word, failure) = match refused {
        AuthFailure::Missing => ("missing", denied(AuthenticationDenial::Missing)),
        AuthFailure::Invalid(reason) => (
            reason.metric_label(),
            denied(AuthenticationDenial::Invalid(reason.metric_label())),
        ),
        AuthFailure::Unavailable(why) => ("unavailable", unavailable(why)),
        AuthFailure::NewKey(wait) => {
            let failure = unavailable("the key is unknown, and the last fetch was just now");
            ("unavailable", failure.retry_after(wait))
        }
    };
    instruments()
        .auth_rejections
        .add(1, &[KeyValue::new("reason", word)]);
    failure
}

#[cfg(test)]
mod tests;
