//! Frames of HTTP/2 servers that are small, empty or last ones.

use weir_testkit::h2_client::{DATA, END_STREAM, GOAWAY, frame};
use weir_testkit::h2_server::answer_head;
use weir_testkit::{H2Act, H2Plan, H2Request, H2Server};

use super::*;

/// The flag of a frame with padding.
const PADDED: u8 = 8;

async fn serving(
    acts: impl Fn(&H2Request) -> Vec<H2Act> + Send + Sync + 'static,
) -> (H2Server, Arc<ConnectionPool>, Uri) {
    let server = H2Server::start(&[], H2Plan::on_all(acts)).await;
    let (pool, uri) = pool(std::net::SocketAddr::from(([127, 0, 0, 1], server.port())));
    let (dial, origin) = (pool.dial.clone(), pool.origin.clone());
    let pool = ConnectionPool::new(dial, origin, true, &Budgets::default());
    (server, pool, uri)
}

fn write(frames: &[Vec<u8>]) -> H2Act {
    H2Act::Write(frames.concat().into())
}

async fn begin(pool: &Arc<ConnectionPool>, uri: &Uri, body: &'static [u8]) -> HttpResponseBody {
    let ask = OutgoingRequest {
        method: &POST,
        to: &Destination::new(uri.clone(), Vec::new()),
        own: &[],
        body: &Bytes::from_static(body),
    };
    pool.send_request(ask).await.unwrap().into_body()
}

#[tokio::test]
async fn unread_small_frames_of_slow_readers_end_no_connection() {
    const SLOW: usize = 6;
    for size in [1, 20, 200] {
        let bytes = (200 << 10) / SLOW;
        let (server, pool, uri) = serving(move |request| {
            let stream = request.stream;
            let mut frames = vec![answer_head(stream, "200", &[])];
            if request.method() == "slow" {
                let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
                let parts = content.chunks(size);
                frames.extend(parts.map(|part| frame(DATA, 0, stream, part)));
                frames.push(frame(DATA, END_STREAM, stream, b""));
            } else {
                frames.push(frame(DATA, END_STREAM, stream, b"ok"));
            }
            vec![write(&frames)]
        })
        .await;
        let mut slow = Vec::new();
        for _ in 0..SLOW {
            slow.push(begin(&pool, &uri, br#"{"method":"slow"}"#).await);
        }
        let other = ask(&pool, &uri, &POST, br#"{"method":"other"}"#).await;
        assert_eq!(other.unwrap().2, b"ok");
        for body in slow {
            let content = body.collect().await.unwrap().to_bytes();
            assert!(
                content
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == (at % 251) as u8)
            );
            assert_eq!(content.len(), bytes, "frames of {size} bytes");
        }
        assert_eq!(server.accepted(), 1, "frames of {size} bytes");
    }
}

#[tokio::test]
async fn empty_frames_of_many_answers_end_no_request() {
    for (padding, flags) in [(&b""[..], 0), (&b"\x02.."[..], PADDED)] {
        let (server, pool, uri) = serving(move |request| {
            let stream = request.stream;
            vec![write(&[
                answer_head(stream, "200", &[]),
                frame(DATA, flags, stream, padding),
                frame(DATA, 0, stream, b"o"),
                frame(DATA, flags, stream, padding),
                frame(DATA, END_STREAM, stream, b"k"),
            ])]
        })
        .await;
        for number in 0..150 {
            let answer = ask(&pool, &uri, &POST, b"{}").await;
            assert_eq!(answer.unwrap().2, b"ok", "request {number}");
        }
        if padding.is_empty() {
            assert_eq!(server.accepted(), 1);
        }
    }
}

#[tokio::test]
async fn goaway_below_a_request_proves_that_it_did_not_run() {
    let (server, pool, uri) = serving(|request| match request.method() {
        "first" => Vec::new(),
        // The last stream that the server processes is that of the first request.
        "second" => vec![write(&[
            frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
            answer_head(1, "200", &[]),
            frame(DATA, END_STREAM, 1, b"first"),
        ])],
        _ => vec![write(&[
            answer_head(request.stream, "200", &[]),
            frame(DATA, END_STREAM, request.stream, b"third"),
        ])],
    })
    .await;
    let first = ask(&pool, &uri, &POST, br#"{"method":"first"}"#);
    let second = async {
        while server.requests_of("first") == 0 {
            tokio::task::yield_now().await;
        }
        ask(&pool, &uri, &POST, br#"{"method":"second"}"#).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().2, b"first");
    assert_eq!(second.unwrap_err(), RequestProgress::Unread);
    let third = ask(&pool, &uri, &POST, br#"{"method":"third"}"#).await;
    assert_eq!(third.unwrap().2, b"third");
    assert_eq!(server.accepted(), 2);
}

/// Starts a server that answers no `late` request before the next other one. The answers that come
/// then are `late_answer` for each stream.
async fn serving_late(
    late_answer: impl Fn(u32) -> Vec<Vec<u8>> + Send + Sync + 'static,
) -> (H2Server, Arc<ConnectionPool>, Uri) {
    let waiting = parking_lot::Mutex::new(Vec::new());
    let (server, pool, uri) = serving(move |request| {
        let mut waiting = waiting.lock();
        if request.method() == "late" {
            waiting.push(request.stream);
            return Vec::new();
        }
        let mut frames: Vec<_> = waiting.drain(..).flat_map(&late_answer).collect();
        frames.push(answer_head(request.stream, "200", &[]));
        frames.push(frame(DATA, END_STREAM, request.stream, b"ok"));
        vec![write(&frames)]
    })
    .await;
    // One connection, which the others find.
    let first = ask(&pool, &uri, &POST, br#"{"method":"other"}"#).await;
    assert_eq!(first.unwrap().2, b"ok");
    (server, pool, uri)
}

/// Sends `late` requests and cancels them, and has their answers come before that of another
/// request.
async fn cancel(server: &H2Server, pool: &Arc<ConnectionPool>, uri: &Uri, requests: usize) {
    let before = server.requests_of("late");
    let late: Vec<_> = (0..requests)
        .map(|_| {
            let (pool, uri) = (pool.clone(), uri.clone());
            tokio::spawn(async move { begin(&pool, &uri, br#"{"method":"late"}"#).await })
        })
        .collect();
    while server.requests_of("late") < before + requests {
        tokio::task::yield_now().await;
    }
    for request in late {
        request.abort();
        assert!(request.await.is_err(), "it had no answer");
    }
    let other = ask(pool, uri, &POST, br#"{"method":"other"}"#).await;
    assert_eq!(other.unwrap().2, b"ok");
}

#[tokio::test]
async fn late_answers_to_cancelled_requests_end_no_connection() {
    let (server, pool, uri) = serving_late(|stream| {
        vec![
            answer_head(stream, "200", &[]),
            frame(DATA, END_STREAM, stream, b"late"),
        ]
    })
    .await;
    for _ in 0..30 {
        cancel(&server, &pool, &uri, 50).await;
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn small_frames_of_cancelled_requests_end_no_connection() {
    let (server, pool, uri) = serving_late(|stream| {
        let mut frames = vec![answer_head(stream, "200", &[])];
        frames.extend((0..500).map(|_| frame(DATA, 0, stream, b".")));
        frames
    })
    .await;
    cancel(&server, &pool, &uri, 50).await;
    cancel(&server, &pool, &uri, 50).await;
    assert_eq!(server.accepted(), 1);
}
