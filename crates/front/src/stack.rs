//! The stack of layers that every request passes, outermost first, in one file.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body::Body as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Layer as _, ServiceExt as _};
use tower_http::cors::{AllowOrigin, CorsLayer};
use weir_core::budget::{
    BudgetOwner, ByteBudget, ByteReservation, ConnectionSide, DescriptorPermit,
};
use weir_core::call::{RequestName, TraceContext};
use weir_core::fast::FastMap;
use weir_core::hold::HoldShare;
use weir_core::network::SenderNetwork;
use weir_core::seal::Sealer;
use weir_core::telemetry::instruments;
use weir_core::{Authenticated, Budgets, Catalog, EndpointId, Router};
use weir_era::lift;
use weir_era::render::WeirIdentity;

use crate::FrontPorts;
use crate::answer::RequestRefusal;
use crate::body::RequestBody;
use crate::client_address::client_address;
use crate::endpoint_meters::{EndpointMeters, HttpLabels};
use crate::head_guard::HeadGuard;
use crate::header_names;
use crate::help_page;
use crate::in_flight::{InFlightLimit, InFlightPermit};
use crate::known_clients::KnownClients;
use crate::listen::ClientPeer;
use crate::lists::PageCache;
use crate::memory_pressure::{CurrentPressure, MemoryPressure};
use crate::observe::{self, HttpAnswer, ObservedAnswer};
use crate::permits::StreamPermits;
use crate::request_body;
use crate::sessions::LegacySessions;
use crate::settings::{FrontLimits, FrontSettings};
use crate::sse_transport::{self, SseConnections};
use crate::stream_registry::StreamRegistry;
use crate::well_known_documents::WellKnownDocuments;

/// The state that survives a reload.
pub(crate) struct FrontState {
    pub(crate) ports: FrontPorts,
    pub(crate) router: Arc<Router>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) sealer: Sealer,
    pub(crate) sessions: LegacySessions,
    pub(crate) pages: PageCache,
    /// The budget for parts of large results that must be held.
    pub(crate) hold_budget: HoldShare,
    /// The name of the next request.
    next_request_name: AtomicU64,
    /// Requests without the beginning of an answer.
    in_flight: InFlightLimit,
    /// The current memory pressure.
    pub(crate) memory_pressure: CurrentPressure,
    /// Permits for open listen and GET streams.
    pub(crate) stream_permits: Arc<StreamPermits>,
    /// Permits for resources that clients subscribed to.
    pub(crate) subscription_permits: Arc<StreamPermits>,
    /// Open streams, by their owners.
    pub(crate) open_streams: Arc<StreamRegistry>,
    /// Client programs that have used weir.
    pub(crate) known_clients: KnownClients,
    /// Connections of HTTP+SSE clients.
    pub(crate) sse_connections: Arc<SseConnections>,
    /// Tasks of calls that outlived the connection of their legacy client.
    pub(crate) detached_tasks: TaskTracker,
    /// Tasks that receive cancellations and clear sessions away. They run on while calls are
    /// drained.
    pub(crate) background_tasks: TaskTracker,
    pub(crate) drain: CancellationToken,
    pub(crate) force: CancellationToken,
}

impl FrontState {
    pub(crate) fn new(ports: FrontPorts, router: Arc<Router>, sealer: Sealer) -> Arc<Self> {
        let mut first = [0; 8];
        ports.random.fill(&mut first);
        Arc::new(Self {
            sessions: LegacySessions::new(&ports),
            hold_budget: HoldShare::new(ports.budgets.hold.clone()),
            next_request_name: AtomicU64::new(u64::from_ne_bytes(first)),
            ports,
            catalog: router.catalog().clone(),
            router,
            sealer,
            pages: PageCache::default(),
            in_flight: InFlightLimit::default(),
            memory_pressure: CurrentPressure::default(),
            stream_permits: Arc::default(),
            subscription_permits: Arc::default(),
            open_streams: Arc::default(),
            known_clients: KnownClients::default(),
            sse_connections: Arc::default(),
            detached_tasks: TaskTracker::new(),
            background_tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
            force: CancellationToken::new(),
        })
    }

    /// Starts the tasks that listen to other replicas and clear expired sessions away. They end
    /// after the drain, because clients may still cancel calls during it.
    pub(crate) fn start(self: &Arc<Self>) {
        let work = crate::sessions::run_upkeep(self.clone());
        self.background_tasks
            .spawn(self.force.clone().run_until_cancelled_owned(work));
    }

