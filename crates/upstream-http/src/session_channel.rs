//! The channel of one legacy session: the headers of its requests, its messages beside them, its
//! GET stream, and its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_core::budget::ByteReservation;
use weir_core::port::SessionListObserver;
use weir_core::upstream::ListKinds;
use weir_era::upstream_messages;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::outbox::{Outbox, OutgoingMessage, PushOutcome};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::header::EVENTS;
use weir_wire::{Message, Revision};

use crate::answer_delivery;
use crate::content_headers::{content_coding, media_type};
use crate::http_post::{self, PROTOCOL_VERSION, SESSION_ID, USUAL_HEADERS};
use crate::reading_state::{ReadingPermit, ReadingTask, SessionReading};
use crate::response_reader::ResponseReader;
use crate::retry_after::retry_after;
use crate::side_channel::StreamRefusal;

/// The timeout of the request that ends a session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);

/// The context of a queued message.
#[derive(Debug)]
struct PostContext {
    /// The client to post it by.
    http: Arc<AuthorizedHttpClient>,
    /// Its share of the memory budget.
    reservation: ByteReservation,
    /// Cancelled if it is an answer and does not arrive.
    lost: Option<CancellationToken>,
}

/// The channel of an open session.
#[derive(Debug)]
pub(crate) struct SessionChannel {
    upstream: Arc<UpstreamContext>,
    /// The HTTP client. If calls are made in the name of callers, it is that of the last caller.
    http: ArcSwap<AuthorizedHttpClient>,
    id: Option<HeaderValue>,
    revision: Revision,
    /// The messages that are posted beside its requests.
    outbox: Arc<Outbox<PostContext>>,
    /// The known lists, in a session of one client.
    lists: OnceLock<Arc<dyn SessionListObserver>>,
    /// The reader of the GET stream.
    reading: Mutex<SessionReading>,
    /// True if the GET stream is read for the progress of tasks.
    hears_of_tasks: AtomicBool,
    /// The beginning or end of the last call, or the opening if no call was made, in milliseconds
    /// of the upstream's clock.
    last_call: AtomicU64,
    /// The time of the last use, as the session's slot has it.
    slot_use: OnceLock<Arc<AtomicU64>>,
    /// True once another process owns the session and ends it.
    has_left: AtomicBool,
}

/// A call in a session. Dropping it notes the call's end: a session of a call that took long was
/// used until then.
#[derive(Debug)]
pub(crate) struct UpstreamSessionUse(Arc<SessionChannel>);

impl UpstreamSessionUse {
    pub(crate) fn new(channel: Arc<SessionChannel>) -> Self {
        Self(channel)
    }
}

impl Drop for UpstreamSessionUse {
    fn drop(&mut self) {
        self.0.record_call_end();
    }
}

impl SessionChannel {
    /// Makes the channel of a session of this revision that the server gave this id.
    pub(crate) fn new(
        upstream: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        id: Option<HeaderValue>,
        revision: Revision,
    ) -> Self {
        let id = id.map(|mut id| {
            // The id grants the use of the session.
            id.set_sensitive(true);
            id
        });
        let last_call = AtomicU64::new(upstream.clock.millis());
        Self {
            upstream,
            http: ArcSwap::from_pointee(http),
            id,
            revision,
            outbox: Arc::default(),
            lists: OnceLock::new(),
            reading: Mutex::default(),
            hears_of_tasks: AtomicBool::new(false),
            last_call,
            slot_use: OnceLock::new(),
            has_left: AtomicBool::new(false),
        }
    }

    /// Returns the id that the server gave the session, if any.
    pub(crate) fn id(&self) -> Option<&HeaderValue> {
        self.id.as_ref()
    }

