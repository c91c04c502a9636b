#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod http2_frames;
mod http2_streams;
mod hyper_comparison;
mod late_tickets;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weir_testkit::ClosedPort;

use super::*;
use crate::connector::{https_connector, tcp_connector};
use crate::dns::{DnsCache, DnsResolver, SystemLookup};
use crate::http_error::RequestProgress;
use crate::http1_connection::FRESH_POLL;
use crate::tls::RootCertificates;
use weir_http1::Destination;

const GET: Method = Method::GET;
const POST: Method = Method::POST;

fn pool(to: std::net::SocketAddr) -> (Arc<ConnectionPool>, Uri) {
    let uri: Uri = format!("http://somebody:secret@{to}/mcp?a=b")
        .parse()
        .unwrap();
    let resolver = DnsResolver::new(Arc::new(DnsCache::new(Arc::new(SystemLookup))));
    let tls = RootCertificates::native().config(None).unwrap();
    (
        ConnectionPool::new(
            https_connector(
                ProxiedConnector::around(
                    tcp_connector(resolver, Duration::from_secs(5)),
                    None,
                    Duration::from_secs(5),
                ),
                tls,
                Duration::from_secs(5),
            ),
            uri.clone(),
            false,
            &Budgets::default(),
        ),
        uri,
    )
}

async fn listening() -> (TcpListener, Arc<ConnectionPool>, Uri) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (pool, uri) = pool(listener.local_addr().unwrap());
    (listener, pool, uri)
}

/// Status, headers (sorted) and body of a response, or the point that a failed request reached.
type SeenResponse = Result<(u16, Vec<(String, Vec<u8>)>, Vec<u8>), RequestProgress>;

async fn ask(
    pool: &Arc<ConnectionPool>,
    uri: &Uri,
    method: &Method,
    body: &'static [u8],
) -> SeenResponse {
    let body = Bytes::from_static(body);
    let ask = OutgoingRequest {
        method,
        to: &Destination::new(uri.clone(), Vec::new()),
        own: &[],
        body: &body,
    };
    let answer = pool
        .send_request(ask)
        .await
        .map_err(|error| error.progress())?;
    let (head, body) = answer.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|error| error.progress())?
        .to_bytes();
    Ok((head.status.as_u16(), fields(&head.headers), body.to_vec()))
}

fn fields(headers: &http::HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    fields.sort();
    fields
}

/// Reads one request; absent at the end of the connection.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        let mut more = [0; 1024];
        match stream.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(some) => read.extend_from_slice(&more[..some]),
        }
    }
}

/// Answers every request on every connection with `answer`, and counts connections and requests.
fn serve(listener: TcpListener, answer: &'static str, closes: bool) -> Arc<[AtomicUsize; 2]> {
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let seen = counts.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            seen[0].fetch_add(1, Ordering::SeqCst);
            let seen = seen.clone();
            tokio::spawn(async move {
                while request(&mut stream).await.is_some() {
                    seen[1].fetch_add(1, Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if closes {
                        break;
                    }
                }
            });
        }
    });
    counts
}

fn counted(counts: &[AtomicUsize; 2]) -> [usize; 2] {
    [
        counts[0].load(Ordering::SeqCst),
        counts[1].load(Ordering::SeqCst),
    ]
}

#[tokio::test]
async fn own_header_field_replaces_the_usual_one() {
    let (listener, pool, uri) = listening().await;
    let host = uri
        .authority()
        .unwrap()
        .as_str()
        .split_once('@')
        .unwrap()
        .1
        .to_owned();
    let (name, one, two) = (
        http::header::USER_AGENT,
        HeaderValue::from_static("one"),
        HeaderValue::from_static("two"),
    );
    let accept = (
        http::header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    let to = Destination::new(uri.clone(), vec![(name.clone(), one), accept]);
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let first = request(&mut stream).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            .await
            .unwrap();
        let second = request(&mut stream).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        (first, second)
    };
    let client = async {
        let body = Bytes::from_static(b"{}");
        let own = [(name, two)];
        let first = OutgoingRequest {
            method: &POST,
            to: &to,
            own: &own,
            body: &body,
        };
        let accepted = pool.send_request(first).await.unwrap();
        let nothing = Bytes::new();
        let second = OutgoingRequest {
            method: &GET,
            own: &[],
            body: &nothing,
            ..first
        };
        let second = pool.send_request(second).await.unwrap();
        (accepted.status(), second.status())
    };
    let ((first, second), (accepted, nothing)) = tokio::join!(server, client);
    assert_eq!(
        first,
        format!(
            "POST /mcp?a=b HTTP/1.1\r\naccept: text/event-stream\r\nuser-agent: two\r\nhost: {host}\r\n\
             content-length: 2\r\n\r\n{{}}"
        )
    );
    assert_eq!(
        second,
        format!(
            "GET /mcp?a=b HTTP/1.1\r\nuser-agent: one\r\naccept: text/event-stream\r\nhost: {host}\r\n\r\n"
        )
    );
    assert_eq!(
        (accepted, nothing),
        (StatusCode::ACCEPTED, StatusCode::NO_CONTENT)
    );
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_answer_and_never_after_another() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nt: u\r\n\r\n";
    const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const SAYS_CLOSE: &str =
        "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok";
    const OLD: &str = "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const BOTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    const BAD_LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: +7\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    const MORE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for (answer, connections) in [
        (LENGTH, 1),
        (CHUNKED, 1),
        (INTERIM, 1),
        (SAYS_CLOSE, 3),
        (OLD, 3),
        (BOTH, 3),
        (BAD_LENGTH, 3),
        (MORE, 3),
    ] {
        let (listener, pool, uri) = listening().await;
        let counts = serve(listener, answer, false);
        for _ in 0..3 {
            let (status, _, body) = ask(&pool, &uri, &POST, b"{}").await.unwrap();
            assert_eq!((status, &body[..]), (200, &b"ok"[..]), "{answer}");
        }
        assert_eq!(counted(&counts), [connections, 3], "{answer}");
    }
}

