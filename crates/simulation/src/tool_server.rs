//! The simulated MCP server, behind the port of upstreams: it counts the executions of each call.
//!
//! `plain` serves every replica. `single` is run by one replica for all, as a child process: each
//! tenure of the lease starts another child, and a write to a child that is not the newest one is a
//! violation.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use weir_core::port::BoxFuture;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::upstream::{
    ClientSessionChange, ListKind, ListKinds, ListPage, ListWatch, OutboundCall, ResourceUpdates,
    ServerDescription, Upstream, UpstreamHealth,
};
use weir_core::{CapabilityClass, Failure, FailureKind, Reply, SessionKey, UpstreamId};
use weir_upstream_core::lease_fence::{FencePass, LeaseFence};

use crate::host::HostClock;
use crate::links::{HostName, RETRANSMIT};
use crate::network::Network;
use crate::options::PlantedFault;
use crate::seeded::Seeded;
use crate::trace::Trace;

/// The host of the servers.
pub(crate) const TOOLS_HOST: HostName = "tools";
/// The attempts to reach the server, before a call fails without having run.
const CONNECT_TRIES: usize = 40;
/// The time that a child takes to end with its tenure.
const CHILD_END: Duration = Duration::from_millis(10);

/// The server, as the world sees it.
#[derive(Clone)]
pub(crate) struct ToolServer {
    state: Arc<Mutex<ServerRecord>>,
    /// The version of the list of tools.
    lists: watch::Sender<u64>,
    random: Seeded,
    trace: Trace,
}

#[derive(Default)]
struct ServerRecord {
    /// The principals of the executions of each call.
    executions: BTreeMap<String, Vec<String>>,
    /// The number of the newest child.
    newest_child: u64,
    /// The principals of the client sessions that the child had calls of: each session has its own.
    sessions: BTreeMap<[u8; 16], String>,
    /// The principals whose clients ended their sessions.
    ended: BTreeSet<String>,
}

impl ToolServer {
    pub(crate) fn new(random: Seeded, trace: Trace) -> Self {
        let (state, lists) = (Arc::default(), watch::Sender::new(1));
        Self {
            state,
            lists,
            random,
            trace,
        }
    }

    /// Changes the list of tools, and returns its version.
    pub(crate) fn change_list(&self) -> u64 {
        self.lists.send_modify(|version| *version += 1);
        *self.lists.borrow()
    }

    /// The principals that a call was executed for, once for each execution.
    pub(crate) fn executions(&self, call: &str) -> Vec<String> {
        self.state
            .lock()
            .executions
            .get(call)
            .cloned()
            .unwrap_or_default()
    }

    /// All calls with their executions.
    pub(crate) fn all_executions(&self) -> BTreeMap<String, Vec<String>> {
        self.state.lock().executions.clone()
    }

    fn execute(&self, call: &str, principal: &str) {
        let mut record = self.state.lock();
        record
            .executions
            .entry(call.to_owned())
            .or_default()
            .push(principal.to_owned());
    }

    /// Takes note that the client of a principal ends its session.
    pub(crate) fn note_end(&self, principal: &str) {
        self.state.lock().ended.insert(principal.to_owned());
    }

    /// The principal of a session that the child hears the end of, though its client goes on.
    fn find_early_end(&self, sessions: &HashSet<SessionKey>) -> Option<String> {
        let record = self.state.lock();
        let known = record.sessions.iter();
        let mut heard = known.filter(|(key, _)| sessions.contains(&SessionKey(**key)));
        let early = heard.find(|(_, principal)| !record.ended.contains(*principal))?;
        Some(early.1.clone())
    }

    fn start_child(&self) -> u64 {
        let mut record = self.state.lock();
        record.newest_child += 1;
        record.newest_child
    }

    fn newest_child(&self) -> u64 {
        self.state.lock().newest_child
    }
}

/// The server as one replica reaches it.
pub(crate) struct SimUpstream {
    id: UpstreamId,
    server: ToolServer,
    network: Network,
    host: HostName,
    clock: HostClock,
    /// Present if the server is a child of this replica.
    child: Option<ChildProcess>,
    planted: Option<PlantedFault>,
}

