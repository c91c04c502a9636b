//! Makes upstreams out of settings. Holds what all of them share: the ports, weir's own identity, the machine's roots.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::BodyExt;
use weir_core::names::UpstreamId;
use weir_core::port::{Ask, Clock, Fetch, Fetched, Fut, NamedBy, Random};
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

    async fn document(&self, ask: Ask<'_>) -> Result<Fetched, Failure> {
        let unavailable = |text: &'static str| Failure::new(FailureKind::Unavailable, text);
        if ask.named_by == NamedBy::Outsider {
            return Err(unavailable("URLs that an outsider names are not fetched"));
        }
        let url: Uri = ask.url.parse().map_err(|_| unavailable("The document's URL is not valid"))?;
        let settings = HttpSettings { url, headers: Vec::new(), ca_file: None, h2c: false };
        let http = self
            .http(&settings, Deadlines::LIST.connect)
            .map_err(|error| unavailable("The document cannot be fetched").because(error))?;
        let mut headers = Vec::new();
        if let Some(authorization) = ask.authorization {
            let value = HeaderValue::try_from(authorization.expose())
                .map_err(|_| unavailable("The credentials are no header value"))?;
            headers.push((header::AUTHORIZATION, value));
        }
        let (method, body) = match ask.form {
            None => (Method::GET, Bytes::new()),
            Some(form) => {
                let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
                headers.push((header::CONTENT_TYPE, kind));
                (Method::POST, Bytes::copy_from_slice(form.expose().as_bytes()))
            }
        };
        headers.push((header::ACCEPT, HeaderValue::from_static("application/json")));
        let response = http
            .send(method, headers, body)
            .await
            .map_err(|error| unavailable("The document's server cannot be reached").because(error.source))?;
        let (status, max_age) = (response.status().as_u16(), max_age(response.headers()));
        match http_body_util::Limited::new(response.into_body(), ask.limit).collect().await {
            Ok(body) => Ok(Fetched { status, max_age, body: body.to_bytes() }),
            Err(error) => {
                Err(Failure::new(FailureKind::BadAnswer, "The document is too large or broke off").because(error))
            }
        }
    }
}

/// `max-age` of `Cache-Control`, unless the answer must not be kept at all (RFC 9111, 5.2.2).
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    if directives.iter().any(|word| word.eq_ignore_ascii_case("no-store") || word.eq_ignore_ascii_case("no-cache")) {
        return Some(Duration::ZERO);
    }
    let (_, seconds) = directives
        .iter()
        .filter_map(|word| word.split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("max-age"))?;
    seconds.trim_matches('"').parse().ok().map(Duration::from_secs)
}

impl Fetch for Factory {
    fn fetch<'a>(&'a self, ask: Ask<'a>) -> Fut<'a, Result<Fetched, Failure>> {
        Box::pin(async move {
            match tokio::time::timeout(ask.within, self.document(ask)).await {
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
