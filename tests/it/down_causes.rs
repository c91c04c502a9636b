//! The cause of an upstream that is down is one sentence with advice. It is the same in the JSON
//! log, the admin API, the status page, `weir admin`, `weir explain` and `weir doctor`. A client
//! gets a sentence of a small set, without paths, addresses and output of programs.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use weir_testkit::{ClosedPort, TestFolder};

use crate::admin::OperatorClient;
use crate::harness::{ForeignServer, Weir, peers_are_enabled, wait_until, wait_until_async};

/// A value of a child's environment, which the child prints.
const SECRET: &str = "sk-live-0123456789abcdef";

/// Starts a server that gives every request on every connection the same answer, until the test
/// ends; returns its port.
fn answering(answer: &'static str, tls: Option<Arc<ServerConfig>>) -> u16 {
    answering_each(move || answer.to_owned(), tls)
}

/// Starts a server as `answering` does, with an answer that is made for each connection.
pub fn answering_each(
    answer: impl Fn() -> String + Send + 'static,
    tls: Option<Arc<ServerConfig>>,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            let (mut head, answer) = ([0; 4096], answer());
            // A client that leaves early gets no answer.
            let _ = match tls.clone() {
                None => stream
                    .read(&mut head)
                    .and_then(|_| stream.write_all(answer.as_bytes())),
                Some(config) => {
                    let mut stream =
                        StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                    stream
                        .read(&mut head)
                        .and_then(|_| stream.write_all(answer.as_bytes()))
                }
            };
        }
    });
    port
}

/// Returns a self-signed certificate as OpenSSL makes it by default, marked as an authority.
fn self_signed() -> Arc<ServerConfig> {
    let folder = TestFolder::new("self-signed");
    let [certificate, key] = folder.openssl_certificate("IP:127.0.0.1");
    let chain = CertificateDer::pem_file_iter(&certificate)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let own = PrivateKeyDer::from_pem_file(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(
        config
            .with_no_client_auth()
            .with_single_cert(chain, own)
            .unwrap(),
    )
}

/// An upstream that does not work, and the parts of the cause that operators must read.
struct BrokenUpstream {
    id: &'static str,
    config: Value,
    says: &'static [&'static str],
}

