#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::names::{Addresses, SystemNames};
use crate::streamable::{Roots, dial, tcp};

const GET: Method = Method::GET;
const POST: Method = Method::POST;

fn lines(to: std::net::SocketAddr) -> (Arc<Lines>, Uri) {
    let uri: Uri = format!("http://somebody:secret@{to}/mcp?a=b").parse().unwrap();
    let resolver = Resolver::new(Arc::new(Addresses::new(Arc::new(SystemNames))));
    let tls = Roots::native().config(None).unwrap();
    (Lines::new(dial(tcp(resolver), tls, Duration::from_secs(5)), uri.clone(), false, Descriptors::default()), uri)
}

async fn listening() -> (TcpListener, Arc<Lines>, Uri) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (lines, uri) = lines(listener.local_addr().unwrap());
    (listener, lines, uri)
}

/// Status, headers (sorted), body; or how the answer failed.
type Seen = Result<(u16, Vec<(String, Vec<u8>)>, Vec<u8>), Reached>;

async fn ask(lines: &Arc<Lines>, uri: &Uri, method: &Method, body: &'static [u8]) -> Seen {
    let body = Bytes::from_static(body);
    let ask = Ask { method, uri, usual: &[], own: &[], body: &body };
    let answer = lines.request(ask).await.map_err(|error| error.reached())?;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_err(|error| error.reached())?.to_bytes();
    Ok((head.status.as_u16(), fields(&head.headers), body.to_vec()))
}

fn fields(headers: &http::HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> =
        headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    fields.sort();
    fields
}

/// Reads one request; `None` at the end of the connection.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
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
    [counts[0].load(Ordering::SeqCst), counts[1].load(Ordering::SeqCst)]
}

#[tokio::test]
async fn a_request_says_what_it_must_and_the_own_field_wins() {
    let (listener, lines, uri) = listening().await;
    let host = uri.authority().unwrap().as_str().split_once('@').unwrap().1.to_owned();
    let (name, one, two) = (http::header::USER_AGENT, HeaderValue::from_static("one"), HeaderValue::from_static("two"));
    let accept = (http::header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let usual = [(name.clone(), one), accept];
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let first = request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let second = request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        (first, second)
    };
    let client = async {
        let body = Bytes::from_static(b"{}");
        let own = [(name, two)];
        let first = Ask { method: &POST, uri: &uri, usual: &usual, own: &own, body: &body };
        let first = lines.request(first).await.unwrap();
        let second = ask(&lines, &uri, &GET, b"").await;
        (first.status(), second)
    };
    let ((first, second), (accepted, nothing)) = tokio::join!(server, client);
    assert_eq!(
        first,
        format!(
            "POST /mcp?a=b HTTP/1.1\r\naccept: text/event-stream\r\nuser-agent: two\r\nhost: {host}\r\n\
             content-length: 2\r\n\r\n{{}}"
        )
    );
    assert_eq!(second, format!("GET /mcp?a=b HTTP/1.1\r\nhost: {host}\r\n\r\n"));
    assert_eq!(accepted, StatusCode::ACCEPTED);
    assert_eq!(nothing, Ok((204, Vec::new(), Vec::new())));
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_whole_answer_and_never_after_another() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nt: u\r\n\r\n";
    const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const SAYS_CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok";
    const OLD: &str = "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const BOTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    const MORE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for (answer, connections) in
        [(LENGTH, 1), (CHUNKED, 1), (INTERIM, 1), (SAYS_CLOSE, 3), (OLD, 3), (BOTH, 3), (MORE, 3)]
    {
        let (listener, lines, uri) = listening().await;
        let counts = serve(listener, answer, false);
        for _ in 0..3 {
            let (status, _, body) = ask(&lines, &uri, &POST, b"{}").await.unwrap();
            assert_eq!((status, &body[..]), (200, &b"ok"[..]), "{answer}");
        }
        assert_eq!(counted(&counts), [connections, 3], "{answer}");
    }
}

