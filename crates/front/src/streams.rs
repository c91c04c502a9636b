//! Streams that wait for changes: a legacy session's GET stream, and `subscriptions/listen` of
//! modern clients.
//!
//! A waiting stream is a small body that is polled: no task, no channel. It waits on a counter in
//! the catalog, and for single resources on an inbox; tasks are polled.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Frame;
use opentelemetry::KeyValue;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_core::catalog::{ListChange, UpdateInbox, ViewWatch};
use weir_core::names::EndpointId;
use weir_core::port::Fut;
use weir_core::session_notifier::{SessionMessage, SessionReceiver};
use weir_core::telemetry::instruments;
use weir_core::upstream::{ListKind, ListKinds};
use weir_core::{Authenticated, CapabilityClass};
use weir_era::lift::LiftedRequest;
use weir_era::render::{self, WeirIdentity};
use weir_wire::{RequestId, Revision, error_code, scan, sse};

use crate::answer::{self, Refusal, labelled};
use crate::body::{Body, Broken};
use crate::doorway::refuse;
use crate::followed::{self, Followed};
use crate::keep_alive::{self, KeepAlive};
use crate::legacy::session;
use crate::observe::Answer;
use crate::places::{NoPlace, Place};
use crate::questions::Questions;
use crate::replay;
use crate::rescue::{Told, rescue};
use crate::session_news::{Client, SessionNews};
use crate::sessions::{Sessions, StreamHold, Subscribed};
use crate::stack::Context;
use crate::subscriptions::{self, Granted};
use crate::tasks;

/// Opens the GET stream of a session. A second one replaces the first, which ends gracefully.
pub(crate) async fn open_get(
    context: &Context,
    known: &Authenticated<()>,
    headers: &HeaderMap,
) -> Answer {
    let opened = match session(context, known, headers).await {
        Ok(opened) => opened,
        Err(none) => return labelled(none.answer(context, None), "GET", "legacy"),
    };
    let place = match place(context, known) {
        Ok(place) => place,
        Err(none) => return labelled(none.answer(), "GET", "legacy"),
    };
    let place = match replay::resume(context, &opened, headers, place).await {
        Ok(resumed) => return labelled(waiting(resumed), "GET", "legacy"),
        Err(place) => place,
    };
    let (replaced, inbox, hold) = Sessions::stream(&context.shared, opened.key);
    subscriptions::resume(context, known, &opened);
    let mut changes = watch(
        context,
        known,
        opened.class_of_lists(),
        ListKind::ALL.into_iter().collect(),
    );
    go_on(&mut changes, &hold);
    let line = context.shared.ports.bells.open_receiver(opened.key);
    let questions = Questions::new(context.shared.clone(), opened.key, opened.session.revision);
    let mut news = SessionNews::new(Client {
        catalog: context.shared.catalog.clone(),
        endpoint: context.endpoint.clone(),
        class: opened.class_of_lists(),
        principal: known.principal().clone(),
        session: opened.key,
    });
    // Changes that a server sent while the session had no stream are sent now.
    for (upstream, kinds) in context
        .shared
        .catalog
        .unread_session_changes(&context.endpoint, &opened.key)
    {
        news.heard(upstream, kinds);
    }
    let beside = Box::new(Beside {
        endpoint: context.endpoint.clone(),
        line,
        questions,
        news,
    });
    let retry = opened
        .session
        .revision
        .has_stream_polling()
        .then(|| context.limits().retry_millis());
    let kind = Kind::Get {
        hold,
        beside,
        retry,
    };
    let keep_alive = KeepAlive::new(context, known.principal(), "session");
    let stream = Stream::new(
        context,
        (place, keep_alive),
        (changes, inbox),
        kind,
        &replaced,
    );
    labelled(waiting(stream), "GET", "legacy")
}

