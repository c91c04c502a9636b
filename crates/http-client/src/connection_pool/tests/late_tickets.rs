//! Session tickets that come after an answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{POST, ask};
use crate::connection_pool::*;
use crate::connector::{https_connector, tcp_connector};
use crate::dns::{DnsCache, DnsResolver, SystemLookup};
use crate::tls::{CaFile, RootCertificates};

/// Tests a server over TLS that responds before its handshake is over, so that its session tickets
/// come after its response.
#[tokio::test]
async fn late_session_tickets_do_not_spoil_a_connection() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.send_half_rtt_data = true;
    config.send_tls13_tickets = 4;
    let file = std::env::temp_dir().join(format!("weir-tickets-{}.pem", std::process::id()));
    std::fs::write(&file, cert.pem()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri: Uri = format!(
        "https://localhost:{}/mcp",
        listener.local_addr().unwrap().port()
    )
    .parse()
    .unwrap();
    let resolver = DnsResolver::new(Arc::new(DnsCache::new(Arc::new(SystemLookup))));
    let authorities = CaFile::read(&file).unwrap();
    let tls = RootCertificates::native()
        .config(Some(&authorities))
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let pool = ConnectionPool::new(
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
    );
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
        assert_eq!(
            ask(&pool, &uri, &POST, b"{}").await.unwrap().0,
            200,
            "{round}"
        );
        if round == 1 {
            // The tickets are there, and this thread's runtime has not polled since.
            are_sent.recv().unwrap();
        }
    }
    assert_eq!(
        (
            accepted.load(Ordering::SeqCst),
            counter.load(Ordering::SeqCst)
        ),
        (1, 3),
        "one connection, three requests"
    );
}

/// Serves one connection with a first response that overtakes the tickets.
fn half_rtt(
    mut tls: rustls::ServerConnection,
    mut stream: std::net::TcpStream,
    sent: &std::sync::mpsc::Sender<()>,
    requests: &AtomicUsize,
) {
    use std::io::{Read as _, Write as _};
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    stream.set_nodelay(true).unwrap();
    // The client's hello, then all messages up to the server's `Finished`, then the response.
    tls.read_tls(&mut stream).unwrap();
    tls.process_new_packets().unwrap();
    tls.writer().write_all(OK).unwrap();
    while tls.wants_write() {
        tls.write_tls(&mut stream).unwrap();
    }
    let mut text = Vec::new();
    loop {
        if !matches!(tls.read_tls(&mut stream), Ok(read) if read > 0)
            || tls.process_new_packets().is_err()
        {
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
