//! An upstream that follows a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use weir_core::capability::CapabilityClass;
use weir_core::failure::UpstreamError;
use weir_core::port::BoxFuture;
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::upstream::{
    ListKind, ListKinds, ListPage, ListWatch, OutboundCall, ResourceUpdates, ServerDescription,
    Upstream, UpstreamHealth,
};
use weir_core::{Failure, FailureKind, Principal, Reply, UpstreamId};

use super::update_streams::UpdateStreams;

type CallAnswer = Box<dyn Fn(OutboundCall) -> Reply + Send>;

/// The script, and the record of requests.
pub(crate) struct ScriptedUpstream {
    id: UpstreamId,
    pub(crate) script: Mutex<UpstreamScript>,
    told: watch::Sender<u64>,
    cut: watch::Sender<u64>,
    pub(crate) opened: AtomicUsize,
    pub(crate) walks: AtomicUsize,
    pub(crate) calls: AtomicUsize,
    /// Searches for its sessions.
    pub(crate) searches: AtomicUsize,
    pub(crate) retired: AtomicUsize,
    pub(crate) lines: Arc<UpdateStreams>,
    /// Virtual times of the first pages.
    pub(crate) walked_at: Mutex<Vec<tokio::time::Instant>>,
}

impl std::fmt::Debug for ScriptedUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScriptedUpstream({})", self.id)
    }
}

pub(crate) struct UpstreamScript {
    pub(crate) tools: Vec<Bytes>,
    /// Further tools for clients of a class.
    pub(crate) for_class: Vec<(CapabilityClass, Bytes)>,
    /// The list for clients with sessions, if it is another one.
    pub(crate) in_sessions: Option<Vec<Bytes>>,
    pub(crate) page: usize,
    pub(crate) pushes: bool,
    pub(crate) has_tools: bool,
    /// It has resources, also if it lists none.
    pub(crate) has_resources: bool,
    pub(crate) resources: Vec<Bytes>,
    /// It declares resources, and lists these templates.
    pub(crate) templates: Vec<Bytes>,
    /// It sends updates of them.
    pub(crate) subscribes: bool,
    /// The time that its server may take for a request of weir's own.
    pub(crate) own_request_time: Duration,
    /// Calls use the accounts of their callers.
    pub(crate) uses_callers_accounts: bool,
    /// It declares prompts, and lists these.
    pub(crate) prompts: Option<Vec<Bytes>>,
    /// The same for clients with sessions alone.
    pub(crate) prompts_in_sessions: Option<Vec<Bytes>>,
    /// The lists that it does not give.
    pub(crate) list_faults: Vec<(ListKind, ScriptedListFault)>,
    pub(crate) refuse: bool,
    pub(crate) hang: bool,
    /// Calls are never answered.
    pub(crate) mute: bool,
    pub(crate) fail_page: Option<usize>,
    pub(crate) page_delay: Duration,
    pub(crate) hint: Option<(u64, bool)>,
    pub(crate) carries: CapabilityClass,
    /// The time that it takes to find out if it has sessions, which it has if it lists
    /// [`Self::in_sessions`]; absent once that is known.
    pub(crate) session_search: Option<Duration>,
    /// Its server cannot be reached.
    pub(crate) down: bool,
    /// The native ids of tasks that run in sessions of it.
    pub(crate) running_tasks: Vec<String>,
    pub(crate) answer: CallAnswer,
}

impl UpstreamScript {
    fn prompts_for(&self, class: CapabilityClass) -> Option<&Vec<Bytes>> {
        let in_sessions = self.prompts_in_sessions.as_ref();
        in_sessions
            .filter(|_| class.has(CapabilityClass::SESSIONS))
            .or(self.prompts.as_ref())
    }
}

/// The failure of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptedListFault {
    /// An error with this code.
    Code(i64),
    /// No answer.
    Silence,
    /// The connection is lost.
    Lost,
    /// The server limits the rate of requests, and asks for this pause.
    Limited(Duration),
    /// The server is busy, and asks for this pause.
    Busy(Duration),
}

/// A tool without a schema.
pub(crate) fn tool(name: &str) -> Bytes {
    Bytes::from(serde_json::json!({ "name": name }).to_string())
}

