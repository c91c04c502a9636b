//! Access to the operators' listener: by default refused beyond loopback, and never for a page in a
//! browser.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use data_encoding::BASE64;
use http::Method;
use serde_json::{Value, json};
use weir_testkit::{MockServer, TestFolder};

use super::{OperatorClient, body, config_over, new_api_key};
use crate::audit::{AuditFolder, records};
use crate::harness::{Weir, wait_until};

const TOKEN: &str = "weir_0123456789_of-the-operators";

/// Runs `weir serve` with a config; returns its exit code and its output.
fn served(config: &Value) -> (Option<i32>, String) {
    let folder = TestFolder::new("admin");
    let file = folder.write("weir.json", &config.to_string());
    let output = Weir::run_cli(&["serve", "--config", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    (output.status.code(), said)
}

/// Returns the answer of the operators' listener to the head of a change, until it closes the
/// connection.
fn head_alone(weir: &Weir, path: &str) -> String {
    let place = weir.admin_url().replace("http://", "");
    let mut line = TcpStream::connect(&place).unwrap();
    line.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let head = "Content-Type: application/json\r\nContent-Length: 2";
    write!(
        line,
        "POST {path} HTTP/1.1\r\nHost: {place}\r\n{head}\r\n\r\n"
    )
    .unwrap();
    let mut said = String::new();
    line.read_to_string(&mut said).unwrap();
    said
}

// Proves G14.
#[test]
fn admin_listener_beyond_loopback_requires_valid_credentials() {
    let with = |admin: Value| json!({ "listen": "127.0.0.1:0", "admin": admin, "upstreams": {} });
    for (admin, why) in [
        (json!({ "listen": "0.0.0.0:0" }), "admin.auth: is missing"),
        (json!({ "listen": "[::]:0" }), "admin.auth: is missing"),
        (
            json!({ "listen": "192.0.2.7:8081" }),
            "admin.auth: is missing",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": {} }),
            "names no credentials",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": { "token": "short" } }),
            "fewer than 16",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": { "token": "changeme-changeme-changeme" } }),
            "placeholder",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": { "token": "aaaaaaaaaaaaaaaaaaaaaaaa" } }),
            "placeholder",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": { "token": "${WEIR_NO_SUCH_VARIABLE}" } }),
            "WEIR_NO_SUCH_VARIABLE",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": { "tokens": [{ "name": "a", "sha256": "0".repeat(64) }] } }),
            "placeholder",
        ),
        (
            json!({ "listen": "0.0.0.0:0", "auth": { "oauth": {} } }),
            "needs an authorization server",
        ),
    ] {
        let (code, said) = served(&with(admin.clone()));
        assert_eq!(code, Some(2), "{admin}: {said}");
        assert!(said.contains(why), "{admin}: {said}");
        assert!(
            !said.contains("changeme-changeme"),
            "a secret is not repeated: {said}"
        );
    }
}

// Proves G14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_auth_leaves_probes_open_and_requires_a_token_elsewhere() {
    let upstream = MockServer::modern().tools(1).start().await;
    let folder = AuditFolder::new("admin-doors");
    let mut config = config_over(&[("one", &upstream)]);
    let ((ada, digest), (bob, gone)) = (new_api_key("ada"), new_api_key("bob"));
    config["admin"] = json!({ "auth": { "token": TOKEN, "tokens": [
        { "name": "ada", "sha256": digest },
        { "name": "bob", "sha256": gone, "expires": "2020-01-01" },
    ] } });
    config["audit"] = json!({ "file": { "path": folder.file() } });
    let weir = Weir::with_config(config.clone());
    let nobody = OperatorClient::of(&weir);
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.yaml"] {
        assert_eq!(nobody.get(open).await.status, 200, "{open}");
    }
    for path in [
        "/",
        "/upstreams/one",
        "/admin/upstreams",
        "/admin/config",
        "/admin/calls",
        "/admin/explain?tool=x",
    ] {
        let refused = nobody.get(path).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(
            refused
                .header("www-authenticate")
                .unwrap()
                .starts_with("Basic "),
            "a browser can ask: {path}"
        );
        assert!(!body(&refused).contains("one"), "{path}");
    }
    let basic = |password: &str| {
        format!(
            "Basic {}",
            BASE64.encode(format!("anybody:{password}").as_bytes())
        )
    };
    for (shown, status) in [
        (format!("Bearer {TOKEN}"), 200),
        (format!("bearer {TOKEN}"), 200),
        (format!("Bearer {ada}"), 200),
        (basic(TOKEN), 200),
        (format!("Bearer {bob}"), 401),
        (format!("Bearer {TOKEN}x"), 401),
        ("Bearer ".to_owned(), 401),
        (basic("no"), 401),
        (format!("Digest {TOKEN}"), 401),
    ] {
        let answer = OperatorClient::of(&weir)
            .with("authorization", &shown)
            .get("/admin/upstreams")
            .await;
        assert_eq!(answer.status, status, "{shown}");
    }
    let expired = OperatorClient::of(&weir).with("authorization", &format!("Bearer {bob}"));
    let refused = body(&expired.get("/admin/upstreams").await);
    assert!(refused.contains("this token has expired"), "{refused}");
    let refresh = "/admin/upstreams/one/refresh";
    let by_browser = OperatorClient::of(&weir)
        .with("authorization", &basic(TOKEN))
        .try_change(refresh, &json!({}))
        .await;
    assert_eq!(
        by_browser.status, 401,
        "a browser sends it by itself, so it changes nothing"
    );
    // The answer comes before the body, and the connection ends with it.
    let unread = head_alone(&weir, refresh);
    assert!(
        unread.starts_with("HTTP/1.1 401") && unread.contains("\r\nconnection: close\r\n"),
        "{unread}"
    );
    let ada = OperatorClient::of(&weir).with("authorization", &format!("Bearer {ada}"));
    ada.change(refresh, json!({ "reason": "to see" })).await;
    wait_until("the records", || {
        let all = records(&folder.file());
        let of = |what: &str, who: &str| {
            all.iter()
                .any(|r| r["kind"] == "admin" && r["what"] == what && r["who"] == who)
        };
        (of("refresh", "ada") && of("login", "unknown") && of("login", "bob")).then_some(())
    });
    config["admin"] = json!({ "auth": { "token": TOKEN }, "metrics": "auth" });
    weir.rewrite_config(config);
    wait_until("other operators", || {
        weir.get_admin_page("/metrics")
            .starts_with("HTTP/1.1 401")
            .then_some(())
    });
    assert_eq!(
        ada.get("/admin/upstreams").await.status,
        401,
        "a reload takes tokens away"
    );
    let all = OperatorClient::of(&weir).with("authorization", &format!("Bearer {TOKEN}"));
    assert_eq!(all.get("/metrics").await.status, 200);
    assert_eq!(nobody.get("/healthz").await.status, 200);
}