#[tokio::test]
async fn a_dead_connection_is_found_before_a_request_is_written_to_it() {
    let (listener, lines, uri) = listening().await;
    let counts = serve(listener, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true);
    for round in 1..=20 {
        assert_eq!(ask(&lines, &uri, &POST, b"{}").await.unwrap().0, 200);
        // The end of the connection is heard of when the runtime looks at its sockets.
        while lines.idle().lines.last_mut().is_some_and(|(line, _)| line.is_quiet()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(counted(&counts), [round, round]);
    }
}

/// The server of one blocking connection: answers, and then does `after` before the client goes on.
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
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
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
async fn what_a_server_says_late_is_seen_though_the_runtime_has_not_looked() {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (lines, uri) = lines(listener.local_addr().unwrap());
    let late = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil").unwrap();
    };
    let (go, is_done) = blocking(listener, late);
    for round in 0..15 {
        let (_, _, body) = ask(&lines, &uri, &POST, b"{}").await.unwrap();
        assert_eq!(&body[..], b"ok", "{round}");
        // From here to the next request this thread's runtime does not poll its sockets.
        go.send(()).unwrap();
        is_done.recv().unwrap();
    }
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_loses_no_request() {
    let (listener, lines, uri) = listening().await;
    let counts = serve(listener, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true);
    for round in 1..=50 {
        assert_eq!(ask(&lines, &uri, &POST, b"{}").await.unwrap().0, 200);
        assert_eq!(counted(&counts), [round, round]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_connections_rest_before_they_are_used_again() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (listener, lines, uri) = listening().await;
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
        ask(&lines, &uri, &POST, b"{}").await.unwrap();
    }
    assert_eq!(ask(&lines, &uri, &POST, b"{}").await, Err(Reached::Maybe), "the third on a connection");
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    for made in 2..6 {
        ask(&lines, &uri, &POST, b"{}").await.unwrap();
        assert_eq!(accepted.load(Ordering::SeqCst), made, "no connection is used that has not rested");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    ask(&lines, &uri, &POST, b"{}").await.unwrap();
    assert_eq!(accepted.load(Ordering::SeqCst), 5, "one that has");
}

#[tokio::test]
async fn endless_interim_answers_are_no_answer() {
    let (listener, lines, uri) = listening().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await.unwrap();
        while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await.is_ok() {}
    };
    let (seen, ()) = tokio::join!(ask(&lines, &uri, &POST, b"{}"), server);
    assert_eq!(seen, Err(Reached::Maybe));
}

/// A server over TLS that answers before the handshake is over for it, so that its session tickets come after its answer.
#[tokio::test]
async fn late_session_tickets_do_not_spoil_a_connection() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    config.send_half_rtt_data = true;
    config.send_tls13_tickets = 4;
    let file = std::env::temp_dir().join(format!("weir-tickets-{}.pem", std::process::id()));
    std::fs::write(&file, cert.pem()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri: Uri = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port()).parse().unwrap();
    let resolver = Resolver::new(Arc::new(Addresses::new(Arc::new(SystemNames))));
    let tls = Roots::native().config(Some(&file)).unwrap();
    std::fs::remove_file(&file).unwrap();
    let lines =
        Lines::new(dial(tcp(resolver), tls, Duration::from_secs(5)), uri.clone(), false, Descriptors::default());
    let (sent, are_sent) = std::sync::mpsc::channel();
    let (accepted, counter) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (accepted.clone(), counter.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.0.fetch_add(1, Ordering::SeqCst);
            half_rtt(
                rustls::ServerConnection::new(Arc::new(config.clone())).unwrap(),
                stream.unwrap(),
                &sent,
                &counted.1,
            );
        }
    });
    for round in 1..=3 {
        assert_eq!(ask(&lines, &uri, &POST, b"{}").await.unwrap().0, 200, "{round}");
        if round == 1 {
            // The tickets are there, and this thread's runtime has not polled since.
            are_sent.recv().unwrap();
        }
    }
    assert_eq!(
        (accepted.load(Ordering::SeqCst), counter.load(Ordering::SeqCst)),
        (1, 3),
        "one connection, three requests"
    );
}