impl ScriptedUpstream {
    pub(crate) fn new(id: &str, tools: &[&str]) -> Arc<Self> {
        let answer: CallAnswer = Box::new(|_| {
            Reply::ended(ReplyEnd::Complete(Payload::Whole(Bytes::from_static(
                b"{\"content\":[]}",
            ))))
        });
        Arc::new(Self {
            id: UpstreamId::new(id).unwrap(),
            script: Mutex::new(UpstreamScript {
                tools: tools.iter().map(|name| tool(name)).collect(),
                for_class: Vec::new(),
                in_sessions: None,
                page: 100,
                pushes: true,
                has_tools: true,
                has_resources: false,
                resources: Vec::new(),
                templates: Vec::new(),
                subscribes: false,
                own_request_time: Duration::from_secs(10),
                uses_callers_accounts: false,
                prompts: None,
                prompts_in_sessions: None,
                list_faults: Vec::new(),
                refuse: false,
                hang: false,
                mute: false,
                fail_page: None,
                page_delay: Duration::ZERO,
                hint: None,
                carries: CapabilityClass::BASE,
                session_search: None,
                down: false,
                running_tasks: Vec::new(),
                answer,
            }),
            told: watch::Sender::new(0),
            cut: watch::Sender::new(0),
            opened: AtomicUsize::new(0),
            walks: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            searches: AtomicUsize::new(0),
            retired: AtomicUsize::new(0),
            lines: Arc::default(),
            walked_at: Mutex::default(),
        })
    }

    /// Changes the script.
    pub(crate) fn set(&self, change: impl FnOnce(&mut UpstreamScript)) {
        change(&mut self.script.lock());
    }

    pub(crate) fn set_tools(&self, names: &[impl AsRef<str>]) {
        self.set(|script| script.tools = names.iter().map(|name| tool(name.as_ref())).collect());
    }

    /// Announces that the list changed.
    pub(crate) fn tell(&self) {
        self.told.send_modify(|epoch| *epoch += 1);
    }

    /// Cuts every open watch.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|epoch| *epoch += 1);
    }

    pub(crate) fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }
}

impl Upstream for ScriptedUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> BoxFuture<'static, Reply> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if self.script.lock().mute {
                std::future::pending::<()>().await;
            }
            (self.script.lock().answer)(outbound)
        })
    }

    fn cancel_task(self: Arc<Self>, outbound: OutboundCall) {
        drop((self.script.lock().answer)(outbound));
    }

    fn watch(
        self: Arc<Self>,
        class: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>> {
        Box::pin(async move {
            self.opened.fetch_add(1, Ordering::SeqCst);
            let (refuse, hang, about) = {
                let script = self.script.lock();
                let some = |has: bool| {
                    if has {
                        ListKinds::default().with(ListKind::Tools)
                    } else {
                        ListKinds::default()
                    }
                };
                let (offers, pushes) = (some(script.has_tools), some(script.pushes));
                let resources = script.has_resources || script.subscribes;
                let offers = if resources {
                    offers.with(ListKind::Resources)
                } else {
                    offers
                };
                let offers = if script.templates.is_empty() {
                    offers
                } else {
                    offers.with(ListKind::Resources).with(ListKind::Templates)
                };
                let (offers, pushes) = match script.prompts_for(class) {
                    Some(_) => (
                        offers.with(ListKind::Prompts),
                        pushes.with(ListKind::Prompts),
                    ),
                    None => (offers, pushes),
                };
                let about = ServerDescription {
                    offers,
                    notifies_of: pushes,
                    subscribes: script.subscribes,
                    ..ServerDescription::default()
                };
                (script.refuse, script.hang, about)
            };
            if hang {
                std::future::pending::<()>().await;
            }
            if refuse {
                return Err(Failure::new(FailureKind::Unavailable, "connection refused")
                    .with_upstream(&self.id));
            }
            let (told, cut) = (self.told.subscribe(), self.cut.subscribe());
            let watch: Box<dyn ListWatch> = Box::new(ScriptedUpstreamWatch {
                fake: self,
                class,
                about,
                told,
                cut,
            });
            Ok(watch)
        })
    }

    fn own_request_time(&self) -> Duration {
        self.script.lock().own_request_time
    }

    fn uses_callers_accounts(&self) -> bool {
        self.script.lock().uses_callers_accounts
    }

    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        Box::pin(async move { Ok(self.lines.clone().open()) })
    }

    fn carries(&self) -> CapabilityClass {
        self.script.lock().carries
    }

    fn find_sessions(
        self: Arc<Self>,
        _call: &dyn Fn() -> OutboundCall,
    ) -> Option<BoxFuture<'static, ()>> {
        let time = self.script.lock().session_search?;
        self.searches.fetch_add(1, Ordering::SeqCst);
        Some(Box::pin(async move {
            tokio::time::sleep(time).await;
            self.set(|script| {
                script.session_search = None;
                if script.in_sessions.is_some() {
                    script.carries = script.carries.with(CapabilityClass::SESSIONS);
                }
            });
        }))
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth {
            down: self.script.lock().down,
            ..UpstreamHealth::default()
        }
    }

    fn holds_task(&self, _principal: &Principal, native: &str) -> bool {
        let script = self.script.lock();
        script.running_tasks.iter().any(|task| task == native)
    }

    fn run_out(self: Arc<Self>, _grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while !self.script.lock().running_tasks.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }

    fn retire(self: Arc<Self>, _grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.retired.fetch_add(1, Ordering::SeqCst);
        })
    }
}

