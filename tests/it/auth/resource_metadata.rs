//! Protected resource metadata (RFC 9728), served to every client without credentials.

use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};
use weir_testkit::RawClient;

use super::{WeirWithIdp, get};

// Proves R237, R247.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_endpoint_has_its_metadata_and_nothing_else_is_open() {
    let stage = WeirWithIdp::start().await;
    for path in ["/mcp", "/mcp/one"] {
        let answer = get(&stage
            .weir
            .url(&format!("/.well-known/oauth-protected-resource{path}")))
        .await;
        assert_eq!(
            (
                answer.status.as_u16(),
                answer.header("access-control-allow-origin")
            ),
            (200, Some("*"))
        );
        let document: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(document["resource"], stage.weir.url(path));
        assert_eq!(
            document["authorization_servers"],
            json!([stage.idp.issuer()])
        );
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
        assert!(!String::from_utf8_lossy(&answer.body).contains("offline_access"));
    }
    // Two endpoints: a document without a path would belong to neither.
    assert_eq!(
        get(&stage.weir.url("/.well-known/oauth-protected-resource"))
            .await
            .status,
        404
    );
    assert_eq!(
        get(&stage
            .weir
            .url("/.well-known/oauth-protected-resource/other"))
        .await
        .status,
        404
    );
}

// Proves C26, C23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_issues_nothing_and_every_other_path_is_404() {
    let stage = WeirWithIdp::start().await;
    for path in [
        "/",
        "/authorize",
        "/token",
        "/register",
        "/login",
        "/mcp/",
        "/mcp/two",
        "/healthz",
        "/metrics",
        "/admin",
    ] {
        for method in [Method::GET, Method::POST] {
            let sent = RawClient::new(&stage.weir.url(path))
                .send(method.clone(), HeaderMap::new(), "")
                .await
                .unwrap();
            assert_eq!(sent.finish().await.unwrap().status, 404, "{method} {path}");
        }
    }
}

/// A deputy between a client and an authorization server owes each client a consent page, with all
/// of its protections. weir is not one: it names the issuer itself to clients, and no page of weir
/// asks for consent, redirects or stores a login.
// Proves R274, R275.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_asks_consent_or_sets_a_cookie() {
    let stage = WeirWithIdp::start().await;
    let query = "?response_type=code&client_id=new-one&redirect_uri=https%3A%2F%2Fevil.example%2Fcb&state=s";
    let pages = [
        "/authorize",
        "/oauth/authorize",
        "/consent",
        "/callback",
        "/oauth/callback",
        "/register",
        "/token",
        "/mcp",
    ];
    let documents = [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ];
    for path in pages.into_iter().chain(documents) {
        for method in [Method::GET, Method::POST] {
            let client = RawClient::new(&stage.weir.url(&format!("{path}{query}")));
            // An old consent cookie has no effect: weir stores no consent.
            let client = client
                .with_header("cookie", "__Host-consent=new-one; session=1")
                .with_header("origin", "https://evil.example");
            let answer = client
                .send(method.clone(), HeaderMap::new(), "")
                .await
                .unwrap()
                .finish()
                .await
                .unwrap();
            let (status, leads) = (answer.status.as_u16(), answer.header("location"));
            // Documents of the issuer are served by the issuer. The redirect to them carries no
            // part of the request.
            let sent_on = path == documents[0] && method == Method::GET;
            let there = format!("{}{path}", stage.idp.issuer());
            assert_eq!(leads, sent_on.then_some(&*there), "{method} {path}");
            assert!(
                (400..500).contains(&status) || sent_on,
                "{method} {path}: {status}"
            );
            for header in ["set-cookie", "refresh"] {
                assert_eq!(answer.header(header), None, "{method} {path}");
            }
            let kind = answer.header("content-type").unwrap_or_default();
            assert!(
                !kind.contains("html"),
                "nothing that a frame could show: {method} {path}: {kind}"
            );
        }
    }
    let metadata = get(&stage.weir.url("/.well-known/oauth-protected-resource/mcp")).await;
    let document: Value = serde_json::from_slice(&metadata.body).unwrap();
    assert_eq!(
        document["authorization_servers"],
        json!([stage.idp.issuer()]),
        "not weir"
    );
    assert_eq!(metadata.header("set-cookie"), None);
}