    pub(crate) fn request_name(&self) -> RequestName {
        // A name tells requests apart and grants no access. So an unguessable start and fixed steps
        // are enough, without a system call. The odd step visits every number once.
        RequestName::from_bits(
            self.next_request_name
                .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed),
        )
    }
}

/// The context of one request, from the stack that it began on.
#[derive(Clone)]
pub(crate) struct HttpRequestContext {
    pub(crate) shared: Arc<FrontState>,
    pub(crate) settings: Arc<FrontSettings>,
    pub(crate) about: Arc<WeirIdentity>,
    pub(crate) endpoint: EndpointId,
    pub(crate) name: RequestName,
    pub(crate) peer: ClientPeer,
    /// The client's address: the peer's own, or the one a trusted proxy reports.
    pub(crate) client_address: IpAddr,
    /// The trace context of the head. A trace context in `_meta` takes precedence.
    pub(crate) trace: TraceContext,
    /// The metrics of the endpoint.
    pub(crate) meters: Arc<EndpointMeters>,
    /// True if the answer goes to an HTTP+SSE stream that it shares with others: it cannot be
    /// resumed.
    pub(crate) is_over_http_sse: bool,
}

impl HttpRequestContext {
    pub(crate) fn limits(&self) -> &FrontLimits {
        &self.settings.limits
    }

    /// An empty reservation in the budget of all bodies, owned by this principal.
    pub(crate) fn bodies(&self, known: &Authenticated<()>) -> ByteReservation {
        self.shared.ports.budgets.bodies.empty_of(self.owner(known))
    }

    /// The owner of memory that is held for the request and its answer.
    pub(crate) fn owner(&self, known: &Authenticated<()>) -> BudgetOwner {
        BudgetOwner::of(known.principal(), self.client_address)
    }
}

/// A request, on the heap: a future that takes it by value would hold and copy it at every layer.
pub(crate) struct IncomingRequest {
    pub(crate) head: Parts,
    /// Taken by the layer that reads it.
    pub(crate) body: Option<RequestBody>,
    /// Taken by a layer that answers outside of the response to this request.
    pub(crate) permit: Option<InFlightPermit>,
    peer: ClientPeer,
}

impl IncomingRequest {
    pub(crate) fn new(request: Request<RequestBody>, peer: ClientPeer) -> Box<Self> {
        let (head, body) = request.into_parts();
        Box::new(Self {
            head,
            body: Some(body),
            permit: None,
            peer,
        })
    }

    /// The network of the peer, as a budget owner: the principal is not known yet.
    pub(crate) fn network_owner(&self) -> BudgetOwner {
        BudgetOwner::Network(SenderNetwork::of(self.peer.address))
    }
}

/// The stack of layers, for one set of settings and endpoints.
pub(crate) struct FrontStack {
    settings: Arc<FrontSettings>,
    shared: Arc<FrontState>,
    keeper: HeadGuard,
    about: Arc<WeirIdentity>,
    paths: FastMap<Box<str>, (EndpointId, Arc<EndpointMeters>)>,
    well_known: WellKnownDocuments,
    cors: Option<CorsLayer>,
}

impl FrontStack {
    pub(crate) fn new(
        settings: FrontSettings,
        address: SocketAddr,
        shared: Arc<FrontState>,
    ) -> Self {
        let settings = Arc::new(settings);
        let keeper = HeadGuard::new(&settings, address);
        let about = Arc::new(WeirIdentity {
            server_info: crate::answer::server_info(&settings.server),
        });
        let endpoints = shared.catalog.endpoints();
        let served = |id: &EndpointId| (id.clone(), EndpointMeters::of(id));
        let paths = endpoints
            .iter()
            .map(|endpoint| (endpoint.id.as_str().into(), served(&endpoint.id)))
            .collect();
        let well_known = WellKnownDocuments::new(
            settings.oauth.as_ref(),
            endpoints.iter().map(|endpoint| &endpoint.id),
        );
        let cors = cors_layer(&settings);
        Self {
            settings,
            shared,
            keeper,
            about,
            paths,
            well_known,
            cors,
        }
    }

    pub(crate) fn limits(&self) -> &FrontLimits {
        &self.settings.limits
    }

