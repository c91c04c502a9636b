//! The fault proxy against plain sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weir_testkit::fault_proxy::{FaultProxy, ProxyDirection, Toxic};

/// A proxied connection: the client's end and the server's.
async fn connected(spoil: impl FnOnce(&FaultProxy)) -> (FaultProxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap()).await;
    spoil(&proxy);
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (proxy, client, server)
}

async fn read(stream: &mut TcpStream, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.map(|_| bytes)
}

#[tokio::test]
async fn without_toxics_bytes_and_half_closes_pass() {
    let (proxy, mut client, mut server) = connected(|_| {}).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).await.unwrap();
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
    assert_eq!(
        (
            proxy.passed(ProxyDirection::Up),
            proxy.passed(ProxyDirection::Down),
            proxy.connections()
        ),
        (8, 6, 1)
    );
}

#[tokio::test]
async fn limits_end_a_direction_at_their_byte() {
    for (toxic, end) in [
        (Toxic::CloseAfter(5), Ok(0)),
        (Toxic::HalfCloseAfter(5), Ok(0)),
        (Toxic::ResetAfter(5), Err(io::ErrorKind::ConnectionReset)),
    ] {
        let (_proxy, mut client, mut server) =
            connected(|proxy| proxy.add_toxic(ProxyDirection::Down, toxic)).await;
        // The reset may overtake bytes in flight, so the first bytes are read before the limit is
        // reached.
        server.write_all(b"123").await.unwrap();
        assert_eq!(read(&mut client, 3).await.unwrap(), b"123");
        server.write_all(b"4567").await.unwrap();
        let mut rest = Vec::new();
        let ended = client
            .read_to_end(&mut rest)
            .await
            .map(|_| 0)
            .map_err(|error| error.kind());
        assert_eq!(ended, end, "{toxic:?}");
        assert!(rest == b"45" || end.is_err(), "{toxic:?}: {rest:?}");
        if toxic == Toxic::HalfCloseAfter(5) {
            client.write_all(b"still").await.unwrap();
            assert_eq!(read(&mut server, 5).await.unwrap(), b"still");
        }
    }
}

#[tokio::test]
async fn stalls_and_black_holes_end_when_cleared() {
    for toxic in [Toxic::StallAfter(2), Toxic::BlackHole] {
        let (proxy, mut client, mut server) =
            connected(|proxy| proxy.add_toxic(ProxyDirection::Up, toxic)).await;
        client.write_all(b"abcdef").await.unwrap();
        let held = if toxic == Toxic::BlackHole { 0 } else { 2 };
        assert_eq!(read(&mut server, held).await.unwrap(), b"ab"[..held]);
        // The other direction is not touched.
        server.write_all(b"back").await.unwrap();
        assert_eq!(read(&mut client, 4).await.unwrap(), b"back");
        assert_eq!(proxy.passed(ProxyDirection::Up), held as u64);
        proxy.clear_toxics();
        assert_eq!(
            read(&mut server, 6 - held).await.unwrap(),
            b"abcdef"[held..]
        );
    }
}

#[tokio::test]
async fn bytes_are_corrupted_duplicated_and_sliced() {
    let (_proxy, mut client, mut server) = connected(|proxy| {
        proxy.add_toxic(
            ProxyDirection::Up,
            Toxic::Slice {
                bytes: 1,
                every: Duration::ZERO,
            },
        );
        proxy.add_toxic(ProxyDirection::Up, Toxic::Corrupt { at: 2 });
        proxy.add_toxic(ProxyDirection::Up, Toxic::Duplicate);
    })
    .await;
    client.write_all(b"abcd").await.unwrap();
    assert_eq!(
        read(&mut server, 8).await.unwrap(),
        [b'a', b'a', b'b', b'b', !b'c', !b'c', b'd', b'd']
    );
}

#[tokio::test]
async fn slow_directions_deliver_everything() {
    let (_proxy, mut client, mut server) = connected(|proxy| {
        let (wait, jitter) = (Duration::from_millis(1), Duration::from_millis(1));
        proxy.add_toxic(ProxyDirection::Down, Toxic::Latency { wait, jitter });
        proxy.add_toxic(ProxyDirection::Down, Toxic::Bandwidth(1_000_000));
        proxy.set_accept_delay(Duration::from_millis(1));
    })
    .await;
    let sent = vec![7; 50_000];
    server.write_all(&sent).await.unwrap();
    assert_eq!(read(&mut client, 50_000).await.unwrap(), sent);
}

#[tokio::test]
async fn connections_are_reset_refused_and_sent_elsewhere() {
    let (proxy, mut client, _server) = connected(|_| {}).await;
    proxy.reset_all();
    assert_eq!(
        client.read(&mut [0]).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
    proxy.set_refusing(true);
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(
        refused.read(&mut [0]).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
    proxy.set_refusing(false);
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    proxy.retarget(other.local_addr().unwrap());
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    assert_eq!(
        read(&mut other.accept().await.unwrap().0, 1).await.unwrap(),
        b"x"
    );
}