struct ScriptedUpstreamWatch {
    fake: Arc<ScriptedUpstream>,
    class: CapabilityClass,
    about: ServerDescription,
    told: watch::Receiver<u64>,
    cut: watch::Receiver<u64>,
}

impl ScriptedUpstreamWatch {
    fn page(&mut self, cursor: Option<&str>) -> Result<ListPage, Failure> {
        let script = self.fake.script.lock();
        let from: usize = cursor.map_or(0, |at| at.parse().unwrap());
        let lost =
            Failure::new(FailureKind::Unavailable, "connection lost").with_upstream(&self.fake.id);
        if script.refuse
            || self.cut.has_changed().unwrap()
            || script
                .fail_page
                .is_some_and(|page| from / script.page == page)
        {
            return Err(lost);
        }
        if from == 0 {
            self.fake.walks.fetch_add(1, Ordering::SeqCst);
            self.fake.walked_at.lock().push(tokio::time::Instant::now());
        }
        let own = script
            .for_class
            .iter()
            .filter(|(class, _)| *class == self.class)
            .map(|(_, tool)| tool);
        let apart = script
            .in_sessions
            .as_ref()
            .filter(|_| self.class.has(CapabilityClass::SESSIONS));
        let all: Vec<Bytes> = apart
            .unwrap_or(&script.tools)
            .iter()
            .chain(own)
            .cloned()
            .collect();
        let to = (from + script.page).min(all.len());
        let (ttl_ms, public) = script.hint.unwrap_or_default();
        Ok(ListPage {
            items: all[from..to].to_vec(),
            next_cursor: (to < all.len()).then(|| to.to_string()),
            ttl_ms,
            hinted: script.hint.is_some(),
            public,
        })
    }
}

impl ListWatch for ScriptedUpstreamWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let (fault, items) = {
                let script = self.fake.script.lock();
                let fault = script.list_faults.iter().find(|(of, _)| *of == kind);
                let items = match kind {
                    ListKind::Prompts => {
                        script.prompts_for(self.class).cloned().unwrap_or_default()
                    }
                    ListKind::Resources => script.resources.clone(),
                    ListKind::Templates => script.templates.clone(),
                    ListKind::Tools => Vec::new(),
                };
                (fault.map(|(_, fault)| *fault), items)
            };
            match fault {
                Some(ScriptedListFault::Code(code)) => {
                    let error = UpstreamError {
                        code,
                        message: "not now".into(),
                        data: None,
                    };
                    let failure = Failure::new(FailureKind::Upstream(error), "not now");
                    return Err(failure.with_upstream(&self.fake.id));
                }
                Some(ScriptedListFault::Silence) => std::future::pending::<()>().await,
                Some(ScriptedListFault::Lost) => {
                    let failure = Failure::new(FailureKind::Unavailable, "connection lost");
                    return Err(failure.with_upstream(&self.fake.id));
                }
                Some(ScriptedListFault::Limited(pause)) => {
                    let failure = Failure::new(FailureKind::Limit, "rate limited");
                    return Err(failure.retry_after(pause).with_upstream(&self.fake.id));
                }
                Some(ScriptedListFault::Busy(pause)) => {
                    let failure = Failure::new(FailureKind::Busy, "busy");
                    return Err(failure.retry_after(pause).with_upstream(&self.fake.id));
                }
                None => {}
            }
            if kind != ListKind::Tools {
                return Ok(ListPage {
                    items,
                    ..ListPage::default()
                });
            }
            let delay = self.fake.script.lock().page_delay;
            tokio::time::sleep(delay).await;
            if self.fake.script.lock().hang {
                std::future::pending::<()>().await;
            }
            self.page(cursor.as_deref())
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            let pushes = self.about.notifies_of;
            let told = async {
                match pushes.has(ListKind::Tools) {
                    true => self.told.changed().await.unwrap(),
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.cut.changed() => Err(Failure::new(FailureKind::Unavailable, "connection lost").with_upstream(&self.fake.id)),
                () = told => Ok(ListKinds::default().with(ListKind::Tools)),
            }
        })
    }
}