/// Serves one connection of which the first answer overtakes the tickets.
fn half_rtt(
    mut tls: rustls::ServerConnection,
    mut stream: std::net::TcpStream,
    sent: &std::sync::mpsc::Sender<()>,
    requests: &AtomicUsize,
) {
    use std::io::{Read as _, Write as _};
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    stream.set_nodelay(true).unwrap();
    // The client's hello, then everything up to the server's `Finished`, then the answer.
    tls.read_tls(&mut stream).unwrap();
    tls.process_new_packets().unwrap();
    tls.writer().write_all(OK).unwrap();
    while tls.wants_write() {
        tls.write_tls(&mut stream).unwrap();
    }
    let mut text = Vec::new();
    loop {
        if !matches!(tls.read_tls(&mut stream), Ok(read) if read > 0) || tls.process_new_packets().is_err() {
            return;
        }
        let mut more = [0; 4096];
        if let Ok(read) = tls.reader().read(&mut more) {
            text.extend_from_slice(&more[..read]);
        }
        if text.ends_with(b"{}") {
            text.clear();
            if requests.fetch_add(1, Ordering::SeqCst) > 0 {
                tls.writer().write_all(OK).unwrap();
            }
        }
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
        if requests.load(Ordering::SeqCst) == 1 {
            sent.send(()).unwrap();
        }
    }
}

#[tokio::test]
async fn how_far_a_request_got_is_told() {
    let (listener, lines, uri) = listening().await;
    serve(listener, "", true);
    assert_eq!(ask(&lines, &uri, &POST, b"{}").await, Err(Reached::Maybe), "read, and then closed");

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (lines, uri) = self::lines(nobody);
    assert_eq!(ask(&lines, &uri, &POST, b"{}").await, Err(Reached::NoConnection));
}

#[tokio::test]
async fn an_answer_before_the_whole_request_is_read_is_an_answer() {
    static LARGE: [u8; 32 << 20] = [b' '; 32 << 20];
    let (listener, lines, uri) = listening().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = [0; 100];
        stream.read_exact(&mut some).await.unwrap();
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\n\r\nmuch").await.unwrap();
        stream
    };
    let (seen, _stream) = tokio::join!(ask(&lines, &uri, &POST, &LARGE), server);
    let (status, _, body) = seen.unwrap();
    assert_eq!((status, &body[..]), (413, &b"much"[..]));
    assert!(lines.idle().lines.is_empty(), "the rest of the request would be read as another");
}

