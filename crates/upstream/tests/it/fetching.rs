//! Documents fetched for parts that may not open sockets.

use std::time::Duration;

use weir_core::port::{DocumentFetcher, FetchRequest, PostEncoding, UrlSource};
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::{HttpUpstreamSettings, SecretHeader};

use crate::fixtures::factory;

fn ask(url: &str, limit: usize) -> FetchRequest<'_> {
    let within = Duration::from_secs(10);
    FetchRequest {
        url,
        form: None,
        authorization: None,
        limit,
        timeout: within,
        url_source: UrlSource::Operator,
    }
}

#[tokio::test]
async fn a_document_is_fetched_within_its_limit_and_redirects_are_not_followed() {
    let mock = MockServer::modern().start().await;
    let elsewhere = MockServer::modern().start().await;
    let factory = factory();
    for (answer, limit, expected) in [
        (
            MockBehaviour::status(200, "text/plain", "0123456789"),
            10,
            Ok((200, "0123456789")),
        ),
        (
            MockBehaviour::status(200, "text/plain", "0123456789"),
            9,
            Err("bad_answer"),
        ),
        (
            MockBehaviour::status(404, "text/plain", "no"),
            10,
            Ok((404, "no")),
        ),
        (
            MockBehaviour::redirect(&elsewhere.url()),
            10,
            Ok((307, "elsewhere")),
        ),
    ] {
        mock.add_rule("GET", 1, answer);
        let fetched = factory.fetch(ask(&mock.url(), limit)).await;
        let fetched = fetched
            .as_ref()
            .map(|got| (got.status, std::str::from_utf8(&got.body).unwrap()));
        let fetched = fetched.map_err(|error| error.reason());
        assert_eq!(fetched, expected);
    }
    assert_eq!(elsewhere.requests().len(), 0, "c25");
    let bad = factory.fetch(ask("no url at all", 10)).await.unwrap_err();
    assert_eq!(bad.reason(), "unavailable");
}

// Proves C18, C25, R271.
#[tokio::test]
async fn unsafe_outsider_urls_are_never_fetched() {
    let canary = MockServer::modern().start().await;
    let port = canary.address().port();
    let factory = factory();
    for url in [
        canary.url(),
        format!("https://127.0.0.1:{port}/"),
        format!("https://localhost:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        "https://127.0.0.1/".to_owned(),
        "https://0x7f000001:8443/".to_owned(),
        "https://localhost:8443/".to_owned(),
        "file:///etc/hostname".to_owned(),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "https://user:secret@example.com/".to_owned(),
    ] {
        let outsider = FetchRequest {
            url_source: UrlSource::Outsider,
            ..ask(&url, 10)
        };
        let failure = factory.fetch(outsider).await.unwrap_err();
        assert_eq!(
            (failure.reason(), failure.message()),
            ("unavailable", "The document's URL is not opened"),
            "{url}"
        );
    }
    assert_eq!(canary.connections(), 0, "the canary was reached");
}

// Proves F13.
#[tokio::test]
async fn a_document_is_posted_as_json_with_the_operators_headers() {
    let mut mock = MockServer::modern().start().await;
    mock.add_rule(
        "POST",
        1,
        MockBehaviour::status(202, "application/json", "{}"),
    );
    let mut settings = HttpUpstreamSettings {
        instances: Vec::new(),
        url: mock.url().parse().unwrap(),
        headers: Vec::new(),
        auth: None,
        ca_file: None,
        h2c: false,
    };
    settings.headers.push((
        http::header::AUTHORIZATION,
        SecretHeader::new("Bearer collector".parse().unwrap()),
    ));
    let poster = factory().document_poster(&settings).unwrap();
    let answer = poster
        .post(
            PostEncoding::Json,
            r#"{"resourceLogs":[]}"#.into(),
            Duration::from_secs(10),
        )
        .await
        .unwrap();
    assert_eq!((answer.status, &answer.body[..]), (202, &b"{}"[..]));
    let requests = mock.requests();
    let seen = requests.last().unwrap();
    assert_eq!(seen.header("authorization"), Some("Bearer collector"));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    mock.stop().await;
    let lost = poster
        .post(PostEncoding::Json, "{}".into(), Duration::from_secs(10))
        .await
        .unwrap_err();
    assert_eq!(lost.reason(), "unavailable");
}
