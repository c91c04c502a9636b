//! Opens streams that wait for changes: a legacy session's GET stream, and `subscriptions/listen`
//! of modern clients.

use std::cell::LazyCell;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use futures_util::FutureExt as _;
use weir_catalog::{UpdateInbox, View};
use weir_core::port::BoxFuture;
use weir_core::session_notifier::SessionReceiver;
use weir_core::upstream::{ListKind, ListKinds};
use weir_core::{Authenticated, CapabilityClass};
use weir_era::lift::LiftedRequest;
use weir_era::render;
use weir_era::subscription_filter;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::{self, FailureCause, RequestFailure, RequestResult};
use weir_layers::http::answer;
use weir_layers::http::body::{HttpAnswer, ResponseBody};
use weir_layers::request::forwarded_tasks::task_holders;
use weir_layers::request::message_labels::MessageLabels;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::session_lookup::{NoSession, load_session};
use weir_listen::{BodyError, OtherProcess};
use weir_session::{
    GetStreamGuard, LoadedSession, SessionListChanges, StreamClient, StreamKind, StreamPermit,
    UNKNOWN_VERSION,
};
use weir_wire::{Era, RequestId, Revision, scan};

use crate::keep_alive::KeepAlive;
use crate::method::followed_tasks::{self, FollowedTasks, NamedTasks};
use crate::method::listening_stream::{
    ListenGrants, ListeningKind, ListeningParts, ListeningStream, OutOfCallMessages, WatchedList,
};
use crate::method::lists;
use crate::method::subscriptions;
use crate::method::tasks;
use crate::reply::client_questions::ClientQuestions;
use crate::session::replay::{self, Resumption};

/// Opens the GET stream of a session. A second one replaces the first, which ends gracefully.
pub(crate) async fn open_get(head: RequestHead<'_>) -> RequestResult {
    let labels = MessageLabels::of(Era::Legacy, "GET");
    head.context.facts.leave_decoded(labels);
    let answered = open_session_stream(head).await;
    failure::with_labels(answered, labels)
}

async fn open_session_stream(head: RequestHead<'_>) -> RequestResult {
    let (context, sender, headers) = (head.context, head.sender, head.headers);
    let session = load_session(head)
        .await
        .map_err(|none| none.failure(None))?;
    let permit = context.take_stream_permit(sender)?;
    let permit = match replay::resume(context, &session, headers, permit).await {
        Resumption::Resumed(resumed) => return Ok(stream_response(*resumed)),
        Resumption::Ended => return Ok(failure::no_content()),
        Resumption::InSuccessor => {
            return Err(FailureCause::InProcess(OtherProcess::Successor).into());
        }
        Resumption::None(permit) => permit,
    };
    let keep_alive = KeepAlive::new(context, sender.principal(), headers, StreamKind::Session);
    let bounds = StreamBounds {
        keep_alive,
        permit: Some(permit),
    };
    Ok(listen_in_session(head, &session, bounds).await)
}

/// Opens the stream of an HTTP+SSE client's session, which goes out on the client's connection. The
/// connection has the permit of both, and ends both.
pub(crate) async fn open_on_connection(head: RequestHead<'_>) -> RequestResult {
    let session = load_session(head)
        .await
        .map_err(|none| none.failure(None))?;
    let bounds = StreamBounds {
        keep_alive: KeepAlive::of_part(head.context),
        permit: None,
    };
    Ok(listen_in_session(head, &session, bounds).await)
}

/// The ends of a stream beside that of its session, and the permit that it holds.
struct StreamBounds {
    keep_alive: KeepAlive,
    permit: Option<StreamPermit>,
}

async fn listen_in_session(
    head: RequestHead<'_>,
    session: &LoadedSession,
    StreamBounds { keep_alive, permit }: StreamBounds,
) -> HttpAnswer {
    let (context, sender) = (head.context, head.sender);
    let sessions = &context.shared().sessions;
    // Before the session is loaded again: its end reaches the stream from now on, and an end before
    // this is seen then.
    let (replaced, updates, hold) = sessions.register_get_stream(session.key);
    if sessions.end_subscriptions_of_other_claims(session.key, sender.principal()) {
        // The client gets an update of each that is renewed.
        let mut cx = Context::from_waker(Waker::noop());
        while updates.poll_updated(&mut cx).is_ready() {}
    }
    subscriptions::renew_inherited(context, sender, session);
    let changes = watched_lists(context, sender, session, &hold);
    let notifier = &context.ports().notifier;
    let messages = notifier.open_receiver(session.key, session.record.log_messages());
    if !check_session_lives(head).await {
        replaced.cancel();
    }
    let kind = ListeningKind::Get {
        hold,
        out_of_call: Box::new(out_of_call_messages(context, sender, session, messages)),
        takes_empty_events: permit.is_some() && session.record.revision.has_stream_polling(),
    };
    let parts = ListeningParts {
        changes,
        updates,
        keep_alive: keep_alive.of_session(context, session),
        permit,
    };
    stream_response(ListeningStream::new(context, parts, kind, &replaced))
}

