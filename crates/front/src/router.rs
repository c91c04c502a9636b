//! The way of every request, in one file: the layers around the router, its routes, and the layers
//! of each route. An outer layer stands first.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use tower::{Service, ServiceBuilder, service_fn};
use weir_era::render::WeirIdentity;
use weir_layers::failure::RequestFailure;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::http::body::HttpAnswer;
use weir_layers::http::sse_path::SsePath;
use weir_layers::http::well_known_documents::WellKnownDocuments;
use weir_layers::layer::authenticate::{AddressRate, AuthenticateLayer, EntranceAudit};
use weir_layers::layer::check::{CheckLayer, CheckService};
use weir_layers::layer::cors::{CorsPolicy, CorsService};
use weir_layers::layer::cors_refusals::{CorsRefusals, CorsRefusalsLayer};
use weir_layers::layer::endpoint_check::{EndpointCheck, SseCheck};
use weir_layers::layer::isolate_panics::{IsolatePanics, IsolatePanicsLayer};
use weir_layers::layer::observe::{Observe, ObserveLayer, ObservedBody};
use weir_layers::layer::principal_rate::PrincipalRateLayer;
use weir_layers::layer::read_body::ReadBodyLayer;
use weir_layers::layer::respond::{Respond, RespondLayer};
use weir_layers::layer::sender_check::SenderCheck;
use weir_layers::layer::shed::{Shed, ShedLayer};
use weir_layers::outer_rules::OuterRules;
use weir_layers::request::endpoint_meters::EndpointMeters;
use weir_layers::request::endpoint_request::EndpointRequest;
use weir_layers::request::endpoint_route::EndpointRoute;
use weir_layers::settings::FrontSettings;
use weir_layers::state::FrontState;
use weir_listen::{AddressRange, IncomingRequest, ListenerLimits, RequestService};

use crate::handler::mcp_service::McpService;
use crate::handler::sse_transport::SseService;

/// The layers around the router.
type FrontService = Observe<
    CorsRefusals<Respond<IsolatePanics<Shed<CheckService<CorsService<Router>, SenderCheck>>>>>,
>;

/// The service of all requests, for one set of settings and endpoints.
pub(crate) struct FrontRouter {
    service: FrontService,
    rules: Arc<OuterRules>,
}

impl FrontRouter {
    pub(crate) fn new(
        settings: FrontSettings,
        address: SocketAddr,
        state: &Arc<FrontState>,
    ) -> Self {
        let settings = Arc::new(settings);
        let endpoints = state.catalog().endpoints();
        let documents = WellKnownDocuments::new(
            settings.oauth.as_ref(),
            endpoints.iter().map(|endpoint| &endpoint.id),
        );
        let mut routes = Routes::new(&settings);
        for (path, document) in documents.into_services() {
            let route = ServiceBuilder::new()
                .layer(RespondLayer::default())
                .service(document);
            routes.add(&path, |router, path| router.route_service(path, route));
        }
        let public_paths = routes.paths.clone();
        let rules = OuterRules::new(settings.clone(), address, state.outer.clone(), public_paths);
        let server_info = weir_layers::http::answer::server_info(&settings.server);
        let identity = Arc::new(WeirIdentity::new(server_info));
        let of_endpoints: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                Arc::new(EndpointRoute {
                    shared: state.clone(),
                    settings: settings.clone(),
                    identity: identity.clone(),
                    endpoint: endpoint.id.clone(),
                    meters: EndpointMeters::of(&endpoint.id),
                })
            })
            .collect();
        for endpoint in &of_endpoints {
            routes.add_endpoint(endpoint);
        }
        // An endpoint's own path goes before the paths beside another one.
        for endpoint in of_endpoints.iter().filter(|_| settings.http_sse) {
            routes.add_http_sse(endpoint);
        }
        let rules = Arc::new(rules);
        let service = ServiceBuilder::new()
            // Sees every answer, and counts until its last byte.
            .layer(ObserveLayer::new(rules.clone()))
            // A page can read the failures that the layers around CORS make.
            .layer(CorsRefusalsLayer)
            // Failures of the layers below, outside of any endpoint.
            .layer(RespondLayer::default())
            // A panic of any layer below ends its request alone.
            .layer(IsolatePanicsLayer)
            // Before all checks: under load a refusal must cost little.
            .layer(ShedLayer)
            // A foreign page reaches no path and no preflight.
            .layer(CheckLayer::new(SenderCheck))
            // Before authentication: a browser sends preflights without credentials.
            .layer(CorsPolicy)
            .service(routes.router);
        Self { service, rules }
    }
}

