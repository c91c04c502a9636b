//! Updates of single resources over HTTP. A legacy server gets a session of its own with
//! `resources/subscribe` and its GET stream. A modern one gets a `subscriptions/listen`, replaced
//! by another when the set changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;
use weir_core::port::BoxFuture;
use weir_core::upstream::{
    DeliverUpdate, OutboundCall, RefusedSubscriptions, ResourceUpdate, ResourceUpdates,
    TaskNotifications,
};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::lower;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::list_page;
use weir_upstream_core::pending_updates::PendingUpdates;
use weir_upstream_core::subscription_outcome;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;

use crate::http_watch::open_subscription;
use crate::modern_server::ModernServer;
use crate::reading_state::{ReadingPublisher, ReadingState, ReadingTask};
use crate::stream_reader;
use crate::upstream_session::{OpenedUpstreamSession, UpstreamSession};

/// The most subscription requests at the same time.
const MAX_REQUESTS_AT_ONCE: usize = 8;

/// The subscriptions to resources of a server over HTTP.
pub(crate) struct HttpUpdates {
    context: Arc<UpstreamContext>,
    subscriptions: HttpSubscriptions,
    pending: Arc<PendingUpdates>,
    /// The stream that is read now; absent for a modern server until a resource is wanted.
    reading: Option<(watch::Receiver<ReadingState>, ReadingTask)>,
}

enum HttpSubscriptions {
    /// The subscribed resources of this session.
    Session(OpenedUpstreamSession, BTreeSet<Arc<str>>),
    /// The subscribed resources of the stream that is read now.
    Modern(ModernServer, BTreeSet<Arc<str>>),
}

impl HttpUpdates {
    /// Opens the subscriptions of a session of its own.
    ///
    /// # Errors
    /// The server sends no updates, or has no stream for them.
    pub(crate) async fn legacy(
        context: Arc<UpstreamContext>,
        session: OpenedUpstreamSession,
    ) -> Result<Self, FailedAttempt> {
        let pending = Arc::<PendingUpdates>::default();
        let (publisher, seen) = ReadingPublisher::new(Some(pending.clone()));
        let (channel, subscribes) = (session.channel().clone(), session.about().subscribes);
        let subscriptions = HttpSubscriptions::Session(session, BTreeSet::new());
        let mut updates = Self {
            context,
            subscriptions,
            pending,
            reading: None,
        };
        let reading = if subscribes {
            stream_reader::start_reading(
                &updates.context,
                &channel,
                channel.permit_reading(),
                publisher,
                None,
            )
            .await
        } else {
            None
        };
        let Some(reading) = reading else {
            return Err(subscription_outcome::no_updates(&updates.context.label).into());
        };
        updates.reading = Some((seen, reading));
        Ok(updates)
    }

    /// Makes the subscriptions of a modern server, without a session.
    pub(crate) fn modern(modern: ModernServer) -> Self {
        Self {
            context: modern.context.clone(),
            subscriptions: HttpSubscriptions::Modern(modern, BTreeSet::new()),
            pending: Arc::default(),
            reading: None,
        }
    }
}

impl ResourceUpdates for HttpUpdates {
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
        deliver: DeliverUpdate<'a>,
    ) -> BoxFuture<'a, Result<RefusedSubscriptions, Failure>> {
        let pending = self.pending.clone();
        let changing = async move {
            match &mut self.subscriptions {
                HttpSubscriptions::Session(session, held) => {
                    subscribe(&self.context, session, held, uris).await
                }
                HttpSubscriptions::Modern(modern, held) => {
                    let label = &self.context.label;
                    match replace_subscription(modern, &self.pending, uris).await {
                        Ok((reading, acknowledged)) => {
                            // The old stream is closed only now, so that no update is missed in
                            // between. Updates of both streams coalesce.
                            self.reading = reading;
                            *held = acknowledged;
                            Ok(subscription_outcome::refuse_unacknowledged(
                                label, uris, held,
                            ))
                        }
                        // The old stream goes on.
                        Err(failure) => {
                            subscription_outcome::refuse_beside(label, uris, held, failure)
                        }
                    }
                }
            }
        };
        Box::pin(async move { pending.deliver_during(deliver, changing).await })
    }

    fn next_update(&mut self) -> BoxFuture<'_, Result<ResourceUpdate, Failure>> {
        Box::pin(async move {
            let lost = |why: &str| {
                let failure = self.context.label.fail(
                    FailureKind::Unavailable,
                    "The upstream's stream of updates was lost",
                );
                Err(failure.because(why.to_owned()))
            };
            let Some((seen, _)) = &mut self.reading else {
                return Ok(self.pending.next().await);
            };
            loop {
                let why = seen.borrow().lost.clone();
                if let Some(why) = why {
                    return lost(&why);
                }
                tokio::select! {
                    biased;
                    updated = self.pending.next() => return Ok(updated),
                    changed = seen.changed() => if changed.is_err() {
                        return lost("it is not read any more");
                    }
                }
            }
        })
    }
}

