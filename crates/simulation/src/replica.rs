//! A replica of weir, composed as the gateway does: the client side, the router and the catalog,
//! the limits, the shared store, and requests between replicas. Streams are those of the simulated
//! network.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use weir_catalog::{Catalog, CatalogPorts, CatalogSettings, SessionListTable, Topology};
use weir_cluster::{
    ClusterSecret, ClusterTls, OpenedPeer, PeerDialer, PeerForwarder, PeerHandshake,
};
use weir_core::endpoint::{EndpointMode, PageSize, UpstreamRules};
use weir_core::port::{BoxFuture, ReplicaId, SharedChanges};
use weir_core::principal::Subject;
use weir_core::session_notifier::SessionNotifier;
use weir_core::upstream::Upstream;
use weir_core::{Budgets, Endpoint, EndpointId, UpstreamId};
use weir_front::{
    ForwardError, ForwardedBody, ForwardedRequest, Front, FrontPorts, FrontSettings, ReplicaPorts,
    RequestForwarder,
};
use weir_policy::BlocklistAuthorizer;
use weir_policy::limit::{LimitSettings, PolicyLimiter};
use weir_policy::rules::PolicyAuthorizer;
use weir_redis_store::{
    OwnReplica, RedisSettings, RedisStore, RedisTopology, ServerDialer, StorePorts,
};
use weir_router::{Gates, Router};
use weir_seal::{Sealer, SealerKey};
use weir_singleton::{SingletonPorts, Singletons};
use weir_store::{MemoryBus, MemoryRecords, MemoryReplays, RecordCaps, ReplayCaps};
use weir_upstream_core::settings::UpstreamBounds;

use crate::host::HostClock;
use crate::links::HostName;
use crate::network::Network;
use crate::open_policy::{ISSUER, NameVerifier, NoAudit};
use crate::options::PlantedFault;
use crate::redis_server::REDIS_ADDRESS;
use crate::replica_listener::ReplicaListener;
use crate::replica_world::ReplicaWorld;
use crate::stream::SimStream;
use crate::tool_server::{ChildProcess, SimUpstream, UpstreamWorld};

/// The namespace of all replicas.
const NAMESPACE: &str = "weir";
/// `store.timeout`.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(50);
/// `cluster.lease`.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// The least time that replay logs are kept.
const REPLAY_AGE: Duration = Duration::from_secs(300);

/// A running replica. Its host ends it.
pub(crate) struct Replica {
    pub(crate) front: Arc<Front>,
    pub(crate) store: Arc<RedisStore>,
    pub(crate) changes: Arc<dyn SharedChanges>,
    /// Kept for their tasks.
    _catalog: Arc<Catalog>,
    _singletons: Arc<Singletons>,
}

/// Opens streams of the simulated network for one host.
struct SimDialer {
    network: Network,
    host: HostName,
    clock: HostClock,
}

impl SimDialer {
    async fn dial(&self, address: &str) -> io::Result<SimStream> {
        self.network.connect(self.host, &self.clock, address).await
    }
}

impl ServerDialer for SimDialer {
    fn open(
        &self,
        config: AsyncConnectionConfig,
    ) -> BoxFuture<'_, RedisResult<MultiplexedConnection>> {
        Box::pin(async move {
            let stream = self.dial(REDIS_ADDRESS).await?;
            let info = RedisConnectionInfo::default().set_skip_set_lib_name();
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&info, stream, config).await?;
            tokio::spawn(driver);
            Ok(connection)
        })
    }

    fn open_subscriber(&self) -> BoxFuture<'_, RedisResult<PubSub>> {
        Box::pin(async move {
            let stream = self.dial(REDIS_ADDRESS).await?;
            let info = RedisConnectionInfo::default().set_skip_set_lib_name();
            PubSub::new(&info, stream).await
        })
    }
}

impl PeerDialer for SimDialer {
    fn open<'a>(
        &'a self,
        address: &'a str,
        handshake: PeerHandshake,
    ) -> BoxFuture<'a, io::Result<OpenedPeer>> {
        Box::pin(async move { handshake.begin(self.dial(address).await?).await })
    }
}

/// The links of a replica to the others.
struct Links {
    store: Arc<RedisStore>,
    forwarder: Arc<PeerForwarder>,
    singletons: Arc<Singletons>,
    tls: ClusterTls,
    address: String,
}