// Proves G14, A17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_listener_resists_cross_origin_reads_and_writes() {
    let upstream = MockServer::modern().tools(1).start().await;
    let mut config = config_over(&[("one", &upstream)]);
    config["admin"] = json!({ "allowed_hosts": ["ops.example.com"] });
    let weir = Weir::with_config(config);
    let at = |host: &str| OperatorClient::of(&weir).with("host", host);
    for (operator, status) in [
        (at("ops.example.com"), 200),
        (at("localhost:1"), 200),
        (at("rebound.example"), 403),
        (at("127.0.0.1").with("origin", "http://127.0.0.1"), 403),
        (at("127.0.0.1").with("origin", "null"), 403),
    ] {
        for path in [
            "/",
            "/admin/upstreams",
            "/metrics",
            "/healthz",
            "/readyz",
            "/openapi.yaml",
        ] {
            assert_eq!(operator.get(path).await.status, status, "{path}");
        }
    }
    assert_eq!(
        at("rebound.example").get("/none").await.status,
        403,
        "what is not there is no news either"
    );
    let disable = "/admin/upstreams/one/disable";
    for simple in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let refused = OperatorClient::of(&weir)
            .with("content-type", simple)
            .try_change(disable, &json!({}))
            .await;
        assert_eq!(refused.status, 415, "{simple}");
    }
    assert_eq!(
        OperatorClient::of(&weir)
            .send(Method::POST, disable, "")
            .await
            .status,
        415
    );
    // A path without this method says which ones it has.
    for (method, path, allowed) in [
        (Method::POST, "/admin/upstreams", "GET,HEAD"),
        (Method::PUT, "/admin/upstreams", "GET,HEAD"),
        (Method::DELETE, disable, "POST"),
        (Method::GET, disable, "POST"),
    ] {
        let refused = OperatorClient::of(&weir)
            .send(method.clone(), path, "")
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.header("allow")),
            (405, Some(allowed)),
            "{method} {path}"
        );
    }
    let answer = OperatorClient::of(&weir)
        .send(Method::OPTIONS, disable, "")
        .await;
    assert!(
        answer.header("access-control-allow-origin").is_none(),
        "nobody is let in by CORS"
    );
    assert_eq!(
        OperatorClient::of(&weir)
            .get_json("/admin/upstreams/one")
            .await["change"],
        Value::Null,
        "nothing changed"
    );
    let page = OperatorClient::of(&weir).get("/").await;
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(!body(&page).contains("<script") && !body(&page).contains("<form"));
}
