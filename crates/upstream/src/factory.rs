//! Makes upstreams from settings. Holds the parts that all of them share: the ports, weir's own
//! identity, the machine's root certificates.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use weir_core::catalog::SessionListTable;
use weir_core::names::UpstreamId;
use weir_core::port::{
    Clock, DocumentFetcher, DocumentPoster, FetchRequest, FetchResponse, Fut, Random,
};
use weir_core::session_notifier::SessionNotifier;
use weir_core::upstream::{CallDeadlines, Upstream};
use weir_core::{Budgets, Failure};
use weir_wire::write::ObjectWriter;

use crate::credential::Credentials;
use crate::fetch::Fetcher;
use crate::keeper::Keeper;
use crate::mask::SecretMask;
use crate::post::Poster;
use crate::server::{Line, Server};
use crate::settings::{HttpSettings, Settings, Transport};
use crate::site::Site;
use crate::stdio::{Origin, StdioServer};
use crate::streamable::{Http, HttpServer, Roots, TlsError};

/// The ports that upstreams use.
#[derive(Clone)]
pub struct Ports {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes, for jitter.
    pub random: Arc<dyn Random>,
    /// The notifiers of client sessions, for messages of servers outside of calls.
    pub bells: Arc<SessionNotifier>,
    /// The known lists of single sessions.
    pub session_lists: Arc<SessionListTable>,
    /// The process that starts stdio servers and ends them with weir.
    pub keeper: Arc<Keeper>,
    /// The budgets of the whole process.
    pub budgets: Budgets,
}

/// The name and version of weir that every server gets, never the client's own.
#[derive(Clone, Debug)]
pub struct Identity {
    client_info: Bytes,
    agent: HeaderValue,
}

impl Identity {
    /// Makes an identity of a name and a version: of letters, digits, dots and dashes.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        let mut out = BytesMut::new();
        ObjectWriter::new(&mut out)
            .string("name", name)
            .string("version", version)
            .end();
        let agent = HeaderValue::try_from(format!("{name}/{version}"));
        Self {
            client_info: out.freeze(),
            agent: agent.unwrap_or(HeaderValue::from_static("weir")),
        }
    }
}

/// An upstream cannot be made from its settings.
#[derive(Debug, thiserror::Error)]
#[error("upstream {id}: {why}")]
pub struct BuildError {
    id: UpstreamId,
    #[source]
    why: TlsError,
}

/// Makes upstreams.
pub struct Factory {
    ports: Ports,
    identity: Identity,
    roots: Roots,
    fetcher: Arc<Fetcher>,
}

impl Factory {
    /// Makes a factory and reads the machine's root certificates.
    #[must_use]
    pub fn new(ports: Ports, identity: Identity) -> Self {
        let roots = Roots::native();
        let fetcher = Arc::new(Fetcher::new(identity.agent.clone(), &roots));
        Self {
            ports,
            identity,
            roots,
            fetcher,
        }
    }

    /// Makes one upstream. Connections and processes are started with its first call or watch.
    ///
    /// # Errors
    /// The certificate file in the settings is not usable.
    pub fn build(&self, settings: Settings) -> Result<Arc<dyn Upstream>, BuildError> {
        let Settings {
            id,
            transport,
            protocol,
            session,
            asks,
            visits,
            baggage,
            bounds,
            connect,
            own,
        } = settings;
        let client_info = self.identity.client_info.clone();
        let mask = SecretMask::of(&transport);
        let advice = match &transport {
            Transport::Http(http) => http.auth.as_ref().and_then(|auth| auth.advice()),
            Transport::Stdio(_) => None,
        };
        let site = Site::new(
            id.clone(),
            (bounds, own),
            (asks, visits),
            &self.ports,
            client_info,
        );
        let site = Arc::new(site.masking(mask).advising(advice));
        let line = match transport {
            Transport::Http(settings) => {
                let http = self
                    .http(&settings, connect)
                    .map_err(|why| BuildError { id, why })?;
                let credentials = settings.auth.map(|auth| {
                    let fetch: Arc<dyn DocumentFetcher> = self.fetcher.clone();
                    Credentials::new(&site, http.clone(), fetch, *auth)
                });
                Line::Http(Box::new(HttpServer::new(
                    site.clone(),
                    http,
                    credentials,
                    protocol,
                    session,
                )))
            }
            Transport::Stdio(settings) => Line::Stdio(Arc::new(StdioServer::new(
                site.clone(),
                Origin::Process(settings, self.ports.keeper.clone()),
                protocol,
                session,
            ))),
        };
        Ok(Arc::new(Server::new(site, line, baggage)))
    }

    /// Makes a client that posts documents to the URL of `settings`. Connects with the first one.
    ///
    /// # Errors
    /// The certificate file in the settings is not usable.
    pub fn poster(&self, settings: &HttpSettings) -> Result<Arc<dyn DocumentPoster>, TlsError> {
        Ok(Arc::new(Poster(
            self.http(settings, CallDeadlines::LIST.connect)?,
        )))
    }

    fn http(&self, settings: &HttpSettings, connect: Duration) -> Result<Http, TlsError> {
        Http::new(
            settings,
            connect,
            &self.identity.agent,
            &self.roots,
            &self.ports.budgets,
        )
    }
}

impl DocumentFetcher for Factory {
    fn fetch<'a>(&'a self, ask: FetchRequest<'a>) -> Fut<'a, Result<FetchResponse, Failure>> {
        self.fetcher.fetch(ask)
    }
}

impl std::fmt::Debug for Factory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Factory")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