/// A planted fault: it sends a request again that may have run.
#[derive(Debug)]
struct RepeatingForwarder(Arc<PeerForwarder>);

impl RequestForwarder for RepeatingForwarder {
    fn forward<'a>(
        &'a self,
        to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> BoxFuture<'a, Result<http::Response<ForwardedBody>, ForwardError>> {
        let again = ForwardedRequest {
            sender: request.sender,
            head: request.head.clone(),
            body: request.body.clone(),
            client: request.client.clone(),
        };
        Box::pin(async move {
            match self.0.forward(to, request).await {
                Err(ForwardError::Lost(_)) => self.0.forward(to, again).await,
                other => other,
            }
        })
    }
}

impl Links {
    fn start(world: &ReplicaWorld, id: &ReplicaId, sealer: &Sealer, budgets: &Budgets) -> Self {
        let dialer = Arc::new(SimDialer {
            network: world.network.clone(),
            host: world.host,
            clock: world.clock.clone(),
        });
        let settings = RedisSettings {
            urls: Vec::new(),
            topology: RedisTopology::Single,
            authorities: None,
            namespace: NAMESPACE.to_owned(),
            command_timeout: COMMAND_TIMEOUT,
        };
        // Another address after each start, as a pod has.
        let address = format!("{}-{id}:8082", world.host);
        let own = OwnReplica {
            id: id.clone(),
            address: address.as_str().into(),
            version: "1.0".into(),
            config_digest: "c0".into(),
        };
        let (clock, random) = (
            Arc::new(world.clock.clone()),
            Arc::new(world.random.clone()),
        );
        let ports = StorePorts {
            clock: clock.clone(),
            random: random.clone(),
            sealer: sealer.clone(),
        };
        let store = Arc::new(RedisStore::start_over(
            dialer.clone(),
            &settings,
            own,
            ports,
        ));
        let secret = ClusterSecret {
            id: 1,
            secret: [9; 32],
        };
        let tls = ClusterTls::new(&[secret]).unwrap_or_else(|error| panic!("{error}"));
        let forwarder = PeerForwarder::over(dialer, store.registry(), tls.clone(), budgets.clone());
        let forwarder = Arc::new(forwarder);
        let singletons = Singletons::new(SingletonPorts {
            own: id.clone(),
            leases: store.leases(),
            lease_time: LEASE,
            forwarder: forwarder.clone(),
            clock,
            random,
            budgets: budgets.clone(),
            notifier: Arc::default(),
        });
        Self {
            store,
            forwarder,
            singletons,
            tls,
            address,
        }
    }

    /// The forwarder of requests of clients.
    fn client_forwarder(&self, world: &ReplicaWorld) -> Arc<dyn RequestForwarder> {
        if world.planted == Some(PlantedFault::RepeatedForward) {
            Arc::new(RepeatingForwarder(self.forwarder.clone()))
        } else {
            self.forwarder.clone()
        }
    }

    /// Serves the requests of other replicas.
    fn serve(&self, world: &ReplicaWorld, front: &Front) {
        let serve = front
            .serve_replicas_at_streams::<SimStream>(self.tls.server.clone())
            .unwrap_or_else(|error| panic!("{error}"));
        front.answer_streams(self.singletons.clone());
        let mut accepted = world.network.listen(&self.address, world.host);
        let clock = world.clock.clone();
        tokio::spawn(async move {
            while let Some((stream, _)) = accepted.recv().await {
                serve(
                    stream.accepted_at(clock.clone()),
                    IpAddr::from(Ipv4Addr::LOCALHOST),
                );
            }
        });
    }
}

impl Replica {
    /// The listener for clients of this replica.
    pub(crate) fn listener(&self, world: ReplicaWorld) -> ReplicaListener {
        ReplicaListener {
            channel: self.front.channel(),
            store: self.store.clone(),
            changes: self.changes.clone(),
            world,
        }
    }

