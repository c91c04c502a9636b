//! HTTP/2 connections to a server that allows few streams at once.

use std::convert::Infallible;

use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::*;

/// The longest wait for an answer.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a server that allows `streams` on a connection. The body of the answer to a GET does not
/// end. Returns a pool of connections to it, and the number of connections that it got.
async fn server(streams: u32) -> (Arc<ConnectionPool>, Uri, Arc<AtomicUsize>) {
    server_with_cut(streams, Arc::default()).await
}

/// Starts a server as [`server`] does, which closes its connections when it is notified.
async fn server_with_cut(
    streams: u32,
    cut: Arc<Notify>,
) -> (Arc<ConnectionPool>, Uri, Arc<AtomicUsize>) {
    let (listener, pool, uri) = listening().await;
    let (dial, origin) = (pool.dial.clone(), pool.origin.clone());
    let pool = ConnectionPool::new(dial, origin, true, &Budgets::default());
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
            let cut = cut.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = cut.notified() => {}
                    ended = served => drop(ended),
                }
            });
        }
    });
    (pool, uri, connections)
}

async fn open_stream(pool: &Arc<ConnectionPool>, uri: &Uri) -> HttpResponseBody {
    let ask = OutgoingRequest {
        method: &GET,
        to: &Destination::new(uri.clone(), Vec::new()),
        own: &[],
        body: &Bytes::new(),
    };
    let sent = timeout(TEST_TIMEOUT, pool.send_request(ask)).await;
    sent.expect("a stream is free").unwrap().into_body()
}

async fn post(pool: &Arc<ConnectionPool>, uri: &Uri) {
    let answer = timeout(TEST_TIMEOUT, ask(pool, uri, &POST, b"{}")).await;
    assert_eq!(answer.expect("a stream is free").unwrap().0, 200);
}

#[tokio::test]
async fn request_beyond_the_streams_that_the_server_allows_takes_another_connection() {
    let (pool, uri, connections) = server(2).await;
    let first = [
        open_stream(&pool, &uri).await,
        open_stream(&pool, &uri).await,
    ];
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        post(&pool, &uri).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    let second = [
        open_stream(&pool, &uri).await,
        open_stream(&pool, &uri).await,
    ];
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    // The streams of the first connection are free again.
    drop(first);
    let third = open_stream(&pool, &uri).await;
    post(&pool, &uri).await;
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    drop((second, third));
}

#[tokio::test]
async fn requests_of_one_moment_are_all_answered() {
    let (pool, uri, connections) = server(2).await;
    post(&pool, &uri).await;
    let posts = (0..50).map(|_| post(&pool, &uri));
    futures_util::future::join_all(posts).await;
    assert!(connections.load(Ordering::SeqCst) > 1);
}

#[tokio::test]
async fn connection_that_ended_is_replaced() {
    let cut: Arc<Notify> = Arc::default();
    let (pool, uri, connections) = server_with_cut(2, cut.clone()).await;
    let standing = open_stream(&pool, &uri).await;
    post(&pool, &uri).await;
    let (first, slot) = pool
        .shared
        .lock()
        .take_coming_stream(Instant::now())
        .unwrap();
    drop(slot);
    cut.notify_waiters();
    let ended = async {
        while first.is_open() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, ended).await.expect("its end shows");
    post(&pool, &uri).await;
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    drop(standing);
}

#[tokio::test]
async fn server_that_allows_no_stream_gets_no_further_connections() {
    let (pool, uri, connections) = server(0).await;
    // Goes before the settings, and is refused.
    let first = timeout(TEST_TIMEOUT, ask(&pool, &uri, &POST, b"{}")).await;
    assert!(first.expect("an answer").is_err());
    for _ in 0..3 {
        let waiting = ask(&pool, &uri, &POST, b"{}");
        let waited = timeout(Duration::from_millis(50), waiting).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connection_with_an_open_stream_takes_requests_however_long_it_had_none() {
    let (pool, uri, connections) = server(10).await;
    let standing = open_stream(&pool, &uri).await;
    assert!(!pool.shared.lock().prune(Instant::now() + IDLE_TIMEOUT));
    post(&pool, &uri).await;
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    drop(standing);
    assert!(pool.shared.lock().prune(Instant::now() + IDLE_TIMEOUT));
}

/// The size of an answer of [`server_of_large_answers`]: more than the window of a stream.
const LARGE: usize = 1 << 20;
const PART: usize = 16 << 10;

/// Starts a server whose answer to a GET is [`LARGE`], and which answers a POST once it has begun
/// to send `before` bytes of such answers. Returns a pool of connections to it, and the number of
/// POSTs that it got.
async fn server_of_large_answers(
    budgets: &Budgets,
    before: usize,
) -> (Arc<ConnectionPool>, Uri, Arc<AtomicUsize>) {
    let (listener, pool, uri) = listening().await;
    let (dial, origin) = (pool.dial.clone(), pool.origin.clone());
    let pool = ConnectionPool::new(dial, origin, true, budgets);
    let posts: Arc<AtomicUsize> = Arc::default();
    let (seen, sent) = (posts.clone(), watch::Sender::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (seen, sent) = (seen.clone(), sent.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (seen, sent) = (seen.clone(), sent.clone());
                async move {
                    let body = if request.method() == GET {
                        let parts = stream::iter(0..LARGE / PART).map(move |_| {
                            sent.send_modify(|sent| *sent += PART);
                            let part = Bytes::from_static(&[b'x'; PART]);
                            Ok::<_, Infallible>(Frame::data(part))
                        });
                        Either::Left(StreamBody::new(parts))
                    } else {
                        seen.fetch_add(1, Ordering::SeqCst);
                        let mut sent = sent.subscribe();
                        let waited = sent.wait_for(|sent| *sent >= before).await;
                        waited.expect("the sender is there");
                        Either::Right(Full::new(Bytes::from_static(b"ok")))
                    };
                    Ok::<_, Infallible>(Response::new(body))
                }
            });
            tokio::spawn(
                http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (pool, uri, posts)
}

#[tokio::test]
async fn slow_readers_of_large_answers_do_not_stop_a_request_that_runs_beside_them() {
    // As much as the first window of a connection.
    let (pool, uri, posts) = server_of_large_answers(&Budgets::default(), 4 << 20).await;
    let running = tokio::spawn({
        let (pool, uri) = (pool.clone(), uri.clone());
        async move { post(&pool, &uri).await }
    });
    while posts.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let mut unread = Vec::new();
    for _ in 0..24 {
        unread.push(open_stream(&pool, &uri).await);
    }
    running.await.unwrap();
    for body in unread {
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), LARGE);
    }
}

#[tokio::test]
async fn connection_whose_window_slow_readers_hold_gets_no_further_request() {
    let budgets = Budgets::default();
    budgets.windows.set_limit(0);
    let (pool, uri, _) = server_of_large_answers(&budgets, 0).await;
    let unread = open_stream(&pool, &uri).await;
    let (first, slot) = pool
        .shared
        .lock()
        .take_coming_stream(Instant::now())
        .unwrap();
    drop(slot);
    let crowded = async {
        while !first.is_crowded() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, crowded)
        .await
        .expect("it fills the window");
    post(&pool, &uri).await;
    assert_eq!(unread.collect().await.unwrap().to_bytes().len(), LARGE);
    assert!(!first.is_crowded(), "all of it was read");
}
