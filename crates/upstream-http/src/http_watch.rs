//! Watches over HTTP: a legacy session of its own with a GET stream, or a modern
//! `subscriptions/listen`.
//!
//! A task reads the stream and only sets a mark: changes during a walk of the lists are kept, and
//! coalesce to one. The task is aborted when the watch is dropped, which closes its connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;
use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_era::upstream_messages;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::list_changes::{ListChangeCounts, ListChangeReader};
use weir_upstream_core::list_page::{self, PageCursor, ToolListRules, ToolTasks, parse_page};
use weir_upstream_core::list_subscription::ListSubscription;
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::subscription_outcome::{self, SubscriptionAnswer, SubscriptionMessage};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Message;
use weir_wire::method::Method;

use crate::http_post::{self, ClassifiedResponse, unreadable_failure};
use crate::http_second_era::HttpSecondEra;
use crate::modern_server::ModernServer;
use crate::reading_state::{ReadingPublisher, ReadingState, ReadingTask};
use crate::response_part::ResponsePart;
use crate::response_reader::ResponseReader;
use crate::stream_reader::{self, BRIEF_STREAM, HttpSubscription};
use crate::upstream_session::{self, OpenedUpstreamSession};

/// A watch on a server over HTTP.
pub(crate) struct HttpWatch {
    context: Arc<UpstreamContext>,
    source: HttpWatchSource,
    about: ServerDescription,
    /// The lists of which the server declares that it sends changes.
    declared: ListKinds,
    /// The request for the subscription of a modern server.
    subscription: ListSubscription<HttpSubscription>,
    seen: watch::Receiver<ReadingState>,
    /// Changes that came on the streams of calls.
    overheard: ListChangeReader,
    /// The part of `seen` that was read so far.
    read: ListChangeCounts,
    reader: Option<ReadingTask>,
    /// The time since which it is read.
    reading_since: Instant,
}

enum HttpWatchSource {
    Session(OpenedUpstreamSession),
    Modern(ModernServer, CapabilityClass, Arc<HttpSecondEra>),
}

impl HttpWatch {
    /// Watches in a session of its own. Without a GET stream the lists are polled.
    pub(crate) async fn legacy(
        context: Arc<UpstreamContext>,
        session: OpenedUpstreamSession,
    ) -> Self {
        let mut about = session.about().clone();
        let (publisher, seen) = ReadingPublisher::new(None);
        let overheard = context.list_changes.reader();
        let reader = stream_reader::start_reading(
            &context,
            session.channel(),
            session.channel().permit_reading(),
            publisher,
            None,
        )
        .await;
        if reader.is_none() {
            about.notifies_of = ListKinds::default();
        }
        Self {
            subscription: ListSubscription::none(context.clone()),
            context,
            source: HttpWatchSource::Session(session),
            declared: about.notifies_of,
            about,
            seen,
            overheard,
            read: ListChangeCounts::default(),
            reader,
            reading_since: Instant::now(),
        }
    }