fn broken(closed: &ClosedPort) -> Vec<BrokenUpstream> {
    let url = |port: u16, scheme: &str| json!({ "url": format!("{scheme}://127.0.0.1:{port}/path-of-it") });
    let http = |answer| url(answering(answer, None), "http");
    let shell = |script: &str| json!({ "command": "sh", "args": ["-c", script], "env": { "TOKEN": SECRET }, "start": "3s" });
    let of = |id, config, says| BrokenUpstream { id, config, says };
    vec![
        of(
            "missing",
            json!({ "command": "no-such-program" }),
            &["no program `no-such-program` is on the PATH", "`command`"],
        ),
        of(
            "dies",
            shell("echo hello; echo \"cannot find module foo, token is $TOKEN\" >&2; exit 3"),
            &[
                "exit status: 3",
                "cannot find module foo, token is ***",
                "not messages, the first: hello",
            ],
        ),
        of(
            "throws",
            json!({ "command": "node", "args": ["-e", "throw new Error('WIKI_KEY is not set')"] }),
            &["its last output: Error: WIKI_KEY is not set"],
        ),
        of(
            "imports",
            json!({ "command": "python3", "args": ["-c", "import no_such_package"] }),
            &["its last output: ModuleNotFoundError: No module named 'no_such_package'"],
        ),
        of(
            "silent",
            shell("exec sleep 1000"),
            &["no answer to the first message within 3 s", "`start`"],
        ),
        of(
            "refused",
            url(closed.address().port(), "http"),
            &["Connection refused", "no server listens at that address"],
        ),
        of(
            "page",
            http(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\nconnection: close\r\n\r\n<p/>",
            ),
            &["text/html", "a web page"],
        ),
        of(
            "keyless",
            http("HTTP/1.1 401 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
            &["HTTP 401", "`headers` or `auth`"],
        ),
        of(
            "failing",
            http("HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
            &["HTTP 500", "log of the server"],
        ),
        of(
            "elsewhere",
            http("HTTP/1.1 404 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
            &["HTTP 404", "correct the path of `url`"],
        ),
        of(
            "tls",
            http(
                "HTTP/1.1 400 Bad Request\r\ncontent-type: text/html\r\ncontent-length: 90\r\nconnection: close\r\n\r\n<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>",
            ),
            &[
                "it says \"400 The plain HTTP request was sent to HTTPS port\"",
                "correct the scheme of `url` (http or https)",
            ],
        ),
        of(
            "redirects",
            http(
                "HTTP/1.1 302 Go\r\nlocation: https://me:pass@login.example.com/x?code=abc\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            ),
            &["HTTP 302", "to https://login.example.com/x;", "`url`"],
        ),
        of(
            "untrusted",
            url(answering("", Some(self_signed())), "https"),
            &["invalid peer certificate", "`ca_file`"],
        ),
        of(
            "plain",
            url(answering("HTTP/1.1 400 No\r\n\r\n", None), "https"),
            &["does not speak TLS"],
        ),
    ]
}

/// Asserts that the metrics, the status page, `weir admin` and `weir explain` show the cause.
fn shown_to_operators(weir: &Weir, one: &BrokenUpstream, cause: &str) {
    let metrics = weir.get_admin_page("/metrics");
    let agrees = [
        format!("weir_upstream_up{{upstream=\"{}\"}} 0", one.id),
        format!("state=\"down\",upstream=\"{}\"}} 1", one.id),
    ];
    assert!(
        agrees.iter().all(|line| metrics.contains(line)),
        "{}: {metrics}",
        one.id
    );
    let escaped = cause
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;");
    let page = weir.get_admin_page(&format!("/upstreams/{}", one.id));
    assert!(page.contains(&escaped), "{}: {cause}\n{page}", one.id);
    let shown = Weir::run_cli(&["admin", "--admin", &weir.admin_url(), "upstreams", one.id]);
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains(cause),
        "{}: {shown:?}",
        one.id
    );
    let tool = format!("{}__any", one.id);
    let explained = Weir::run_cli(&[
        "explain",
        "--admin",
        &weir.admin_url(),
        "--tool",
        &tool,
        "--json",
    ]);
    let explained = String::from_utf8_lossy(&explained.stdout).replace("\\\"", "\"");
    assert!(explained.contains(cause), "{}: {explained}", one.id);
}

/// Asserts that a client gets no detail of a cause.
fn hidden_from_clients(weir: &Weir, one: &BrokenUpstream) {
    let refused = Weir::run_cli(&["call", &weir.url(&format!("/mcp/{}", one.id)), "any", "{}"]);
    let heard = String::from_utf8_lossy(&[refused.stdout, refused.stderr].concat()).into_owned();
    for kept in [
        "no-such",
        "path-of-it",
        "foo",
        "hello",
        "example.com",
        "certificate",
        SECRET,
    ] {
        assert!(
            !heard.contains(kept),
            "{}: a client hears {kept}: {heard}",
            one.id
        );
    }
}

/// Asserts that `weir doctor` and `weir check` find the causes of the log.
fn agrees_with_doctor_and_check(weir: &Weir, broken: &[BrokenUpstream], causes: &[String]) {
    let file = weir.config_file();
    let examined = Weir::run_cli(&["doctor", "--config", file.to_str().unwrap(), "--json"]);
    assert_eq!(examined.status.code(), Some(1), "{examined:?}");
    let findings: Value = serde_json::from_slice(&examined.stdout).unwrap();
    for ((one, cause), finding) in broken
        .iter()
        .zip(causes)
        .zip(findings["upstreams"].as_array().unwrap())
    {
        assert_eq!(
            (&finding["id"], &finding["cause"]),
            (&json!(one.id), &json!(cause)),
            "the words of the log"
        );
    }
    let dies = &findings["upstreams"][1];
    assert_eq!(
        dies["last_lines"],
        json!(["cannot find module foo, token is ***"])
    );
    let shown = Weir::run_cli(&["check", file.to_str().unwrap(), "--connect"]);
    let shown = (
        shown.status.code(),
        String::from_utf8(shown.stdout).unwrap(),
    );
    assert!(
        shown.0 == Some(1) && causes.iter().all(|cause| shown.1.contains(cause)),
        "{shown:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cause_reaches_operators_everywhere_and_no_client() {
    let closed = ClosedPort::new();
    let broken = broken(&closed);
    let upstreams: Value = broken
        .iter()
        .map(|one| (one.id.to_owned(), one.config.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let weir = Weir::with_config(json!({ "log": { "format": "json" }, "upstreams": upstreams }));
    let ops = OperatorClient::of(&weir);
    let mut causes = Vec::new();
    for one in &broken {
        let path = format!("/admin/upstreams/{}", one.id);
        let has_all = |text: &str| one.says.iter().all(|part| text.contains(part));
        let cause = wait_until_async(one.id, async || {
            let seen = ops.get_json(&path).await;
            let cause = seen["last_error"].as_str().unwrap_or_default().to_owned();
            (seen["state"] == "down" && has_all(&cause)).then_some(cause)
        })
        .await;
        assert!(
            cause.len() <= 1024 && !cause.contains(SECRET) && !cause.contains("pass@"),
            "{cause}"
        );
        wait_until(&format!("{}: {cause}", one.id), || {
            let log = weir.process.output();
            let mut lines = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines
                .any(|line| line["upstream"] == one.id && line["error"] == cause.as_str())
                .then_some(())
        });
        causes.push(cause.clone());
        shown_to_operators(&weir, one, &cause);
        hidden_from_clients(&weir, one);
    }
    agrees_with_doctor_and_check(&weir, &broken, &causes);
    let log = weir.process.output();
    assert!(
        !log.contains(SECRET),
        "a secret of the config is in the log"
    );
    let other = log.lines().filter(|line| {
        line.contains("invalid message on child process stdout") && line.contains("\"dies\"")
    });
    assert_eq!(
        other.count(),
        1,
        "once, however often the program is started"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_45_s_start_comes_up_and_shows_its_output_meanwhile() {
    if !peers_are_enabled() {
        return;
    }
    let mut slow = ForeignServer::Everything.as_child();
    let words: Vec<String> = [slow["command"].clone()]
        .iter()
        .chain(slow["args"].as_array().unwrap())
        .map(|word| word.as_str().unwrap().to_owned())
        .collect();
    slow["command"] = json!("sh");
    slow["args"] = json!([
        "-c",
        "echo 'fetching 52 packages' >&2; sleep 45; exec \"$@\"",
        "sh"
    ]);
    slow["args"]
        .as_array_mut()
        .unwrap()
        .extend(words.into_iter().map(Value::from));
    let mut late = slow.clone();
    late["start"] = json!("3s");
    let weir = Weir::with_log_filter(
        json!({ "upstreams": { "slow": slow, "late": late } }),
        "info",
    );
    let ops = OperatorClient::of(&weir);
    let seen = wait_until_async("its first line", async || {
        let seen = ops.get_json("/admin/upstreams/slow").await;
        (seen["starting"]["says"] == "fetching 52 packages").then_some(seen)
    })
    .await;
    assert_eq!(
        (&seen["state"], &seen["last_error"]),
        (&json!("starting"), &Value::Null)
    );
    assert!(
        weir.get_admin_page("/").contains("fetching 52 packages"),
        "the status page"
    );
    assert!(
        !weir
            .get_admin_page("/metrics")
            .contains(r#"weir_upstream_up{upstream="slow"}"#),
        "neither up nor down"
    );
    wait_until("the log", || {
        weir.process
            .output()
            .contains("upstream is still starting")
            .then_some(())
    });
    let deadline = std::time::Instant::now() + Duration::from_secs(90);
    while ops.get_json("/admin/upstreams/slow").await["state"] != "up" {
        assert!(
            std::time::Instant::now() < deadline,
            "{}",
            weir.process.output()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(weir.list_tools("/mcp/slow").contains(&"echo".to_owned()));
    let mut good = ForeignServer::Everything.as_child();
    good["start"] = json!("60s");
    let folder = TestFolder::new("doctor");
    let listen = json!({ "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "upstreams": { "good": good } });
    let config = folder.write("weir.json", &listen.to_string());
    let examined = Weir::run_cli(&["doctor", "--config", config.to_str().unwrap()]);
    let text = String::from_utf8(examined.stdout).unwrap();
    assert!(
        examined.status.success()
            && text.starts_with("ok     good  ")
            && text.contains("protocol 20"),
        "{text}"
    );
    assert!(
        text.contains("node: v") && text.contains("127.0.0.1:0 is free for clients"),
        "{text}"
    );
    let up = ops.get_json("/admin/upstreams/slow").await;
    assert!(
        weir.get_admin_page("/metrics")
            .contains(r#"weir_upstream_up{upstream="slow"} 1"#)
    );
    assert_eq!(
        (&up["starting"], &up["last_error"]),
        (&Value::Null, &Value::Null),
        "nothing that looks current"
    );
    let late = ops.get_json("/admin/upstreams/late").await;
    let cause = late["last_error"].as_str().unwrap();
    assert!(
        cause.contains("within 3 s; its last output: fetching 52 packages"),
        "{cause}"
    );
}