#[tokio::test]
async fn a_dead_connection_is_found_before_a_request_is_written_to_it() {
    let (listener, pool, uri) = listening().await;
    let counts = serve(
        listener,
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        true,
    );
    for round in 1..=20 {
        assert_eq!(ask(&pool, &uri, &POST, b"{}").await.unwrap().0, 200);
        // The runtime learns of the connection's end when it polls its sockets.
        while pool
            .shared
            .lock()
            .http1
            .last_mut()
            .is_some_and(|(line, _)| line.is_quiet(TRIAL_TIME))
        {
            tokio::task::yield_now().await;
        }
        assert_eq!(counted(&counts), [round, round]);
    }
}

/// A server of one blocking connection: it responds, and then runs `after` before the client goes
/// on.
fn blocking(
    listener: std::net::TcpListener,
    after: impl Fn(&mut std::net::TcpStream) + Send + 'static,
) -> (std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>) {
    use std::io::{Read as _, Write as _};
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut read = [0; 4096];
            if stream.read(&mut read).unwrap_or(0) == 0 {
                return;
            }
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .unwrap();
            if gone.recv().is_err() {
                return;
            }
            after(&mut stream);
            done.send(()).unwrap();
            // Left open, until the client closes it.
            let _end = stream.read(&mut read);
        }
    });
    (go, is_done)
}

#[tokio::test]
async fn late_bytes_on_an_idle_connection_are_seen_without_a_runtime_poll() {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (pool, uri) = pool(listener.local_addr().unwrap());
    let late = |stream: &mut std::net::TcpStream| {
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread without a runtime sleeps"
        )]
        std::thread::sleep(2 * FRESH_POLL);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            .unwrap();
    };
    let (go, is_done) = blocking(listener, late);
    for round in 0..15 {
        let (_, _, body) = ask(&pool, &uri, &POST, b"{}").await.unwrap();
        assert_eq!(&body[..], b"ok", "{round}");
        // From here to the next request this thread's runtime does not poll its sockets.
        go.send(()).unwrap();
        is_done.recv().unwrap();
    }
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_loses_no_request() {
    let (listener, pool, uri) = listening().await;
    let counts = serve(
        listener,
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        true,
    );
    for round in 1..=50 {
        assert_eq!(ask(&pool, &uri, &POST, b"{}").await.unwrap().0, 200);
        assert_eq!(counted(&counts), [round, round]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_connection_pooled_ones_rest_before_reuse() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (listener, pool, uri) = listening().await;
    // Each connection answers twice, and takes a third request without an answer.
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = accepted.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                for _ in 0..2 {
                    if request(&mut stream).await.is_none() {
                        return;
                    }
                    stream.write_all(OK.as_bytes()).await.unwrap();
                }
                request(&mut stream).await;
            });
        }
    });
    for _ in 0..2 {
        ask(&pool, &uri, &POST, b"{}").await.unwrap();
    }
    assert_eq!(
        ask(&pool, &uri, &POST, b"{}").await,
        Err(RequestProgress::MaybeExecuted),
        "the third on a connection"
    );
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    for made in 2..6 {
        ask(&pool, &uri, &POST, b"{}").await.unwrap();
        assert_eq!(
            accepted.load(Ordering::SeqCst),
            made,
            "no connection is used that has not rested"
        );
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    ask(&pool, &uri, &POST, b"{}").await.unwrap();
    assert_eq!(accepted.load(Ordering::SeqCst), 5, "one that has");
}