/// Opens a listen stream. Its first message acknowledges the honoured part of the filter, once that
/// is known.
pub(crate) fn open_listen(
    context: &Context,
    known: &Authenticated<()>,
    id: &RequestId,
    lifted: LiftedRequest,
) -> Answer {
    let bad = |text: &str| {
        refuse(
            context,
            StatusCode::OK,
            Some(id),
            (error_code::INVALID_PARAMS, text),
        )
    };
    let filter = match lifted.params.notifications() {
        Ok(Some(filter)) => filter,
        Ok(None) => return bad("`notifications` is missing: say what to be told of"),
        Err(error) => return bad(&error.to_string()),
    };
    let honoured = match honoured(context, &filter) {
        Ok(honoured) => honoured,
        Err(member) => return bad(&format!("`notifications.{member}` is not a boolean")),
    };
    let Some(resources) = subscriptions::wanted(&filter, context.limits().subscriptions_per_client)
    else {
        return bad("`notifications.resourceSubscriptions` is not an array of strings");
    };
    let Some(tasks) = followed::wanted(&filter, context.limits().subscriptions_per_client) else {
        return bad("`notifications.taskIds` is not an array of strings");
    };
    if followed::are_named(&filter)
        && let Err(failure) = tasks::declared(lifted.capabilities.class)
    {
        let told = Told {
            revision: Revision::MODERN,
            tool_call: false,
            request: &context.name,
        };
        return rescue(&failure, told).answer(id);
    }
    let place = match place(context, known) {
        Ok(place) => place,
        Err(none) => return none.answer(),
    };
    let class = lifted.capabilities.class;
    let changes = watch(context, known, class, honoured);
    let inbox = UpdateInbox::default();
    let granting = match resources.is_empty() && tasks.is_empty() {
        true => None,
        false => Some(granting(
            context,
            known,
            (resources, inbox.clone(), tasks),
            lifted,
        )),
    };
    let (subscribed, tasks) = (Vec::new(), Followed::default());
    let kind = Kind::Listen {
        id: id.clone(),
        about: context.about.clone(),
        subscribed,
        tasks,
    };
    let keep_alive = KeepAlive::new(context, known.principal(), "listen");
    let mut stream = Stream::new(
        context,
        (place, keep_alive),
        (changes, inbox),
        kind,
        &context.shared.force,
    );
    match granting {
        None => stream.say(&render::acknowledged(id.as_json(), honoured, &[], &[])),
        Some(granting) => stream.opening = Some((honoured, granting)),
    }
    waiting(stream)
}

/// The honoured part of a filter beside lists: resources, and tasks by their names.
type Grants = (Vec<Granted>, Vec<Arc<str>>, Followed);

/// Subscribes to the resources and tasks that a filter names.
fn granting(
    context: &Context,
    known: &Authenticated<()>,
    (resources, inbox, tasks): (Vec<Arc<str>>, UpdateInbox, Vec<Arc<str>>),
    lifted: LiftedRequest,
) -> Fut<'static, Grants> {
    let (own, known) = (context.clone(), known.for_item(()));
    Box::pin(async move {
        let (names, followed) = followed::follow(&own, &known, tasks, &lifted).await;
        let granted = match resources.is_empty() {
            true => Vec::new(),
            false => subscriptions::of_stream(&own, &known, (resources, inbox), lifted).await,
        };
        (granted, names, followed)
    })
}

/// The lists of a filter that the endpoint has; as an error, the name of a member that is no
/// boolean.
fn honoured(context: &Context, filter: &Bytes) -> Result<ListKinds, &'static str> {
    let mut honoured = ListKinds::default();
    for (kind, member) in render::SUBSCRIPTION_FILTERS {
        match scan::find(filter, member).map(|range| &filter[range]) {
            Some(b"true") if context.shared.catalog.offers(&context.endpoint, kind) => {
                honoured = honoured.with(kind)
            }
            Some(b"true" | b"false" | b"null") | None => {}
            Some(_) => return Err(member),
        }
    }
    Ok(honoured)
}

fn watch(
    context: &Context,
    known: &Authenticated<()>,
    class: CapabilityClass,
    kinds: ListKinds,
) -> Vec<Watched> {
    // Clients have one notification for resources and their templates.
    let told_as = |kind| {
        if kind == ListKind::Templates {
            ListKind::Resources
        } else {
            kind
        }
    };
    let watched = ListKind::ALL
        .into_iter()
        .filter(|kind| kinds.has(told_as(*kind)));
    let watch = |kind| {
        context
            .shared
            .catalog
            .watch_list(&context.endpoint, class, kind, known.principal())
    };
    watched
        .map(|list| Watched {
            list,
            kind: told_as(list),
            watching: watch(list),
        })
        .collect()
}