    pub(crate) fn drain(&self) -> &CancellationToken {
        &self.shared.drain
    }

    /// The memory of messages that wait for their receiver.
    pub(crate) fn messages(&self) -> &ByteBudget {
        &self.shared.ports.budgets.messages
    }

    /// A descriptor for a client's connection; `None` if the rest is reserved for other uses.
    pub(crate) fn descriptor(&self) -> Option<DescriptorPermit> {
        self.shared
            .ports
            .budgets
            .descriptors
            .take(ConnectionSide::Front)
    }

    /// The memory and descriptors that the whole process may use.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.shared.ports.budgets
    }

    /// Serves one request. Layer 1, listen, is above this.
    pub(crate) async fn serve(
        self: Arc<Self>,
        mut arrival: Box<IncomingRequest>,
    ) -> Result<ObservedAnswer, Infallible> {
        let beat = arrival.peer.pulse.begin_request();
        // 2 observe: sees the status the client got.
        let name = self.shared.request_name();
        let version = arrival.head.version;
        let http = HttpLabels::of(&arrival.head.method, version, arrival.peer.secure);
        let seen = observe::observe_request(name.clone(), beat, http);
        // 4 shed: first of all checks, outside authentication, because a refusal must cost little.
        // A request that ends a session passes, because it gives memory back.
        let shortage = self.shared.memory_pressure.get();
        let is_short =
            shortage == MemoryPressure::Acute && arrival.head.method != http::Method::DELETE;
        let limits = self.limits();
        arrival.permit = match is_short {
            true => None,
            false => {
                self.shared
                    .in_flight
                    .acquire(limits.in_flight, limits.in_flight_wait)
                    .await
            }
        };
        let mut answer = if arrival.permit.is_some() {
            self.serve_with_permit(&mut arrival, name).await
        } else {
            crate::answer::overloaded()
        };
        // The answer is encoded, or its stream begins. The rest of it waits for the client, and
        // must not keep other requests out.
        arrival.permit = None;
        if version <= http::Version::HTTP_11 {
            // A request refused by its head has an unread body. The connection must not end without
            // a response while the client's next request is on it.
            let unread = arrival.body.filter(|body| !body.is_end_stream());
            let in_step = match unread {
                Some(body) => request_body::discard_body(body).await,
                None => true,
            };
            let is_last = shortage > MemoryPressure::None || self.shared.drain.is_cancelled();
            if is_last || !in_step {
                answer
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
        }
        Ok(seen.finish(answer))
    }

    /// Serves a request that has its in-flight permit.
    async fn serve_with_permit(
        &self,
        arrival: &mut IncomingRequest,
        name: RequestName,
    ) -> HttpAnswer {
        // HTTP/1.1 is held to this limit by the parser of heads, HTTP/2 is not.
        if arrival.head.headers.len() > self.limits().headers {
            let (status, text) = (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too many header lines",
            );
            return RequestRefusal::new(status, "headers", text).into_answer();
        }
        // 5 guard, its first half: a foreign page reaches no path and no preflight. Documents that
        // every page may read stand before the check of the origin.
        if let Some(answer) = self.well_known.answer(&arrival.head) {
            return self
                .keeper
                .check_host(&arrival.head)
                .map_or_else(RequestRefusal::into_answer, |()| answer);
        }
        if let Err(refusal) = self.keeper.check_sender(&arrival.head) {
            return refusal.into_answer();
        }
        // 3 rescue: a panic ends this request alone.
        match AssertUnwindSafe(self.serve_with_cors(arrival, name.clone()))
            .catch_unwind()
            .await
        {
            Ok(answer) => answer,
            Err(_) => {
                instruments().panics.add(1, &[]);
                crate::rescue::internal_error_answer(&name)
            }
        }
    }

    async fn serve_with_cors(
        &self,
        arrival: &mut IncomingRequest,
        name: RequestName,
    ) -> HttpAnswer {
        let Some(cors) = &self.cors else {
            return self.serve_at_path(arrival, name).await;
        };
        // The layer has the head while it inspects it.
        let head = std::mem::replace(&mut arrival.head, Request::new(()).into_parts().0);
        let at_path = |head: Parts| {
            arrival.head = head;
            self.serve_at_path(arrival, name)
        };
        // CORS answers preflights before authentication: a browser sends them without credentials.
        let mut inner = Some(at_path);
        let once = tower::service_fn(|request: Request<()>| {
            let answer = inner.take().map(|at_path| at_path(request.into_parts().0));
            async move {
                Ok::<_, Infallible>(match answer {
                    Some(answer) => Box::pin(answer).await,
                    None => {
                        crate::answer::plain(StatusCode::INTERNAL_SERVER_ERROR, "answered twice")
                    }
                })
            }
        });
        let Ok(answer) = Box::pin(cors.layer(once).oneshot(Request::from_parts(head, ()))).await;
        answer
    }

    /// The answer at a path without an endpoint. It names no file, because the caller is not
    /// authenticated yet.
    fn no_endpoint(&self, path: &str) -> HttpAnswer {
        if self
            .settings
            .unserved
            .iter()
            .any(|unserved| unserved.fits(path))
        {
            let why = "this endpoint is not served: the config file that may define it has errors, which an operator can see";
            return crate::answer::plain(StatusCode::SERVICE_UNAVAILABLE, why);
        }
        crate::answer::plain(StatusCode::NOT_FOUND, "no such endpoint")
    }

    /// Serves a request at the endpoint of its path: head checks, rates and credentials, then the
    /// body and its era, in the order of `request_checks`.
    async fn serve_at_path(&self, arrival: &mut IncomingRequest, name: RequestName) -> HttpAnswer {
        let path = arrival.head.uri.path();
        let at = |path: &str| self.paths.get(path);
        let beside = sse_transport::split_sse_path(path).filter(|_| self.settings.http_sse);
        let found = at(path).map(|endpoint| (endpoint, None));
        let found = found.or_else(|| beside.and_then(|(path, end)| Some((at(path)?, Some(end)))));
        let Some(((endpoint, meters), end)) = found else {
            return self.no_endpoint(beside.map_or(path, |(path, _)| path));
        };
        let headers = &arrival.head.headers;
        let context = HttpRequestContext {
            shared: self.shared.clone(),
            settings: self.settings.clone(),
            about: self.about.clone(),
            endpoint: endpoint.clone(),
            name,
            client_address: client_address(
                arrival.peer.address,
                headers,
                &self.settings.trusted_proxies,
            ),
            peer: arrival.peer.clone(),
            trace: trace_of_headers(headers),
            meters: meters.clone(),
            is_over_http_sse: end.is_some(),
        };
        let is_browser =
            end.is_none() && help_page::is_browser_request(&arrival.head.method, headers);
        let mut answer = match end {
            None => crate::request_checks::serve_at_endpoint(&context, &self.keeper, arrival).await,
            Some(end) => {
                Box::pin(sse_transport::serve_http_sse(
                    &context,
                    &self.keeper,
                    arrival,
                    end,
                ))
                .await
            }
        };
        if let Some(page) = self.settings.help.as_ref().filter(|_| is_browser) {
            help_page::replace_body_with_page(&mut answer, page, endpoint);
        }
        answer.body_mut().labels.meters = Some(meters.clone());
        answer
    }
}