#[tokio::test]
async fn dropping_an_answer_closes_the_connection_unless_only_its_end_was_left() {
    const EVENT: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";
    for (rest, is_kept) in [("", false), ("2\r\nok\r\n", false), ("0\r\n\r\n", true)] {
        let (listener, lines, uri) = listening().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await.unwrap();
            stream.write_all(EVENT.as_bytes()).await.unwrap();
            stream.write_all(rest.as_bytes()).await.unwrap();
            stream
        };
        let client = async {
            let body = Bytes::new();
            let ask = Ask { method: &GET, uri: &uri, usual: &[], own: &[], body: &body };
            let mut answer = lines.request(ask).await.unwrap();
            let data = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
            (answer, data)
        };
        let (mut stream, (answer, data)) = tokio::join!(server, client);
        assert_eq!(&data[..], b"ok");
        if is_kept {
            answer.body().readable().await;
        }
        drop(answer);
        assert_eq!(lines.idle().lines.len(), usize::from(is_kept), "{rest:?}");
        if !is_kept {
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0, "{rest:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed_after_a_while() {
    let (listener, lines, uri) = listening().await;
    serve(listener, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", false);
    ask(&lines, &uri, &POST, b"{}").await.unwrap();
    assert_eq!(lines.idle().lines.len(), 1);
    tokio::time::sleep(IDLE * 2 + Duration::from_millis(1)).await;
    assert!(lines.idle().lines.is_empty());
    assert!(!lines.idle().is_swept, "somebody still looks after nothing");
}

/// What a server says, and where the network cuts it.
fn said() -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let pieces = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200\r\n",
        "HTTP/1.1 202 Accepted\r\n",
        "HTTP/1.1 204 No Content\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/2 200 OK\r\n",
        "content-length: 3\r\n",
        "content-length: 5\r\n",
        "Content-Length: 0\r\n",
        "content-length: +3\r\n",
        "content-length: 3, 3\r\n",
        "content-length: \r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: identity\r\n",
        "connection: close\r\n",
        "x: y\r\n",
        "x:\r\n",
        "x : y\r\n",
        " x: y\r\n",
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "abc",
        "ab",
        "3\r\nabc\r\n",
        "3;q=\"z\"\r\nabc\r\n",
        "0\r\n\r\n",
        "0\r\nt: u\r\n\r\n",
        "A\r\n",
        "FFFFFFFFFFFFFFFFF\r\n",
        "-1\r\n",
        "\r",
        "\u{e9}",
    ]);
    let whole = prop::collection::vec(pieces, 0..8);
    let sound = (0..4_usize, 0..3_usize, prop::bool::ANY).prop_map(|(framing, fields, is_short)| {
        let mut said = "HTTP/1.1 200 OK\r\n".to_owned() + &"x: y\r\n".repeat(fields);
        said += [
            "content-length: 6\r\n\r\nabcdef",
            "transfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n",
            "\r\nabcdef",
            "content-length: 0\r\n\r\n",
        ][framing];
        if is_short {
            said.pop();
        }
        vec![said]
    });
    let whole = whole.prop_map(|pieces| pieces.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let text = prop_oneof![whole, sound].prop_map(|pieces| pieces.concat().into_bytes());
    (text, prop::collection::vec(0..120_usize, 0..4))
}

/// A server that says this, in pieces, and closes.
async fn speaker(listener: TcpListener, said: Vec<u8>, mut cuts: Vec<usize>) {
    cuts.retain(|cut| *cut < said.len());
    cuts.sort_unstable();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    request(&mut stream).await.unwrap();
    let mut at = 0;
    for cut in cuts.into_iter().chain([said.len()]) {
        if stream.write_all(&said[at..cut]).await.is_err() {
            return;
        }
        at = cut;
        tokio::task::yield_now().await;
    }
    drop(stream.shutdown().await);
    // Left open for reading: a reset could overtake what was said.
    let _rest = stream.read(&mut [0; 1]).await;
}

/// What hyper reads of it.
async fn by_hyper(to: std::net::SocketAddr) -> Option<(u16, Vec<(String, Vec<u8>)>, Vec<u8>)> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driving = tokio::spawn(connection);
    let request = http::Request::get("/").header("host", "x").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await;
    let seen = match answer {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            body.map(|body| (head.status.as_u16(), fields(&head.headers), body))
        }
        Err(_) => None,
    };
    driving.abort();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever this reads as an answer, hyper reads as the same answer; what hyper reads and this refuses is listed.
    #[test]
    fn a_whole_answer_is_what_hyper_reads_however_it_is_cut((text, cuts) in said()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (own, theirs) = runtime.block_on(async {
            let (listener, lines, uri) = listening().await;
            let (_, own) = tokio::join!(speaker(listener, text.clone(), cuts.clone()), async {
                let seen = ask(&lines, &uri, &GET, b"").await;
                drop(lines);
                seen
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = listener.local_addr().unwrap();
            let (_, theirs) = tokio::join!(speaker(listener, text.clone(), cuts.clone()), by_hyper(to));
            (own.ok(), theirs)
        });
        let text = String::from_utf8_lossy(&text).into_owned();
        prop_assert_eq!(own, theirs, "{:?} cut at {:?}", text, cuts);
    }
}