impl RequestService for FrontRouter {
    type Body = ObservedBody;
    type Future = <FrontService as Service<IncomingRequest>>::Future;

    fn serve(&self, incoming: IncomingRequest) -> Self::Future {
        // Every layer is ready at any time: it refuses a request, and never waits before it.
        self.service.clone().call(incoming)
    }

    fn limits(&self) -> &ListenerLimits {
        &self.rules.settings.limits.listener
    }

    fn trusted_proxies(&self) -> &[AddressRange] {
        &self.rules.settings.trusted_proxies
    }
}

/// The routes: literal paths, each with its own layers.
struct Routes {
    router: Router,
    paths: HashSet<String>,
}

impl Routes {
    /// No route yet: every path is unknown.
    fn new(settings: &Arc<FrontSettings>) -> Self {
        let settings = settings.clone();
        let unknown = service_fn(move |request: Request<Body>| {
            let refusal = unknown_path(&settings, request.uri().path());
            std::future::ready(Err::<HttpAnswer, RequestFailure>(refusal.into()))
        });
        let route = ServiceBuilder::new()
            .layer(RespondLayer::default())
            .service(unknown);
        Self {
            router: Router::new().fallback_service(route),
            paths: HashSet::new(),
        }
    }

    /// Adds a route, unless its path is taken.
    fn add(&mut self, path: &str, add: impl FnOnce(Router, &str) -> Router) {
        if self.paths.insert(path.to_owned()) {
            self.router = add(std::mem::take(&mut self.router), path);
        }
    }

    /// Adds the path of an endpoint.
    fn add_endpoint(&mut self, endpoint: &Arc<EndpointRoute>) {
        let of_context = endpoint.clone();
        let route = ServiceBuilder::new()
            // The failures of all layers below become responses; a browser gets the help page.
            .layer(
                RespondLayer::of_endpoint(endpoint.meters.clone())
                    .with_help_page(endpoint.settings.help.as_ref(), &endpoint.endpoint),
            )
            // By the head alone, so it costs least: method, declared size, media types.
            .layer(CheckLayer::new(EndpointCheck))
            // The client's address through trusted proxies, for the layers below.
            .map_request(move |request| EndpointRequest::new(&of_context, request))
            // Before credentials: checking them costs more.
            .layer(CheckLayer::new(AddressRate))
            // Before the body is paid for.
            .layer(AuthenticateLayer)
            // Needs the principal.
            .layer(PrincipalRateLayer)
            // Records those who passed all checks of their head.
            .layer(CheckLayer::new(EntranceAudit))
            // The last layer: what is below works on whole messages.
            .layer(ReadBodyLayer)
            .service(McpService);
        let path = endpoint.endpoint.as_str();
        self.add(path, |router, path| router.route_service(path, route));
    }

    /// Adds the paths of HTTP+SSE beside an endpoint.
    fn add_http_sse(&mut self, endpoint: &Arc<EndpointRoute>) {
        for end in SsePath::ALL {
            let of_context = endpoint.clone();
            // The same order as above, for the same reasons. The body is read below, once the
            // stream that its message belongs to is found.
            let route = ServiceBuilder::new()
                .layer(RespondLayer::of_endpoint(endpoint.meters.clone()))
                .layer(CheckLayer::new(SseCheck(end.method())))
                .map_request(move |request| {
                    EndpointRequest::new(&of_context, request).over_http_sse()
                })
                .layer(CheckLayer::new(AddressRate))
                .layer(AuthenticateLayer)
                .layer(PrincipalRateLayer)
                .layer(CheckLayer::new(EntranceAudit))
                .service(SseService(end));
            let path = end.beside(&endpoint.endpoint);
            self.add(&path, |router, path| router.route_service(path, route));
        }
    }
}

/// The refusal of a path without a route. It names no file, because the caller is not authenticated
/// yet.
fn unknown_path(settings: &FrontSettings, path: &str) -> RequestRefusal {
    let beside = SsePath::endpoint_of(path).filter(|_| settings.http_sse);
    let path = beside.unwrap_or(path);
    if settings.unserved.iter().any(|unserved| unserved.fits(path)) {
        RequestRefusal::UnservedPath
    } else {
        RequestRefusal::UnknownPath
    }
}
