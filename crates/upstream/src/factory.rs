//! Makes upstreams out of settings. Holds what all of them share: the ports, weir's own identity,
//! the machine's roots.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use weir_core::bell::Bells;
use weir_core::catalog::SessionListTable;
use weir_core::names::UpstreamId;
use weir_core::port::{Ask, Clock, Fetch, Fetched, Fut, Post, Random};
use weir_core::upstream::{Deadlines, Upstream};
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

/// What upstreams need of the world.
#[derive(Clone)]
pub struct Ports {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes, for jitter.
    pub random: Arc<dyn Random>,
    /// Where clients hear what servers say outside of their calls.
    pub bells: Arc<Bells>,
    /// What is known of the lists of single sessions.
    pub session_lists: Arc<SessionListTable>,
    /// The process that starts stdio servers and ends them with weir.
    pub keeper: Arc<Keeper>,
    /// What the process may use as a whole.
    pub budgets: Budgets,
}

/// Who weir says it is, to every server: never the client's own name.
#[derive(Clone, Debug)]
pub struct Identity {
    client_info: Bytes,
    agent: HeaderValue,
}

impl Identity {
    /// A name and a version: of letters, digits, dots and dashes.
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

/// An upstream cannot be made of its settings.
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
    /// Reads the machine's root certificates; everything else is as given.
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

    /// Makes one upstream. Opens and starts nothing: that happens with the first call or watch.
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
                    let fetch: Arc<dyn Fetch> = self.fetcher.clone();
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

    /// Makes what posts documents to the URL of `settings`. Opens nothing before the first.
    ///
    /// # Errors
    /// The certificate file in the settings is not usable.
    pub fn poster(&self, settings: &HttpSettings) -> Result<Arc<dyn Post>, TlsError> {
        Ok(Arc::new(Poster(
            self.http(settings, Deadlines::LIST.connect)?,
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

impl Fetch for Factory {
    fn fetch<'a>(&'a self, ask: Ask<'a>) -> Fut<'a, Result<Fetched, Failure>> {
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
