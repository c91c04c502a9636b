//! The bodies of streams that wait for changes.
//!
//! A waiting stream is a small body that is polled: no task, no channel. It waits on a counter in
//! the catalog, and for single resources on an inbox; tasks are polled.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use opentelemetry::KeyValue;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_catalog::{ListChange, UpdateReader, View, ViewWatch};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::BoxFuture;
use weir_core::session_notifier::{SessionMessage, SessionReceiver};
use weir_core::telemetry::instruments;
use weir_core::upstream::{ListKind, ListKinds};
use weir_core::{Principal, SessionKey};
use weir_era::render::{self, WeirIdentity};
use weir_era::{server_questions, tasks};
use weir_layers::failure;
use weir_layers::request::request_context::HttpRequestContext;
use weir_router::{Router, UpstreamTask};
use weir_session::{GetStreamGuard, SessionListChanges, StreamPermit, SubscribedResource};
use weir_wire::{Era, RequestId, related_task, sse};

use crate::keep_alive::{self, KeepAlive};
use crate::method::followed_tasks::FollowedTasks;
use crate::method::subscriptions::GrantedResource;
use crate::reply::client_questions::ClientQuestions;

/// The honoured part of a filter beside lists.
pub(super) struct ListenGrants {
    pub(super) resources: Vec<GrantedResource>,
    /// The names of the followed tasks.
    pub(super) names: Vec<Arc<str>>,
    pub(super) tasks: FollowedTasks,
}

/// A list whose changes a stream announces.
pub(super) struct WatchedList {
    pub(super) list: ListKind,
    /// The list that the notification names.
    pub(super) kind: ListKind,
    pub(super) watching: ViewWatch,
    /// The wait for the first walks over the upstreams, if the client was notified of the list
    /// before them: the list without their items is none of its changes.
    pub(super) settling: Option<BoxFuture<'static, Arc<View>>>,
}

impl WatchedList {
    fn poll_changed(&mut self, cx: &mut Task<'_>) -> Poll<ListChange> {
        if let Some(settling) = &mut self.settling {
            ready!(settling.as_mut().poll(cx));
            self.settling = None;
        }
        self.watching.poll_changed(cx)
    }
}

/// The kind of a listening stream.
pub(super) enum ListeningKind {
    Get {
        hold: GetStreamGuard,
        out_of_call: Box<OutOfCallMessages>,
        /// True if the revision has events without data: other clients may take one for a message.
        takes_empty_events: bool,
    },
    Listen {
        id: RequestId,
        identity: Arc<WeirIdentity>,
        subscribed: Vec<SubscribedResource>,
        tasks: FollowedTasks,
    },
}

impl ListeningKind {
    /// Each era has its own kind of stream.
    fn era(&self) -> Era {
        match self {
            Self::Get { .. } => Era::Legacy,
            Self::Listen { .. } => Era::Modern,
        }
    }
}

/// Messages of upstreams to the client of a GET stream outside of its calls.
pub(super) struct OutOfCallMessages {
    pub(super) endpoint: EndpointId,
    pub(super) principal: Principal,
    pub(super) session: SessionKey,
    pub(super) messages: SessionReceiver,
    pub(super) questions: ClientQuestions,
    /// Changes of lists in the client's own sessions at upstreams.
    pub(super) session_changes: SessionListChanges,
}

impl OutOfCallMessages {
    /// The client's name of a task that a message belongs to, from the upstream's own id of it
    /// (2025-11-25, tasks, "Associating Task-Related Messages").
    fn name_of_task(&self, upstream: &UpstreamId, native: Option<Arc<str>>) -> Option<Arc<str>> {
        let native = &*native?;
        let task = UpstreamTask { upstream, native };
        self.router()
            .name_of_task(&self.principal, &self.endpoint, self.session, task)
    }

    fn router(&self) -> &Router {
        &self.questions.shared.router
    }

