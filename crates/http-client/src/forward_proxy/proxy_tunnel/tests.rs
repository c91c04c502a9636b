#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;

use bytes::Bytes;
use http::Method;
use tokio::net::TcpListener;
use tower::Service as _;
use weir_core::Budgets;
use weir_testkit::ClosedPort;

use super::*;
use crate::forward_proxy::{ProxiedConnector, ProxyBypass};
use crate::http_client::{HttpClient, HttpServer};
use crate::http_error::RequestProgress;
use crate::tls::RootCertificates;
use crate::with_advice;

const WITHIN: Duration = Duration::from_secs(10);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

fn proxy_at(address: SocketAddr, user: &str) -> Arc<ForwardProxy> {
    let url = format!("http://{user}{address}");
    Arc::new(ForwardProxy::new(&url, ProxyBypass::default()).unwrap())
}

/// A proxy that sends these packets after it has read a head, and then keeps the connection open.
/// Returns its address and the heads that it reads.
async fn scripted_proxy(
    packets: Vec<Vec<u8>>,
    keeps_open: bool,
) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, heads) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            sender.send(String::from_utf8(head).unwrap()).unwrap();
            for packet in &packets {
                // The client may have closed the connection.
                let _ = stream.write_all(packet).await;
                tokio::task::yield_now().await;
            }
            if keeps_open {
                kept.push(stream);
            }
        }
    });
    (address, heads)
}

async fn connect(
    proxy: Arc<ForwardProxy>,
    server: &str,
    within: Duration,
) -> Result<TcpStream, String> {
    let mut connector = ProxiedConnector::new(Some(proxy), within);
    let connected = connector.call(server.parse().unwrap()).await;
    match connected {
        Ok(stream) => Ok(stream.into_inner()),
        Err(error) => Err(with_advice(error).to_string()),
    }
}

