#![allow(clippy::unwrap_used, reason = "a test may panic")]
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn tls(keys: &[(u8, u8)]) -> ClusterTls {
    let secrets: Vec<_> = keys
        .iter()
        .map(|(id, byte)| ClusterSecret {
            id: *id,
            secret: [*byte; 32],
        })
        .collect();
    ClusterTls::new(&secrets).unwrap()
}

/// True if one byte reaches the server over a connection between the two.
async fn connects(client: Arc<ClientConfig>, server: &ClusterTls) -> bool {
    let (near, far) = duplex(64 << 10);
    let name = server.server_name.clone();
    let sending = async {
        let mut stream = TlsConnector::from(client).connect(name, near).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await
    };
    let receiving = async {
        let mut stream = TlsAcceptor::from(server.server.clone()).accept(far).await?;
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        stream.write_all(&byte).await?;
        stream.flush().await
    };
    let (sent, received) = tokio::join!(sending, receiving);
    sent.is_ok() && received.is_ok()
}

#[tokio::test]
async fn replicas_with_a_common_key_connect_in_both_directions() {
    let (old, both, new) = (tls(&[(1, 7)]), tls(&[(2, 8), (1, 7)]), tls(&[(2, 8)]));
    for (client, server) in [
        (&old, &old),
        (&both, &old),
        (&old, &both),
        (&both, &both),
        (&both, &new),
        (&new, &both),
    ] {
        assert!(connects(client.client.clone(), server).await);
    }
}

#[tokio::test]
async fn replicas_without_a_common_key_are_refused() {
    let own = tls(&[(1, 7)]);
    for other in [tls(&[(1, 8)]), tls(&[(2, 7)])] {
        assert!(!connects(other.client.clone(), &own).await);
        assert!(!connects(own.client.clone(), &other).await);
    }
}

#[tokio::test]
async fn server_refuses_clients_that_show_another_key_or_none() {
    let own = tls(&[(1, 7)]);
    // The client accepts the server, and shows a key that the server does not know.
    let stranger = ClusterKey::derive(&ClusterSecret {
        id: 1,
        secret: [8; 32],
    })
    .unwrap();
    let resolver = rustls::client::AlwaysResolvesClientRawPublicKeys::new(stranger.pair);
    let mut config = (*own.client).clone();
    config.client_auth_cert_resolver = Arc::new(resolver);
    assert!(!connects(Arc::new(config), &own).await);
    let mut config = (*own.client).clone();
    config.client_auth_cert_resolver = Arc::new(NoKey);
    assert!(!connects(Arc::new(config), &own).await);
}

#[derive(Debug)]
struct NoKey;

impl ResolvesClientCert for NoKey {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn keys_follow_from_id_and_secret_and_are_not_printed() {
    let key = |id, byte| {
        let secret = [byte; 32];
        ClusterKey::derive(&ClusterSecret { id, secret }).unwrap()
    };
    assert_eq!(key(1, 7).public(), key(1, 7).public());
    assert_ne!(key(1, 7).public(), key(2, 7).public());
    assert_ne!(key(1, 7).public(), key(1, 8).public());
    let shown = format!(
        "{:?}",
        ClusterSecret {
            id: 1,
            secret: [7; 32]
        }
    );
    assert_eq!(shown, "ClusterSecret(1, <secret>)");
    assert!(ClusterTls::new(&[]).is_err());
}
