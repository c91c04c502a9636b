//! One connection from accept to close: TLS, the choice between HTTP/1.1 and HTTP/2, and the phases
//! of draining.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::accepted_stream::AcceptedStream;
use crate::client_peer::ClientPeer;
use crate::connection_activity::ConnectionActivity;
use crate::connection_counts::count_closed;
use crate::guarded_stream::{GuardedStream, Http1Timeouts};
use crate::http2;
use crate::listener_settings::ListenerLimits;
use crate::listener_state::{ConnectionResult, ListenerState};
use crate::poll_on_wake::{PollOnWake, ServiceWakes};
use crate::repoll_on_wake::RepollOnWake;
use crate::request_body::RequestBody;
use crate::request_service::{IncomingRequest, RequestService, ServedBody};
use crate::write_stall_watch::WriteStallWatch;

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The context of a connection, as of its accept.
struct ConnectionContext<R> {
    listening: Arc<ListenerState<R>>,
    limits: ListenerLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpVersion {
    One,
    Two,
}

/// The beginning of a connection's stream.
struct ConnectionStart {
    version: HttpVersion,
    /// The bytes that were already read.
    prefix: Bytes,
    /// The time by which the first head must be complete.
    due: Instant,
}

/// Serves one accepted connection to its end.
pub(super) async fn serve<R: RequestService, S: AcceptedStream>(
    stream: S,
    address: IpAddr,
    listening: Arc<ListenerState<R>>,
) {
    let limits = listening.service().limits().clone();
    let activity = Arc::<ConnectionActivity>::default();
    let stream = WriteStallWatch::new(stream, limits.stall_time, activity.clone());
    let context = ConnectionContext { listening, limits };
    let ended = match context.listening.acceptor() {
        // Boxed one by one: a task reserves room for its largest possible state, and most
        // connections never reach it.
        None => {
            Box::pin(context.serve_clear_text(stream, ClientPeer::new(address, activity))).await
        }
        Some(acceptor) => {
            Box::pin(context.serve_tls(stream, ClientPeer::new(address, activity), acceptor)).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %address, %error, "connection ended early");
    }
}

impl<R: RequestService> ConnectionContext<R> {
    /// Serves clear text: HTTP/2 only by prior knowledge, detected by its preface.
    async fn serve_clear_text<S: AcceptedStream>(
        &self,
        mut stream: WriteStallWatch<S>,
        peer: ClientPeer,
    ) -> ConnectionResult {
        let due = Instant::now() + self.limits.head_time;
        let Ok(first) = timeout_at(due, first_bytes(&mut stream)).await else {
            count_closed("head_timeout");
            return Ok(());
        };
        let (prefix, version) = first?;
        let start = ConnectionStart {
            version,
            prefix,
            due,
        };
        self.serve_stream(stream, start, peer).await
    }

    /// Serves TLS: the version is the one that both sides agreed on by ALPN.
    async fn serve_tls<S: AcceptedStream>(
        &self,
        stream: WriteStallWatch<S>,
        peer: ClientPeer,
        acceptor: TlsAcceptor,
    ) -> ConnectionResult {
        let end = Instant::now() + self.limits.handshake_time;
        // A client that has not begun a handshake takes no permit.
        if timeout_at(end, stream.get_ref().wait_readable())
            .await
            .is_err()
        {
            count_closed("tls_timeout");
            return Ok(());
        }
        let permit = self.listening.handshakes.acquire(peer.address);
        let Ok(permit) = timeout_at(end, permit).await else {
            count_closed("too_many_handshakes");
            return Ok(());
        };
        let Ok(stream) = timeout_at(end, acceptor.accept(stream)).await else {
            count_closed("tls_timeout");
            return Ok(());
        };
        drop(permit);
        let stream = stream.inspect_err(|_| count_closed("tls"))?;
        let version = if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            HttpVersion::Two
        } else {
            HttpVersion::One
        };
        let shown = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first);
        let certificate = shown.map(|leaf| Arc::from(leaf.as_ref()));
        let peer = ClientPeer {
            certificate,
            secure: true,
            ..peer
        };
        let start = ConnectionStart {
            version,
            prefix: Bytes::new(),
            due: Instant::now() + self.limits.head_time,
        };
        self.serve_stream(stream, start, peer).await
    }

    /// Serves a stream.
    async fn serve_stream<S>(
        &self,
        stream: S,
        ConnectionStart {
            version,
            prefix,
            due,
        }: ConnectionStart,
        peer: ClientPeer,
    ) -> ConnectionResult
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = peer.activity.clone();
        match version {
            HttpVersion::One => {
                let service = ConnectionService {
                    listening: self.listening.clone(),
                    peer,
                    wakes: Arc::default(),
                };
                let limits = &self.limits;
                let times = Http1Timeouts {
                    first: due,
                    head: limits.head_time,
                    idle: limits.idle_time,
                };
                let heads = self.listening.budgets.connections.empty();
                let io = TokioIo::new(
                    GuardedStream::new(stream, prefix, activity, Some(times))
                        .with_head_memory(heads),
                );
                let connection =
                    Box::pin(http1_builder(&self.limits).serve_connection(io, service));
                self.drive_http1(RepollOnWake::new(connection)).await
            }
            HttpVersion::Two => {
                let io = GuardedStream::new(stream, prefix, activity, None);
                Box::pin(http2::serve(io, self.listening.clone(), &self.limits, peer)).await
            }
        }
    }

    async fn drive_http1<S>(
        &self,
        mut connection: RepollOnWake<Pin<Box<Http1ServerConnection<S, R>>>>,
    ) -> ConnectionResult
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        tokio::select! {
            ended = &mut connection => return Ok(ended?),
            () = self.listening.drain.cancelled() => {}
        }
        // Answers carry `Connection: close` from now on. An idle connection may have a request
        // under way (A26).
        if let Ok(ended) = timeout(self.limits.drain_idle, &mut connection).await {
            return Ok(ended?);
        }
        connection.inner().as_mut().graceful_shutdown();
        Ok(connection.await?)
    }
}