#[tokio::test]
async fn tunnel_is_asked_for_by_host_and_port_with_the_credentials_of_the_proxy_alone() {
    let (address, mut heads) = scripted_proxy(vec![OK.to_vec()], true).await;
    for (user, server, expected) in [
        (
            "",
            "https://server.example/mcp?key=a",
            "CONNECT server.example:443 HTTP/1.1\r\nhost: server.example:443\r\n\r\n",
        ),
        (
            "",
            "http://server.example/",
            "CONNECT server.example:80 HTTP/1.1\r\nhost: server.example:80\r\n\r\n",
        ),
        (
            "me:secret@",
            "https://[2001:db8::1]:8443/",
            "CONNECT [2001:db8::1]:8443 HTTP/1.1\r\nhost: [2001:db8::1]:8443\r\nproxy-authorization: Basic bWU6c2VjcmV0\r\n\r\n",
        ),
    ] {
        connect(proxy_at(address, user), server, WITHIN)
            .await
            .unwrap();
        assert_eq!(heads.recv().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn answer_ends_at_its_empty_line_however_it_is_split() {
    let whole = b"HTTP/1.0 200 Connection established\r\nvia: 1.0 proxy\r\n\r\nfirst bytes";
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\nfirst bytes";
    let mut scripts = vec![
        vec![whole.to_vec()],
        vec![interim.to_vec()],
        whole.iter().map(|byte| vec![*byte]).collect(),
    ];
    // The end of the head in every pair of packets.
    let end = whole.len() - b"first bytes".len();
    for cut in end - 4..=end + 1 {
        let (one, other) = whole.split_at(cut);
        scripts.push(vec![one.to_vec(), other.to_vec()]);
    }
    for packets in scripts {
        let (address, _heads) = scripted_proxy(packets.clone(), true).await;
        let connected = connect(proxy_at(address, ""), "http://server.example/", WITHIN).await;
        let mut stream = connected.unwrap_or_else(|error| panic!("{error}: {packets:?}"));
        let mut first = [0; b"first bytes".len()];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"first bytes", "{packets:?}");
    }
}

#[tokio::test]
async fn refusal_names_the_proxy_its_status_and_the_remedy() {
    const BASIC: &str =
        "proxy-authenticate: Negotiate\r\nproxy-authenticate: Basic realm=\"x\"\r\n";
    let long = format!("x: {}\r\n", "a".repeat(MAX_ANSWER_BYTES));
    let many = "x: y\r\n".repeat(MAX_ANSWER_BYTES / 6);
    let cases = [
        ("407 No", BASIC, "", "HTTP 407; write the proxy's user"),
        ("407 No", BASIC, "me:secret@", "HTTP 407; correct the user"),
        (
            "407 No",
            "proxy-authenticate: NTLM\r\n",
            "me:secret@",
            "HTTP 407; the proxy does not offer the scheme Basic",
        ),
        ("407 No", "", "", "does not offer the scheme Basic"),
        ("403 No", "", "", "HTTP 403; let the proxy permit CONNECT"),
        ("405 No", "", "", "HTTP 405; let the proxy permit CONNECT"),
        ("302 Go", "location: http://login/\r\n", "", "HTTP 302; let"),
        ("502 No", "", "", "HTTP 502; the proxy does not reach"),
        ("503 No", "", "", "HTTP 503; the proxy does not reach"),
        ("504 No", "", "", "HTTP 504; the proxy does not reach"),
        ("200 OK", &long, "", "too long; that is not a forward proxy"),
        ("200 OK", &many, "", "not a forward proxy"),
        ("999999", "", "", "not valid HTTP"),
    ];
    for (status, fields, user, expected) in cases {
        let answer = format!("HTTP/1.1 {status}\r\n{fields}content-length: 2\r\n\r\nno");
        let (address, _heads) = scripted_proxy(vec![answer.into_bytes()], true).await;
        let proxy = proxy_at(address, user);
        let error = connect(proxy, "https://server.example/", WITHIN).await;
        let error = error.unwrap_err();
        assert!(
            error.starts_with(&format!("the forward proxy {address} ")),
            "{error}"
        );
        assert!(error.contains(expected), "{expected} in {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn answer_that_is_none_names_the_proxy() {
    let endless = vec![vec![b'\n'; 4096]; 64];
    for (packets, keeps_open, expected) in [
        (vec![], false, "closed the connection before its answer"),
        (
            vec![b"HTTP/1.1 200 OK\r\n".to_vec()],
            false,
            "closed the connection before its answer",
        ),
        (vec![b"SSH-2.0-x\r\n\r\n".to_vec()], true, "not valid HTTP"),
        (endless, true, "not a forward proxy"),
    ] {
        let (address, _heads) = scripted_proxy(packets, keeps_open).await;
        let error = connect(proxy_at(address, ""), "https://server.example/", WITHIN).await;
        let error = error.unwrap_err();
        assert!(error.contains(&address.to_string()), "{error}");
        assert!(error.contains(expected), "{expected} in {error}");
    }
}

#[tokio::test]
async fn silent_proxy_is_named_at_the_end_of_the_time() {
    let (address, _heads) = scripted_proxy(vec![OK[..8].to_vec()], true).await;
    let within = Duration::from_millis(200);
    let error = connect(proxy_at(address, ""), "https://server.example/", within).await;
    let expected = format!(
        "the forward proxy {address} opened no tunnel to server.example:443 in time; check `forward_proxy`"
    );
    let error = error.unwrap_err();
    assert!(error.starts_with(&expected), "{error}");
}

/// The errors of a client through the proxy are those of a server that was not reached.
#[tokio::test]
async fn request_without_a_tunnel_was_not_sent() {
    let closed = ClosedPort::new();
    let unreached = closed.address();
    let (silent, _heads) = scripted_proxy(vec![], true).await;
    let refusal = b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n".to_vec();
    let (refusing, _heads) = scripted_proxy(vec![refusal], true).await;
    let short = Duration::from_millis(200);
    for (address, within, expected) in [
        (unreached, WITHIN, "cannot be reached"),
        (silent, short, "in time"),
        (refusing, WITHIN, "with HTTP 403"),
    ] {
        for url in ["http://server.example/mcp", "https://server.example/mcp"] {
            let server = HttpServer {
                url: url.parse().unwrap(),
                headers: Vec::new(),
                ca_file: None,
                h2c: false,
                forward_proxy: Some(proxy_at(address, "")),
            };
            let agent = HeaderValue::from_static("weir");
            let (roots, budgets) = (RootCertificates::native(), Budgets::default());
            let client = HttpClient::new(server, within, &agent, &roots, &budgets).unwrap();
            let sent = client.send(&Method::POST, &[], &Bytes::new()).await;
            let error = sent.unwrap_err();
            assert_eq!(error.progress(), RequestProgress::NoConnection, "{url}");
            let text = with_advice(error).to_string();
            assert!(
                text.contains(&format!("the forward proxy {address} "))
                    && text.contains(expected)
                    && text.contains("; ")
                    && !text.contains("no server listens"),
                "{text}"
            );
        }
    }
}