/// Subscribes to the status of the task that a call is about; absent if the server has no such
/// subscription.
pub(crate) async fn follow_task(
    modern: &ModernServer,
    outbound: &OutboundCall,
) -> Option<TaskNotifications> {
    let context = &modern.context;
    let class = outbound
        .call
        .capabilities
        .class
        .cut(context.permissions.carries(modern.dialect));
    let (stream, params) =
        open_subscription(modern, class, list_page::task_filter(&outbound.native))
            .await
            .ok()?
            .opened()
            .ok()?;
    if !list_page::acknowledges_task(&params, &outbound.native) {
        return None;
    }
    let (publisher, seen) = ReadingPublisher::for_task();
    let reading = stream_reader::read_subscription(context, stream, publisher);
    let updates = stream::unfold((seen, reading), |(mut seen, reading)| async move {
        seen.changed().await.ok()?;
        let is_lost = seen.borrow().lost.is_some();
        (!is_lost).then_some(((), (seen, reading)))
    });
    Some(Box::pin(updates))
}

/// Subscribes and unsubscribes the difference between the held and the wanted resources.
async fn subscribe(
    context: &UpstreamContext,
    session: &Arc<UpstreamSession>,
    held: &mut BTreeSet<Arc<str>>,
    uris: &[Arc<str>],
) -> Result<RefusedSubscriptions, Failure> {
    let wanted: BTreeSet<Arc<str>> = uris.iter().cloned().collect();
    let new = wanted
        .difference(held)
        .cloned()
        .map(|uri| (Method::ResourcesSubscribe, uri));
    let old = held
        .difference(&wanted)
        .cloned()
        .map(|uri| (Method::ResourcesUnsubscribe, uri));
    let asks: Vec<_> = new.chain(old).collect();
    let ask = |(method, uri): (Method, Arc<str>)| async move {
        let outcome = session
            .request(method, &[("uri", &lower::json(&uri))])
            .await;
        (method, uri, outcome)
    };
    // The other requests for subscriptions wait meanwhile, so that one resource which the server
    // hangs on must not hold up all.
    let deadline = tokio::time::sleep(context.own_requests.deadlines.list);
    let outcomes: Vec<_> = stream::iter(asks)
        .map(ask)
        .buffer_unordered(MAX_REQUESTS_AT_ONCE)
        .take_until(deadline)
        .collect()
        .await;
    let mut failures = BTreeMap::new();
    for (method, uri, outcome) in outcomes {
        match outcome {
            Err(attempt) if attempt.is_server_lost() => return Err(attempt.failure),
            Ok(_) if method == Method::ResourcesSubscribe => drop(held.insert(uri)),
            Err(attempt) if method == Method::ResourcesSubscribe => {
                failures.insert(uri, attempt.failure);
            }
            Err(_) => context.label.count_dropped("unsubscribe_refused"),
            Ok(_) => {}
        }
    }
    // Further updates of a resource that the server did not unsubscribe are ignored.
    held.retain(|uri| wanted.contains(uri));
    let label = &context.label;
    Ok(subscription_outcome::refuse_failed(
        label, uris, held, failures,
    ))
}

type WatchedStream = (watch::Receiver<ReadingState>, ReadingTask);

/// Opens a subscription to exactly these resources, and returns the acknowledged ones.
async fn replace_subscription(
    modern: &ModernServer,
    pending: &Arc<PendingUpdates>,
    uris: &[Arc<str>],
) -> Result<(Option<WatchedStream>, BTreeSet<Arc<str>>), Failure> {
    if uris.is_empty() {
        return Ok((None, BTreeSet::new()));
    }
    let listened = open_subscription(
        modern,
        CapabilityClass::BASE,
        list_page::updates_filter(uris),
    )
    .await;
    let answer = listened.map_err(|attempt| attempt.failure)?;
    let (stream, params) = answer.opened()?;
    let acknowledged = list_page::acknowledged_of(uris, &params);
    if acknowledged.is_empty() {
        return Ok((None, acknowledged));
    }
    let (publisher, seen) = ReadingPublisher::new(Some(pending.clone()));
    let reading = stream_reader::read_subscription(&modern.context, stream, publisher);
    Ok((Some((seen, reading)), acknowledged))
}
