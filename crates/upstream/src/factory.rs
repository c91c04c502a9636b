//! Makes upstreams out of settings. Holds what all of them share: the ports, weir's own identity, the machine's roots.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::BodyExt;
use weir_core::names::UpstreamId;
use weir_core::port::{Clock, Fetch, Fut, Random};
use weir_core::upstream::{Deadlines, Upstream};
use weir_core::{Failure, FailureKind};
use weir_wire::write::ObjectWriter;

use crate::server::{Line, Server};
use crate::settings::{HttpSettings, Settings, Transport};
use crate::site::Site;
use crate::stdio::StdioServer;
use crate::streamable::{Http, HttpServer, Roots, TlsError};

/// What upstreams need of the world.
#[derive(Clone)]
pub struct Ports {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes, for jitter.
    pub random: Arc<dyn Random>,
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
        ObjectWriter::new(&mut out).string("name", name).string("version", version).end();
        let agent = HeaderValue::try_from(format!("{name}/{version}"));
        Self { client_info: out.freeze(), agent: agent.unwrap_or(HeaderValue::from_static("weir")) }
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
}

impl Factory {
    /// Reads the machine's root certificates; everything else is as given.
    #[must_use]
    pub fn new(ports: Ports, identity: Identity) -> Self {
        Self { ports, identity, roots: Roots::native() }
    }

    /// Makes one upstream. Opens and starts nothing: that happens with the first call or watch.
    ///
    /// # Errors
    /// The certificate file in the settings is not usable.
    pub fn build(&self, settings: Settings) -> Result<Arc<dyn Upstream>, BuildError> {
        let Settings { id, transport, protocol, session, bounds, connect } = settings;
        let site = Arc::new(Site::new(id.clone(), bounds, &self.ports, self.identity.client_info.clone()));
        let line = match transport {
            Transport::Http(settings) => {
                let http = self.http(&settings, connect).map_err(|why| BuildError { id, why })?;
                Line::Http(Box::new(HttpServer::new(site.clone(), http, protocol, session)))
            }
            Transport::Stdio(settings) => {
                Line::Stdio(Box::new(StdioServer::new(site.clone(), settings, protocol, session)))
            }
        };
        Ok(Arc::new(Server::new(site, line)))
    }

    fn http(&self, settings: &HttpSettings, connect: Duration) -> Result<Http, TlsError> {
        Http::new(settings, connect, &self.identity.agent, &self.roots)
    }

    async fn document(&self, url: &str, limit: usize) -> Result<Bytes, Failure> {
        let unavailable = |text: &'static str| Failure::new(FailureKind::Unavailable, text);
        let uri: Uri = url.parse().map_err(|_| unavailable("The document's URL is not valid"))?;
        let settings = HttpSettings { url: uri, headers: Vec::new(), ca_file: None, h2c: false };
        let http = self
            .http(&settings, Deadlines::LIST.connect)
            .map_err(|error| unavailable("The document cannot be fetched").because(error))?;
        let response = http
            .send(Method::GET, [], Bytes::new())
            .await
            .map_err(|error| unavailable("The document's server cannot be reached").because(error.source))?;
        if response.status() != StatusCode::OK {
            let text = format!("The document's server answered HTTP {}", response.status().as_u16());
            return Err(Failure::new(FailureKind::BadAnswer, text));
        }
        match http_body_util::Limited::new(response.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => {
                Err(Failure::new(FailureKind::BadAnswer, "The document is too large or broke off").because(error))
            }
        }
    }
}

impl Fetch for Factory {
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> Fut<'a, Result<Bytes, Failure>> {
        Box::pin(async move {
            match tokio::time::timeout(Deadlines::LIST.hard, self.document(url, limit)).await {
                Ok(document) => document,
                Err(_) => Err(Failure::new(FailureKind::TimedOut, "The document did not come in time")),
            }
        })
    }
}

impl std::fmt::Debug for Factory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Factory").field("identity", &self.identity).finish_non_exhaustive()
    }
}