/// Watches all lists of a session, from the versions on that its client was notified of.
fn watched_lists(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
    hold: &GetStreamGuard,
) -> Vec<WatchedList> {
    let (catalog, class) = (context.shared().catalog(), session.class_of_lists());
    let mut changes = watch(context, sender, class, ListKind::ALL.into_iter().collect());
    let declared = LazyCell::new(|| lists::declared_lists(context, class, sender.principal()));
    let settling = |list| -> BoxFuture<'static, Arc<View>> {
        let (catalog, endpoint) = (catalog.clone(), context.endpoint().clone());
        Box::pin(async move { catalog.settled_view(&endpoint, list, class).await })
    };
    continue_from_last(&mut changes, hold, |kind| declared.has(kind), settling);
    changes
}

/// Loads the session again, for the log level that was set meanwhile. False if it has ended.
async fn check_session_lives(head: RequestHead<'_>) -> bool {
    match load_session(head).await {
        Ok(now) => {
            let notifier = &head.context.ports().notifier;
            notifier.set_log_messages(&now.key, now.record.log_messages());
            true
        }
        Err(NoSession::Unknown) => false,
        // The stream may stay: the session lives, or its end reaches the stream.
        Err(
            NoSession::Missing
            | NoSession::Repeated
            | NoSession::Version
            | NoSession::Elsewhere(_)
            | NoSession::Unreadable,
        ) => true,
    }
}

fn out_of_call_messages(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
    messages: SessionReceiver,
) -> OutOfCallMessages {
    let (shared, revision) = (context.shared().clone(), session.record.revision);
    OutOfCallMessages {
        endpoint: context.endpoint().clone(),
        principal: sender.principal().clone(),
        session: session.key,
        messages,
        questions: ClientQuestions::new(shared, session.key, revision),
        session_changes: SessionListChanges::new(StreamClient {
            catalog: context.shared().catalog().clone(),
            endpoint: context.endpoint().clone(),
            class: session.class_of_lists(),
            principal: sender.principal().clone(),
            session: session.key,
        }),
    }
}

/// Opens a listen stream. Its first message acknowledges the honoured part of the filter, once that
/// is known.
pub(crate) fn open_listen(
    head: RequestHead<'_>,
    id: &RequestId,
    lifted: LiftedRequest,
) -> RequestResult {
    let (context, sender, headers) = (head.context, head.sender, head.headers);
    let bad = |text: &str| {
        let refusal = MessageRefusal::InvalidParams(text.to_owned());
        RequestFailure::message(Some(id), refusal)
    };
    let filter = lifted.params.notifications();
    let filter = filter
        .map_err(|error| bad(&error.to_string()))?
        .ok_or_else(|| bad("`notifications` is missing: say what to be told of"))?;
    let honoured = honoured_lists(context, &filter)
        .map_err(|member| bad(&format!("`notifications.{member}` is not a boolean")))?;
    let Some(resources) = subscription_filter::resources_of_filter(
        &filter,
        context.limits().subscriptions_per_client,
    ) else {
        return Err(bad(
            "`notifications.resourceSubscriptions` is not an array of strings",
        ));
    };
    let Some(tasks) =
        followed_tasks::tasks_of_filter(&filter, context.limits().subscriptions_per_client)
    else {
        return Err(bad("`notifications.taskIds` is not an array of strings"));
    };
    if followed_tasks::names_tasks(&filter) {
        tasks::require_tasks_extension(lifted.capabilities.class)
            .map_err(|failure| RequestFailure::call(id, Revision::MODERN, failure))?;
    }
    let permit = context.take_stream_permit(sender)?;
    let class = lifted.capabilities.class;
    let changes = watch(context, sender, class, honoured);
    let inbox = UpdateInbox::default();
    let granting = match resources.is_empty() && tasks.is_empty() {
        true => None,
        false => Some(subscribe_to_filter(
            context,
            sender,
            FilterNames {
                resources,
                tasks: NamedTasks {
                    names: tasks,
                    holders: task_holders(context, headers),
                },
            },
            inbox.clone(),
            lifted,
        )),
    };
    let (subscribed, tasks) = (Vec::new(), FollowedTasks::default());
    let kind = ListeningKind::Listen {
        id: id.clone(),
        identity: context.route.identity.clone(),
        subscribed,
        tasks,
    };
    let parts = ListeningParts {
        changes,
        updates: inbox.open_reader(),
        keep_alive: KeepAlive::new(context, sender.principal(), headers, StreamKind::Listen),
        permit: Some(permit),
    };
    let mut stream = ListeningStream::new(context, parts, kind, context.shared().shutdown.force());
    match granting {
        None => stream.write_message(&render::acknowledged(id.as_json(), honoured, &[], &[])),
        Some(granting) => stream.opening = Some((honoured, granting)),
    }
    Ok(stream_response(stream))
}

