//! A server over Streamable HTTP: which era it speaks, found out once and again after failures, and the two ways to
//! speak to it. This is the one place that chooses between them, for a server that speaks both by the era of each caller.

mod answer;
mod client;
mod collector;
mod era_guess;
mod exchange;
mod modern;
mod pool;
mod reading;
mod retry_after;
mod second_era;
mod session;
mod standing;
mod talk;
mod thread;
mod tls;
mod updates;
mod watching;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::{About, ListKind, Outbound, Rings, SessionNews, Updates, Watch};
use weir_core::{CapabilityClass, FailureKind, SessionKey};
use weir_era::hop::{Discovered, Found, Proof, judge_probe};
use weir_wire::method::Method;
use weir_wire::{ErrorObject, Revision};

pub(crate) use answer::limits;
#[cfg(test)]
pub(crate) use client::dial;
pub(crate) use client::{ConnectTimeout, Deadlined, Http, Pooled, SendError, pooled, tcp};
use era_guess::EraGuess;
pub(crate) use exchange::{EVENTS, media_type, tell, unsent};
use modern::Modern;
use pool::{Pool, SessionPlace};
use second_era::SecondEra;
pub(crate) use tls::Roots;
pub use tls::TlsError;
use updates::HttpUpdates;
use watching::HttpWatch;

use crate::credential::Credentials;
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::settings::{Protocol, Sharing};
use crate::site::Site;
use crate::stdio::{Origin, StdioServer, sse};

/// One server behind a URL.
#[derive(Debug)]
pub(crate) struct HttpServer {
    site: Arc<Site>,
    http: Http,
    credentials: Option<Credentials>,
    protocol: Protocol,
    sharing: Sharing,
    speaker: ArcSwapOption<Speaker>,
    /// Set when what the server is may have changed.
    doubtful: Arc<AtomicBool>,
    /// Set while its era is only a guess.
    guess: Arc<EraGuess>,
    /// Its other era, where it is a modern server that speaks both.
    second: SecondEra,
    probing: tokio::sync::Mutex<()>,
    pace: Mutex<Pace>,
}

/// How often a probe is made whose connection is lost each time, before the server is spoken to without an answer.
const PROBES: usize = 3;

/// How often in a row a modern server may give no answer to the probe before it is tried as another one.
const MOST_SILENCES: u32 = 3;

/// How a server is spoken to.
#[derive(Debug)]
enum Speaker {
    Modern(Modern, About),
    Legacy(Arc<Pool>),
    /// A server of HTTP+SSE: a line, as to a child.
    Line(Box<StdioServer>),
}

/// What a probe found.
enum Probed {
    Era(Found),
    Line,
    /// No answer: it may be a legacy server, which is tried.
    Nothing,
}

impl HttpServer {
    /// A server behind `http`, which shows `credentials` where it wants some.
    pub(crate) fn new(
        site: Arc<Site>,
        http: Http,
        credentials: Option<Credentials>,
        protocol: Protocol,
        sharing: Sharing,
    ) -> Self {
        Self {
            site,
            http: credentials.as_ref().map_or(http, Credentials::own),
            credentials,
            protocol,
            sharing,
            speaker: ArcSwapOption::empty(),
            doubtful: Arc::default(),
            guess: Arc::default(),
            second: SecondEra::default(),
            probing: tokio::sync::Mutex::default(),
            pace: Mutex::default(),
        }
    }

    /// Makes one attempt at a call. `again` is the proof that the attempt before gave, if this is not the first.
    pub(crate) async fn call(&self, outbound: &Outbound, again: Option<Proof>) -> Result<Reply, Refusal> {
        let own = match &self.credentials {
            Some(credentials) => credentials.of_caller(outbound)?,
            None => None,
        };
        match &*self.speaker().await? {
            Speaker::Modern(modern, _) => {
                if self.may_have_sessions(outbound.call.capabilities.class)
                    && let Some(spoken) = Box::pin(self.call_in_session(outbound, own.as_ref())).await
                {
                    return spoken;
                }
                let newer = match again {
                    Some(Proof::HeaderMismatch) => {
                        let class = outbound.call.capabilities.class.cut(self.site.carries(modern.tongue));
                        self.site.list_changed();
                        // Without the newest one the call is tried once more as it was.
                        Box::pin(modern.definition(class, &outbound.native)).await.unwrap_or_default()
                    }
                    _ => None,
                };
                match own {
                    None => modern.call(outbound, newer.as_ref()).await,
                    Some(own) => Box::pin(modern.by(own).call(outbound, newer.as_ref())).await,
                }
            }
            Speaker::Legacy(pool) => pool.call(outbound, own).await,
            Speaker::Line(_) if own.is_some() => {
                let text = "A server of HTTP+SSE cannot be called in the names of callers";
                Err(self.site.fail(FailureKind::Unavailable, text).into())
            }
            Speaker::Line(line) => line.call(outbound).await,
        }
    }

