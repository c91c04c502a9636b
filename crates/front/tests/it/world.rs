//! A running client side with all its ports.

use std::sync::Arc;

use tokio::sync::mpsc::Receiver;
use weir_core::catalog::{Catalog, CatalogPorts, CatalogSettings, SessionListTable, Topology};
use weir_core::endpoint::{EndpointMode, PageSize, UpstreamRules};
use weir_core::port::{Authorizer, RecordKey, ReplicaId};
use weir_core::seal::{Sealer, SealerKey};
use weir_core::{Endpoint, EndpointId, Router, UpstreamId};
use weir_front::{Front, Ports, Settings};
use weir_testkit::{FakeClock, FakeRandom, RawClient};
use weir_wire::Revision;

use crate::ports::{Empty, Kept, Lenient, Names, NoReplays, OwnBus};
use crate::scripted::Scripted;

/// The client side over one scripted upstream, at `/mcp`, transparent.
pub(crate) struct World {
    pub(crate) front: Arc<Front>,
    pub(crate) upstream: Arc<Scripted>,
    pub(crate) taken_back: Receiver<()>,
    pub(crate) clock: FakeClock,
}

/// Settings for a port that the system chooses.
pub(crate) fn settings() -> Settings {
    Settings::at("127.0.0.1:0".parse().unwrap())
}

impl World {
    /// A front that anonymous callers may use.
    pub(crate) async fn open(settings: Settings) -> Self {
        Self::new(settings, true, PageSize::default(), Arc::new(Lenient)).await
    }

    /// A front for bearers of tokens.
    pub(crate) async fn locked(settings: Settings) -> Self {
        Self::new(settings, false, PageSize::default(), Arc::new(Lenient)).await
    }

    /// A front for bearers of tokens, with this many items in a page of a list.
    pub(crate) async fn paged(settings: Settings, items: usize) -> Self {
        Self::new(
            settings,
            false,
            PageSize {
                items,
                ..PageSize::default()
            },
            Arc::new(Lenient),
        )
        .await
    }

    /// A front for bearers of tokens that this authorizer admits.
    pub(crate) async fn guarded(settings: Settings, authorizer: Arc<dyn Authorizer>) -> Self {
        Self::new(settings, false, PageSize::default(), authorizer).await
    }

    /// A front for anonymous callers, started after these sessions have expired.
    pub(crate) async fn after(settings: Settings, expired: Vec<RecordKey>) -> Self {
        Self::over(
            settings,
            (true, PageSize::default()),
            Arc::new(Lenient),
            Kept::with_expired(expired),
        )
        .await
    }

    async fn new(
        settings: Settings,
        anonymous: bool,
        page: PageSize,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        Self::over(settings, (anonymous, page), authorizer, Kept::default()).await
    }

    async fn over(
        settings: Settings,
        (anonymous, page): (bool, PageSize),
        authorizer: Arc<dyn Authorizer>,
        records: Kept,
    ) -> Self {
        let (clock, random) = (FakeClock::new(), Arc::new(FakeRandom::new(7)));
        let sealer = Sealer::new(vec![SealerKey::new(1, &[5; 32])]);
        let bells = Arc::default();
        let ports = CatalogPorts {
            clock: Arc::new(clock.clone()),
            random: random.clone(),
            authorizer: Arc::new(Lenient),
            session_lists: SessionListTable::new(Arc::clone(&bells), &*random),
        };
        let catalog = Catalog::new(CatalogSettings::default(), ports, sealer.clone());
        let (upstream, taken_back) = Scripted::new();
        let endpoint = Endpoint {
            id: EndpointId::new("/mcp"),
            mode: EndpointMode::Transparent(UpstreamId::new("script").unwrap()),
            page,
            deadlines: None,
            clean: true,
            tools: None,
        };
        let upstreams: Vec<(Arc<dyn weir_core::upstream::Upstream>, _)> =
            vec![(upstream.clone(), UpstreamRules::default())];
        catalog.apply(Topology {
            endpoints: vec![Arc::new(endpoint)],
            upstreams,
        });
        let router = Arc::new(Router::new(catalog.clone(), Lenient::gates()));
        let ports = Ports {
            verifier: Arc::new(Names { anonymous }),
            authorizer,
            limiter: Arc::new(Lenient),
            audit: Arc::new(Lenient),
            records: Arc::new(records),
            bus: Arc::new(OwnBus::default()),
            replays: Arc::new(NoReplays),
            bells,
            budgets: weir_core::Budgets::default(),
            mailbox: Arc::new(Empty(ReplicaId([0; 8]))),
            clock: Arc::new(clock.clone()),
            random,
        };
        let front = Front::bind(settings, None, ports, (router, catalog), sealer)
            .await
            .unwrap();
        Self {
            front: Arc::new(front),
            upstream,
            taken_back,
            clock,
        }
    }

    /// The URL of the endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.front.local_addr())
    }

    /// A client without an era.
    pub(crate) fn client(&self) -> RawClient {
        RawClient::new(&self.url())
    }

    /// A modern client with this token.
    pub(crate) fn modern(&self, name: &str) -> RawClient {
        self.client()
            .with_header("authorization", &format!("Bearer {name}"))
            .modern()
    }

    /// A legacy client with this token, and its session.
    pub(crate) async fn legacy(&self, name: &str) -> RawClient {
        let client = self
            .client()
            .with_header("authorization", &format!("Bearer {name}"));
        client
            .legacy(Revision::V2025_11_25)
            .initialize()
            .await
            .unwrap()
    }
}