/// The resources and tasks that a filter names.
struct FilterNames {
    resources: Vec<Arc<str>>,
    tasks: NamedTasks,
}

/// Subscribes to the resources and tasks that a filter names.
fn subscribe_to_filter(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    named: FilterNames,
    inbox: UpdateInbox,
    lifted: LiftedRequest,
) -> BoxFuture<'static, ListenGrants> {
    let (own, sender) = (context.clone(), sender.for_payload(()));
    Box::pin(async move {
        let (names, tasks) =
            followed_tasks::follow_tasks(&own, &sender, named.tasks, &lifted).await;
        let resources = match named.resources.is_empty() {
            true => Vec::new(),
            false => {
                subscriptions::subscribe_stream(&own, &sender, named.resources, inbox, lifted).await
            }
        };
        ListenGrants {
            resources,
            names,
            tasks,
        }
    })
}

/// The lists of a filter that the endpoint has; as an error, the name of a member that is no
/// boolean.
fn honoured_lists(context: &HttpRequestContext, filter: &Bytes) -> Result<ListKinds, &'static str> {
    let catalog = context.shared().catalog();
    // The revisions with such a filter have no sessions.
    let offers = |kind| catalog.offers(context.endpoint(), kind, CapabilityClass::BASE);
    let mut honoured = ListKinds::default();
    for (kind, member) in render::SUBSCRIPTION_FILTERS {
        match scan::find(filter, member).map(|range| &filter[range]) {
            Some(b"true") if offers(kind) => honoured = honoured.with(kind),
            Some(b"true" | b"false" | b"null") | None => {}
            Some(_) => return Err(member),
        }
    }
    Ok(honoured)
}

fn watch(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    class: CapabilityClass,
    kinds: ListKinds,
) -> Vec<WatchedList> {
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
            .shared()
            .catalog()
            .watch_list(context.endpoint(), class, kind, sender.principal())
    };
    watched
        .map(|list| WatchedList {
            list,
            kind: told_as(list),
            watching: watch(list),
            settling: None,
        })
        .collect()
}

/// Continues after the session's previous stream: changes in between are announced, once for each
/// kind of notification. If the client may know any version of a list, as after it came from another
/// replica, the list is announced only if its kind is declared. A list that is not settled, as after
/// a graceful restart, is compared once it is.
fn continue_from_last(
    changes: &mut [WatchedList],
    hold: &GetStreamGuard,
    is_declared: impl Fn(ListKind) -> bool,
    settle: impl Fn(ListKind) -> BoxFuture<'static, Arc<View>>,
) {
    let mut behind = ListKinds::default();
    for WatchedList {
        list,
        kind,
        watching,
        settling,
    } in changes
    {
        let last = hold
            .last_notified(*list)
            .filter(|last| *last != watching.last() && !behind.has(*kind))
            .filter(|last| *last != UNKNOWN_VERSION || is_declared(*kind));
        if let Some(last) = last {
            watching.resume_from(last);
            let mut settled = settle(*list);
            if settled.as_mut().now_or_never().is_some() {
                behind = behind.with(*kind);
            } else {
                *settling = Some(settled);
            }
        }
        hold.record_notified(*list, watching.last());
    }
}

fn stream_response<B>(stream: B) -> HttpAnswer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    answer::events(ResponseBody::new(stream))
}
