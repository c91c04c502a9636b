//! The same attacks behind TLS. A server chooses HTTP/2 in the handshake, and other code of weir
//! makes the connection.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use weir_testkit::TestFolder;
use weir_testkit::accept::listen_on_loopback;
use weir_testkit::h2_server::H2Transport;

use super::*;

thread_local!(static MEANT: Cell<bool> = const { Cell::new(false) });

/// Reports if the servers of this test speak TLS. A test makes its scenes on its own thread.
pub(super) fn is_meant() -> bool {
    MEANT.get()
}

/// Returns the suffix that tells these attacks from the others in the table.
pub(super) fn label() -> &'static str {
    if is_meant() { " and TLS" } else { "" }
}

/// Returns the file of a certificate for `localhost`, and the acceptor that serves with it.
fn identity() -> (PathBuf, &'static TlsAcceptor) {
    static IDENTITY: OnceLock<(TestFolder, TlsAcceptor)> = OnceLock::new();
    let (folder, acceptor) = IDENTITY.get_or_init(|| {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = TestFolder::new("over-tls");
        folder.write("cert.pem", &cert.pem());
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        (folder, TlsAcceptor::from(Arc::new(config)))
    });
    (folder.file("cert.pem"), acceptor)
}

/// Starts a hostile server; returns it with its entry in the config.
pub(super) async fn start(plan: H2Plan) -> (H2Server, Value) {
    let (file, acceptor) = identity();
    let wrap = move |stream: TcpStream| -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
        Box::pin(
            async move { Ok(Box::new(acceptor.accept(stream).await?) as Box<dyn H2Transport>) },
        )
    };
    let bad = H2Server::wrapped(&["t"], plan, Box::new(wrap)).await;
    let upstream =
        json!({ "url": format!("https://localhost:{}/mcp", bad.port()), "ca_file": file });
    (bad, upstream)
}

macro_rules! over_tls {
    ($($from:ident: $($attack:ident)*;)*) => { $($(
        #[test]
        fn $attack() {
            MEANT.set(true);
            over_tls!(@$from $attack);
        }
    )*)* };
    (@here $attack:ident) => { super::$attack() };
    (@endless_frames $attack:ident) => { endless_frames::$attack() };
}

over_tls! {
    here:
        a_head_that_breaks_the_protocol_is_a_clear_error
        frames_that_break_the_protocol_are_a_clear_error
        a_body_of_another_length_is_a_clear_error
        a_body_that_is_no_answer_is_a_clear_error
        an_answer_without_end_is_cut_off_at_its_bound
        one_hostile_stream_costs_no_other_call_of_the_same_server_more_than_its_connection;
    endless_frames:
        interim_answers_without_end_are_no_answer
        small_interim_answers_without_end_are_no_answer
        a_header_block_without_end_is_no_answer
        pings_without_end_end_the_connection
        settings_without_end_end_the_connection
        window_updates_without_end_end_the_connection
        frames_of_no_meaning_without_end_end_the_connection
        empty_data_without_end_end_the_connection
        resets_of_streams_without_end_end_the_connection
        every_request_reset_is_sent_at_most_three_times
        server_that_sends_goaway_to_every_call_gets_bounded_connections
        server_that_accepts_no_streams_leaves_no_memory_of_calls
        a_server_that_gives_no_window_gets_a_call_no_further_than_its_deadline;
}

/// Servers that never get as far as a frame.
#[tokio::test(flavor = "multi_thread")]
async fn failed_tls_handshake_is_a_clear_error() {
    let (file, _) = identity();
    for (name, greeting) in [
        ("a silent handshake", None),
        ("a handshake of noise", Some(&[0x16; 4096][..])),
        ("an alert", Some(&[0x15, 3, 3, 0, 2, 2, 40][..])),
        (
            "HTTP/1.1 in place of a handshake",
            Some(&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"[..]),
        ),
    ] {
        let (listener, address) = listen_on_loopback().await;
        let port = address.port();
        let (mut kept, mut accepting) = (Vec::new(), JoinSet::new());
        accepting.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if let Some(bytes) = greeting {
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await;
                }
                kept.push(stream);
            }
        });
        let good = MockServer::modern()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let config = json!({
            "upstreams": {
                "bad": {
                    "url": format!("https://localhost:{port}/mcp"), "ca_file": file, "protocol": "modern",
                    "deadlines": { "connect": "1s" },
                },
                "good": { "url": good.url() },
            },
            "endpoints": { "/bad": { "upstream": "bad" }, "/good": { "upstream": "good" } },
        });
        let weir = tokio::task::block_in_place(|| Weir::with_config(config));
        let client = |path: &str| RawClient::new(&weir.url(path)).modern();
        let bystander = Bystander::start_beside(&weir, client("/good"));
        let mut calls = JoinSet::new();
        for _ in 0..AT_ONCE {
            let client = client("/bad");
            calls.spawn(async move { client.call("t", json!({})).await });
        }
        for answer in within_test_timeout(name, calls.join_all()).await {
            failed(name, &answer.unwrap());
        }
        let figures = bystander
            .finish(&format!("an upstream over HTTP/2 and TLS: {name}"))
            .await;
        figures.assert_none_refused();
        assert!(
            figures.grown <= MAX_GROWN,
            "{name}: {} MiB more",
            figures.grown >> 20
        );
    }
}
