//! The use of a session by open streams and by calls whose client waits: the session is renewed at
//! intervals, so that it does not become idle.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Duration, Instant, Sleep, sleep_until};
use weir_core::port::{BoxFuture, RecordKey, jittered};
use weir_layers::http::body::ResponseBody;
use weir_layers::settings::FrontSettings;
use weir_layers::state::FrontState;
use weir_listen::BodyError;
use weir_session::SessionUser;

/// The use of a session, renewed whenever its owner polls it and a renewal is due.
pub(crate) struct SessionUse {
    shared: Arc<FrontState>,
    settings: Arc<FrontSettings>,
    record: RecordKey,
    user: SessionUser,
    interval: Duration,
    /// The earliest time of the next renewal.
    next: Instant,
    renewing: Option<BoxFuture<'static, ()>>,
}

impl SessionUse {
    /// A use from now on, of the session with this record.
    pub(crate) fn new(
        shared: &Arc<FrontState>,
        settings: &Arc<FrontSettings>,
        record: RecordKey,
        user: SessionUser,
    ) -> Self {
        // Seldom: the shared store of replicas writes at most each quarter of the time.
        let interval = settings.limits.session.session_idle / 3;
        let interval = jittered(interval, &*shared.ports.random);
        Self {
            shared: shared.clone(),
            settings: settings.clone(),
            record,
            user,
            interval,
            next: Instant::now() + interval,
            renewing: None,
        }
    }

    /// Renews the session, if that is due.
    pub(crate) fn poll_renewal(&mut self, cx: &mut Task<'_>) {
        let now = Instant::now();
        if self.renewing.is_none() && now >= self.next {
            self.next = now + self.interval;
            let (shared, settings) = (self.shared.clone(), self.settings.clone());
            let (record, user) = (self.record.clone(), self.user);
            self.renewing = Some(Box::pin(async move {
                let limits = &settings.limits.session;
                shared.sessions.keep_in_use(record, user, limits).await;
            }));
        }
        if let Some(renewing) = &mut self.renewing
            && renewing.as_mut().poll(cx).is_ready()
        {
            self.renewing = None;
        }
    }
}

/// The use of a session by calls. It ends with their connection: a call that runs on without a
/// client does not keep its session open.
pub(crate) struct CallSessionUse {
    session: SessionUse,
    /// Wakes the answer when a renewal is due: the answer may be silent for longer.
    wake: Pin<Box<Sleep>>,
}

impl CallSessionUse {
    /// A use from now on, of the session with this record.
    pub(crate) fn new(
        shared: &Arc<FrontState>,
        settings: &Arc<FrontSettings>,
        record: RecordKey,
    ) -> Self {
        let session = SessionUse::new(shared, settings, record, SessionUser::Call);
        let wake = Box::pin(sleep_until(session.next));
        Self { session, wake }
    }

    /// Waits for the output, and keeps the session in use meanwhile.
    pub(crate) async fn during<T>(mut self, output: impl Future<Output = T>) -> T {
        let mut output = pin!(output);
        poll_fn(|cx| {
            let polled = output.as_mut().poll(cx);
            if polled.is_pending() {
                self.poll_while_waiting(cx);
            }
            polled
        })
        .await
    }

    /// Renews the session if that is due; registers for the next renewal.
    fn poll_while_waiting(&mut self, cx: &mut Task<'_>) {
        loop {
            self.session.poll_renewal(cx);
            if self.wake.deadline() != self.session.next {
                self.wake.as_mut().reset(self.session.next);
            }
            if self.wake.as_mut().poll(cx).is_pending() {
                return;
            }
        }
    }
}

/// The body of an answer, which keeps the session in use until its end.
pub(crate) fn body_in_session<B>(body: B, session: Option<CallSessionUse>) -> ResponseBody
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BodyError>,
{
    match session {
        Some(session) => ResponseBody::new(SessionUsingBody { body, session }),
        None => ResponseBody::new(body),
    }
}

struct SessionUsingBody<B> {
    body: B,
    session: CallSessionUse,
}

impl<B> http_body::Body for SessionUsingBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if polled.is_pending() {
            this.session.poll_while_waiting(cx);
        } else {
            this.session.session.poll_renewal(cx);
        }
        polled
    }
}
