//! Makes upstreams from settings. Holds the parts that all of them share: the ports, weir's own
//! identity, the machine's root certificates.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Uri};
use weir_core::Failure;
use weir_core::names::UpstreamId;
use weir_core::port::{BoxFuture, DocumentFetcher, DocumentPoster, FetchRequest, FetchResponse};
use weir_core::upstream::{CallDeadlines, Upstream};
use weir_http_client::{
    Fetcher, ForwardProxy, HttpClient, HttpServer, Poster, RootCertificates, TlsError,
};
use weir_oauth_client::{AuthorizedHttpClient, TokenContext, UpstreamCredentials};
use weir_upstream_core::lease_fence::LeaseFence;
use weir_upstream_core::settings::{SessionSharing, UpstreamProtocol};
use weir_upstream_core::upstream_context::{ContextSettings, UpstreamContext};
use weir_upstream_http::HttpUpstream;
use weir_upstream_stdio::{ChildSource, StdioUpstream};
use weir_wire::write::ObjectWriter;

use crate::called_server::CalledServer;
use crate::instances::instance_name::InstanceName;
use crate::instances::{ServerInstance, ServerInstances};
use crate::ports::UpstreamPorts;
use crate::server_transport::ServerTransport;
use crate::settings::{HttpUpstreamSettings, TransportSettings, UpstreamSettings};
use crate::single_server::SingleServer;
use crate::upstream_service::UpstreamService;

/// The name and version of weir that every server gets, never the client's own.
#[derive(Clone, Debug)]
pub struct ClientImplementation {
    client_info: Bytes,
    agent: HeaderValue,
}

impl ClientImplementation {
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
pub struct UpstreamBuildError {
    id: UpstreamId,
    #[source]
    why: TlsError,
}

/// Makes upstreams.
pub struct UpstreamFactory {
    ports: UpstreamPorts,
    identity: ClientImplementation,
    roots: RootCertificates,
    fetcher: Arc<Fetcher>,
    forward_proxy: Option<Arc<ForwardProxy>>,
}

impl UpstreamFactory {
    /// Makes a factory and reads the machine's root certificates.
    #[must_use]
    pub fn new(ports: UpstreamPorts, identity: ClientImplementation) -> Self {
        let roots = RootCertificates::native();
        let fetcher = Arc::new(Fetcher::new(identity.agent.clone(), &roots, None));
        Self {
            ports,
            identity,
            roots,
            fetcher,
            forward_proxy: None,
        }
    }

    /// Sends the requests of all upstreams and of the clients for documents through a forward
    /// proxy, if there is one.
    #[must_use]
    pub fn with_forward_proxy(mut self, proxy: Option<Arc<ForwardProxy>>) -> Self {
        let agent = self.identity.agent.clone();
        self.fetcher = Arc::new(Fetcher::new(agent, &self.roots, proxy.clone()));
        self.forward_proxy = proxy;
        self
    }

    /// Makes one upstream. Connections and processes are started with its first call or watch.
    ///
    /// # Errors
    /// The certificate file in the settings is not usable.
    pub fn build(
        &self,
        settings: UpstreamSettings,
    ) -> Result<Arc<dyn Upstream>, UpstreamBuildError> {
        self.build_behind(settings, None)
    }

    /// Makes one upstream with child processes that write behind a fence, as long as this replica
    /// alone runs them.
    ///
    /// # Errors
    /// As for [`Self::build`].
    pub fn build_behind(
        &self,
        settings: UpstreamSettings,
        fence: Option<Arc<LeaseFence>>,
    ) -> Result<Arc<dyn Upstream>, UpstreamBuildError> {
        let UpstreamSettings {
            id,
            transport,
            protocol,
            session,
            client_capabilities,
            allows_url_elicitation,
            baggage,
            bounds,
            connect,
            own_deadlines,
        } = settings;
        let credential_advice = match &transport {
            TransportSettings::Http(http) => http.auth.as_ref().and_then(|auth| auth.advice()),
            TransportSettings::Stdio(_) => None,
        };
        let shared = ContextSettings {
            id: id.clone(),
            bounds,
            own_deadlines,
            client_capabilities,
            allows_url_elicitation,
            mask: transport.secret_mask(),
            credential_advice,
            client_info: self.identity.client_info.clone(),
            fence,
        };
        let context = Arc::new(UpstreamContext::new(
            shared.clone(),
            self.ports.of_context(),
        ));
        let server = match transport {
            TransportSettings::Http(http) => {
                let parts = HttpServerParts {
                    shared,
                    protocol,
                    session,
                    connect,
                };
                self.http_server(&context, &http, &parts)
                    .map_err(|why| UpstreamBuildError { id, why })?
            }
            TransportSettings::Stdio(settings) => {
                let child = StdioUpstream::new(
                    context.clone(),
                    ChildSource::Process(settings, self.ports.keeper.clone()),
                    protocol,
                    session,
                );
                let transport = ServerTransport::Stdio(Arc::new(child));
                CalledServer::One(SingleServer::new(context, transport, None))
            }
        };
        Ok(Arc::new(UpstreamService::new(server, baggage)))
    }