/// The child process of one replica.
pub(crate) struct ChildProcess {
    pub(crate) fence: Arc<LeaseFence>,
    running: Mutex<Option<(FencePass, u64)>>,
}

impl ChildProcess {
    pub(crate) fn new(fence: Arc<LeaseFence>) -> Self {
        Self {
            fence,
            running: Mutex::default(),
        }
    }

    /// The running child of this tenure; it is started if there is none.
    fn enter(&self, server: &ToolServer) -> Option<(FencePass, u64)> {
        let mut running = self.running.lock();
        if let Some((pass, number)) = &*running
            && pass.is_open()
        {
            return Some((pass.clone(), *number));
        }
        let pass = self.fence.enter()?;
        let number = server.start_child();
        let (mark, over) = (pass.child_mark(), pass.over());
        tokio::spawn(async move {
            over.cancelled().await;
            sleep(CHILD_END).await;
            drop(mark);
        });
        *running = Some((pass.clone(), number));
        Some((pass, number))
    }
}

/// The parts of the world that an upstream reaches.
pub(crate) struct UpstreamWorld {
    pub(crate) server: ToolServer,
    pub(crate) network: Network,
    pub(crate) host: HostName,
    pub(crate) clock: HostClock,
    pub(crate) planted: Option<PlantedFault>,
}

impl SimUpstream {
    pub(crate) fn new(id: &str, world: UpstreamWorld, child: Option<ChildProcess>) -> Arc<Self> {
        let id = UpstreamId::new(id).unwrap_or_else(|_| panic!("no id: {id}"));
        let UpstreamWorld {
            server,
            network,
            host,
            clock,
            planted,
        } = world;
        Arc::new(Self {
            id,
            server,
            network,
            host,
            clock,
            child,
            planted,
        })
    }

    async fn make_call(self: Arc<Self>, outbound: OutboundCall) -> Reply {
        let principal = outbound
            .principal
            .owner_name()
            .map_or("", |(_, subject)| subject);
        let call = argument(&outbound, "call");
        if let (Some(_), Some(SessionKey(key))) = (&self.child, outbound.call.session) {
            let mut record = self.server.state.lock();
            record.sessions.insert(key, principal.to_owned());
        }
        let outcome = match &self.child {
            None => self.call_server(&call, principal).await,
            Some(child) => self.call_child(child, &call, principal).await,
        };
        match outcome {
            Ok(()) => Reply::ended(text(&format!("{call} for {principal}"))),
            Err(failure) => Reply::ended(failure.with_upstream(&self.id)),
        }
    }

    fn delay(&self) -> Duration {
        self.network
            .links
            .delay(self.clock.now(), self.host, TOOLS_HOST)
    }

    fn is_reachable(&self) -> bool {
        self.network.links.is_open(self.host, TOOLS_HOST)
    }

    async fn call_server(&self, call: &str, principal: &str) -> Result<(), Failure> {
        sleep(self.delay()).await;
        let mut tries = 0;
        while !self.is_reachable() {
            tries += 1;
            if tries > CONNECT_TRIES {
                let text = "The server cannot be reached";
                return Err(Failure::new(FailureKind::Unavailable, text));
            }
            sleep(RETRANSMIT).await;
        }
        self.server.execute(call, principal);
        sleep(self.work_time()).await;
        if !self.is_reachable() {
            return Err(lost());
        }
        sleep(self.delay()).await;
        Ok(())
    }

    async fn call_child(
        &self,
        child: &ChildProcess,
        call: &str,
        principal: &str,
    ) -> Result<(), Failure> {
        let unavailable = || Failure::new(FailureKind::Unavailable, "The child has ended");
        let (pass, number) = child.enter(&self.server).ok_or_else(unavailable)?;
        // The call waits for its turn at the child.
        sleep(self.work_time()).await;
        // Right before the write to the child.
        if !pass.is_open() && self.planted != Some(PlantedFault::NoFence) {
            return Err(unavailable());
        }
        let newest = self.server.newest_child();
        if number != newest {
            let text = format!("{} writes to child {number}, but {newest} runs", self.host);
            self.server.trace.violate(self.clock.now(), text);
        }
        self.server.execute(call, principal);
        sleep(self.work_time()).await;
        if pass.is_open() { Ok(()) } else { Err(lost()) }
    }

