//! The pool of connections to one server: HTTP/1.1 connections, each driven by the request that
//! uses it, or HTTP/2 connections if the server has that, as many as the open streams need.

use std::future::poll_fn;
use std::sync::Arc;

use http::{Response, Uri};
use hyper_rustls::HttpsConnector;
use tokio::time::Instant;
use tower::Service;
use weir_core::Budgets;
use weir_core::budget::{ByteBudget, ConnectionSide, DescriptorBudget};

use crate::byte_stream::ByteStream;
use crate::connector::{ConnectTimeout, TimeoutConnector};
use crate::forward_proxy::ProxiedConnector;
use crate::http_error::UpstreamHttpError;
use crate::http1_connection::Http1Connection;
use crate::http2_connection::{Http2Connection, StreamSlot};
use crate::pool_state::{IDLE_TIMEOUT, RestedConnection, TRIAL_TIME, TakenConnection};
use crate::response_body::HttpResponseBody;
use crate::shared_pool::SharedPool;
use weir_http1::OutgoingRequest;

#[cfg(test)]
mod tests;

/// The connector to a server.
type UpstreamConnector = TimeoutConnector<HttpsConnector<ProxiedConnector>>;

/// The pool of connections to one server. Opens the first one with the first request.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    dial: UpstreamConnector,
    origin: Uri,
    prior_knowledge: bool,
    descriptors: DescriptorBudget,
    windows: ByteBudget,
    shared: Arc<SharedPool>,
}

/// The connection that carries a request.
enum PooledConnection {
    Http1(Http1Connection),
    Http2(Http2Connection, StreamSlot),
}

impl ConnectionPool {
    /// Makes the pool for the server of `origin`. `prior_knowledge`: HTTP/2 without negotiation.
    pub(crate) fn new(
        dial: UpstreamConnector,
        origin: Uri,
        prior_knowledge: bool,
        budgets: &Budgets,
    ) -> Arc<Self> {
        let (descriptors, windows) = (budgets.descriptors.clone(), budgets.windows.clone());
        Arc::new(Self {
            dial,
            origin,
            prior_knowledge,
            descriptors,
            windows,
            shared: Arc::default(),
        })
    }

    /// Sends one request and waits for the response's head. Dropping the future, or later the body
    /// before its end, cancels the request: the connection is closed (HTTP/1.1) or the stream reset
    /// (HTTP/2).
    ///
    /// # Errors
    /// The request got no response. A kept connection that is dead before a byte is written is
    /// replaced by another.
    pub(crate) async fn send_request(
        self: &Arc<Self>,
        request: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        loop {
            let taken = self.shared.lock().take_any(Instant::now());
            let answer = match taken {
                Some(TakenConnection::Http2(connection, slot)) => {
                    self.send_on_stream(connection, slot, request).await
                }
                Some(TakenConnection::Http1(rested)) => match self.check_rested(rested).await {
                    Some(connection) => self.send_over_idle(connection, request).await,
                    None => continue,
                },
                // On the heap: most requests need no new connection.
                None => return Box::pin(self.send_over_new(request)).await,
            };
            if !matches!(answer, Err(UpstreamHttpError::NotSent(_))) {
                return answer;
            }
        }
    }

    /// Sends a request as [`Self::send_request`] does, but never on a kept HTTP/1.1 connection.
    ///
    /// # Errors
    /// The request got no response.
    pub(crate) async fn send_on_new_connection(
        self: &Arc<Self>,
        request: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        match self.send_over_http2(request).await {
            Some(answer) => answer,
            None => self.send_over_new(request).await,
        }
    }

    /// Sends a request over an open HTTP/2 connection; absent if none takes it.
    async fn send_over_http2(
        self: &Arc<Self>,
        request: OutgoingRequest<'_>,
    ) -> Option<Result<Response<HttpResponseBody>, UpstreamHttpError>> {
        loop {
            let (connection, slot) = self.shared.lock().take_stream(Instant::now())?;
            match self.send_on_stream(connection, slot, request).await {
                Err(UpstreamHttpError::NotSent(_)) => {}
                answer => return Some(answer),
            }
        }
    }

