//! Keep-alive of streams that wait. A comment at intervals detects dead connections. The stream
//! ends when its credentials end or an operator blocks its owner, and is a use of its session until
//! then. Streams of calls do not use it: they end with the call.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tokio::time::{Duration, Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_core::Principal;
use weir_core::port::{Clock, jittered};
use weir_layers::request::credential_check::{CheckOutcome, CredentialCheck};
use weir_layers::request::request_context::HttpRequestContext;
use weir_session::{LoadedSession, SessionUser, StreamCredentials, StreamKind, StreamRegistration};
use weir_wire::sse;

use crate::session::session_use::SessionUse;

/// The next comment of a waiting stream, and its latest end.
pub(crate) struct KeepAlive {
    /// The end of the credentials it was opened with. Checked whenever the stream wakes: at the
    /// latest with the next comment.
    expires: Option<SystemTime>,
    /// The check of these credentials. Absent for a part of another stream.
    check: Option<Box<CredentialCheck>>,
    is_refused: bool,
    clock: Arc<dyn Clock>,
    comment: Pin<Box<Sleep>>,
    every: Duration,
    /// Absent for a part of another stream.
    enrolled: Option<StreamRegistration>,
    /// Fires when an operator ends the stream.
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Fires when its connection gets GOAWAY: HTTP/2 alone.
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    is_closing: bool,
    /// The session of the stream, if it has one.
    session: Option<Box<SessionUse>>,
}

impl KeepAlive {
    /// The keep-alive of a stream of this principal, as long as its credentials, which are in the
    /// headers of the request, are valid.
    pub(crate) fn new(
        context: &HttpRequestContext,
        principal: &Principal,
        headers: &HeaderMap,
        kind: StreamKind,
    ) -> Self {
        let enrolled =
            context
                .shared()
                .streams
                .registry
                .register(principal, context.endpoint(), kind);
        // Blocking a principal ends the streams that are registered by then. So a stream registers
        // first and checks the block after that: no stream slips in between.
        if context
            .ports()
            .authorizer
            .may_enter(principal, context.endpoint())
            .is_err()
        {
            enrolled.end.cancel();
        }
        let ended = Box::pin(enrolled.end.clone().cancelled_owned());
        let connection = context.peer().http2.as_ref();
        let closing = connection.map(|http2| Box::pin(http2.closing().clone().cancelled_owned()));
        Self {
            expires: principal.expires(),
            check: Some(CredentialCheck::new(context, principal, headers)),
            enrolled: Some(enrolled),
            ended: Some(ended),
            closing,
            ..Self::of_part(context)
        }
    }

    /// The keep-alive of a part of another stream, which ends it: the request of this context came
    /// over another connection, and its credentials are others.
    pub(crate) fn of_part(context: &HttpRequestContext) -> Self {
        let ports = context.ports();
        let every = jittered(context.limits().keep_alive, &*ports.random);
        Self {
            expires: None,
            check: None,
            is_refused: false,
            clock: ports.clock.clone(),
            comment: Box::pin(sleep_until(Instant::now() + every)),
            every,
            enrolled: None,
            ended: None,
            closing: None,
            is_closing: false,
            session: None,
        }
    }

    /// The keep-alive of a stream of this session, which is in use while the stream is read.
    pub(crate) fn of_session(
        mut self,
        context: &HttpRequestContext,
        session: &LoadedSession,
    ) -> Self {
        let idle = context.limits().session.session_idle;
        // The session is renewed with a comment. So there are some within the time that it may be
        // idle.
        self.every = self.every.min(jittered(idle / 4, &*context.ports().random));
        self.comment.as_mut().reset(Instant::now() + self.every);
        self.session = Some(Box::new(SessionUse::new(
            context.shared(),
            &context.route.settings,
            session.record_key.clone(),
            SessionUser::Stream,
        )));
        self
    }

    /// True once the credentials ended, an operator ended the stream, or its connection got GOAWAY.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_ended() || self.has_no_credentials()
    }

    /// True once an operator ended the stream, or its connection got GOAWAY.
    pub(crate) fn is_ended(&self) -> bool {
        let enrolled = self.enrolled.as_ref();
        self.is_closing || enrolled.is_some_and(|enrolled| enrolled.end.is_cancelled())
    }

    /// True once the credentials ended.
    pub(crate) fn has_no_credentials(&self) -> bool {
        let expires = self.expires;
        self.is_refused || expires.is_some_and(|expires| expires <= self.clock.wall())
    }

    /// Goes on with other credentials, which a later request has proved.
    pub(crate) fn replace_credentials(&mut self, credentials: StreamCredentials) {
        self.expires = credentials.expires();
        self.is_refused = false;
        if let Some(check) = &mut self.check {
            check.replace(credentials);
        }
    }

    /// Ready each time a comment is due, when an operator ends the stream, when its credentials are
    /// refused, and when its connection gets GOAWAY.
    pub(crate) fn poll_due(&mut self, cx: &mut Task<'_>) -> Poll<()> {
        self.is_closing |= self
            .closing
            .as_mut()
            .is_some_and(|closing| closing.as_mut().poll(cx).is_ready());
        if self.is_closing {
            return Poll::Ready(());
        }
        let ended = self.ended.as_mut();
        if ended.is_some_and(|ended| ended.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        match self.check.as_mut().and_then(|check| check.poll_outcome(cx)) {
            Some(CheckOutcome::Valid { expires, .. }) => self.expires = expires,
            Some(CheckOutcome::Refused) => {
                self.is_refused = true;
                return Poll::Ready(());
            }
            Some(CheckOutcome::Unavailable) | None => {}
        }
        let due = self.comment.as_mut().poll(cx);
        if due.is_ready() {
            self.comment.as_mut().reset(Instant::now() + self.every);
        }
        if let Some(session) = &mut self.session {
            session.poll_renewal(cx);
        }
        due
    }
}

/// A keep-alive comment, encoded.
pub(crate) fn comment() -> Bytes {
    let mut out = BytesMut::new();
    sse::write_comment(&mut out, "");
    out.freeze()
}