/// The trace context of a head (W3C). A header that is given twice counts as absent. `baggage` is
/// ignored: a client that wants it forwarded sends it in `_meta`, and the operator names the
/// upstreams it may go to.
fn trace_of_headers(headers: &HeaderMap) -> TraceContext {
    let one = |name: &http::HeaderName| {
        let mut all = headers.get_all(name).iter();
        let value = all.next()?.to_str().ok()?;
        all.next().is_none().then_some(value)
    };
    lift::parse_trace(
        one(&header_names::TRACEPARENT),
        one(&header_names::TRACESTATE),
        None,
    )
}

fn cors_layer(settings: &FrontSettings) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = settings
        .origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    if origins.is_empty() {
        return None;
    }
    let named = |names: &[&'static str]| {
        names
            .iter()
            .map(|name| http::HeaderName::from_static(name))
            .collect::<Vec<_>>()
    };
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([http::Method::GET, http::Method::POST, http::Method::DELETE])
            .allow_headers(named(&[
                "accept",
                "authorization",
                "content-type",
                "last-event-id",
                "mcp-method",
                "mcp-name",
                "mcp-protocol-version",
                "mcp-session-id",
                "x-api-key",
            ]))
            .expose_headers(named(&[
                "mcp-session-id",
                "mcp-protocol-version",
                "www-authenticate",
                "retry-after",
                "ratelimit",
                "ratelimit-policy",
            ])),
    )
}