type Http1ServerConnection<S, R> =
    http1::Connection<TokioIo<GuardedStream<S>>, ConnectionService<R>>;

/// The service that takes a connection's requests.
struct ConnectionService<R> {
    listening: Arc<ListenerState<R>>,
    peer: ClientPeer,
    wakes: Arc<ServiceWakes>,
}

impl<R: RequestService> hyper::service::Service<Request<Incoming>> for ConnectionService<R> {
    type Response = Response<R::Body>;
    type Error = Infallible;
    // The connection reserves room for this future as long as it lives, also while a stream is
    // open. The layers of an endpoint are not in it: axum boxes the future of a route.
    type Future = PollOnWake<AnswerFuture<R::Future>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // Each request runs to its end on the service it began on, also across a reload.
        let service = self.listening.peek_service();
        let incoming = IncomingRequest {
            request: request.map(RequestBody::http1),
            peer: self.peer.clone(),
        };
        let answering = AnswerFuture {
            serving: service.serve(incoming),
            activity: self.peer.activity.clone(),
        };
        PollOnWake::new(answering, &self.wakes)
    }
}

pin_project! {
    /// Serves a request, and then sets the answer's deadline for the connection.
    struct AnswerFuture<F> {
        #[pin]
        serving: F,
        activity: Arc<ConnectionActivity>,
    }
}

impl<F, B> Future for AnswerFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: ServedBody,
{
    type Output = Result<Response<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(answer) = ready!(this.serving.poll(cx));
        // Answers are sent one at a time: this one begins when the last one is over.
        this.activity.set_answer_deadline(answer.body().until());
        Poll::Ready(Ok(answer))
    }
}

/// Reads until the preface is complete or impossible: usually one read.
async fn first_bytes(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Bytes, HttpVersion)> {
    let mut read = BytesMut::with_capacity(1024);
    loop {
        let part = read.len().min(H2_PREFACE.len());
        if read[..part] != H2_PREFACE[..part] {
            return Ok((read.freeze(), HttpVersion::One));
        }
        if part == H2_PREFACE.len() {
            return Ok((read.freeze(), HttpVersion::Two));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn http1_builder(limits: &ListenerLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // `GuardedStream` keeps this time, apart from the idle time.
        .header_read_timeout(None)
        .max_header_size(limits.head_bytes)
        .max_buf_size((limits.head_bytes * 2).max(16 << 10))
        // A FIN counts as the client's disconnect. In the modern revision that is the cancel
        // signal, and a half-closed connection cannot be told from a closed one before a write to
        // it (A22).
        .half_close(false);
    if limits.headers != 100 {
        // hyper's own default is 100 and costs no allocation.
        builder.max_headers(limits.headers);
    }
    builder
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_preface_decides_however_it_is_cut() {
        for (sent, version) in [
            (H2_PREFACE, HttpVersion::Two),
            (b"PRI / HTTP/1.1\r\n", HttpVersion::One),
            (b"POST /mcp HTTP/1.1\r\n", HttpVersion::One),
        ] {
            for cut in 1..sent.len() {
                let (mut client, mut server) = duplex(64);
                let write = tokio::spawn(async move {
                    client.write_all(&sent[..cut]).await.unwrap();
                    tokio::task::yield_now().await;
                    client.write_all(&sent[cut..]).await.unwrap();
                    client
                });
                let (prefix, seen) = first_bytes(&mut server).await.unwrap();
                assert_eq!(seen, version);
                assert!(sent.starts_with(&prefix));
                write.await.unwrap();
            }
        }
    }
}
