//! An upstream whose tools are named after their behaviour.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};
use weir_core::port::BoxFuture;
use weir_core::reply::{NoteKind, Payload, ReplyEnd, ReplyEvent, ReplyNote, ReplySource};
use weir_core::upstream::{
    ClientSessionChange, DeliverUpdate, ListKind, ListKinds, ListPage, ListWatch, OutboundCall,
    RefusedSubscriptions, ResourceUpdate, ResourceUpdates, ServerDescription, Upstream,
    UpstreamHealth,
};
use weir_core::{CallResumption, CapabilityClass, Failure, Reply, SessionKey, UpstreamId};

/// Tools: `echo` answers at once, with as many bytes as its argument `size`; `ask` requires input
/// first and then returns the state that it resumed; `wait` reports progress, unless it has the
/// argument `silent`, and ends at [`FrontUpstream::release`]; `boom` reports progress, unless it has
/// that argument, and then panics. It consents to subscriptions of resources after [`FrontUpstream::consent`].
#[derive(Debug)]
pub(crate) struct FrontUpstream {
    id: UpstreamId,
    gate: Arc<Semaphore>,
    dropped: mpsc::Sender<()>,
    /// The number of calls of `wait`.
    waits: watch::Sender<usize>,
    /// The sessions that ended, each with its end.
    ended: Mutex<HashMap<SessionKey, ClientSessionChange>>,
    /// All resources that it was asked to send updates of, at each request.
    wanted: watch::Sender<Vec<Vec<Arc<str>>>>,
    consents: Arc<Semaphore>,
    /// True if its lists never come.
    holds_lists: AtomicBool,
}

impl FrontUpstream {
    /// The upstream, and the receiver of a message for each cancelled `wait`.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<()>) {
        let (dropped, taken_back) = mpsc::channel(16);
        let id = UpstreamId::new("script").unwrap();
        (
            Arc::new(Self {
                id,
                gate: Arc::new(Semaphore::new(0)),
                dropped,
                waits: watch::Sender::default(),
                ended: Mutex::default(),
                wanted: watch::Sender::default(),
                consents: Arc::new(Semaphore::new(0)),
                holds_lists: AtomicBool::new(false),
            }),
            taken_back,
        )
    }

    /// The number of calls of `wait` that began.
    pub(crate) fn waits(&self) -> usize {
        *self.waits.borrow()
    }

    /// The number of sessions with this end.
    pub(crate) fn count_ended(&self, end: ClientSessionChange) -> usize {
        let ended = self.ended.lock();
        ended.values().filter(|known| **known == end).count()
    }

    /// Waits until it is asked to send updates of exactly these resources. Returns all requests up
    /// to then.
    pub(crate) async fn wait_for_request(&self, uris: &[&str]) -> Vec<Vec<Arc<str>>> {
        let mut wanted = self.wanted.subscribe();
        let is_last = |asked: &Vec<Vec<Arc<str>>>| {
            let last = asked.last();
            last.is_some_and(|last| last.iter().map(|uri| &**uri).eq(uris.iter().copied()))
        };
        wanted.wait_for(is_last).await.unwrap().clone()
    }

    /// Consents to this many requests for updates.
    pub(crate) fn consent(&self, requests: usize) {
        self.consents.add_permits(requests);
    }

    /// Holds its lists from now on.
    pub(crate) fn hold_lists(&self) {
        self.holds_lists.store(true, Ordering::Relaxed);
    }

    /// Waits for the first `wait`.
    pub(crate) async fn wait_for_calls(&self) {
        let mut waits = self.waits.subscribe();
        waits.wait_for(|waits| *waits > 0).await.unwrap();
    }

    /// Lets one `wait` end.
    pub(crate) fn release(&self) {
        self.gate.add_permits(1);
    }
}

fn argument(outbound: &OutboundCall, name: &str) -> serde_json::Value {
    let arguments = outbound
        .call
        .params
        .arguments()
        .unwrap()
        .unwrap_or(Bytes::from_static(b"{}"));
    serde_json::from_slice::<serde_json::Value>(&arguments).unwrap()[name].take()
}

fn text(text: &str) -> ReplyEnd {
    let result = serde_json::json!({"content": [{"type": "text", "text": text}]});
    ReplyEnd::Complete(Payload::Whole(result.to_string().into()))
}

fn progress(value: u32) -> ReplyEvent {
    let params = serde_json::json!({"progressToken": "hop", "progress": value}).to_string();
    ReplyEvent::Note(ReplyNote {
        kind: NoteKind::Progress,
        params: params.into(),
    })
}