    /// Subscribes to changes, if the server declares that it sends them. The lists of a server that
    /// refuses, or has not acknowledged the subscription yet, are polled.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(crate) async fn modern(
        modern: ModernServer,
        mut about: ServerDescription,
        class: CapabilityClass,
        second_era: Arc<HttpSecondEra>,
    ) -> Result<Self, FailedAttempt> {
        let context = modern.context.clone();
        let overheard = context.list_changes.reader();
        let declared = std::mem::take(&mut about.notifies_of);
        let subscription = list_subscription(&modern, class, declared);
        let mut watch = Self {
            context,
            source: HttpWatchSource::Modern(modern, class, second_era),
            about,
            declared,
            subscription,
            seen: ReadingPublisher::new(None).1,
            overheard,
            read: ListChangeCounts::default(),
            reader: None,
            reading_since: Instant::now(),
        };
        if let Some((stream, params)) = watch.subscription.opened_first().await? {
            watch.read_subscription(stream, &params);
        }
        Ok(watch)
    }

    /// Reads the subscription of a modern server to the lists that it acknowledged.
    fn read_subscription(&mut self, stream: HttpSubscription, params: &Bytes) {
        let honoured = list_page::acknowledged_lists(params);
        self.about.notifies_of = self.declared.and(honoured);
        if honoured.is_empty() {
            return;
        }
        let (publisher, seen) = ReadingPublisher::new(None);
        let reader = stream_reader::read_subscription(&self.context, stream, publisher);
        self.seen = seen;
        self.read = ListChangeCounts::default();
        self.reader = Some(reader);
        self.reading_since = Instant::now();
    }

    /// Opens a subscription again that the server ended with its result: it may do so at any time,
    /// for example when a token ends. Returns false if the watch is lost. Cancel safe.
    async fn reopen(&mut self) -> Result<bool, Failure> {
        let HttpWatchSource::Modern(modern, class, _) = &self.source else {
            return Ok(false);
        };
        // A server that ends each subscription at once is asked after a wait, as for a loss.
        if !self.seen.borrow().is_ended || self.reading_since.elapsed() < BRIEF_STREAM {
            return Ok(false);
        }
        let mut subscription = list_subscription(modern, *class, self.declared);
        let opened = subscription.opened_first().await;
        let Some((stream, params)) = opened.map_err(|attempt| attempt.failure)? else {
            return Ok(false);
        };
        self.subscription = subscription;
        self.read_subscription(stream, &params);
        Ok(!self.about.notifies_of.is_empty())
    }
}

/// The subscription to changes of these lists.
fn list_subscription(
    modern: &ModernServer,
    class: CapabilityClass,
    declared: ListKinds,
) -> ListSubscription<HttpSubscription> {
    let asked = modern.clone();
    ListSubscription::for_lists(modern.context.clone(), declared, move |filter| {
        let modern = asked.clone();
        async move { open_subscription(&modern, class, filter).await }
    })
}

impl ListWatch for HttpWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let (modern, class, second_era) = match &self.source {
                HttpWatchSource::Session(session) => {
                    return upstream_session::list(session, kind, cursor).await;
                }
                HttpWatchSource::Modern(modern, class, second_era) => (modern, *class, second_era),
            };
            let cursor = PageCursor::new(cursor.as_deref());
            let outcome = modern
                .request(class, kind.method(), &cursor.members())
                .await;
            parse_page(
                &self.context.record,
                modern.dialect,
                kind,
                outcome,
                ToolListRules {
                    drop_bad_mirrors: true,
                    tasks: ToolTasks::of(self.about.tasks, second_era.known().is_some()),
                },
            )
        })
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            loop {
                let reading = self.reader.is_some();
                let lost = self.seen.borrow().lost.clone();
                if let Some(why) = lost {
                    if self.reopen().await? {
                        // Changes in between are unknown.
                        return Ok(ListKinds::default());
                    }
                    let text = "The upstream's change stream was lost";
                    return Err(self
                        .context
                        .label
                        .fail(FailureKind::Unavailable, text)
                        .because(why.to_string()));
                }
                tokio::select! {
                    notification = self.seen.changed(), if reading => {
                        if notification.is_err() {
                            return Err(self.context.label.fail(FailureKind::Unavailable, "The upstream's change stream ended"));
                        }
                        let seen = self.seen.borrow_and_update();
                        if seen.lost.is_none() {
                            let counts = seen.list_changes;
                            return Ok(counts.since(&std::mem::replace(&mut self.read, counts)));
                        }
                    }
                    (stream, params) = self.subscription.opened() => {
                        self.read_subscription(stream, &params);
                        // Changes before the subscription are unknown.
                        if !self.about.notifies_of.is_empty() {
                            return Ok(ListKinds::default());
                        }
                    }
                    notification = self.overheard.changed() => {
                        return notification.map_err(|_| self.context.label.fail(FailureKind::Unavailable, "The upstream is gone"));
                    }
                }
            }
        })
    }
}

