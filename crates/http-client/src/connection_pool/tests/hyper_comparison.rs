//! A property test that compares the parser of responses with hyper's.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{GET, ask, fields, listening, request};

/// Generates the bytes of a response, and the positions at which the network cuts them.
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
    let sound =
        (0..4_usize, 0..3_usize, prop::bool::ANY).prop_map(|(framing, fields, is_short)| {
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

/// A server that sends these bytes, in pieces, and closes.
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
    // Left open for reading: a reset could overtake the sent bytes.
    let _rest = stream.read(&mut [0; 1]).await;
}

/// Returns the response as hyper reads it.
async fn by_hyper(to: std::net::SocketAddr) -> Option<(u16, Vec<(String, Vec<u8>)>, Vec<u8>)> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let driving = tokio::spawn(connection);
    let request = http::Request::get("/")
        .header("host", "x")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = sender.send_request(request).await;
    let seen = match answer {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let body = body
                .collect()
                .await
                .ok()
                .map(|body| body.to_bytes().to_vec());
            body.map(|body| (head.status.as_u16(), fields(&head.headers), body))
        }
        Err(_) => None,
    };
    driving.abort();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every accepted response is the same to hyper; every refused one is refused by hyper, too.
    #[test]
    fn response_parsing_matches_hyper_for_every_chunking((text, cuts) in said()) {
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
