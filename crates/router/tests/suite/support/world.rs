//! A catalog with its surroundings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use weir_catalog::{
    Catalog, CatalogPage, CatalogPorts, CatalogSettings, ChangeReceiver, ListPageRequest,
    SessionListTable, Topology, View,
};
use weir_core::capability::CapabilityClass;
use weir_core::endpoint::{EndpointMode, NamePrefix, PageSize, UpstreamRules};
use weir_core::names::{EndpointId, ToolNaming, UpstreamId};
use weir_core::port::{BoxFuture, Clock, Evidence, ListAnnouncements, Random, Verifier};
use weir_core::principal::VerifiedIdentity;
use weir_core::upstream::{ListKind, Upstream};
use weir_core::{Endpoint, Failure, Principal};
use weir_seal::{Sealer, SealerKey};

use super::{ScriptedGate, ScriptedUpstream};

/// A clock and random numbers without surprises.
#[derive(Debug)]
pub(crate) struct FixedPorts(AtomicU64);

impl FixedPorts {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1)))
    }
}

impl Clock for FixedPorts {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

impl Random for FixedPorts {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let mixed = self
                .0
                .fetch_add(1, Ordering::SeqCst)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A verifier with a fixed identity for every request.
#[derive(Debug)]
pub(crate) struct AcceptingVerifier(VerifiedIdentity);

impl AcceptingVerifier {
    pub(crate) fn name(name: &str) -> Self {
        Self(VerifiedIdentity::subject("test", name))
    }
}

impl Verifier for AcceptingVerifier {
    fn verify<'a>(
        &'a self,
        _evidence: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

/// A principal of this name.
pub(crate) fn principal(name: &str) -> Principal {
    Principal::owner(Some(("test", name)))
}

/// The endpoint most tests use.
pub(crate) fn endpoint() -> EndpointId {
    EndpointId::new("/mcp")
}

pub(crate) fn id(text: &str) -> UpstreamId {
    UpstreamId::new(text).unwrap()
}

/// An aggregating endpoint over these upstreams.
pub(crate) fn aggregate(upstreams: &[&str], prefix: NamePrefix, items: usize) -> Arc<Endpoint> {
    let upstreams = upstreams.iter().map(|text| id(text)).collect();
    Arc::new(Endpoint {
        id: endpoint(),
        mode: EndpointMode::Aggregate {
            upstreams,
            naming: ToolNaming::default(),
            prefix,
        },
        page: PageSize {
            items,
            ..PageSize::default()
        },
        deadlines: None,
        clean: true,
        tools: None,
    })
}

pub(crate) fn transparent(upstream: &str) -> Arc<Endpoint> {
    let path = format!("/mcp/{upstream}");
    Arc::new(Endpoint {
        id: EndpointId::new(&path),
        mode: EndpointMode::Transparent(id(upstream)),
        page: PageSize::default(),
        deadlines: None,
        clean: true,
        tools: None,
    })
}

/// The names a view shows.
pub(crate) fn exposed(view: &Arc<View>) -> Vec<&str> {
    view.items.iter().map(|item| &*item.exposed).collect()
}

/// One catalog.
pub(crate) struct CatalogWorld {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) rules: UpstreamRules,
    pub(crate) gate: Arc<ScriptedGate>,
    pub(crate) session_lists: Arc<SessionListTable>,
}

impl CatalogWorld {
    pub(crate) fn empty(settings: CatalogSettings) -> Self {
        Self::announcing(settings, None)
    }

    /// A catalog of one of several replicas.
    pub(crate) fn announcing(
        settings: CatalogSettings,
        announcements: Option<Arc<dyn ListAnnouncements>>,
    ) -> Self {
        let plain = FixedPorts::new();
        let gate = Arc::new(ScriptedGate::default());
        let session_lists = SessionListTable::new(Arc::default(), &*plain);
        let ports = CatalogPorts {
            clock: plain.clone(),
            random: plain,
            authorizer: gate.clone(),
            session_lists: session_lists.clone(),
            announcements,
        };
        let sealer = Sealer::new(vec![SealerKey::new(1, &[5; 32])]);
        let (catalog, rules) = (
            Catalog::new(settings, ports, sealer),
            UpstreamRules::default(),
        );
        Self {
            catalog,
            rules,
            gate,
            session_lists,
        }
    }

    /// A catalog with one aggregating endpoint over `fakes`, in this order.
    pub(crate) fn of(fakes: &[&Arc<ScriptedUpstream>]) -> Self {
        let world = Self::empty(CatalogSettings::default());
        world.show(fakes, NamePrefix::Always, 1000);
        world
    }

    pub(crate) fn show(&self, fakes: &[&Arc<ScriptedUpstream>], prefix: NamePrefix, items: usize) {
        let ids: Vec<&str> = fakes.iter().map(|fake| fake.id().as_str()).collect();
        self.apply(vec![aggregate(&ids, prefix, items)], fakes);
    }

    pub(crate) fn apply(&self, endpoints: Vec<Arc<Endpoint>>, fakes: &[&Arc<ScriptedUpstream>]) {
        let upstreams = fakes
            .iter()
            .map(|fake| (Arc::clone(fake) as Arc<dyn Upstream>, self.rules.clone()))
            .collect();
        self.catalog.apply(Topology {
            endpoints,
            upstreams,
        });
    }

    pub(crate) async fn settled(&self) -> Arc<View> {
        self.catalog
            .settled_view(&endpoint(), ListKind::Tools, CapabilityClass::BASE)
            .await
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.catalog
            .view(&endpoint(), ListKind::Tools, CapabilityClass::BASE)
            .unwrap()
    }

    pub(crate) fn changes(&self) -> ChangeReceiver {
        self.catalog
            .changes(&endpoint(), CapabilityClass::BASE, ListKind::Tools)
    }

    pub(crate) async fn page(
        &self,
        who: &Principal,
        cursor: Option<&str>,
    ) -> Result<CatalogPage, Failure> {
        let ask = ListPageRequest {
            endpoint: &endpoint(),
            class: CapabilityClass::BASE,
            principal: who,
            session: None,
            kind: ListKind::Tools,
            cursor,
        };
        self.catalog.page(ask).await
    }

    /// Lets all due tasks run, without moving the clock noticeably.
    pub(crate) async fn rest(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