/// Continues after the session's previous stream: changes in between are announced, once for each
/// kind of notification.
fn go_on(changes: &mut [Watched], hold: &StreamHold) {
    let mut behind = ListKinds::default();
    for Watched {
        list,
        kind,
        watching,
    } in changes
    {
        let last = hold
            .last_told(*list)
            .filter(|last| *last != watching.last() && !behind.has(*kind));
        if let Some(last) = last {
            watching.resume_from(last);
            behind = behind.with(*kind);
        }
        hold.tell(*list, watching.last());
    }
}

/// A list whose changes a stream announces.
struct Watched {
    list: ListKind,
    /// The list that the notification names.
    kind: ListKind,
    watching: ViewWatch,
}

fn waiting<B>(stream: B) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Broken>,
{
    answer::events(Body::new(stream))
}

/// Takes a permit for one more stream.
pub(crate) fn place(context: &Context, known: &Authenticated<()>) -> Result<Place, Refusal> {
    let limits = context.limits();
    let most = (limits.streams, limits.streams_per_principal);
    context
        .shared
        .places
        .take(known.principal(), most)
        .map_err(|none| match none {
            NoPlace::Total => answer::overload(),
            NoPlace::Principal => {
                let text = "too many streams of this client are open: close one first";
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "streams", text)
                    .with(header::RETRY_AFTER, "1")
            }
        })
}

enum Kind {
    Get {
        hold: StreamHold,
        beside: Box<Beside>,
        retry: Option<u64>,
    },
    Listen {
        id: RequestId,
        about: Arc<WeirIdentity>,
        subscribed: Vec<Subscribed>,
        tasks: Followed,
    },
}

impl Kind {
    fn era(&self) -> &'static str {
        match self {
            Self::Get { .. } => "legacy",
            Self::Listen { .. } => "modern",
        }
    }
}

/// Messages of upstreams to the client of a GET stream outside of its calls.
struct Beside {
    endpoint: EndpointId,
    line: SessionReceiver,
    questions: Questions,
    /// Changes of lists in the client's own sessions at upstreams.
    news: SessionNews,
}

impl Beside {
    fn poll_message(&mut self, cx: &mut Task<'_>) -> Poll<Bytes> {
        while let Poll::Ready(ring) = self.line.poll_message(cx) {
            match ring {
                SessionMessage::Ask(mut ask) => {
                    self.questions
                        .shared
                        .router
                        .edit_question(&self.endpoint, &mut ask);
                    self.questions.ask(ask);
                }
                SessionMessage::Notification(message) => self.questions.say(message),
                SessionMessage::ListsChanged(upstream, kinds) => self.news.heard(upstream, kinds),
                SessionMessage::ElicitationComplete(upstream, theirs) => {
                    let elicitation = self.questions.elicitation(Some((&upstream, &theirs)));
                    self.questions.completed(&elicitation);
                }
            }
        }
        // Questions of a GET stream are not asked in rounds.
        self.questions.poll(cx, drop);
        self.questions.message().map_or(Poll::Pending, Poll::Ready)
    }
}

struct Stream {
    /// Bytes to write next.
    ready: Bytes,
    /// The lists to acknowledge, and the pending subscriptions. Until the acknowledgment, no other
    /// message is written.
    opening: Option<(ListKinds, Fut<'static, Grants>)>,
    changes: Vec<Watched>,
    /// Updates of single resources.
    inbox: UpdateInbox,
    kind: Kind,
    keep_alive: KeepAlive,
    /// Ends of the stream: the drain, a newer stream, or the end of the session.
    ends: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    over: bool,
    _place: Place,
}

impl Stream {
    fn new(
        context: &Context,
        (place, keep_alive): (Place, KeepAlive),
        (changes, inbox): (Vec<Watched>, UpdateInbox),
        kind: Kind,
        also: &CancellationToken,
    ) -> Self {
        instruments()
            .streams
            .add(1, &[KeyValue::new("kind", kind.era())]);
        let ends =
            [&context.shared.drain, also].map(|token| Box::pin(token.clone().cancelled_owned()));
        // A legacy stream has no message yet; a comment shows that it is open.
        let ready = if matches!(kind, Kind::Get { .. }) {
            keep_alive::comment()
        } else {
            Bytes::new()
        };
        Self {
            ready,
            opening: None,
            changes,
            inbox,
            kind,
            keep_alive,
            ends,
            over: false,
            _place: place,
        }
    }

    fn say(&mut self, message: &[u8]) {
        let mut out = BytesMut::with_capacity(message.len() + 32);
        sse::write_event(&mut out, None, None, message);
        self.ready = out.freeze();
    }