    /// Returns the headers of every request in this session.
    pub(crate) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        session_headers(self.id.as_ref(), self.revision)
    }

    /// Returns the client of the last call, or the one that opened the session.
    pub(crate) fn http(&self) -> Arc<AuthorizedHttpClient> {
        self.http.load_full()
    }

    /// Sets the client of the last call.
    pub(crate) fn set_http(&self, http: Arc<AuthorizedHttpClient>) {
        self.http.store(http);
    }

    /// Queues a message that has no response. If the server does not read, the session ends.
    pub(crate) fn send(&self, message: Bytes) {
        self.queue(message, None);
    }

    /// Queues a message as [`Self::send`] does; cancels `lost` if it is an answer that does not
    /// arrive.
    pub(crate) fn send_answer(&self, message: Bytes, lost: CancellationToken) {
        self.queue(message, Some(lost));
    }

    fn queue(&self, message: Bytes, lost: Option<CancellationToken>) {
        let Some(reservation) = self
            .upstream
            .budgets
            .messages
            .try_reserve_of(self.upstream.label.owner(), message.len())
        else {
            if !self.outbox.over().is_cancelled() {
                self.outbox.end();
                self.overflowed();
            }
            return;
        };
        let context = PostContext {
            http: self.http(),
            reservation,
            lost,
        };
        let lane = match self.outbox.push(message, context) {
            PushOutcome::Queued | PushOutcome::Over => return,
            PushOutcome::Overflow => return self.overflowed(),
            PushOutcome::Idle(lane) => lane,
        };
        let (upstream, headers, outbox) =
            (self.upstream.clone(), self.headers(), self.outbox.clone());
        self.upstream.tasks.spawn(async move {
            let post = |next: OutgoingMessage<PostContext>| {
                let (upstream, headers) = (&upstream, headers.clone());
                async move {
                    let PostContext {
                        http,
                        reservation,
                        lost,
                    } = next.with;
                    let lost = lost.filter(|_| next.is_answer);
                    answer_delivery::deliver(upstream, &http, headers, next.message, lost).await;
                    drop(reservation);
                }
            };
            outbox.run(lane, post).await;
        });
    }

    /// Opens the GET stream, after the event of this id if there is one. The channel is dropped
    /// before the wait for the stream.
    ///
    /// # Errors
    /// The server has no such stream, or cannot open it now.
    pub(crate) async fn open_get_stream(
        self: Arc<Self>,
        last_event: Option<String>,
    ) -> Result<ResponseReader, StreamRefusal> {
        let mut headers = self.headers();
        headers.push((header::ACCEPT, HeaderValue::from_static(EVENTS)));
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(&id).ok()) {
            headers.push((HeaderName::from_static("last-event-id"), id));
        }
        let (http, upstream) = (self.http(), self.upstream.clone());
        drop(self);
        let sent = http.send(Method::GET, headers, Bytes::new()).await;
        let (head, body) = sent
            .map_err(|_unreachable| StreamRefusal::NotNow(None))?
            .into_parts();
        let is_stream = head.status == StatusCode::OK
            && media_type(&head.headers).as_deref() == Some(EVENTS)
            && content_coding(&head.headers).is_none();
        if is_stream {
            return Ok(ResponseReader::events(body, &upstream.responses).without_total_bound());
        }
        Err(if may_pass(head.status) {
            StreamRefusal::NotNow(retry_after(&head.headers, upstream.clock.wall()))
        } else {
            StreamRefusal::Absent
        })
    }

    /// Returns the known lists of a session of one client.
    pub(crate) fn lists(&self) -> Option<&Arc<dyn SessionListObserver>> {
        self.lists.get()
    }

    /// Keeps the known lists of the session's one client, once.
    pub(crate) fn set_lists(&self, lists: Arc<dyn SessionListObserver>) {
        let _first = self.lists.set(lists);
    }

    /// Notes if changes of its lists are received from now on, by a reader with a permit.
    pub(crate) fn set_lists_heard(&self, permit: ReadingPermit, is_heard: bool) {
        let reading = self.reading.lock();
        // A stream that is left open beside another process can still be lost.
        let may_set = reading.permits(permit) && !(is_heard && self.has_left());
        if let Some(lists) = self.lists.get().filter(|_| may_set) {
            lists.set_heard(is_heard);
        }
    }

    /// Takes a message of the GET stream about the session's own lists or their resources; false
    /// for other messages.
    pub(crate) fn take_list_message(&self, message: &Message) -> bool {
        let (Some(lists), Message::Notification(notification)) = (self.lists.get(), message) else {
            return false;
        };
        let kinds = notification
            .method
            .known()
            .map(upstream_messages::changed_lists)
            .unwrap_or_default();
        if !kinds.is_empty() {
            lists.handle_list_changed(kinds);
            self.upstream.list_changes.record(ListKinds::default());
            return true;
        }
        match upstream_messages::updated_resource(notification) {
            Some(uri) => {
                lists.handle_resource_updated(&uri);
                true
            }
            None => false,
        }
    }

    /// Notes a call in the session, at `now` in milliseconds of the upstream's clock.
    pub(crate) fn record_call(&self, now: u64) {
        if let Some(lists) = self.lists.get() {
            lists.count_call();
        }
        // The time of a first call is from before the opening.
        self.last_call.fetch_max(now, Ordering::Relaxed);
    }

    /// Notes the end of a call.
    fn record_call_end(&self) {
        let now = self.upstream.clock.millis();
        self.last_call.fetch_max(now, Ordering::Relaxed);
        if let Some(slot_use) = self.slot_use.get() {
            slot_use.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Sets the time of the last use that the session's slot has, once.
    pub(crate) fn set_slot_use(&self, slot_use: Arc<AtomicU64>) {
        let _first = self.slot_use.set(slot_use);
    }

    /// Returns the beginning or end of the last call, or the opening if no call was made, in
    /// milliseconds of the upstream's clock.
    pub(crate) fn last_call(&self) -> u64 {
        self.last_call.load(Ordering::Relaxed)
    }

    /// Notes that the GET stream is read for the progress of tasks. True if it was before.
    pub(crate) fn set_hears_of_tasks(&self) -> bool {
        self.hears_of_tasks.swap(true, Ordering::Relaxed)
    }

    /// Permits to read the GET stream until the next stop, or until another process owns the
    /// session.
    pub(crate) fn permit_reading(&self) -> ReadingPermit {
        self.reading.lock().permit()
    }

    /// True until the permit ends.
    pub(crate) fn permits(&self, permit: ReadingPermit) -> bool {
        self.is_permitted(&self.reading.lock(), permit)
    }

    fn is_permitted(&self, reading: &SessionReading, permit: ReadingPermit) -> bool {
        reading.permits(permit) && !self.has_left()
    }

    /// Makes a task the reader of the GET stream, if there is one. Without permission the task
    /// ends.
    pub(crate) fn set_reading(&self, permit: ReadingPermit, task: Option<ReadingTask>) {
        let mut reading = self.reading.lock();
        if self.is_permitted(&reading, permit) {
            if let Some(task) = task {
                reading.begin(task);
            }
        } else if !reading.is_reading() {
            self.set_unread();
        }
    }

    /// True if the GET stream is read.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.lock().is_reading()
    }

    /// Stops reading the GET stream.
    pub(crate) fn stop_reading(&self) {
        self.reading.lock().stop();
    }

    /// Stops reading a GET stream that is open for list changes only.
    pub(crate) fn stop_listening(&self) {
        let mut reading = self.reading.lock();
        reading.stop();
        self.set_unread();
    }

    /// Notes that no messages are received on a GET stream. The caller has the lock of the reader.
    fn set_unread(&self) {
        self.hears_of_tasks.store(false, Ordering::Relaxed);
        if let Some(lists) = self.lists.get() {
            lists.set_heard(false);
        }
    }

    /// Notes that another process owns the session from now on.
    pub(crate) fn leave(&self) {
        // Under the lock, so that no reader begins afterwards.
        let _reading = self.reading.lock();
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// True once another process owns the session and ends it.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// True if this process is to end the session at the server.
    fn ends_here(&self) -> bool {
        self.id.is_some() && !self.has_left()
    }

    /// Ends the session at the server. Its refusal (405) or absence is ignored.
    pub(crate) async fn close(&self) {
        self.stop_reading();
        if self.ends_here() {
            send_delete(&self.upstream, &self.http(), self.headers()).await;
        }
    }

    /// Cancelled once weir ended the session because the server did not read its messages.
    pub(crate) fn over(&self) -> &CancellationToken {
        self.outbox.over()
    }

    /// Ends the session, and drops its waiting messages, because the server does not read.
    fn overflowed(&self) {
        self.upstream.label.count_unread_session();
        self.stop_reading();
        if self.ends_here() {
            delete_later(&self.upstream, self.http().as_ref().clone(), self.headers());
        }
    }
}

/// True for a status that another request for the stream may not get. Servers that allow one stream
/// at a time answer 409 until they notice that the connection of the last one is lost.
fn may_pass(status: StatusCode) -> bool {
    let lasting = [
        StatusCode::NOT_IMPLEMENTED,
        StatusCode::HTTP_VERSION_NOT_SUPPORTED,
    ];
    let passing = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    passing.contains(&status) || status.is_server_error() && !lasting.contains(&status)
}

/// Returns the headers of every request in a session with this id, if it has one.
pub(crate) fn session_headers(
    id: Option<&HeaderValue>,
    revision: Revision,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(USUAL_HEADERS);
    if let Some(id) = id {
        headers.push((SESSION_ID, id.clone()));
    }
    if revision.has_version_header() {
        headers.push((
            PROTOCOL_VERSION,
            HeaderValue::from_static(revision.as_str()),
        ));
    }
    headers
}

/// Sends a server the end of a session, in a task that the upstream's end does not cut short.
pub(crate) fn delete_later(
    upstream: &Arc<UpstreamContext>,
    http: AuthorizedHttpClient,
    headers: Vec<(HeaderName, HeaderValue)>,
) {
    let own = upstream.clone();
    upstream
        .tasks
        .spawn_timed(async move { send_delete(&own, &http, headers).await });
}

/// Sends a server the end of a session (DELETE), within a timeout.
async fn send_delete(
    upstream: &UpstreamContext,
    http: &AuthorizedHttpClient,
    headers: Vec<(HeaderName, HeaderValue)>,
) {
    let telling = async {
        // Many sessions may end at once, and each takes a connection for this.
        let _permit = upstream.session_end_permits.acquire().await;
        http.send(Method::DELETE, headers, Bytes::new()).await
    };
    if let Ok(Err(error)) = tokio::time::timeout(DELETE_TIMEOUT, telling).await {
        let refusal = http_post::unsent_attempt(&upstream.label, error);
        tracing::debug!(upstream = %upstream.label.id, error = refusal.failure.cause(), "session delete failed");
    }
}
