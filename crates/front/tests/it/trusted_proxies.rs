//! The client address behind proxies.

use http::{Method, StatusCode};
use serde_json::json;

use crate::test_front::{TestFront, settings};

/// The status of a request with these `X-Forwarded-For` lines and a token that is valid from
/// `address` alone.
async fn status(world: &TestFront, address: &str, lines: &[&str]) -> StatusCode {
    let client = world
        .client()
        .with_header("authorization", &format!("Bearer at {address}"))
        .modern();
    let (mut headers, message) = client.envelope("tools/list", json!({}));
    for line in lines {
        headers.append("x-forwarded-for", line.parse().unwrap());
    }
    client
        .send(Method::POST, headers, message.to_string())
        .await
        .unwrap()
        .finish()
        .await
        .unwrap()
        .status
}

// Proves A19.
#[tokio::test]
async fn untrusted_peer_counts_under_its_own_address() {
    let world = TestFront::with_tokens(settings()).await;
    for lines in [
        &[][..],
        &["192.0.2.1"],
        &["192.0.2.1, 127.0.0.1"],
        &["192.0.2.1", "10.0.0.1"],
    ] {
        assert_eq!(
            status(&world, "127.0.0.1", lines).await,
            StatusCode::OK,
            "{lines:?}"
        );
        assert_eq!(
            status(&world, "192.0.2.1", lines).await,
            StatusCode::UNAUTHORIZED,
            "{lines:?}"
        );
    }
}

// Proves A19.
#[tokio::test]
async fn nearest_untrusted_address_counts_behind_trusted_proxies() {
    let mut settings = settings();
    settings.trusted_proxies = vec!["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
    let world = TestFront::with_tokens(settings).await;
    for (lines, counts) in [
        (&[][..], "127.0.0.1"),
        (&["192.0.2.1"], "192.0.2.1"),
        (&["198.51.100.7, 192.0.2.1"], "192.0.2.1"),
        (&["198.51.100.7, 192.0.2.1, 10.1.2.3"], "192.0.2.1"),
        (&["198.51.100.7", "192.0.2.1", "10.1.2.3"], "192.0.2.1"),
        (&["198.51.100.7, not-an-address"], "127.0.0.1"),
    ] {
        assert_eq!(
            status(&world, counts, lines).await,
            StatusCode::OK,
            "{lines:?}"
        );
        assert_eq!(
            status(&world, "198.51.100.7", lines).await,
            StatusCode::UNAUTHORIZED,
            "{lines:?}"
        );
    }
}
