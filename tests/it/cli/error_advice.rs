//! Mistakes and failures, and the sentence with the next step that a person gets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::json;
use weir_testkit::mock_server::{MockBehaviour, MockTool};
use weir_testkit::{MockServer, TestFolder};

use super::{CliOutput, command, weir};
use crate::harness::{ForeignServer, Weir};

/// Starts a port that answers every connection with these bytes, after the first bytes of a request
/// or at once.
fn port_saying(text: &'static str, at_once: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if !at_once {
                let _read = stream.read(&mut [0; 65536]);
            }
            let _written = stream.write_all(text.as_bytes());
            if at_once {
                let _read = stream.read(&mut [0; 65536]);
            }
        }
    });
    address
}

fn page(status: &str, kind: &str, body: &str) -> &'static str {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    Box::leak(text.into_boxed_str())
}

/// For a 403 `weir tools` only advised to log in, and for a 404 it reported malformed JSON.
#[test]
fn answer_that_is_not_mcp_is_reported_with_a_next_step() {
    let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"only for the \u001b[2Jfinance team"}}"#;
    let table = [
        (
            page("403 Forbidden", "application/json", refusal),
            "HTTP 403, saying \"only for the [2Jfinance team\": log in with",
        ),
        (
            page(
                "403 Forbidden",
                "text/plain",
                "this host is not served here",
            ),
            "add `127.0.0.1` to `allowed_hosts` of its config",
        ),
        (
            page("401 Unauthorized", "text/plain", ""),
            "log in with `weir login http://127.0.0.1:",
        ),
        (
            page("404 Not Found", "text/plain", "no such endpoint"),
            "HTTP 404 (no such endpoint): no MCP endpoint",
        ),
        (
            page("500 Oops", "text/html", "<html>"),
            "HTTP 500 (a web page): see the server's log",
        ),
        (
            page("200 OK", "text/html", "<html>hello"),
            "HTTP 200 with a web page: give the URL of an MCP endpoint",
        ),
        (
            page("405 Method Not Allowed", "text/plain", ""),
            "it does not accept POST",
        ),
        (
            "HTTP/1.1 302 Found\r\nlocation: https://sso.example/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "a redirect to https://sso.example/, which is not followed",
        ),
    ];
    for (answer, words) in table {
        let said = weir(&[
            "tools",
            &format!("http://{}/tools", port_saying(answer, false)),
        ]);
        assert!(
            said.code == Some(3) && said.err.contains(words),
            "`{words}`: {said:?}"
        );
        assert_eq!(said.error_lines().len(), 1, "{said:?}");
    }
    let with_token = weir(&[
        "tools",
        &format!("http://{}/", port_saying(table[0].0, false)),
        "--token",
        "t",
    ]);
    assert!(
        with_token
            .err
            .contains("ask the server's operator for access"),
        "{with_token:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_another_protocol_is_named_as_one() {
    let ssh = port_saying("SSH-2.0-OpenSSH_9.6\r\n", true);
    let said = weir(&["tools", &format!("http://{ssh}/mcp")]);
    assert!(
        said.code == Some(3)
            && said
                .err
                .contains("the port speaks another protocol than HTTP"),
        "{said:?}"
    );
    assert!(
        said.err
            .contains(&format!("write https://{ssh}/mcp if it speaks TLS")),
        "{said:?}"
    );
    let said = weir(&["tools", &format!("https://{ssh}/mcp")]);
    assert!(
        said.err.contains(&format!(
            "the port does not speak TLS: write http://{ssh}/mcp"
        )),
        "{said:?}"
    );
    let closing = port_saying("", false);
    let said = weir(&["tools", &format!("https://{closing}/mcp")]);
    assert!(
        said.err.contains(&format!(
            "it ended the TLS handshake: write http://{closing}/mcp if the port speaks plain HTTP"
        )),
        "{said:?}"
    );
    let server = MockServer::dual().tools(1).start().await;
    let said = weir(&["tools", &server.url().replace("http://", "https://")]);
    assert!(
        said.err
            .contains("the port does not speak TLS: write http://127.0.0.1:"),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_not_taken_is_named_with_its_fault() {
    let server = MockServer::dual().tools(1).start().await;
    let folder = TestFolder::new("certificates");
    let certified = |names: &[&str], ca: bool| {
        let mut params = CertificateParams::new(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
        .unwrap();
        if ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        let name = format!("{}-{ca}", names[0]);
        json!({
            "cert": folder.write(&format!("{name}.cert.pem"), &cert.pem()),
            "key": folder.write(&format!("{name}.key.pem"), &key.serialize_pem()),
        })
    };
    for (tls, untrusted, trusted) in [
        (
            certified(&["127.0.0.1"], false),
            "is of an issuer that this machine does not trust",
            None,
        ),
        (
            certified(&["elsewhere.example"], false),
            "",
            Some("is for another name"),
        ),
        (
            certified(&["127.0.0.1"], true),
            "a CA's own, as `openssl req -x509` makes by default",
            None,
        ),
    ] {
        let weir_ = Weir::with_config(
            json!({ "tls": tls, "upstreams": { "one": { "url": server.url() } } }),
        );
        let url = weir_.url("/mcp").replace("http://", "https://");
        let said = weir(&["tools", &url]);
        assert!(
            said.code == Some(3) && said.err.contains(untrusted),
            "{said:?}"
        );
        let mut knowing = command(&["tools", &url]);
        let said = CliOutput::of(
            &knowing
                .env("SSL_CERT_FILE", tls["cert"].as_str().unwrap())
                .output()
                .unwrap(),
        );
        if let Some(words) = trusted {
            assert!(said.code == Some(3) && said.err.contains(words), "{said:?}");
        }
        let said = weir(&["tools", &weir_.url("/mcp")]);
        assert!(
            said.err
                .contains("the port speaks another protocol than HTTP"),
            "{said:?}"
        );
    }
    // Another certificate of the same issuer's name, such as one of a CA that was made again.
    let tls = certified(&["127.0.0.1"], false);
    let weir_ =
        Weir::with_config(json!({ "tls": tls, "upstreams": { "one": { "url": server.url() } } }));
    let other = certified(&["other.example"], false);
    let url = weir_.url("/mcp").replace("http://", "https://");
    let mut trusting = command(&["tools", &url]);
    let trusting = trusting.env("SSL_CERT_FILE", other["cert"].as_str().unwrap());
    let said = CliOutput::of(&trusting.output().unwrap());
    assert!(
        said.code == Some(3)
            && said
                .err
                .contains("although one of them has the issuer's name"),
        "{said:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_up_weir_ports_and_paths_get_specific_advice() {
    let server = MockServer::dual().tools(1).start().await;
    let weir_ = Weir::with_upstreams(json!({ "one": { "url": server.url() } }));
    let clients = weir_.url("");
    let said = weir(&["tools", &weir_.url("/nope")]);
    assert!(
        said.err.contains(&format!(
            "weir's are {clients}/mcp and those that `endpoints`"
        )),
        "{said:?}"
    );
    let said = weir(&["tools", &clients]);
    assert!(said.err.contains(&format!("try {clients}/mcp")), "{said:?}");
    let said = weir(&["tools", &format!("{}/mcp", weir_.admin_url())]);
    assert!(
        said.err.contains("check that the server is weir"),
        "{said:?}"
    );
    let said = weir(&["admin", "--admin", &clients, "upstreams"]);
    assert!(
        said.code == Some(3) && said.err.contains("is not an admin listener of weir"),
        "{said:?}"
    );
    let said = weir(&["admin", "--admin", &weir_.admin_url(), "log", "inof"]);
    assert!(
        said.code == Some(1) && said.err.contains("did you mean `info`?"),
        "{said:?}"
    );
    // The config gives the address, in the same way for every command that talks to the operators'
    // listener.
    let config = weir_.config_with_addresses().display().to_string();
    for words in [
        vec!["admin", "upstreams"],
        vec!["health"],
        vec!["explain", "--tool", "one__tool_0000"],
    ] {
        let said = weir(&[&words[..], &["--config", &config]].concat());
        assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
        assert!(!said.out.contains("From the config alone"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_tool_is_answered_with_the_names_that_were_meant() {
    // Servers report it in three ways: by an error, by another one, and by a result.
    let result =
        json!({ "content": [{ "type": "text", "text": "Tool ecoh not found" }], "isError": true });
    let server = MockServer::dual()
        .with(MockTool::new("echo"))
        .with(MockTool::new("read_text_file"))
        .with_rule("tools/call", MockBehaviour::result(result))
        .start()
        .await;
    let said = weir(&["call", &server.url(), "ecoh"]);
    assert!(
        said.code == Some(3)
            && said
                .err
                .contains("has no tool `ecoh`: did you mean `echo`?"),
        "{said:?}"
    );
    server.clear_rules();
    let weir_ = Weir::with_upstreams(json!({ "one": { "url": server.url() } }));
    weir_.wait_until_listed("/mcp", &["one__echo"]);
    for (tool, meant) in [
        ("one__ecoh", "did you mean `one__echo`?"),
        ("ecoh", "did you mean `one__echo`?"),
        ("text_file", "did you mean `one__read_text_file`?"),
        ("shop__buy", "`weir tools http://"),
    ] {
        let said = weir(&["call", &weir_.url("/mcp"), tool]);
        assert!(said.code == Some(3) && said.err.contains(meant), "{said:?}");
    }
    // A tool's own failure is passed on unchanged, even if its words are the same.
    server.add_rule(
        "tools/call",
        1,
        MockBehaviour::result(
            json!({ "content": [{ "type": "text", "text": "echo: not found" }], "isError": true }),
        ),
    );
    let said = weir(&["call", &server.url(), "echo"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(1), "echo: not found\n"),
        "{said:?}"
    );
}

/// Each SDK has its own words for an unknown tool.
#[test]
fn unknown_tools_of_real_servers_are_recognized() {
    if !crate::harness::peers_are_enabled() {
        return;
    }
    for (server, known) in [
        (ForeignServer::Everything, "echo"),
        (ForeignServer::FastMcp, ""),
        (ForeignServer::RmcpModern, "sum"),
    ] {
        let (_process, url) = server.over_http();
        let listed = weir(&["tools", &url, "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
        let first = listed[0]["name"].as_str().unwrap();
        let name = if known.is_empty() { first } else { known };
        let said = weir(&["call", &url, &format!("{name}x")]);
        assert!(
            said.code == Some(3) && said.err.contains(&format!("`{name}`")),
            "{server:?}: {said:?}"
        );
        assert!(said.err.contains("did you mean"), "{server:?}: {said:?}");
    }
}