/// Commands, URLs and rules come from the config alone: no listener accepts any. Changes by the
/// admin API name objects that exist already.
// Proves C24, R280.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_takes_servers_or_rules() {
    let stage = WeirWithIdp::start().await;
    let operators = stage.weir.admin_url();
    let body = r#"{"upstreams":{"evil":{"command":"sh","args":["-c","touch /tmp/owned"]}}}"#;
    let client = |page: &str| RawClient::new(&format!("{operators}{page}"));
    let send = async |page: &str, method: Method| {
        client(page)
            .send(method, HeaderMap::new(), body)
            .await
            .unwrap()
            .finish()
            .await
            .unwrap()
            .status
            .as_u16()
    };
    let own = [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/admin/explain",
        "/admin/upstreams",
        "/admin/config",
        "/admin/reload",
    ];
    let others = [
        "/admin",
        "/mcp",
        "/mcp-rest/test/connection",
        "/config",
        "/admin/upstreams/evil",
        "/admin/principals",
    ];
    for page in own.into_iter().chain(others) {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let status = send(page, method.clone()).await;
            assert!((400..500).contains(&status), "{method} {page}: {status}");
        }
    }
    for page in ["/admin", "/mcp", "/mcp-rest/test/connection", "/config"] {
        assert_eq!(send(page, Method::GET).await, 404, "{page}");
    }
    let upstreams = stage.weir.get_admin_page("/admin/upstreams");
    assert!(
        upstreams.starts_with("HTTP/1.1 200") && !upstreams.contains("evil"),
        "{upstreams}"
    );
    assert!(
        stage
            .weir
            .get_admin_page("/metrics")
            .lines()
            .all(|line| !line.starts_with("weir_config_reloads_total") || line.ends_with(" 0")),
        "a reload"
    );
}

// Proves R253.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_2025_03_26_find_the_authorization_server_from_weirs_origin() {
    let stage = WeirWithIdp::start().await;
    let answer = get(&stage.weir.url("/.well-known/oauth-authorization-server")).await;
    assert_eq!(answer.status, 307);
    let expected = format!(
        "{}/.well-known/oauth-authorization-server",
        stage.idp.issuer()
    );
    assert_eq!(answer.header("location"), Some(&*expected));
}

// Proves R237.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_page_may_read_the_metadata_and_none_may_call() {
    let stage = WeirWithIdp::start().await;
    let mut headers = HeaderMap::new();
    headers.insert(
        "origin",
        HeaderValue::from_static("https://page.example.com"),
    );
    headers.insert(
        "access-control-request-method",
        HeaderValue::from_static("GET"),
    );
    let metadata = RawClient::new(&stage.weir.url("/.well-known/oauth-protected-resource/mcp"));
    for (method, status) in [
        (Method::OPTIONS, 204),
        (Method::GET, 200),
        (Method::POST, 405),
    ] {
        let answer = metadata
            .send(method, headers.clone(), "")
            .await
            .unwrap()
            .finish()
            .await
            .unwrap();
        assert_eq!(answer.status, status);
    }
    let endpoint = RawClient::new(&stage.weir.url("/mcp"));
    let answer = endpoint
        .send(Method::POST, headers.clone(), "{}")
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    assert_eq!(answer.status, 403);
    headers.insert("host", HeaderValue::from_static("evil.example.com"));
    let answer = metadata
        .send(Method::GET, headers, "")
        .await
        .unwrap()
        .finish()
        .await
        .unwrap();
    assert_eq!(
        answer.status, 403,
        "a foreign host is no host of ours here either"
    );
}