    /// Sends a request over an HTTP/2 connection, and retires the connection if it does not take
    /// the request.
    async fn send_on_stream(
        &self,
        connection: Http2Connection,
        slot: StreamSlot,
        request: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        let sent = Box::pin(connection.send_request(request)).await;
        if let Err(UpstreamHttpError::NotSent(_)) = sent {
            // A connection may refuse new requests before it ends.
            self.shared.retire(&slot);
        }
        sent.map(|answer| {
            answer.map(|body| HttpResponseBody::http2(body, slot, self.shared.clone()))
        })
    }

    /// Sends a request over an idle HTTP/1.1 connection, and notes if it was lost.
    async fn send_over_idle(
        &self,
        connection: Http1Connection,
        request: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        let answer = self.send_over_http1(connection, request).await;
        if matches!(
            answer,
            Err(UpstreamHttpError::Closed | UpstreamHttpError::Broken(_))
        ) {
            self.shared.lock().record_loss();
        }
        answer
    }

    /// Sends a request over an HTTP/1.1 connection.
    async fn send_over_http1(
        &self,
        connection: Http1Connection,
        request: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        let (connection, head) = connection.send_request(request).await?;
        let mut answer = Response::new(HttpResponseBody::http1(
            connection,
            head.framing,
            head.persists.then(|| self.shared.clone()),
        ));
        *answer.status_mut() = head.status;
        *answer.headers_mut() = head.headers;
        Ok(answer)
    }

    async fn send_over_new(
        self: &Arc<Self>,
        request: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        let connection = match Box::pin(self.open()).await {
            Ok(connection) => connection,
            // The request waits for a stream of an open connection.
            Err(error) => match self.shared.lock().take_coming_stream(Instant::now()) {
                Some((connection, slot)) => PooledConnection::Http2(connection, slot),
                None => return Err(error),
            },
        };
        match connection {
            PooledConnection::Http1(connection) => self.send_over_http1(connection, request).await,
            PooledConnection::Http2(connection, slot) => {
                self.send_on_stream(connection, slot, request).await
            }
        }
    }

    /// Returns an idle connection if it is open and has no unread bytes.
    async fn check_rested(&self, rested: RestedConnection) -> Option<Http1Connection> {
        let RestedConnection {
            mut connection,
            mut rest,
            watch,
        } = rested;
        if let Some(watch) = watch {
            let _still_quiet = Box::pin(tokio::time::timeout(
                watch,
                connection.wait_until_disturbed(),
            ))
            .await;
            rest = TRIAL_TIME;
        }
        let is_quiet = connection.is_quiet(rest);
        // An open connection proves nothing after a short rest, nor a closed one after a long rest.
        if is_quiet == (rest >= TRIAL_TIME) {
            self.shared.lock().set_proven(is_quiet);
        }
        (is_quiet && rest < IDLE_TIMEOUT).then_some(connection)
    }

    /// Opens a connection, or takes a stream of an HTTP/2 connection that another request has
    /// opened meanwhile.
    async fn open(self: &Arc<Self>) -> Result<PooledConnection, UpstreamHttpError> {
        let descriptor = self
            .descriptors
            .take(ConnectionSide::Upstream)
            .ok_or(UpstreamHttpError::NoDescriptor)?;
        let mut dial = self.dial.clone();
        let made = async {
            poll_fn(|cx| dial.poll_ready(cx)).await?;
            dial.call(self.origin.clone()).await
        };
        let stream = ByteStream::from(made.await.map_err(|error| {
            if error.is::<ConnectTimeout>() {
                UpstreamHttpError::ConnectTimeout
            } else {
                UpstreamHttpError::Connect(error)
            }
        })?);
        if !self.prior_knowledge && !stream.is_h2() {
            return Ok(PooledConnection::Http1(Http1Connection::new(
                stream, descriptor,
            )));
        }
        let most = {
            let mut state = self.shared.lock();
            if let Some((connection, slot)) = state.take_stream(Instant::now()) {
                return Ok(PooledConnection::Http2(connection, slot));
            }
            state.assumed_max_streams()
        };
        let opened = Http2Connection::open(stream, descriptor, &self.windows, most).await?;
        let (mut state, now) = (self.shared.lock(), Instant::now());
        let (connection, slot) = state
            .take_stream(now)
            .unwrap_or_else(|| state.add_http2(opened, now));
        self.shared.start_sweep(state);
        Ok(PooledConnection::Http2(connection, slot))
    }
}