/// Opens `subscriptions/listen` with this filter. Whatever the server answers instead of an
/// acknowledgment is its refusal.
///
/// # Errors
/// The server was not reached.
pub(crate) async fn open_subscription(
    modern: &ModernServer,
    class: CapabilityClass,
    wanted: Bytes,
) -> Result<SubscriptionAnswer<HttpSubscription>, FailedAttempt> {
    let context = &modern.context;
    let id = context.request_ids.next_id();
    let body = context.listen_request(modern.dialect, id, class, &wanted);
    subscription_outcome::within_deadline(&context.own_requests, async {
        let headers = modern.headers(Method::SubscriptionsListen);
        let mut stream = match http_post::post(context, &modern.http, headers, body, id).await {
            Ok(ClassifiedResponse::Answer(answer)) => answer.without_total_bound(),
            Ok(ClassifiedResponse::Accepted) => {
                let text = "The upstream took a subscription and opened no stream for it";
                let failure = context.label.fail(FailureKind::BadAnswer, text);
                return Ok(SubscriptionAnswer::Refused(failure));
            }
            Ok(ClassifiedResponse::Refused(refused)) => {
                let failure = refused.into_refusal(context).failure;
                return Ok(SubscriptionAnswer::Refused(failure));
            }
            // The body is no message, or a proxy in between takes no stream. The requests for the
            // lists show if the server is gone.
            Err(attempt)
                if attempt.failure.is_connection_lost()
                    || matches!(attempt.failure.kind(), FailureKind::BadAnswer) =>
            {
                return Ok(SubscriptionAnswer::Refused(attempt.failure));
            }
            Err(attempt) => return Err(attempt),
        };
        Ok(
            match wait_for_acknowledgment(context, &mut stream, id).await {
                Ok(params) => SubscriptionAnswer::Open(HttpSubscription { stream, id }, params),
                Err(failure) => SubscriptionAnswer::Refused(failure),
            },
        )
    })
    .await
}

/// Waits for the acknowledgment of the subscription `id`, and returns its `params`.
///
/// # Errors
/// The server refuses the subscription, or its stream ends or breaks before.
async fn wait_for_acknowledgment(
    context: &UpstreamContext,
    stream: &mut ResponseReader,
    id: u64,
) -> Result<Bytes, Failure> {
    loop {
        let part = stream.part().await;
        let bytes = match part.map_err(|error| unreadable_failure(&context.label, error))? {
            Some(ResponsePart::Message(bytes)) => bytes,
            Some(_) => continue,
            None => {
                return Err(subscription_outcome::ended_before_acknowledgment(
                    &context.label,
                ));
            }
        };
        let is_other = |message: &Message| {
            matches!(message, Message::Response(_))
                && upstream_messages::request_of(message) != Some(id)
        };
        let message = Message::parse(bytes, &message_limits());
        let message = message.ok().filter(|message| !is_other(message));
        match message.map(|message| subscription_outcome::classify(context, message)) {
            Some(SubscriptionMessage::Acknowledged(params)) => return Ok(params),
            Some(SubscriptionMessage::Refused(failure)) => return Err(failure),
            Some(SubscriptionMessage::Other) | None => {
                context.label.count_dropped("before_acknowledgment");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;
    use weir_testkit::ScriptedServer;

    use super::*;
    use crate::tests::test_upstream::TestUpstream;

    #[tokio::test]
    async fn subscription_to_no_lists_is_not_waited_for() {
        let server = ScriptedServer::start(|_| Vec::new()).await;
        let context = TestUpstream::new(&server).context;
        let mut subscription =
            ListSubscription::<()>::for_lists(context, ListKinds::default(), |_| pending());
        let opened = subscription.opened_first().now_or_never();
        assert!(matches!(opened, Some(Ok(None))));
    }
}