    fn poll_message(&mut self, cx: &mut Task<'_>) -> Poll<Bytes> {
        while let Poll::Ready(message) = self.messages.poll_message(cx) {
            match message {
                SessionMessage::Ask(ask) => {
                    // A question that is dropped is answered: there will be no answer.
                    let Some(mut ask) = self.router().edit_question(&self.endpoint, ask) else {
                        continue;
                    };
                    if let Some(task) = self.name_of_task(&ask.upstream, ask.related_task.take()) {
                        let params = &mut ask.question.params;
                        *params = related_task::set(params, &task);
                    }
                    self.questions.ask_running(ask);
                }
                SessionMessage::TaskProgress(upstream, task, params) => {
                    let edited = self
                        .router()
                        .edit_progress(&self.endpoint, &upstream, params);
                    let Some(mut params) = edited else {
                        continue;
                    };
                    if let Some(task) = self.name_of_task(&upstream, task) {
                        params = related_task::set(&params, &task);
                    }
                    let message = server_questions::progress_notification(&params);
                    self.questions.queue_notification(message);
                }
                SessionMessage::Log(log) => {
                    let task = related_task::find(&log.params).map(Arc::from);
                    let task = self.name_of_task(&log.upstream, task);
                    let edited = self
                        .router()
                        .edit_log(&self.endpoint, &log.upstream, log.params);
                    let message =
                        edited.and_then(|params| render::log_message(&params, task.as_deref()));
                    if let Some(message) = message {
                        self.questions.queue_log(message);
                    }
                }
                SessionMessage::ListsChanged(upstream, kinds) => {
                    self.session_changes.receive(upstream, kinds)
                }
                SessionMessage::ElicitationComplete(upstream, theirs) => {
                    let elicitation = self.questions.elicitation_id(Some((&upstream, &theirs)));
                    self.questions.notify_elicitation_complete(&elicitation);
                }
            }
        }
        // Questions of a GET stream are not asked in rounds.
        self.questions.poll(cx, drop);
        self.questions
            .next_message()
            .map_or(Poll::Pending, Poll::Ready)
    }
}

/// The body of a listening stream.
pub(super) struct ListeningStream {
    /// Bytes to write next.
    ready: Bytes,
    /// The lists to acknowledge, and the pending subscriptions. Until the acknowledgment, no other
    /// message is written.
    pub(super) opening: Option<(ListKinds, BoxFuture<'static, ListenGrants>)>,
    changes: Vec<WatchedList>,
    /// Updates of single resources.
    updates: UpdateReader,
    kind: ListeningKind,
    keep_alive: KeepAlive,
    /// The delay before the client connects again, in milliseconds.
    retry: u64,
    /// True until the client was sent the delay. It needs it before the end: a process that is
    /// killed sends none.
    lacks_retry: bool,
    /// Ends of the stream: the drain, a newer stream, or the end of the session.
    ends: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    is_over: bool,
    _permit: Option<StreamPermit>,
}

/// The parts that both kinds of listening streams have.
pub(super) struct ListeningParts {
    pub(super) changes: Vec<WatchedList>,
    pub(super) updates: UpdateReader,
    pub(super) keep_alive: KeepAlive,
    /// Absent for a stream that goes out on an HTTP+SSE connection, which has one.
    pub(super) permit: Option<StreamPermit>,
}

impl ListeningStream {
    pub(super) fn new(
        context: &HttpRequestContext,
        ListeningParts {
            changes,
            updates,
            keep_alive,
            permit,
        }: ListeningParts,
        kind: ListeningKind,
        also: &CancellationToken,
    ) -> Self {
        let ends = [context.shared().shutdown.drain(), also]
            .map(|token| Box::pin(token.clone().cancelled_owned()));
        let mut stream = Self {
            ready: Bytes::new(),
            opening: None,
            changes,
            updates,
            kind,
            keep_alive,
            retry: context.limits().listening_retry(&*context.ports().random),
            // An HTTP+SSE connection stated its own delay at its beginning.
            lacks_retry: permit.is_some(),
            ends,
            is_over: false,
            _permit: permit,
        };
        stream.write_opening();
        stream
    }

    /// Writes the beginning of a legacy stream, which has no message yet: a comment shows that it
    /// is open.
    fn write_opening(&mut self) {
        let ListeningKind::Get {
            takes_empty_events, ..
        } = self.kind
        else {
            return;
        };
        if !takes_empty_events {
            self.ready = keep_alive::comment();
            return;
        }
        let mut out = BytesMut::new();
        sse::write_opening(&mut out, self.retry);
        self.ready = out.freeze();
        self.lacks_retry = false;
    }

    pub(super) fn write_message(&mut self, message: &[u8]) {
        let mut out = BytesMut::with_capacity(message.len() + 32);
        let retry = std::mem::take(&mut self.lacks_retry).then_some(self.retry);
        sse::write_event(&mut out, None, retry, message);
        self.ready = out.freeze();
    }

    fn announce_list_change(&mut self, list: ListKind) {
        let labels = [
            KeyValue::new("era", self.kind.era().as_str()),
            KeyValue::new("kind", list.word()),
        ];
        instruments().list_changed_out.add(1, &labels);
        let message = match &self.kind {
            ListeningKind::Get { .. } => render::list_changed(list, None),
            ListeningKind::Listen { id, .. } => render::list_changed(list, Some(id.as_json())),
        };
        self.write_message(&message);
    }

