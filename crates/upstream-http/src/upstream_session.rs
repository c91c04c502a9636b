//! One legacy session over HTTP: opened by `initialize`, identified by the server's session id,
//! ended by DELETE.
//!
//! A session does not reopen itself: that is left to the pool.

mod lists;
pub(crate) mod session_handover;
mod session_opening;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio_util::sync::CancellationToken;
use weir_core::call::LogMessages;
use weir_core::port::BoxFuture;
use weir_core::reply::Reply;
use weir_core::upstream::{ListKinds, OutboundCall, ServerDescription};
use weir_core::{CapabilityClass, FailureKind, SessionKey};
use weir_era::upstream_messages::{self, ClientDeclaration, ResendProof, RevisionDialect};
use weir_era::{lower, server_questions};
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::failed_attempt::{FailedAttempt, Reach};
use weir_upstream_core::own_requests;
use weir_upstream_core::result_expectation::ResultExpectation;
use weir_upstream_core::session_log_level::SessionLogLevel;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;
use weir_wire::{LogLevel, Revision};

pub(crate) use lists::list;
pub(crate) use session_opening::OpenedUpstreamSession;

use crate::early_reply::{self, HeadOutcome};
use crate::http_call::{self, HttpCallReply};
use crate::http_post::{self, ClassifiedResponse};
use crate::pending_request::PendingRequest;
use crate::reading_state::{ReadingPermit, ReadingPublisher};
use crate::refused_response::RefusedResponse;
use crate::response_reader::ResponseReader;
use crate::session_channel::{SessionChannel, UpstreamSessionUse};
use crate::side_channel::{SideChannel, StreamRefusal};
use crate::standing_stream::{self, RequestKind, StandingStream};
use crate::standing_stream_slots::StandingStreamSlots;
use crate::stream_reader;

/// The statuses with which servers refuse a session that they do not know. The specification has
/// 404. Older servers of the Python SDK and many of the TypeScript one have 400, older ones of the
/// Rust SDK 401, and so has the TypeScript FastMCP if it authenticates its clients. Single servers
/// have 403 and 410.
const UNKNOWN_SESSION: [StatusCode; 5] = [
    StatusCode::NOT_FOUND,
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::GONE,
];

/// An open session.
#[derive(Debug)]
pub(crate) struct UpstreamSession {
    context: Arc<UpstreamContext>,
    channel: Arc<SessionChannel>,
    dialect: RevisionDialect,
    about: ServerDescription,
    /// The capabilities that were declared to the server.
    class: CapabilityClass,
    level: SessionLogLevel,
    /// The dispatcher of the standing stream, if the client can be asked there.
    standing: Option<Arc<StandingStream>>,
    /// The client that owns the session.
    client: Option<SessionKey>,
    /// True if the previous process read its standing stream.
    was_read: bool,
    /// True from the import of the session until its caller's first call, if the server is called in
    /// the names of callers.
    waits_for_caller: AtomicBool,
}

/// The client of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamSessionClient {
    /// The capabilities that are declared to the server.
    pub(crate) class: CapabilityClass,
    /// The client that owns the session.
    pub(crate) client: Option<SessionKey>,
}