    /// True if a client of this class is served in a session where a modern server has them.
    fn may_have_sessions(&self, class: CapabilityClass) -> bool {
        class.has(CapabilityClass::SESSIONS) && self.protocol == Protocol::Auto && !self.second.is_refused()
    }

    /// Makes a call in a session of a server that speaks both eras. `None` where it is to go over the bridge: the server has no
    /// sessions, or holds as many as it may and its client can be asked nothing.
    async fn call_in_session(&self, outbound: &Outbound, own: Option<&Http>) -> Option<Result<Reply, Refusal>> {
        let pool = self.second.find(&self.site, &self.http, own, self.sharing).await?;
        let asked = outbound.call.capabilities.class.cut(pool.carries()).without(CapabilityClass::UI);
        if asked != CapabilityClass::BASE {
            return self.call_at(&pool, pool.place(outbound), outbound, own).await;
        }
        // To a client that can be asked nothing a session is worth no other one's end.
        let place = pool.free_place(outbound);
        if place.is_none() {
            instruments().upstream_bridged.add(1, &[self.site.label()]);
            return None;
        }
        self.call_at(&pool, place, outbound, own).await
    }

    /// Makes a call in the session of this place. `None` where the server opens no sessions any more.
    async fn call_at(
        &self,
        pool: &Arc<Pool>,
        place: Option<SessionPlace>,
        outbound: &Outbound,
        own: Option<&Http>,
    ) -> Option<Result<Reply, Refusal>> {
        let Some(place) = place else { return Some(Err(pool.is_full())) };
        let session = match pool.session_at(&place, own).await {
            Ok(session) => session,
            Err(refusal) => {
                let Some(gone) = self.second.note(&refusal) else { return Some(Err(refusal)) };
                self.site.spawn(async move { gone.close().await });
                return None;
            }
        };
        Some(pool.call_in(&place, &session, outbound, own.cloned()).await)
    }

    /// Opens a watch. What the server says of itself is asked anew.
    pub(crate) async fn watch(&self, class: CapabilityClass) -> Result<Box<dyn Watch>, Refusal> {
        if matches!(self.speaker.load().as_deref(), Some(Speaker::Modern(..))) {
            self.doubt();
        }
        let second = self.second.known().filter(|_| self.may_have_sessions(class));
        match &*self.speaker().await? {
            Speaker::Modern(modern, about) => {
                if let Some(pool) = second {
                    let session = pool.apart(class.cut(pool.carries())).await?;
                    return Ok(Box::new(HttpWatch::legacy(self.site.clone(), session).await));
                }
                let class = class.cut(self.site.carries(modern.tongue));
                Ok(Box::new(HttpWatch::modern(modern.clone(), about.clone(), class).await?))
            }
            Speaker::Legacy(pool) => {
                let session = pool.apart(class.cut(pool.carries())).await?;
                Ok(Box::new(HttpWatch::legacy(self.site.clone(), session).await))
            }
            Speaker::Line(line) => line.watch(class).await,
        }
    }

    /// Opens a line for updates of single resources.
    pub(crate) async fn updates(&self) -> Result<Box<dyn Updates>, Refusal> {
        match &*self.speaker().await? {
            Speaker::Modern(modern, _) => Ok(Box::new(HttpUpdates::modern(modern.clone()))),
            Speaker::Legacy(pool) => {
                let session = pool.apart(CapabilityClass::BASE).await?;
                Ok(Box::new(HttpUpdates::legacy(self.site.clone(), session).await?))
            }
            Speaker::Line(line) => line.updates().await,
        }
    }

