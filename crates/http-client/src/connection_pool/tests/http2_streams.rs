//! HTTP/2 connections to a server that allows few streams at once.

use std::convert::Infallible;

use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::*;

/// The longest wait for an answer.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a server that allows `streams` on a connection. The body of the answer to a GET does not
/// end. Returns a pool of connections to it, and the number of connections that it got.
async fn server(streams: u32) -> (Arc<ConnectionPool>, Uri, Arc<AtomicUsize>) {
    let (listener, lines, uri) = listening().await;
    let (dial, origin) = (lines.dial.clone(), lines.origin.clone());
    let lines = ConnectionPool::new(dial, origin, true, &Budgets::default());
    let connections: Arc<AtomicUsize> = Arc::default();
    let seen = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::SeqCst);
            let service = service_fn(async |request: Request<Incoming>| {
                let body = if request.method() == GET {
                    Either::Left(StreamBody::new(stream::pending::<
                        Result<Frame<Bytes>, Infallible>,
                    >()))
                } else {
                    Either::Right(Full::new(Bytes::from_static(b"ok")))
                };
                Ok::<_, Infallible>(Response::new(body))
            });
            let served = http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(streams)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(served);
        }
    });
    (lines, uri, connections)
}

async fn open_stream(lines: &Arc<ConnectionPool>, uri: &Uri) -> HttpResponseBody {
    let ask = OutgoingRequest {
        method: &GET,
        to: &Destination::new(uri.clone(), Vec::new()),
        own: &[],
        body: &Bytes::new(),
    };
    let sent = timeout(TEST_TIMEOUT, lines.send_request(ask)).await;
    sent.expect("a stream is free").unwrap().into_body()
}

async fn post(lines: &Arc<ConnectionPool>, uri: &Uri) {
    let answer = timeout(TEST_TIMEOUT, ask(lines, uri, &POST, b"{}")).await;
    assert_eq!(answer.expect("a stream is free").unwrap().0, 200);
}

#[tokio::test]
async fn request_beyond_the_streams_that_the_server_allows_takes_another_connection() {
    let (lines, uri, connections) = server(2).await;
    let first = [
        open_stream(&lines, &uri).await,
        open_stream(&lines, &uri).await,
    ];
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        post(&lines, &uri).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    let second = [
        open_stream(&lines, &uri).await,
        open_stream(&lines, &uri).await,
    ];
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    // The streams of the first connection are free again.
    drop(first);
    let third = open_stream(&lines, &uri).await;
    post(&lines, &uri).await;
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    drop((second, third));
}

#[tokio::test]
async fn requests_of_one_moment_are_all_answered() {
    let (lines, uri, connections) = server(2).await;
    post(&lines, &uri).await;
    let posts = (0..50).map(|_| post(&lines, &uri));
    futures_util::future::join_all(posts).await;
    assert!(connections.load(Ordering::SeqCst) > 1);
}