    /// Starts a replica, in the runtime of its host.
    pub(crate) fn start(world: &ReplicaWorld) -> Self {
        let mut id = [0; 8];
        weir_core::port::Random::fill(&world.random, &mut id);
        let id = ReplicaId(id);
        let sealer = Sealer::new(vec![SealerKey::new(1, &[5; 32])]);
        let budgets = Budgets::default();
        let links = Links::start(world, &id, &sealer, &budgets);
        let (clock, random) = (
            Arc::new(world.clock.clone()),
            Arc::new(world.random.clone()),
        );
        let notifier = Arc::<SessionNotifier>::default();
        let bus = Arc::<MemoryBus>::default();
        links.store.link_bus(&bus);
        let blocked = Arc::new(BlocklistAuthorizer::new(Arc::new(
            PolicyAuthorizer::default(),
        )));
        let counters = links.store.counters();
        let limits = PolicyLimiter::new(LimitSettings::default(), clock.clone(), counters);
        let limits = Arc::new(limits.with_shared_rates(links.store.rates()));
        let gates = Gates {
            authorizer: blocked.clone(),
            limiter: limits.clone(),
            audit: Arc::new(NoAudit),
        };
        let ports = CatalogPorts {
            clock: clock.clone(),
            random: random.clone(),
            authorizer: blocked.clone(),
            session_lists: SessionListTable::new(notifier.clone(), &*random),
            announcements: Some(links.store.lists()),
        };
        let catalog = Catalog::new(CatalogSettings::default(), ports, sealer.clone());
        catalog.apply(topology(world, &links.singletons));
        let local = Arc::new(MemoryRecords::new(clock.clone(), RecordCaps::default()));
        let replays = Arc::new(MemoryReplays::new(clock.clone(), ReplayCaps::default()));
        let ports = FrontPorts {
            verifier: Arc::new(NameVerifier),
            authorizer: blocked.clone(),
            limiter: limits,
            audit: Arc::new(NoAudit),
            records: links.store.records(local, bus.clone()),
            bus: bus.clone(),
            replays: links.store.replays(replays, REPLAY_AGE),
            notifier,
            budgets,
            replica: id,
            replicas: Some(ReplicaPorts {
                directory: links.store.registry(),
                forwarder: links.client_forwarder(world),
            }),
            generation: 0,
            predecessor: None,
            successor: None,
            clock,
            random,
        };
        let settings = FrontSettings::at((Ipv4Addr::LOCALHOST, 0).into());
        let router = Arc::new(Router::new(catalog.clone(), gates));
        let front = Front::in_memory(settings, ports, router, sealer)
            .unwrap_or_else(|error| panic!("{error}"));
        links.serve(world, &front);
        let changes = links.store.changes(bus);
        tokio::spawn(follow_blocks(changes.watch(), blocked));
        Self {
            front: Arc::new(front),
            store: links.store,
            changes,
            _catalog: catalog,
            _singletons: links.singletons,
        }
    }
}

/// The endpoints `/plain` and `/single`, with an upstream each.
fn topology(world: &ReplicaWorld, singletons: &Arc<Singletons>) -> Topology {
    let reach = || UpstreamWorld {
        server: world.tools.clone(),
        network: world.network.clone(),
        host: world.host,
        clock: world.clock.clone(),
        planted: world.planted,
    };
    let plain: Arc<dyn Upstream> = SimUpstream::new("plain", reach(), None);
    let fence = singletons.fence();
    let child = SimUpstream::new("single", reach(), Some(ChildProcess::new(fence.clone())));
    let prepared = singletons.prepare(child, fence, UpstreamBounds::default());
    let single = prepared.upstream();
    prepared.share();
    let endpoint = |name: &str| {
        Arc::new(Endpoint {
            id: EndpointId::new(&format!("/{name}")),
            mode: EndpointMode::Transparent(
                UpstreamId::new(name).unwrap_or_else(|_| panic!("no id: {name}")),
            ),
            page: PageSize::default(),
            deadlines: None,
            clean: true,
            tools: None,
        })
    };
    Topology {
        endpoints: vec![endpoint("plain"), endpoint("single")],
        upstreams: vec![
            (plain, UpstreamRules::default()),
            (single, UpstreamRules::default()),
        ],
    }
}

/// Blocks the principals that any replica has blocked: the body of a change is the name.
async fn follow_blocks(
    mut changes: tokio::sync::watch::Receiver<Arc<weir_core::port::ChangeMap>>,
    blocked: Arc<BlocklistAuthorizer>,
) {
    loop {
        let now = changes.borrow_and_update().clone();
        for change in now.values() {
            let name = String::from_utf8_lossy(&change.body).into_owned();
            let subject = Subject::new(ISSUER, &*name);
            if change.is_removal {
                blocked.unblock(subject.digest());
            } else {
                blocked.block(subject);
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