    /// Has the server tell of a task; `None` where it does not.
    pub(crate) async fn follow(&self, outbound: &Outbound) -> Option<Rings> {
        let own = match &self.credentials {
            Some(credentials) => credentials.of_caller(outbound).ok()?,
            None => None,
        };
        match (&*self.speaker().await.ok()?, own) {
            // A server tells nothing of a task in a session.
            (Speaker::Modern(..), _)
                if self.may_have_sessions(outbound.call.capabilities.class) && self.second.known().is_some() =>
            {
                None
            }
            (Speaker::Modern(modern, _), None) => updates::follow(modern, outbound).await,
            (Speaker::Modern(modern, _), Some(own)) => updates::follow(&modern.by(own), outbound).await,
            (Speaker::Line(line), None) => line.follow(outbound).await,
            (Speaker::Legacy(_), _) | (Speaker::Line(_), Some(_)) => None,
        }
    }

    /// What the server is may have changed: before the next request it is found out again.
    pub(crate) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Release);
    }

    /// What is carried to the server as it is now known to be.
    pub(crate) fn carries(&self) -> CapabilityClass {
        match self.speaker.load().as_deref() {
            Some(Speaker::Modern(modern, _)) => {
                let carried = self.site.carries(modern.tongue);
                match self.second.known() {
                    Some(pool) => carried.with(pool.carries()).with(CapabilityClass::SESSIONS),
                    None => carried,
                }
            }
            Some(Speaker::Legacy(pool)) => pool.carries(),
            Some(Speaker::Line(line)) => line.carries(),
            None => CapabilityClass::BASE,
        }
    }

    pub(crate) fn revision(&self) -> Option<&'static str> {
        match self.speaker.load().as_deref() {
            Some(Speaker::Modern(modern, _)) => Some(modern.tongue.revision().as_str()),
            Some(Speaker::Legacy(pool)) => pool.revision().map(Revision::as_str),
            Some(Speaker::Line(line)) => line.revision(),
            None => None,
        }
    }

    pub(crate) fn sessions(&self) -> usize {
        match self.speaker.load().as_deref() {
            Some(Speaker::Legacy(pool)) => pool.len(),
            Some(Speaker::Line(line)) => line.processes(),
            Some(Speaker::Modern(..)) => self.second.known().map_or(0, |pool| pool.len()),
            None => 0,
        }
    }

    /// The revision that it is spoken to in for a client of this class, once that is known.
    pub(crate) fn revision_for(&self, class: CapabilityClass) -> Option<&'static str> {
        let second = self.second_revision().filter(|_| self.may_have_sessions(class));
        second.or_else(|| self.revision())
    }

    /// The revision of its other era, where it is known to speak both.
    pub(crate) fn second_revision(&self) -> Option<&'static str> {
        self.second.known()?.revision().map(Revision::as_str)
    }

    /// Something happened to sessions of clients.
    pub(crate) fn tell(&self, sessions: &HashSet<SessionKey>, news: SessionNews) {
        match self.speaker.load().as_deref() {
            Some(Speaker::Legacy(pool)) => pool.tell(sessions, news),
            Some(Speaker::Line(line)) => line.tell(sessions, news),
            Some(Speaker::Modern(..)) => {
                if let Some(pool) = self.second.known() {
                    pool.tell(sessions, news);
                }
            }
            None => {}
        }
    }

    /// Ends the sessions.
    pub(crate) async fn close(&self) {
        match self.speaker.load_full().as_deref() {
            Some(Speaker::Legacy(pool)) => pool.close().await,
            Some(Speaker::Line(line)) => line.close().await,
            Some(Speaker::Modern(..)) => {
                if let Some(pool) = self.second.take() {
                    pool.close().await;
                }
            }
            None => {}
        }
    }

    /// How the server is spoken to, found out if that is not known. Single-flight.
    async fn speaker(&self) -> Result<Arc<Speaker>, Refusal> {
        match self.known() {
            Some(speaker) => Ok(speaker),
            // Boxed, as everything is that calls seldom do: a call's future is built, moved and kept in its largest form.
            None => Box::pin(self.find()).await,
        }
    }

    async fn find(&self) -> Result<Arc<Speaker>, Refusal> {
        let _one = self.probing.lock().await;
        if let Some(speaker) = self.known() {
            return Ok(speaker);
        }
        let admitted = self.pace().admit(self.site.now());
        admitted.map_err(|wait| {
            let text = self.pace().why().map_or("The upstream cannot be reached now".into(), Cow::Owned);
            Refusal::new(self.site.fail(FailureKind::Unavailable, text).retry_after(wait)).unasked()
        })?;
        let found = match self.probe().await {
            Ok(found) => found,
            Err(refusal) => {
                // What was not read says nothing about the server, and is asked again.
                if refusal.proof.is_none() {
                    let mut pace = self.pace();
                    pace.failed(self.site.now(), &*self.site.random);
                    pace.because(refusal.failure.message());
                }
                return Err(refusal);
            }
        };
        self.pace().succeeded();
        self.settle(found).await
    }

    fn known(&self) -> Option<Arc<Speaker>> {
        if self.doubtful.load(Ordering::Acquire) {
            return None;
        }
        if self.guess.is_due(|| self.site.millis()) {
            self.check_guess();
        }
        self.speaker.load_full()
    }

    /// Asks a server for its era that gave no answer before, while calls go on. What it answers is asked for again and taken note of
    /// by the next call.
    fn check_guess(&self) {
        let modern = Modern::new(self.site.clone(), self.http.anew(), Revision::MODERN);
        let (site, guess, doubtful) = (self.site.clone(), self.guess.clone(), self.doubtful.clone());
        self.site.background(async move {
            let asked = modern.ask(CapabilityClass::BASE, Method::Discover, &[]).await;
            if matches!(judged(asked), Ok(Some(_))) {
                doubtful.store(true, Ordering::Release);
            } else {
                guess.unanswered(site.millis());
            }
        });
    }

    async fn settle(&self, probed: Probed) -> Result<Arc<Speaker>, Refusal> {
        let before = self.speaker.load_full();
        match probed {
            Probed::Nothing => self.guess.unanswered(self.site.millis()),
            Probed::Era(_) | Probed::Line => self.guess.settled(),
        }
        let found = match (probed, before.clone()) {
            (Probed::Era(found), _) => found,
            // That it does not answer now does not make it another one, but it may be.
            (Probed::Nothing, Some(modern))
                if matches!(*modern, Speaker::Modern(..)) && self.guess.times() <= MOST_SILENCES =>
            {
                self.doubtful.store(false, Ordering::Release);
                return Ok(modern);
            }
            (Probed::Nothing, _) => judge_probe(None),
            (Probed::Line, Some(line)) if matches!(*line, Speaker::Line(_)) => {
                self.doubtful.store(false, Ordering::Release);
                return Ok(line);
            }
            (Probed::Line, _) => {
                let origin = Origin::Line(self.http.clone());
                let line = StdioServer::new(self.site.clone(), origin, Protocol::Legacy, self.sharing);
                let speaker = Arc::new(Speaker::Line(Box::new(line)));
                self.speaker.store(Some(speaker.clone()));
                self.doubtful.store(false, Ordering::Release);
                return Ok(speaker);
            }
        };
        let speaker = match (found, before.as_deref()) {
            (Found::Legacy(offered), Some(Speaker::Legacy(pool))) if pool.offered() == offered => {
                // The same server: its sessions stay.
                Speaker::Legacy(pool.clone())
            }
            (Found::Legacy(offered), _) => {
                Speaker::Legacy(Pool::new(self.site.clone(), self.http.clone(), offered, self.sharing))
            }
            (Found::Modern(found), _) => {
                let Discovered { revision, about } = *found;
                // A server that refused the probe tells nothing of itself: its list and its changes are tried.
                let about = about.unwrap_or(About {
                    // A server that does not say is asked.
                    offers: ListKind::ALL.into_iter().collect(),
                    pushes: ListKind::ALL.into_iter().collect(),
                    ..About::default()
                });
                let modern = Modern::new(self.site.clone(), self.http.clone(), revision).with(&about.extensions);
                Speaker::Modern(modern, about)
            }
            (Found::Foreign(versions), _) => {
                let list: String = versions.join(", ").chars().take(200).collect();
                let text = format!("The upstream speaks protocol versions that weir does not have: {list}");
                return Err(self.site.fail(FailureKind::Unavailable, text).into());
            }
        };
        if let (Some(Speaker::Legacy(old)), Speaker::Modern(..)) = (before.as_deref(), &speaker) {
            let old = old.clone();
            self.site.spawn(async move { old.close().await });
        }
        match &speaker {
            Speaker::Modern(..) => self.second.renew(),
            Speaker::Legacy(_) | Speaker::Line(_) => {
                if let Some(pool) = self.second.take() {
                    self.site.spawn(async move { pool.close().await });
                }
            }
        }
        let speaker = Arc::new(speaker);
        self.speaker.store(Some(speaker.clone()));
        self.doubtful.store(false, Ordering::Release);
        Ok(speaker)
    }

    /// Asks the server which era it speaks, unless the operator said so.
    ///
    /// # Errors
    /// The server cannot be reached, is too busy, or refuses weir's credentials: that says nothing about its era.
    async fn probe(&self) -> Result<Probed, Refusal> {
        match self.protocol {
            Protocol::Legacy => return Ok(Probed::Era(Found::Legacy(Revision::NEWEST_LEGACY))),
            Protocol::Sse => return Ok(Probed::Line),
            Protocol::Auto | Protocol::Modern => {}
        }
        let asked = self.discover().await;
        let no_endpoint = asked.as_ref().is_err_and(|refusal| refusal.answered);
        let Some(found) = judged(asked)? else {
            return Ok(match self.protocol {
                Protocol::Modern => Probed::Era(modern_unasked()),
                _ => Probed::Nothing,
            });
        };
        Ok(match (self.protocol, found) {
            (Protocol::Modern, Found::Legacy(_)) => Probed::Era(modern_unasked()),
            // Nothing takes messages by POST there (400, 404, 405): a server of 2024-11-05 alone answers so.
            (Protocol::Auto, Found::Legacy(_)) if no_endpoint && sse::is_there(&self.site, &self.http).await => {
                Probed::Line
            }
            (_, found) => Probed::Era(found),
        })
    }

    /// Makes the probe. Where its connection is lost it is made again: that says nothing about the server.
    async fn discover(&self) -> Result<bytes::Bytes, Refusal> {
        let modern = Modern::new(self.site.clone(), self.http.anew(), Revision::MODERN);
        let is_lost =
            |refusal: &Refusal| matches!(refusal.failure.kind(), FailureKind::ResultUnknown) && !refusal.unreached;
        for _ in 1..PROBES {
            match modern.ask(CapabilityClass::BASE, Method::Discover, &[]).await {
                Err(refusal) if is_lost(&refusal) => {}
                asked => return asked,
            }
        }
        modern.ask(CapabilityClass::BASE, Method::Discover, &[]).await
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the answer to a probe says; `None` where there was none.
///
/// # Errors
/// The request's own, where that says nothing about what the server speaks.
fn judged(asked: Result<bytes::Bytes, Refusal>) -> Result<Option<Found>, Refusal> {
    let refusal = match asked {
        Ok(result) => return Ok(Some(judge_probe(Some(&Ok(result))))),
        Err(refusal) => refusal,
    };
    match refusal.failure.kind() {
        FailureKind::Upstream(error) => {
            let error = ErrorObject { code: error.code, message: error.message.clone(), data: error.data.clone() };
            Ok(Some(judge_probe(Some(&Err(error.to_json())))))
        }
        FailureKind::BadAnswer => Ok(Some(judge_probe(None))),
        FailureKind::Unavailable if refusal.answered => Ok(Some(judge_probe(None))),
        FailureKind::TimedOut => Ok(None),
        FailureKind::ResultUnknown if !refusal.unreached => Ok(None),
        _ => Err(refusal),
    }
}

/// A modern server that does not say so.
fn modern_unasked() -> Found {
    Found::Modern(Box::new(Discovered { revision: Revision::MODERN, about: None }))
}