    /// Makes a server behind one URL or several.
    fn http_server(
        &self,
        context: &Arc<UpstreamContext>,
        settings: &HttpUpstreamSettings,
        parts: &HttpServerParts,
    ) -> Result<CalledServer, TlsError> {
        let first = self.http(settings, &settings.url, parts.connect)?;
        let credentials = settings.auth.clone().map(|auth| {
            let fetch: Arc<dyn DocumentFetcher> = self.fetcher.clone();
            let context = TokenContext {
                label: context.label.clone(),
                clock: context.clock.clone(),
                tasks: context.tasks.clone(),
                request_ids: context.request_ids.clone(),
            };
            UpstreamCredentials::new(context, first.clone(), fetch, *auth)
        });
        if settings.instances.is_empty() {
            let server = parts.upstream(context.clone(), first, credentials);
            let transport = ServerTransport::Http(Box::new(server));
            let name = InstanceName::of(&settings.url);
            let server = SingleServer::new(context.clone(), transport, Some(name));
            return Ok(CalledServer::One(server));
        }
        let mut all = Vec::with_capacity(settings.instances.len());
        for instance in &settings.instances {
            let http = self.http(settings, &instance.url, parts.connect)?;
            let own = Arc::new(context.of_instance(parts.shared.clone(), self.ports.of_context()));
            let credentials = credentials
                .as_ref()
                .map(|all| all.at_instance(http.clone()));
            let server = Box::new(parts.upstream(own.clone(), http, credentials));
            all.push(Arc::new(ServerInstance::new(own, server, instance)));
        }
        Ok(CalledServer::Several(ServerInstances::new(
            context.clone(),
            all,
        )))
    }

    /// Makes a client that posts documents to the URL of `settings`. Connects with the first one.
    ///
    /// # Errors
    /// The certificates in the settings make no usable verifier.
    pub fn document_poster(
        &self,
        settings: &HttpUpstreamSettings,
    ) -> Result<Arc<dyn DocumentPoster>, TlsError> {
        Ok(Arc::new(Poster::new(self.http(
            settings,
            &settings.url,
            CallDeadlines::LIST.connect,
        )?)))
    }

    fn http(
        &self,
        settings: &HttpUpstreamSettings,
        url: &Uri,
        connect: Duration,
    ) -> Result<HttpClient, TlsError> {
        let headers = settings.headers.iter();
        let server = HttpServer {
            url: url.clone(),
            headers: headers
                .map(|(name, value)| (name.clone(), value.expose().clone()))
                .collect(),
            ca_file: settings.ca_file.as_ref(),
            h2c: settings.h2c,
            forward_proxy: self.forward_proxy.clone(),
        };
        HttpClient::new(
            server,
            connect,
            &self.identity.agent,
            &self.roots,
            &self.ports.budgets,
        )
    }
}

/// The settings that all instances of a server share.
struct HttpServerParts {
    shared: ContextSettings,
    protocol: UpstreamProtocol,
    session: SessionSharing,
    connect: Duration,
}

impl HttpServerParts {
    fn upstream(
        &self,
        context: Arc<UpstreamContext>,
        http: HttpClient,
        credentials: Option<UpstreamCredentials>,
    ) -> HttpUpstream {
        let http = AuthorizedHttpClient::without_token(http);
        HttpUpstream::new(context, http, credentials, self.protocol, self.session)
    }
}

impl DocumentFetcher for UpstreamFactory {
    fn fetch<'a>(&'a self, ask: FetchRequest<'a>) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
        self.fetcher.fetch(ask)
    }
}

impl std::fmt::Debug for UpstreamFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamFactory")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