    fn announce_resource_update(&mut self, uri: &str) {
        instruments()
            .updates_out
            .add(1, &[KeyValue::new("era", self.kind.era().as_str())]);
        let message = match &self.kind {
            ListeningKind::Get { .. } => render::updated(uri, None),
            ListeningKind::Listen { id, .. } => render::updated(uri, Some(id.as_json())),
        };
        self.write_message(&message);
    }

    /// Writes the acknowledgment once the subscriptions are settled. Returns true until then.
    fn poll_opening(&mut self, cx: &mut Task<'_>) -> bool {
        let Some((honoured, granting)) = &mut self.opening else {
            return false;
        };
        let Poll::Ready(granted) = granting.as_mut().poll(cx) else {
            return true;
        };
        let honoured = *honoured;
        self.opening = None;
        let (uris, held): (Vec<_>, Vec<_>) = granted.resources.into_iter().unzip();
        if let ListeningKind::Listen {
            id,
            subscribed,
            tasks,
            ..
        } = &mut self.kind
        {
            (*subscribed, *tasks) = (held, granted.tasks);
            let message = render::acknowledged(id.as_json(), honoured, &uris, &granted.names);
            self.write_message(&message);
        }
        false
    }

    /// The next change of any list, if there is one. All lists before it are polled, so that each
    /// can wake the stream.
    fn poll_changes(&mut self, cx: &mut Task<'_>) -> Option<(ListKind, ListChange)> {
        let Self { changes, kind, .. } = self;
        changes.iter_mut().find_map(|watched| {
            loop {
                let Poll::Ready(change) = watched.poll_changed(cx) else {
                    return None;
                };
                let ListeningKind::Get {
                    hold,
                    out_of_call: beside,
                    ..
                } = kind
                else {
                    return Some((watched.kind, change));
                };
                hold.record_notified(watched.list, watched.watching.last());
                if change == ListChange::EndpointGone
                    || !beside.session_changes.covers(watched.kind)
                {
                    beside.session_changes.shared(watched.kind);
                    return Some((watched.kind, change));
                }
            }
        })
    }

    /// Ends the stream gracefully: a modern listen gets its result, a client of 2025-11-25 gets the
    /// delay to reconnect after (transports, "Sending Messages to the Server").
    fn end(&mut self) {
        self.is_over = true;
        match &self.kind {
            ListeningKind::Listen { id, identity, .. } => {
                let result = render::listen_end(identity, id.as_json());
                self.write_message(&weir_wire::write::response(id, &result));
            }
            ListeningKind::Get {
                takes_empty_events: true,
                ..
            } => {
                let mut out = BytesMut::new();
                sse::write_retry(&mut out, self.retry);
                self.ready = out.freeze();
            }
            ListeningKind::Get { .. } => {}
        }
    }
}

impl http_body::Body for ListeningStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            if !this.ready.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.ready)))));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            if this.keep_alive.is_expired()
                || this
                    .ends
                    .iter_mut()
                    .any(|end| end.as_mut().poll(cx).is_ready())
            {
                this.end();
                continue;
            }
            let opening = this.poll_opening(cx);
            if !this.ready.is_empty() {
                continue;
            }
            match if opening { None } else { this.poll_changes(cx) } {
                Some((list, ListChange::Changed)) => {
                    this.announce_list_change(list);
                    continue;
                }
                Some((_, ListChange::EndpointGone)) => {
                    this.end();
                    continue;
                }
                None => {}
            }
            if !opening && let Poll::Ready(uri) = this.updates.poll_updated(cx) {
                this.announce_resource_update(&uri);
                continue;
            }
            if let ListeningKind::Listen { id, tasks: own, .. } = &mut this.kind
                && !opening
                && let Poll::Ready(state) = own.poll_state(cx)
            {
                let state = failure::task_state_for_modern(&state).ok();
                let message =
                    state.and_then(|state| tasks::task_notification(&state, id.as_json()));
                if let Some(message) = message {
                    this.write_message(&message);
                }
                continue;
            }
            if let ListeningKind::Get {
                out_of_call: beside,
                ..
            } = &mut this.kind
            {
                if let Poll::Ready(message) = beside.poll_message(cx) {
                    this.write_message(&message);
                    continue;
                }
                // After the messages of upstreams, because list changes arrive among them.
                if let Poll::Ready(list) = beside.session_changes.poll_list_change(cx) {
                    this.announce_list_change(list);
                    continue;
                }
            }
            std::task::ready!(this.keep_alive.poll_due(cx));
            this.ready = keep_alive::comment();
        }
    }
}