impl Upstream for FrontUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn notify_sessions(&self, sessions: &HashSet<SessionKey>, news: ClientSessionChange) {
        if news.is_end() {
            let ended = sessions.iter().map(|session| (*session, news));
            self.ended.lock().extend(ended);
        }
    }

    fn call(self: Arc<Self>, outbound: OutboundCall) -> BoxFuture<'static, Reply> {
        Box::pin(async move {
            match &*outbound.native {
                "echo" => {
                    let size = argument(&outbound, "size").as_u64().unwrap_or(0) as usize;
                    Reply::ended(text(&format!("echo{}", ".".repeat(size))))
                }
                "ask" => Reply::ended(match &outbound.call.resume {
                    Some(CallResumption::Upstream(state)) => text(&format!("resumed {state}")),
                    Some(other) => text(&format!("{other:?}")),
                    None => ReplyEnd::InputRequired(Payload::Whole(Bytes::from_static(
                        br#"{"resultType":"input_required","requestState":"the \"upstream's\" own"}"#,
                    ))),
                }),
                "boom" => {
                    let silent = argument(&outbound, "silent").as_bool().unwrap_or(false);
                    let first = (!silent).then(|| progress(1));
                    Reply::live(PanickingReply(first.into_iter().collect()))
                }
                "wait" => {
                    self.waits.send_modify(|waits| *waits += 1);
                    let (gate, held) = (self.gate.clone(), CancelReport(Some(self.dropped.clone())));
                    let silent = argument(&outbound, "silent").as_bool().unwrap_or(false);
                    let waiting = waiting_events(gate, held, silent);
                    Reply::live(Box::pin(waiting) as std::pin::Pin<Box<dyn futures_util::Stream<Item = ReplyEvent> + Send>>)
                }
                other => Reply::ended(Failure::unknown_tool(other)),
            }
        })
    }

    fn watch(
        self: Arc<Self>,
        _class: CapabilityClass,
    ) -> BoxFuture<'static, Result<Box<dyn ListWatch>, Failure>> {
        let about = ServerDescription {
            offers: ListKinds::default()
                .with(ListKind::Tools)
                .with(ListKind::Resources),
            notifies_of: ListKinds::default().with(ListKind::Tools),
            subscribes: true,
            tasks: true,
            ..ServerDescription::default()
        };
        let holds_lists = self.holds_lists.load(Ordering::Relaxed);
        Box::pin(async move {
            if holds_lists {
                std::future::pending::<()>().await;
            }
            Ok(Box::new(ToolListWatch(about)) as Box<dyn ListWatch>)
        })
    }

    fn updates(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn ResourceUpdates>, Failure>> {
        let updates = ConsentedUpdates(self);
        Box::pin(async { Ok(Box::new(updates) as Box<dyn ResourceUpdates>) })
    }

    fn carries(&self) -> CapabilityClass {
        CapabilityClass::BASE
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth::default()
    }

    fn retire(self: Arc<Self>, _grace: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// A stream of no updates.
struct ConsentedUpdates(Arc<FrontUpstream>);

impl ResourceUpdates for ConsentedUpdates {
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
        _deliver: DeliverUpdate<'a>,
    ) -> BoxFuture<'a, Result<RefusedSubscriptions, Failure>> {
        self.0
            .wanted
            .send_modify(|wanted| wanted.push(uris.to_vec()));
        Box::pin(async {
            self.0.consents.acquire().await.unwrap().forget();
            Ok(Vec::new())
        })
    }

    fn next_update(&mut self) -> BoxFuture<'_, Result<ResourceUpdate, Failure>> {
        Box::pin(std::future::pending())
    }
}

/// Progress, then the end once the gate opens.
fn waiting_events(
    gate: Arc<Semaphore>,
    held: CancelReport,
    silent: bool,
) -> impl futures_util::Stream<Item = ReplyEvent> + Send {
    futures_util::stream::unfold(
        (u8::from(silent), gate, held),
        |(step, gate, mut held)| async move {
            let event = match step {
                0 => progress(1),
                1 => {
                    gate.acquire().await.unwrap().forget();
                    held.0 = None;
                    ReplyEvent::End(text("waited"))
                }
                _ => return None,
            };
            Some((event, (step + 1, gate, held)))
        },
    )
}

/// Reports a call that is dropped before its end.
struct CancelReport(Option<mpsc::Sender<()>>);

impl Drop for CancelReport {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            // The test may be over, or not receive.
            let _unheard = told.try_send(());
        }
    }
}

struct PanickingReply(VecDeque<ReplyEvent>);

impl ReplySource for PanickingReply {
    fn poll_event(&mut self, _cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        Poll::Ready(
            self.0
                .pop_front()
                .expect("a bug while an answer is under way"),
        )
    }
}

struct ToolListWatch(ServerDescription);

impl ListWatch for ToolListWatch {
    fn about(&self) -> &ServerDescription {
        &self.0
    }

    fn list(
        &mut self,
        kind: ListKind,
        _cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        let tool =
            |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#).into();
        let resource = |uri: &str| format!(r#"{{"name":"{uri}","uri":"{uri}"}}"#).into();
        let items = match kind {
            ListKind::Tools => ["echo", "ask", "wait", "boom"].map(tool).into(),
            ListKind::Resources => ["memo:1", "memo:2"].map(resource).into(),
            ListKind::Prompts | ListKind::Templates => Vec::new(),
        };
        Box::pin(async {
            Ok(ListPage {
                items,
                ..ListPage::default()
            })
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(std::future::pending())
    }
}