    fn work_time(&self) -> Duration {
        let random = &self.server.random;
        let millis = if random.percent(10) {
            random.between(500, 2500)
        } else {
            random.between(0, 20)
        };
        Duration::from_millis(millis)
    }
}

fn lost() -> Failure {
    let text = "The connection was lost: the tool may have run";
    Failure::new(FailureKind::ResultUnknown, text).connection_lost()
}

fn argument(outbound: &OutboundCall, name: &str) -> String {
    let arguments = outbound
        .call
        .params
        .arguments()
        .ok()
        .flatten()
        .unwrap_or_default();
    let arguments: serde_json::Value = serde_json::from_slice(&arguments).unwrap_or_default();
    arguments[name].as_str().unwrap_or_default().to_owned()
}

fn text(text: &str) -> ReplyEnd {
    let result = serde_json::json!({"content": [{"type": "text", "text": text}]});
    ReplyEnd::Complete(Payload::Whole(result.to_string().into()))
}

impl Upstream for SimUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> BoxFuture<'static, Reply> {
        Box::pin(self.make_call(outbound))
    }

    fn watch(
        self: Arc<Self>,
        _: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(async move {
            sleep(self.delay()).await;
            if self.child.is_none() && !self.is_reachable() {
                return Err(Failure::new(
                    FailureKind::Unavailable,
                    "The server cannot be reached",
                ));
            }
            let versions = self.server.lists.subscribe();
            let about = ServerDescription {
                offers: ListKinds::default().with(ListKind::Tools),
                notifies_of: ListKinds::default().with(ListKind::Tools),
                ..ServerDescription::default()
            };
            Ok(Box::new(ToolWatch {
                upstream: self,
                versions,
                about,
            }) as Box<dyn ListWatch>)
        })
    }

    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(async { Err(Failure::invalid_params("there are no resources")) })
    }

    fn carries(&self) -> CapabilityClass {
        CapabilityClass::BASE
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, change: ClientSessionChange) {
        if self.child.is_some()
            && change.is_end()
            && let Some(principal) = self.server.find_early_end(sessions)
        {
            let text = format!("the child hears that the session of {principal} ended");
            self.server.trace.violate(self.clock.now(), text);
        }
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth::default()
    }

    fn retire(self: Arc<Self>, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// A watch of the list of tools: `count`, and one tool named after the version of the list.
struct ToolWatch {
    upstream: Arc<SimUpstream>,
    versions: watch::Receiver<u64>,
    about: ServerDescription,
}

impl ToolWatch {
    fn check(&self) -> Result<(), Failure> {
        if self.upstream.child.is_some() || self.upstream.is_reachable() {
            Ok(())
        } else {
            Err(Failure::new(FailureKind::Unavailable, "The watch is lost"))
        }
    }
}

impl ListWatch for ToolWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(&mut self, _: ListKind, _: Option<String>) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let version = *self.versions.borrow_and_update();
            sleep(self.upstream.delay()).await;
            self.check()?;
            let tool = |name: String| -> Bytes {
                format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#).into()
            };
            let items = vec![tool("count".to_owned()), tool(format!("v{version}"))];
            Ok(ListPage {
                items: items.into_iter().collect(),
                ..ListPage::default()
            })
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            loop {
                self.check()?;
                tokio::select! {
                    biased;
                    changed = self.versions.changed() => {
                        if changed.is_err() {
                            std::future::pending::<()>().await;
                        }
                        sleep(self.upstream.delay()).await;
                        self.check()?;
                        return Ok(ListKinds::default().with(ListKind::Tools));
                    }
                    () = sleep(Duration::from_secs(1)) => {}
                }
            }
        })
    }
}

impl fmt::Debug for SimUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimUpstream")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
