//! A running client side with all its ports.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use weir_catalog::{Catalog, CatalogPorts, CatalogSettings, SessionListTable, Topology};
use weir_core::endpoint::{EndpointMode, PageSize, UpstreamRules};
use weir_core::port::{AuditLog, Authorizer, RecordKey, ReplicaId, Verifier};
use weir_core::{Budgets, Endpoint, EndpointId, UpstreamId};
use weir_front::{Front, FrontPorts, FrontSettings};
use weir_listen::{OtherProcess, RequestForwarder};
use weir_policy::rules::PolicyAuthorizer;
use weir_router::Router;
use weir_seal::{Sealer, SealerKey};
use weir_testkit::{FakeClock, FakeRandom, RawClient};
use weir_wire::Revision;

use crate::scripted_upstream::FrontUpstream;
use crate::test_ports::{
    ChangingAccess, EntranceGate, NameVerifier, NoLimits, RefusedSenders, SingleReplicaBus,
    TestRecords, open_gates,
};
use crate::test_replays::TestReplays;

/// A time in which a session is renewed many times during a test.
pub(crate) const SHORT_IDLE: Duration = Duration::from_millis(40);

/// Waits for something that is certain to happen.
pub(crate) async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    let Ok(done) = tokio::time::timeout(limit, waiting).await else {
        panic!("{what} did not happen")
    };
    done
}

/// The client side over one scripted upstream, at `/mcp`, transparent.
pub(crate) struct TestFront {
    pub(crate) front: Arc<Front>,
    pub(crate) upstream: Arc<FrontUpstream>,
    pub(crate) cancelled: Receiver<()>,
    pub(crate) clock: FakeClock,
    pub(crate) records: Arc<TestRecords>,
    pub(crate) replays: Arc<TestReplays>,
    /// The number of times that a session was renewed.
    renewals: watch::Receiver<u64>,
    pub(crate) budgets: Budgets,
}

/// The parts of a front that a test may want otherwise.
struct FrontParts {
    anonymous: bool,
    page: PageSize,
    authorizer: Arc<dyn Authorizer>,
    audit: Arc<dyn AuditLog>,
    /// Absent for a verifier of names.
    verifier: Option<Arc<dyn Verifier>>,
    records: TestRecords,
    replays: TestReplays,
    /// True if the upstream never sends its lists, and everyone waits for them.
    holds_lists: bool,
    predecessor: Option<Arc<dyn RequestForwarder>>,
    successor: Option<Arc<dyn RequestForwarder>>,
}

impl Default for FrontParts {
    fn default() -> Self {
        Self {
            anonymous: true,
            page: PageSize::default(),
            authorizer: Arc::new(PolicyAuthorizer::default()),
            audit: Arc::new(RefusedSenders::default()),
            verifier: None,
            records: TestRecords::default(),
            replays: TestReplays::default(),
            holds_lists: false,
            predecessor: None,
            successor: None,
        }
    }
}

/// Settings for a port that the system chooses.
pub(crate) fn settings() -> FrontSettings {
    FrontSettings::at("127.0.0.1:0".parse().unwrap())
}

impl TestFront {
    /// A front that anonymous callers may use.
    pub(crate) async fn anonymous(settings: FrontSettings) -> Self {
        Self::with_parts(settings, FrontParts::default()).await
    }

    /// A front for bearers of tokens.
    pub(crate) async fn with_tokens(settings: FrontSettings) -> Self {
        Self::with_page_size(settings, PageSize::default().items).await
    }

