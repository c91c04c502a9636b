//! The revision that each SDK's client settles on by itself, read from its own messages.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_testkit::accept::listen_on_loopback;
use weir_wire::Revision;

use crate::harness::{ForeignClient, ForeignServer, Weir, peers_are_enabled};

/// A proxy in front of weir that records the bytes of clients.
struct RecordingProxy {
    url: String,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl RecordingProxy {
    async fn start(weir: &Weir) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let url = format!("http://{address}/mcp");
        let sent = Arc::<Mutex<Vec<u8>>>::default();
        let server = weir.url("").trim_start_matches("http://").to_owned();
        let kept = sent.clone();
        // The task ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, server.clone(), kept.clone()));
            }
        });
        Self { url, sent }
    }

    /// Returns the values that stand after `after` in a text, each up to the first of `ends`.
    fn values(text: &str, after: &str, ends: &[char]) -> Vec<String> {
        let values = text.split(after).skip(1).map(|rest| {
            rest.split(ends)
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        values.collect()
    }

    fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.sent.lock())).into_owned()
    }
}

async fn relay(client: TcpStream, server: String, kept: Arc<Mutex<Vec<u8>>>) {
    let server = TcpStream::connect(server).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let up = async move {
        let mut chunk = [0; 16 << 10];
        while let Ok(length @ 1..) = from_client.read(&mut chunk).await {
            kept.lock().extend_from_slice(&chunk[..length]);
            if to_server.write_all(&chunk[..length]).await.is_err() {
                return;
            }
        }
        let _closed = to_server.shutdown().await;
    };
    let down = async move {
        let _copied = tokio::io::copy(&mut from_server, &mut to_client).await;
    };
    tokio::join!(up, down);
}

// Proves R063.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sdk_clients_never_mix_a_legacy_revision_with_modern_meta() {
    if !peers_are_enabled() {
        return;
    }
    let weir = Weir::with_upstreams(json!({ "fast": ForeignServer::FastMcp.as_child() }));
    weir.wait_until_listed("/mcp", &["fast__add"]);
    let proxy = RecordingProxy::start(&weir).await;
    let modern = Revision::MODERN.as_str();
    for (client, is_modern) in [
        (ForeignClient::TypeScript1, false),
        (ForeignClient::TypeScript2("auto"), true),
        (ForeignClient::Python1, false),
        (ForeignClient::Python2As("auto"), true),
        (ForeignClient::Rmcp("auto"), true),
    ] {
        let url = proxy.url.clone();
        let arguments = json!({ "a": 2, "b": 3 }).to_string();
        tokio::task::spawn_blocking(move || client.run(&url, &["call", "fast__add", &arguments]))
            .await
            .unwrap();
        let sent = proxy.take();
        let meta = RecordingProxy::values(
            &sent,
            r#""io.modelcontextprotocol/protocolVersion":"#,
            &[',', '}'],
        );
        let meta: Vec<_> = meta
            .iter()
            .map(|value| value.trim_matches([' ', '"']))
            .collect();
        let headers = RecordingProxy::values(
            &sent.to_ascii_lowercase(),
            "\r\nmcp-protocol-version:",
            &['\r'],
        );
        assert!(!headers.is_empty(), "{client:?}: {sent}");
        assert!(
            meta.iter().all(|version| *version == modern),
            "{client:?}: {meta:?}"
        );
        assert_eq!(!meta.is_empty(), is_modern, "{client:?}: {sent}");
        // A modern client always sends the modern revision, a legacy one never does.
        assert!(
            headers
                .iter()
                .all(|version| (version == modern) == is_modern),
            "{client:?}: {headers:?}"
        );
    }
}