    fn changed(&mut self, list: ListKind) {
        let labels = [
            KeyValue::new("era", self.kind.era()),
            KeyValue::new("kind", list.word()),
        ];
        instruments().list_changed_out.add(1, &labels);
        let message = match &self.kind {
            Kind::Get { .. } => render::list_changed(list, None),
            Kind::Listen { id, .. } => render::list_changed(list, Some(id.as_json())),
        };
        self.say(&message);
    }

    fn updated(&mut self, uri: &str) {
        instruments()
            .updates_out
            .add(1, &[KeyValue::new("era", self.kind.era())]);
        let message = match &self.kind {
            Kind::Get { .. } => render::updated(uri, None),
            Kind::Listen { id, .. } => render::updated(uri, Some(id.as_json())),
        };
        self.say(&message);
    }

    /// Writes the acknowledgment once the subscriptions are settled. Returns true until then.
    fn poll_opening(&mut self, cx: &mut Task<'_>) -> bool {
        let Some((honoured, granting)) = &mut self.opening else {
            return false;
        };
        let Poll::Ready((granted, names, followed)) = granting.as_mut().poll(cx) else {
            return true;
        };
        let honoured = *honoured;
        self.opening = None;
        let (uris, held): (Vec<_>, Vec<_>) = granted.into_iter().unzip();
        if let Kind::Listen {
            id,
            subscribed,
            tasks,
            ..
        } = &mut self.kind
        {
            (*subscribed, *tasks) = (held, followed);
            let message = render::acknowledged(id.as_json(), honoured, &uris, &names);
            self.say(&message);
        }
        false
    }

    /// The next change of any list, if there is one. All lists before it are polled, so that each
    /// can wake the stream.
    fn poll_changes(&mut self, cx: &mut Task<'_>) -> Option<(ListKind, ListChange)> {
        let Self { changes, kind, .. } = self;
        changes.iter_mut().find_map(|watched| {
            loop {
                let Poll::Ready(change) = watched.watching.poll_changed(cx) else {
                    return None;
                };
                let Kind::Get { hold, beside, .. } = kind else {
                    return Some((watched.kind, change));
                };
                hold.tell(watched.list, watched.watching.last());
                if change == ListChange::EndpointGone || !beside.news.covers(watched.kind) {
                    beside.news.shared(watched.kind);
                    return Some((watched.kind, change));
                }
            }
        })
    }

    /// Ends the stream gracefully: a modern listen gets its result, a client of 2025-11-25 gets the
    /// delay to reconnect after (transports, "Sending Messages to the Server").
    fn end(&mut self) {
        self.over = true;
        match &self.kind {
            Kind::Listen { id, about, .. } => {
                let result = render::listen_end(about, id.as_json());
                self.say(&weir_wire::write::response(id, &result));
            }
            Kind::Get {
                retry: Some(millis),
                ..
            } => {
                let mut out = BytesMut::new();
                sse::write_retry(&mut out, *millis);
                self.ready = out.freeze();
            }
            Kind::Get { retry: None, .. } => {}
        }
    }
}

impl http_body::Body for Stream {
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
            if this.over {
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
                    this.changed(list);
                    continue;
                }
                Some((_, ListChange::EndpointGone)) => {
                    this.end();
                    continue;
                }
                None => {}
            }
            if !opening && let Poll::Ready(uri) = this.inbox.poll_updated(cx) {
                this.updated(&uri);
                continue;
            }
            if let Kind::Listen { id, tasks: own, .. } = &mut this.kind
                && !opening
                && let Poll::Ready(state) = own.poll_state(cx)
            {
                if let Some(message) = weir_era::tasks::task_notification(&state, id.as_json()) {
                    this.say(&message);
                }
                continue;
            }
            if let Kind::Get { beside, .. } = &mut this.kind {
                if let Poll::Ready(message) = beside.poll_message(cx) {
                    this.say(&message);
                    continue;
                }
                // After the messages of upstreams, because list changes arrive among them.
                if let Poll::Ready(list) = beside.news.poll_news(cx) {
                    this.changed(list);
                    continue;
                }
            }
            std::task::ready!(this.keep_alive.poll_due(cx));
            this.ready = keep_alive::comment();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        instruments()
            .streams
            .add(-1, &[KeyValue::new("kind", self.kind.era())]);
    }
}