/// A request of a session, before it is posted.
struct SessionPost {
    id: u64,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl UpstreamSession {
    fn new(
        context: &Arc<UpstreamContext>,
        behind: UpstreamSessionClient,
        channel: impl FnOnce(Revision) -> SessionChannel,
        result: &Bytes,
    ) -> Result<Self, FailedAttempt> {
        let (revision, about) = upstream_messages::read_initialize_result(result);
        let Some(revision) = revision else {
            let version = upstream_messages::version_text(result);
            let text = format!(
                "The upstream answered initialize with a protocol version that weir does not have: {version}"
            );
            return Err(context.label.fail(FailureKind::BadAnswer, text).into());
        };
        context.label.add_open_sessions(1);
        Ok(Self {
            context: context.clone(),
            channel: Arc::new(channel(revision)),
            dialect: RevisionDialect::new(revision),
            about,
            class: behind.class,
            level: SessionLogLevel::default(),
            standing: StandingStream::new(context, behind.class, behind.client),
            client: behind.client,
            was_read: false,
            waits_for_caller: AtomicBool::new(false),
        })
    }

    /// Starts to read the standing stream, if the client can be asked there or a slot is free. The
    /// first call waits until it is open, if the server may ask there or declares changes of its
    /// lists. Others may send a client log messages, and changes that they did not declare.
    pub(crate) async fn open_standing_stream(self: &Arc<Self>, slots: &StandingStreamSlots) {
        let Some((standing, permit)) = self.standing_stream(slots) else {
            return;
        };
        if self.standing.is_some() || !self.about.notifies_of.is_empty() {
            return self.read_standing_stream(standing, permit).await;
        }
        let session = self.clone();
        self.context.tasks.spawn_endless(async move {
            session.read_standing_stream(standing, permit).await;
        });
    }

    /// Opens the lists of a session of one client, once.
    fn open_lists(self: &Arc<Self>) {
        let is_open = self.channel.lists().is_some();
        let Some(client) = self.client.filter(|_| !is_open) else {
            return;
        };
        if self.about.offers.is_empty() {
            return;
        }
        let own: Weak<Self> = Arc::downgrade(self);
        let lists = self.context.session_lists.open(
            self.context.label.id.clone(),
            self.about.notifies_of,
            own,
        );
        lists.serves(client);
        self.channel.set_lists(lists);
    }

    fn standing_stream(
        self: &Arc<Self>,
        slots: &StandingStreamSlots,
    ) -> Option<(Arc<StandingStream>, ReadingPermit)> {
        self.open_lists();
        // Many servers announce a change only in the session whose call made it. In a session
        // without a client it is a change of the shared lists. A server without session ids knows
        // no session.
        let hears_lists =
            self.channel.lists().is_some() || self.has_id() && !self.about.notifies_of.is_empty();
        // The session may lose its slot as soon as it has it.
        let permit = self.channel.permit_reading();
        let standing = match &self.standing {
            Some(standing) => standing.clone(),
            None if hears_lists && slots.take_slot(&self.channel) => {
                StandingStream::without_questions(&self.context, self.client)
            }
            None => return None,
        };
        self.channel.set_hears_of_tasks();
        Some((standing, permit))
    }

    /// Starts to read the standing stream for the progress of tasks, in a session of a client
    /// without capabilities.
    async fn read_for_tasks(self: &Arc<Self>) {
        if !self.channel.set_hears_of_tasks() {
            let standing = StandingStream::without_questions(&self.context, self.client);
            let permit = self.channel.permit_reading();
            self.read_standing_stream(standing, permit).await;
        }
    }

    async fn read_standing_stream(
        self: &Arc<Self>,
        standing: Arc<StandingStream>,
        permit: ReadingPermit,
    ) {
        if !self.channel.permits(permit) {
            return self.channel.set_reading(permit, None);
        }
        let (publisher, _) = ReadingPublisher::new(None);
        let standing_reader =
            standing_stream::StandingReader::new(standing, self.dialect.revision());
        let reading = stream_reader::start_reading(
            &self.context,
            &self.channel,
            permit,
            publisher,
            Some(standing_reader),
        )
        .await;
        self.channel.set_reading(permit, reading);
    }

    /// Returns the server's description of itself.
    pub(crate) fn about(&self) -> &ServerDescription {
        &self.about
    }

    /// True if the server gave the session an id.
    pub(crate) fn has_id(&self) -> bool {
        self.channel.id().is_some()
    }

    pub(crate) fn dialect(&self) -> RevisionDialect {
        self.dialect
    }

    /// Makes a call at `now`, with the caller's `own` client if it has one.
    pub(crate) async fn call(
        self: &Arc<Self>,
        outbound: &OutboundCall,
        own: Option<AuthorizedHttpClient>,
        now: u64,
    ) -> Result<Reply, FailedAttempt> {
        let call = &outbound.call;
        self.channel.record_call(now);
        let http = match own {
            None => self.channel.http(),
            Some(own) => {
                let own = Arc::new(own);
                // Messages outside of calls, such as the end of the session, use the newest token.
                self.channel.set_http(own.clone());
                own
            }
        };
        let logs = self.level.granted(call.log_messages);
        if let Some(level) = self.level.missing(logs) {
            Box::pin(self.raise_log_level(level)).await?;
        }
        let id = self.context.request_ids.next_id();
        outbound.carried_revision.note(self.dialect.revision());
        let body = self.dialect.call(
            id,
            call,
            &outbound.native,
            ClientDeclaration {
                class: self.class,
                client_info: &self.context.client_info,
                extensions: &[],
                log_messages: logs,
            },
        );
        let filter = self
            .dialect
            .message_filter(id, call.wants_progress, logs)
            .with_questions(self.class, server_questions::may_ask_in(call));
        let mut headers = self.channel.headers();
        headers.extend(http_post::trace_headers(&call.trace));
        let task_owner = ResultExpectation::task_owner(self.dialect, outbound, self.class);
        let tracked = self.context.task_progress.begin(id, outbound);
        if tracked.is_some() {
            Box::pin(self.read_for_tasks()).await;
        }
        let (class, whole) = (CapabilityClass::BASE, outbound.whole);
        let expectation = ResultExpectation {
            dialect: self.dialect,
            filter,
            class,
            task_owner,
            tracked,
            needs_whole: whole,
            is_about_task: false,
            is_unsplit: false,
        };
        let request = SessionPost { id, headers, body };
        self.post(&http, request, expectation).await
    }

    /// Makes a request of weir's own and returns its whole result.
    pub(crate) async fn request(
        self: &Arc<Self>,
        method: Method,
        members: &[(&str, &[u8])],
    ) -> Result<Bytes, FailedAttempt> {
        let request = own_requests::request_with_repeat(&self.context.own_requests, method, || {
            self.request_once(method, members)
        });
        own_requests::within_list_deadline(&self.context.own_requests, request).await
    }

    async fn request_once(
        self: &Arc<Self>,
        method: Method,
        members: &[(&str, &[u8])],
    ) -> Result<Bytes, FailedAttempt> {
        let id = self.context.request_ids.next_id();
        let body = lower::legacy_request(id, method, members);
        let (dialect, filter) = (
            self.dialect,
            self.dialect.message_filter(id, false, LogMessages::None),
        );
        let expectation =
            ResultExpectation::for_own_request(dialect, filter, CapabilityClass::BASE);
        let request = SessionPost {
            id,
            headers: self.channel.headers(),
            body,
        };
        let reply = self
            .post(&self.channel.http(), request, expectation)
            .await?;
        Ok(own_requests::read_result(&self.context.own_requests, reply).await?)
    }

    /// Makes sure that the server sends log messages from `level` up.
    pub(crate) async fn raise_log_level(
        self: &Arc<Self>,
        level: LogLevel,
    ) -> Result<(), FailedAttempt> {
        if !self.about.declares_logging() {
            return Ok(());
        }
        let level_json = lower::json(level.as_str());
        let ask = || async {
            match self
                .request(Method::LoggingSetLevel, &[("level", &level_json)])
                .await
            {
                Err(refusal) if refusal.proof.is_some() || refusal.reach == Reach::NotReached => {
                    return Err(refusal);
                }
                // A server that does not take the level still serves the call.
                Err(_) => self.context.label.count_dropped("set_level_refused"),
                Ok(_) => {}
            }
            Ok(())
        };
        self.level.raise(level, ask).await
    }

    async fn post(
        self: &Arc<Self>,
        http: &AuthorizedHttpClient,
        SessionPost { id, headers, body }: SessionPost,
        expectation: ResultExpectation,
    ) -> Result<Reply, FailedAttempt> {
        // A request of weir's own has no client for messages that come before the head, and is no
        // use of the session.
        let is_call = !expectation.is_unsplit;
        let kind = if !is_call {
            RequestKind::Own
        } else if expectation.filter.may_have_questions() {
            RequestKind::AskingCall
        } else {
            RequestKind::Call
        };
        let entry = self
            .standing
            .as_ref()
            .map(|standing| standing.register(id, kind));
        let session_use = is_call.then(|| UpstreamSessionUse::new(self.channel.clone()));
        let mut pending = PendingRequest::new(Some(self.clone()), id)
            .with_registration(entry)
            .with_use(session_use);
        if pending.is_registered() && is_call {
            let (session, http) = (self.clone(), http.clone());
            let head = Box::pin(async move {
                session.read_head(http_post::post(&session.context, &http, headers, body, id).await)
            });
            let call = HttpCallReply::new(self.context.clone(), expectation, pending);
            // Boxed: the future of a call without a registration is no larger for it.
            return Box::pin(early_reply::reply(call, head)).await;
        }
        // As in `ModernServer::post`, the head is dropped before the wait for the reply.
        let head = http_post::post(&self.context, http, headers, body, id).await;
        let outcome = match self.read_head(head) {
            Ok(answer) => Either::Left(
                http_call::reply(self.context.clone(), answer, expectation, pending).map(Ok),
            ),
            Err(refusal) => {
                pending.end();
                Either::Right(refusal.map(Err))
            }
        };
        outcome.await
    }

    /// Reads the head of the response to a request.
    fn read_head(self: &Arc<Self>, head: Result<ClassifiedResponse, FailedAttempt>) -> HeadOutcome {
        let refusal = match head {
            Ok(ClassifiedResponse::Answer(answer)) => return Ok(answer),
            Ok(ClassifiedResponse::Refused(refused)) => {
                let session = self.clone();
                return Err(Box::pin(
                    async move { session.classify_refusal(refused).await },
                ));
            }
            Ok(ClassifiedResponse::Accepted) => {
                let text = "The upstream took a request and gave no answer";
                self.context.label.fail(FailureKind::BadAnswer, text).into()
            }
            Err(refusal) => refusal,
        };
        Err(Box::pin(std::future::ready(refusal)))
    }

    /// Finds out if a refusal means that the session is gone. A 404 proves it if it certainly
    /// belongs to this request; otherwise a status of [`UNKNOWN_SESSION`] does if a ping is refused,
    /// too. If the server refuses weir's credentials instead, it also refuses the next session.
    async fn classify_refusal(&self, refused: RefusedResponse) -> FailedAttempt {
        let lost = self.channel.id().is_some()
            && match refused.status {
                StatusCode::NOT_FOUND if refused.is_own() => true,
                StatusCode::NOT_FOUND => self.ping_is_refused().await,
                status if UNKNOWN_SESSION.contains(&status) && !refused.is_modern_error() => {
                    self.ping_is_refused().await
                }
                _ => false,
            };
        // A modern server may have taken its place.
        let is_modern_error = refused.is_modern_error();
        let refusal = refused.into_refusal(&self.context);
        let refusal = if is_modern_error {
            refusal.mark_era_in_doubt()
        } else {
            refusal
        };
        if lost {
            let failure = self
                .context
                .label
                .fail(FailureKind::Unavailable, "The upstream lost the session");
            return FailedAttempt::new(failure).with_proof(Some(ResendProof::SessionLost));
        }
        refusal
    }

    /// True if a ping in this session is refused as well. A server that does not know the method is
    /// not the one that opened the session.
    async fn ping_is_refused(&self) -> bool {
        let (http, id) = (
            self.channel.http().without_reuse(),
            self.context.request_ids.next_id(),
        );
        let body = lower::legacy_request(id, Method::Ping, &[]);
        let ping = own_requests::within_list_deadline(
            &self.context.own_requests,
            http_post::post(&self.context, &http, self.channel.headers(), body, id),
        )
        .await;
        matches!(ping, Ok(ClassifiedResponse::Refused(refused)) if UNKNOWN_SESSION.contains(&refused.status))
    }

    /// Ends the session at the server. Its refusal (405) or absence is ignored.
    pub(crate) async fn close(&self) {
        self.channel.close().await;
    }

    /// Ends the session at the server, in a task that the upstream's end does not cut short.
    pub(crate) fn close_later(self: Arc<Self>) {
        let context = self.context.clone();
        context.tasks.spawn_timed(async move { self.close().await });
    }

    /// Cancelled once weir ended the session because the server did not read its messages.
    pub(crate) fn over(&self) -> &CancellationToken {
        self.channel.over()
    }

    /// Returns the channel, which ends with the session.
    pub(crate) fn channel(&self) -> &Arc<SessionChannel> {
        &self.channel
    }
}

impl SideChannel for UpstreamSession {
    fn send(&self, message: Bytes) {
        self.channel.send(message);
    }

    fn send_answer(&self, message: Bytes, lost: &CancellationToken) {
        self.channel.send_answer(message, lost.clone());
    }

    fn over(&self) -> Option<CancellationToken> {
        Some(self.channel.over().clone())
    }

    fn list_changed(&self, kinds: ListKinds) -> bool {
        let Some(lists) = self.channel.lists() else {
            return false;
        };
        lists.handle_list_changed(kinds);
        true
    }

    fn cancel(&self, id: u64) {
        self.channel.send(lower::cancelled(id));
    }

    fn resume(
        self: Arc<Self>,
        last_event: String,
    ) -> BoxFuture<'static, Result<ResponseReader, StreamRefusal>> {
        let channel = self.channel.clone();
        Box::pin(channel.open_get_stream(Some(last_event)))
    }
}

impl Drop for UpstreamSession {
    fn drop(&mut self) {
        self.context.label.add_open_sessions(-1);
    }
}