    /// A front for bearers of tokens, with this many items in a page of a list.
    pub(crate) async fn with_page_size(settings: FrontSettings, items: usize) -> Self {
        let parts = FrontParts {
            anonymous: false,
            page: PageSize {
                items,
                ..PageSize::default()
            },
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for bearers of tokens that this authorizer admits.
    pub(crate) async fn with_authorizer(
        settings: FrontSettings,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        let parts = FrontParts {
            anonymous: false,
            authorizer,
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front that anonymous callers may use, with this audit.
    pub(crate) async fn with_audit(settings: FrontSettings, audit: Arc<dyn AuditLog>) -> Self {
        let parts = FrontParts {
            audit,
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for bearers of tokens, as far as this access allows it.
    pub(crate) async fn with_access(settings: FrontSettings, access: Arc<ChangingAccess>) -> Self {
        let parts = FrontParts {
            authorizer: EntranceGate::of(access.clone()),
            verifier: Some(access),
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for anonymous callers, started after these sessions have expired.
    pub(crate) async fn with_expired_sessions(
        settings: FrontSettings,
        expired: Vec<RecordKey>,
    ) -> Self {
        let parts = FrontParts {
            records: TestRecords::with_expired(expired),
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for anonymous callers, whose upstream never sends its lists. Requests that wait for
    /// them wait as long as the test.
    pub(crate) async fn with_held_lists(settings: FrontSettings) -> Self {
        let parts = FrontParts {
            holds_lists: true,
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for anonymous callers, whose store never confirms that it has a new session.
    pub(crate) async fn with_held_writes(settings: FrontSettings) -> Self {
        let parts = FrontParts {
            records: TestRecords::with_held_writes(),
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for anonymous callers, in a process before or after this one.
    pub(crate) async fn with_process(
        settings: FrontSettings,
        which: OtherProcess,
        process: Arc<dyn RequestForwarder>,
    ) -> Self {
        let mut parts = FrontParts::default();
        let place = match which {
            OtherProcess::Predecessor => &mut parts.predecessor,
            OtherProcess::Successor => &mut parts.successor,
        };
        *place = Some(process);
        Self::with_parts(settings, parts).await
    }

    /// A front for anonymous callers, in a process between these.
    pub(crate) async fn between(
        settings: FrontSettings,
        predecessor: Arc<dyn RequestForwarder>,
        successor: Arc<dyn RequestForwarder>,
    ) -> Self {
        let parts = FrontParts {
            predecessor: Some(predecessor),
            successor: Some(successor),
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    /// A front for anonymous callers, which records the streams of calls.
    pub(crate) async fn with_recorded_streams(settings: FrontSettings) -> Self {
        let parts = FrontParts {
            replays: TestReplays::recording(),
            ..FrontParts::default()
        };
        Self::with_parts(settings, parts).await
    }

    async fn with_parts(settings: FrontSettings, parts: FrontParts) -> Self {
        let (clock, random) = (FakeClock::new(), Arc::new(FakeRandom::new(7)));
        let sealer = Sealer::new(vec![SealerKey::new(1, &[5; 32])]);
        let notifier = Arc::default();
        let ports = CatalogPorts {
            clock: Arc::new(clock.clone()),
            random: random.clone(),
            authorizer: Arc::new(PolicyAuthorizer::default()),
            session_lists: SessionListTable::new(Arc::clone(&notifier), &*random),
            announcements: None,
        };
        let mut catalog_settings = CatalogSettings::default();
        let (upstream, taken_back) = FrontUpstream::new();
        if parts.holds_lists {
            catalog_settings.first_list_wait = Duration::from_secs(3600);
            upstream.hold_lists();
        }
        let catalog = Catalog::new(catalog_settings, ports, sealer.clone());
        let endpoint = Endpoint {
            id: EndpointId::new("/mcp"),
            mode: EndpointMode::Transparent(UpstreamId::new("script").unwrap()),
            page: parts.page,
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
        let router = Arc::new(Router::new(catalog.clone(), open_gates()));
        let (records, replays) = (Arc::new(parts.records), Arc::new(parts.replays));
        let renewals = records.renewals();
        let budgets = Budgets::default();
        let ports = FrontPorts {
            verifier: parts.verifier.unwrap_or_else(|| {
                Arc::new(NameVerifier {
                    anonymous: parts.anonymous,
                })
            }),
            authorizer: parts.authorizer,
            limiter: Arc::new(NoLimits),
            audit: parts.audit,
            records: records.clone(),
            bus: Arc::new(SingleReplicaBus::default()),
            replays: replays.clone(),
            notifier,
            budgets: budgets.clone(),
            replica: ReplicaId([0; 8]),
            replicas: None,
            generation: 0,
            predecessor: parts.predecessor,
            successor: parts.successor,
            clock: Arc::new(clock.clone()),
            random,
        };
        let front = Front::bind(settings, None, ports, router, sealer)
            .await
            .unwrap();
        Self {
            front: Arc::new(front),
            upstream,
            cancelled: taken_back,
            clock,
            records,
            replays,
            renewals,
            budgets,
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

    /// Waits until sessions were renewed a few times, without a request.
    pub(crate) async fn wait_for_renewals(&self) {
        let mut renewals = self.renewals.clone();
        let before = *renewals.borrow_and_update();
        let waiting = renewals.wait_for(|now| *now >= before + 3);
        assert!(in_time("a renewal", waiting).await.is_ok());
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