#[tokio::test]
async fn transfer_coding_of_http_1_0_is_refused() {
    const CHUNKED: &str =
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    const BOTH: &str =
        "HTTP/1.0 200 OK\r\ntransfer-encoding: identity\r\ncontent-length: 2\r\n\r\nok";
    for answer in [CHUNKED, BOTH] {
        let (listener, pool, uri) = listening().await;
        let counts = serve(listener, answer, false);
        for _ in 0..2 {
            let seen = ask(&pool, &uri, &POST, b"{}").await;
            assert_eq!(seen, Err(RequestProgress::MaybeExecuted), "{answer}");
        }
        assert_eq!(counted(&counts), [2, 2], "{answer}");
    }
}

#[tokio::test]
async fn endless_interim_responses_and_empty_lines_are_refused() {
    for endless in ["HTTP/1.1 102 Processing\r\n\r\n", "\r\n", "\n"] {
        let (listener, pool, uri) = listening().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await.unwrap();
            let endless = endless.repeat(1000);
            while stream.write_all(endless.as_bytes()).await.is_ok() {}
        };
        let (seen, ()) = tokio::join!(ask(&pool, &uri, &POST, b"{}"), server);
        assert_eq!(seen, Err(RequestProgress::MaybeExecuted), "{endless:?}");
    }
}

#[tokio::test]
async fn empty_lines_before_a_response_are_skipped() {
    const AFTER_OTHERS: &str = "\n\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (listener, pool, uri) = listening().await;
    let counts = serve(listener, AFTER_OTHERS, false);
    for _ in 0..2 {
        assert!(ask(&pool, &uri, &POST, b"{}").await.is_ok());
    }
    assert_eq!(counted(&counts), [1, 2]);
}

#[tokio::test]
async fn errors_state_how_far_a_request_got() {
    let (listener, pool, uri) = listening().await;
    serve(listener, "", true);
    assert_eq!(
        ask(&pool, &uri, &POST, b"{}").await,
        Err(RequestProgress::MaybeExecuted),
        "read, and then closed"
    );

    let nobody = ClosedPort::new();
    let (pool, uri) = self::pool(nobody.address());
    assert_eq!(
        ask(&pool, &uri, &POST, b"{}").await,
        Err(RequestProgress::NoConnection)
    );
}

#[tokio::test]
async fn an_answer_before_the_whole_request_is_read_is_an_answer() {
    static LARGE: [u8; 32 << 20] = [b' '; 32 << 20];
    let (listener, pool, uri) = listening().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = [0; 100];
        stream.read_exact(&mut some).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\n\r\nmuch")
            .await
            .unwrap();
        stream
    };
    let (seen, _stream) = tokio::join!(ask(&pool, &uri, &POST, &LARGE), server);
    let (status, _, body) = seen.unwrap();
    assert_eq!((status, &body[..]), (413, &b"much"[..]));
    assert!(
        pool.shared.lock().http1.is_empty(),
        "the rest of the request would be read as another"
    );
}

#[tokio::test]
async fn dropping_an_answer_closes_the_connection_unless_only_its_end_was_left() {
    const EVENT: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";
    for (rest, is_kept) in [("", false), ("2\r\nok\r\n", false), ("0\r\n\r\n", true)] {
        let (listener, pool, uri) = listening().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await.unwrap();
            stream.write_all(EVENT.as_bytes()).await.unwrap();
            stream.write_all(rest.as_bytes()).await.unwrap();
            stream
        };
        let client = async {
            let body = Bytes::new();
            let ask = OutgoingRequest {
                method: &GET,
                to: &Destination::new(uri.clone(), Vec::new()),
                own: &[],
                body: &body,
            };
            let mut answer = pool.send_request(ask).await.unwrap();
            let data = answer
                .body_mut()
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap();
            (answer, data)
        };
        let (mut stream, (answer, data)) = tokio::join!(server, client);
        assert_eq!(&data[..], b"ok");
        if is_kept {
            answer.body().readable().await;
        }
        drop(answer);
        assert_eq!(
            pool.shared.lock().http1.len(),
            usize::from(is_kept),
            "{rest:?}"
        );
        if !is_kept {
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0, "{rest:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed_after_a_while() {
    let (listener, pool, uri) = listening().await;
    serve(
        listener,
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        false,
    );
    ask(&pool, &uri, &POST, b"{}").await.unwrap();
    assert_eq!(pool.shared.lock().http1.len(), 1);
    tokio::time::sleep(IDLE_TIMEOUT * 2 + Duration::from_millis(1)).await;
    assert!(pool.shared.lock().http1.is_empty());
    assert!(
        !pool.shared.lock().is_swept,
        "somebody still looks after nothing"
    );
}
