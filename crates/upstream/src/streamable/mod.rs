//! A server over Streamable HTTP. Its era is probed once, and again after failures. This module
//! alone chooses between the two eras; for a server that speaks both, by the era of each caller.

mod answer;
mod client;
mod collector;
mod era_guess;
mod exchange;
mod modern;
mod pool;
mod probing;
mod reading;
mod retry_after;
mod second_era;
mod session;
mod standing;
mod standing_places;
mod talk;
mod thread;
mod tls;
mod updates;
mod watching;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;
use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::{
    ClientSessionChange, HandoverSession, ListKinds, ListWatch, OutboundCall, ResourceUpdates,
    ServerDescription, TaskNotifications,
};
use weir_core::{CapabilityClass, Failure, FailureKind, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_wire::Revision;

pub(crate) use answer::limits;
#[cfg(test)]
pub(crate) use client::dial;
pub(crate) use client::{ConnectTimeout, Deadlined, Http, Pooled, SendError, pooled, tcp};
use era_guess::EraGuess;
pub(crate) use exchange::{EVENTS, media_type, tell, unsent};
use modern::Modern;
use pool::{ImportedSessions, Pool};
use second_era::SecondEra;
pub(crate) use tls::Roots;
pub use tls::{TlsError, client_tls};
use updates::HttpUpdates;
use watching::HttpWatch;

use crate::credential::Credentials;
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::settings::{Protocol, Sharing};
use crate::site::Site;
use crate::stdio::StdioServer;

/// One server behind a URL.
#[derive(Debug)]
pub(crate) struct HttpServer {
    site: Arc<Site>,
    http: Http,
    credentials: Option<Credentials>,
    protocol: Protocol,
    sharing: Sharing,
    speaker: ArcSwapOption<Speaker>,
    /// Set if the server may have been replaced.
    doubtful: Arc<AtomicBool>,
    /// Set while its era is only a guess.
    guess: Arc<EraGuess>,
    /// The other era of a modern server that speaks both.
    second: SecondEra,
    /// The sessions of the previous process, until the server's era is known.
    imported: Arc<ImportedSessions>,
    probing: tokio::sync::Mutex<()>,
    pace: Mutex<Pace>,
}

/// The transport and era in use for a server.
#[derive(Debug)]
enum Speaker {
    Modern(Modern, ServerDescription),
    Legacy(Arc<Pool>),
    /// A server of HTTP+SSE, which is called like a child.
    Line(Arc<StdioServer>),
}

impl HttpServer {
    /// Makes a server behind `http`, with `credentials` if it wants some.
    pub(crate) fn new(
        site: Arc<Site>,
        http: Http,
        credentials: Option<Credentials>,
        protocol: Protocol,
        sharing: Sharing,
    ) -> Self {
        let imported = Arc::<ImportedSessions>::default();
        Self {
            site,
            http: credentials.as_ref().map_or(http, Credentials::own),
            credentials,
            protocol,
            sharing,
            speaker: ArcSwapOption::empty(),
            doubtful: Arc::default(),
            guess: Arc::default(),
            second: SecondEra::new(imported.clone()),
            imported,
            probing: tokio::sync::Mutex::default(),
            pace: Mutex::default(),
        }
    }

    /// Makes one attempt at a call. `again` is the proof of the previous attempt, if this is not
    /// the first.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
    ) -> Result<Reply, Refusal> {
        let own = self.of_caller(outbound)?;
        match &*self.speaker().await? {
            Speaker::Modern(modern, _) => {
                if self.may_have_sessions(outbound.call.capabilities.class)
                    && let Some(spoken) =
                        Box::pin(self.call_in_session(outbound, own.as_ref())).await
                {
                    return spoken;
                }
                let newer = match again {
                    Some(ResendProof::HeaderMismatch) => {
                        let class = outbound
                            .call
                            .capabilities
                            .class
                            .cut(self.site.carries(modern.tongue));
                        self.site.list_changed(ListKinds::default());
                        // Without a newer definition the call is repeated unchanged.
                        Box::pin(modern.definition(class, &outbound.native))
                            .await
                            .unwrap_or_default()
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

    /// Returns the client of the caller's account, if calls are made in the name of callers.
    fn of_caller(&self, outbound: &OutboundCall) -> Result<Option<Http>, Failure> {
        self.credentials
            .as_ref()
            .map_or(Ok(None), |credentials| credentials.of_caller(outbound))
    }

    /// Opens the session for the calls of a client's session, if the server has sessions and no
    /// other session has to end for it. Failures are left to the first call.
    pub(crate) async fn welcome(&self, outbound: &OutboundCall) {
        let Ok(own) = self.of_caller(outbound) else {
            return;
        };
        let Ok(speaker) = self.speaker().await else {
            return;
        };
        let pool = match &*speaker {
            Speaker::Legacy(pool) => Some(pool.clone()),
            Speaker::Modern(..) if self.may_have_sessions(outbound.call.capabilities.class) => {
                self.second
                    .find(&self.site, &self.http, own.as_ref(), self.sharing)
                    .await
            }
            Speaker::Modern(..) | Speaker::Line(_) => None,
        };
        if let Some(pool) = pool
            && let Some(place) = pool.own_place(outbound)
        {
            let _opened_by_its_first_call = pool.session_at(&place, own.as_ref()).await;
        }
    }

    /// True if a client of this class is served in a session, provided the modern server has
    /// sessions.
    fn may_have_sessions(&self, class: CapabilityClass) -> bool {
        class.has(CapabilityClass::SESSIONS)
            && self.protocol == Protocol::Auto
            && !self.second.is_refused()
    }

    /// Returns the session pool of a modern server for clients of this class; absent unless the
    /// server is known to have sessions.
    fn second_for(&self, class: CapabilityClass) -> Option<Arc<Pool>> {
        self.second
            .known()
            .filter(|_| self.may_have_sessions(class))
    }

    /// Returns the session pool of the server, in either era.
    fn pool(&self) -> Option<Arc<Pool>> {
        match self.speaker.load().as_deref()? {
            Speaker::Legacy(pool) => Some(pool.clone()),
            Speaker::Modern(..) => self.second.known(),
            Speaker::Line(_) => None,
        }
    }

    /// Makes a call in a session of a server that speaks both eras. Absent if the call is to go
    /// over the bridge: the server has no sessions, opens no further one, or holds as many as
    /// allowed and the client has no capabilities.
    async fn call_in_session(
        &self,
        outbound: &OutboundCall,
        own: Option<&Http>,
    ) -> Option<Result<Reply, Refusal>> {
        let pool = self
            .second
            .find(&self.site, &self.http, own, self.sharing)
            .await?;
        let asked = outbound
            .call
            .capabilities
            .class
            .cut(pool.carries())
            .without(CapabilityClass::UI);
        let can_be_asked = asked != CapabilityClass::BASE;
        // A client without capabilities does not justify ending another client's session.
        let place = if can_be_asked {
            pool.place(outbound)
        } else {
            pool.free_place(outbound)
        };
        let Some(place) = place else {
            if can_be_asked {
                return Some(Err(pool.is_full()));
            }
            instruments().upstream_bridged.add(1, &[self.site.label()]);
            return None;
        };
        let session = match pool.session_at(&place, own).await {
            Ok(session) => session,
            Err(refusal) => {
                let Some(gone) = self.second.note(&refusal) else {
                    return Some(Err(refusal));
                };
                self.site.spawn(async move { gone.close().await });
                return None;
            }
        };
        Some(pool.call_in(&place, &session, outbound, own.cloned()).await)
    }

    /// Opens a watch. The server's description is fetched anew.
    pub(crate) async fn watch(
        &self,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, Refusal> {
        if matches!(self.speaker.load().as_deref(), Some(Speaker::Modern(..))) {
            self.doubt();
        }
        let second = self.second_for(class);
        let pool = match (&*self.speaker().await?, second) {
            (Speaker::Modern(modern, about), None) => {
                let class = class.cut(self.site.carries(modern.tongue));
                return Ok(Box::new(
                    HttpWatch::modern(modern.clone(), about.clone(), class).await?,
                ));
            }
            (Speaker::Line(line), _) => return line.watch(class).await,
            (Speaker::Modern(..), Some(pool)) => pool,
            (Speaker::Legacy(pool), _) => pool.clone(),
        };
        let session = pool.apart(class.cut(pool.carries())).await?;
        Ok(Box::new(
            HttpWatch::legacy(self.site.clone(), session).await,
        ))
    }

    /// Opens a subscription to updates of single resources.
    pub(crate) async fn updates(&self) -> Result<Box<dyn ResourceUpdates>, Refusal> {
        match &*self.speaker().await? {
            Speaker::Modern(modern, _) => Ok(Box::new(HttpUpdates::modern(modern.clone()))),
            Speaker::Legacy(pool) => {
                let session = pool.apart(CapabilityClass::BASE).await?;
                Ok(Box::new(
                    HttpUpdates::legacy(self.site.clone(), session).await?,
                ))
            }
            Speaker::Line(line) => line.updates().await,
        }
    }

    /// Subscribes to a task's status; absent if the server has no such subscription.
    pub(crate) async fn follow(&self, outbound: &OutboundCall) -> Option<TaskNotifications> {
        let own = self.of_caller(outbound).ok()?;
        match (&*self.speaker().await.ok()?, own) {
            // In a session a server sends no status of a task.
            (Speaker::Modern(..), _)
                if self.second_for(outbound.call.capabilities.class).is_some() =>
            {
                None
            }
            (Speaker::Modern(modern, _), None) => updates::follow(modern, outbound).await,
            (Speaker::Modern(modern, _), Some(own)) => {
                updates::follow(&modern.by(own), outbound).await
            }
            (Speaker::Line(line), None) => line.follow(outbound).await,
            (Speaker::Legacy(_), _) | (Speaker::Line(_), Some(_)) => None,
        }
    }

    /// Marks the server as possibly replaced: it is probed before the next request.
    pub(crate) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Release);
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
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
            Some(Speaker::Line(line)) => line.processes(),
            _ => self.pool().map_or(0, |pool| pool.len()),
        }
    }

    /// Returns the server's revision for a client of this class, once it is known.
    pub(crate) fn revision_for(&self, class: CapabilityClass) -> Option<&'static str> {
        let second = self.second_for(class).and_then(|pool| pool.revision());
        second.map(Revision::as_str).or_else(|| self.revision())
    }

    /// Returns the revision of its other era, if it is known to speak both.
    pub(crate) fn second_revision(&self) -> Option<&'static str> {
        self.second.known()?.revision().map(Revision::as_str)
    }

    /// Forwards news of client sessions.
    pub(crate) fn tell(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        if let Some(Speaker::Line(line)) = self.speaker.load().as_deref() {
            line.tell(sessions, news);
        } else if let Some(pool) = self.pool() {
            pool.tell(sessions, news);
        }
    }

    /// Implements [`weir_core::upstream::Upstream::export_sessions`].
    pub(crate) fn export_sessions(&self) -> Vec<HandoverSession> {
        let sessions = self
            .pool()
            .map(|pool| pool.export())
            .unwrap_or_default()
            .into_iter();
        sessions
            .map(|description| HandoverSession {
                description,
                descriptors: Vec::new(),
            })
            .collect()
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`].
    pub(crate) fn import_session(&self, session: &[u8]) {
        self.imported.add(session);
        if let Some(pool) = self.pool() {
            pool.import(&self.imported);
        }
    }

    /// Ends the sessions.
    pub(crate) async fn close(&self) {
        if let Some(Speaker::Line(line)) = self.speaker.load_full().as_deref() {
            line.close().await;
        } else if let Some(pool) = self.pool() {
            pool.close().await;
        }
    }

    /// Returns the transport and era of the server, probed if unknown. Single-flight.
    async fn speaker(&self) -> Result<Arc<Speaker>, Refusal> {
        match self.known() {
            Some(speaker) => Ok(speaker),
            // Boxed, like every rare part of a call: a call's future is built, moved and kept in
            // its largest form.
            None => Box::pin(self.find()).await,
        }
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
}
