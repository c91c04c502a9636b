//! weir's own requests through Squid, the forward proxy of many networks. The names of the servers
//! exist in the proxy's hosts file alone.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use weir_testkit::accept::listen_on_loopback;
use weir_testkit::{ClosedPort, MockBehaviour, MockServer, RawClient, TestFolder, TokenServer};
use weir_wire::Revision;

use crate::down_causes::answering_each;
use crate::harness::{TestProcess, Weir, peers_are_enabled, wait_until, weir_binary};
use crate::stdio::stdio_host::{self, StdioHost};

const USER: &str = "weir:CANARY%40proxy";
/// Squid asks this program about each user, in lines of user and password.
const CHECK_USER: &str = r#"while read -r line; do
  if [ "$line" = "weir CANARY@proxy" ]; then echo OK; else echo ERR; fi
done"#;

/// A running Squid.
struct Squid {
    folder: TestFolder,
    port: ClosedPort,
    _process: TestProcess,
}

impl Squid {
    /// Starts a proxy that knows `weir` and its password, and refuses `blocked.test`.
    fn start() -> Self {
        let (folder, port) = (TestFolder::new("squid"), ClosedPort::new());
        // As root it changes its user, who writes the logs.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        folder.write(
            "hosts",
            "127.0.0.1 h1.test h2.test plain.test blocked.test closed.test idp.test collector.test\n",
        );
        let check = folder.write("check.sh", CHECK_USER);
        let at = folder.path().display();
        let config = format!(
            "http_port {}
hosts_file {at}/hosts
access_log stdio:{at}/access.log
cache_log {at}/cache.log
pid_filename none
pinger_enable off
cache deny all
shutdown_lifetime 0 seconds
visible_hostname proxy.test
auth_param basic program /bin/sh {}
auth_param basic children 1
acl known proxy_auth REQUIRED
acl blocked dstdomain blocked.test
http_access deny blocked
http_access allow known
http_access deny all
",
            port.address(),
            check.display()
        );
        let config = folder.write("squid.conf", &config);
        // Debian has it in a folder that is on the path of root alone.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"PATH="$PATH:/usr/sbin" exec squid -N -f "$0""#])
            .arg(config);
        let mut process = TestProcess::start(command);
        let address = port.address();
        wait_until("Squid to listen", || {
            assert!(
                !process.has_exited(),
                "Squid ended: {}",
                process.final_output()
            );
            std::net::TcpStream::connect(address).ok()
        });
        Self {
            folder,
            port,
            _process: process,
        }
    }

    fn url(&self, user: &str) -> String {
        format!("http://{user}@{}", self.port.address())
    }

    /// Returns the targets of all tunnels that have ended so far, with their statuses.
    fn tunnels(&self) -> Vec<(String, String)> {
        let log = std::fs::read_to_string(self.folder.file("access.log")).unwrap_or_default();
        // The wait for its start makes a connection without a request.
        let requests = log.lines().filter(|line| !line.contains("before-headers"));
        let words = requests.map(|line| line.split_whitespace().collect());
        words
            .map(|words: Vec<&str>| {
                assert_eq!(words[5], "CONNECT", "{words:?}");
                let status = words[3].rsplit('/').next().unwrap();
                (words[6].to_owned(), status.to_owned())
            })
            .collect()
    }

    /// Waits until a tunnel to this target was opened and has ended.
    fn wait_for_tunnel(&self, target: &str) {
        wait_until(target, || {
            let tunnels = self.tunnels();
            let is_it = |tunnel: &&(String, String)| tunnel.0 == target && tunnel.1 == "200";
            tunnels.iter().find(is_it).map(drop)
        });
    }
}

/// Serves `target` over TLS for a name, with one protocol; returns the port and the certificate.
async fn over_tls(target: SocketAddr, name: &str, protocol: &[u8]) -> (u16, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, address) = listen_on_loopback().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut secure) = acceptor.accept(stream).await else {
                    return;
                };
                let mut plain = TcpStream::connect(target).await.unwrap();
                let _ended = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
            });
        }
    });
    (address.port(), cert.pem())
}

fn blocking<T>(act: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(act)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_servers_issuers_and_collectors_go_through_the_proxy() {
    if !peers_are_enabled() {
        return;
    }
    let squid = blocking(Squid::start);
    let mut mocks = Vec::new();
    for n in 0..5 {
        let mock = MockServer::modern().tool("echo", MockBehaviour::echo());
        let mock = if n == 1 { mock.http2() } else { mock };
        mocks.push(mock.start().await);
    }
    let port = |n: usize| mocks[n].address().port();
    let (h1, h1_pem) = over_tls(mocks[0].address(), "h1.test", b"http/1.1").await;
    let (h2, h2_pem) = over_tls(mocks[1].address(), "h2.test", b"h2").await;
    let (plain, bypassed, local) = (port(2), port(3), port(4));
    let authority = TokenServer::start().await;
    let authority_port = http::Uri::try_from(authority.endpoint()).unwrap();
    let authority_port = authority_port.port_u16().unwrap();
    let collector = answering_each(
        || "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        None,
    );
    let files = TestFolder::new("proxied");
    let auth = json!({
        "mode": "client_credentials", "client_id": "weir", "client_secret": "thirteen-things",
        "token_endpoint": format!("http://idp.test:{authority_port}/token"), "allow_http": true,
    });
    let weir = blocking(|| {
        Weir::with_config(json!({
            "forward_proxy": { "url": squid.url(USER), "bypass": ["127.1"] },
            "upstreams": {
                "one": { "url": format!("https://h1.test:{h1}/mcp"), "ca_file": files.write("h1.pem", &h1_pem) },
                "two": { "url": format!("https://h2.test:{h2}/mcp"), "ca_file": files.write("h2.pem", &h2_pem) },
                "plain": { "url": format!("http://plain.test:{plain}/mcp"), "auth": auth },
                // A name that this machine resolves to itself.
                "bypassed": { "url": format!("http://127.1:{bypassed}/mcp") },
                "local": { "url": format!("http://127.0.0.1:{local}/mcp") },
            },
            "telemetry": { "otlp": { "endpoint": format!("http://collector.test:{collector}"), "interval": "1s" } },
        }))
    });
    let names = [
        "one__echo",
        "two__echo",
        "plain__echo",
        "bypassed__echo",
        "local__echo",
    ];
    blocking(|| weir.wait_until_listed("/mcp", &names));
    let client = RawClient::new(&weir.url("/mcp")).modern();
    for name in names {
        let answer = client.call(name, json!({ "of": name })).await.unwrap();
        assert_eq!(answer.text(), format!(r#"{{"of":"{name}"}}"#));
    }
    assert!(!authority.requests().is_empty(), "no token was requested");
    for mock in &mocks {
        let requests = mock.requests();
        let mut leaked = requests
            .iter()
            .map(|request| request.header("proxy-authorization"));
        assert!(!requests.is_empty() && leaked.all(|header| header.is_none()));
    }
    let proxied = [
        format!("h1.test:{h1}"),
        format!("h2.test:{h2}"),
        format!("plain.test:{plain}"),
        format!("idp.test:{authority_port}"),
        format!("collector.test:{collector}"),
    ];
    let mut direct = weir.config();
    direct.as_object_mut().unwrap().remove("forward_proxy");
    let log = blocking(|| {
        squid.wait_for_tunnel(&proxied[4]);
        weir.rewrite_config(direct);
        wait_until("the reload", || {
            let log = weir.process.output();
            let mut lines = log.lines();
            let is_it = |line: &str| {
                line.contains("config setting needs a restart") && line.contains("forward_proxy")
            };
            lines.any(is_it).then_some(())
        });
        let log = weir.process.output();
        // Squid records a tunnel at its end.
        drop(weir);
        for target in &proxied {
            squid.wait_for_tunnel(target);
        }
        log
    });
    for (target, status) in squid.tunnels() {
        assert!(
            proxied.contains(&target) && status == "200",
            "{target}: {status}"
        );
    }
    assert!(!log.contains("CANARY"), "{log}");
}

/// Runs `weir doctor` with these upstreams; returns their causes and the findings of the machine.
fn examine(proxy: &Value, upstreams: &Value, variables: &[(&str, String)]) -> (Value, String) {
    let folder = TestFolder::new("proxied");
    let config = json!({
        "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" },
        "forward_proxy": proxy, "upstreams": upstreams,
    });
    let mut command = Command::new(weir_binary());
    command
        .args(["doctor", "--json", "--config"])
        .arg(folder.write("weir.json", &config.to_string()))
        .envs(variables.iter().cloned());
    let output: Output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(!text.contains("CANARY"), "{text}");
    let upstreams = found["upstreams"].as_array().unwrap().iter();
    let causes = upstreams.map(|one| {
        let id = one["id"].as_str().unwrap();
        (id.to_owned(), one["cause"].clone())
    });
    (
        Value::Object(causes.collect()),
        found["machine"].to_string(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_uses_the_proxy_of_the_environment_and_names_its_refusals() {
    if !peers_are_enabled() {
        return;
    }
    let squid = blocking(Squid::start);
    let mock = MockServer::modern().tools(1).start().await;
    let (port, closed) = (mock.address().port(), ClosedPort::new());
    let at = |host: &str, port: u16| json!({ "url": format!("http://{host}:{port}/mcp") });
    let upstreams = json!({
        "good": at("plain.test", port),
        "blocked": at("blocked.test", port),
        "closed": at("closed.test", closed.address().port()),
    });
    let proxy = squid.port.address().to_string();
    let causes = |proxy: Value, variables: &[(&str, String)]| {
        blocking(|| examine(&proxy, &upstreams, variables))
    };
    let has = |causes: &Value, id: &str, parts: &[&str]| {
        let cause = causes[id].as_str().unwrap_or_default();
        assert!(
            parts.iter().all(|part| cause.contains(part)),
            "{id}: {causes}"
        );
    };

    let variables = [("https_proxy", squid.url(USER))];
    let (found, machine) = causes(json!("environment"), &variables);
    assert_eq!(found["good"], Value::Null, "{found}");
    let refused = format!("the forward proxy {proxy} refused a tunnel to blocked.test:{port}");
    has(&found, "blocked", &[&refused, "HTTP 403", "CONNECT"]);
    has(&found, "closed", &["HTTP 503", "does not reach the server"]);
    assert!(
        machine.contains(&format!("go through the forward proxy {proxy}")),
        "{machine}"
    );

    let (found, _) = causes(json!({ "url": squid.url("weir:CANARY") }), &[]);
    has(&found, "good", &["HTTP 407", "correct the user"]);
    let (found, _) = causes(json!({ "url": format!("http://{proxy}") }), &[]);
    has(&found, "good", &["HTTP 407", "write the proxy's user"]);
    let nobody = closed.address().to_string();
    let (found, _) = causes(json!({ "url": format!("http://{nobody}") }), &[]);
    let unreached = format!("the forward proxy {nobody} cannot be reached");
    has(&found, "good", &[&unreached, "`forward_proxy`"]);
    assert_eq!(mock.requests_with("CANARY").len(), 0);
}

/// Runs `weir tools` at this URL; returns its exit code, its output and its errors.
fn list_tools(url: &str, variables: &[(&str, String)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(weir_binary());
    for name in ["HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    let output = command.args(["tools", url]).envs(variables.iter().cloned());
    let output = output.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(!errors.contains("CANARY"), "{errors}");
    (output.status.code(), out, errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_reach_an_https_server_through_the_proxy_of_the_environment() {
    if !peers_are_enabled() {
        return;
    }
    let squid = blocking(Squid::start);
    let mock = MockServer::modern().tool("echo", MockBehaviour::echo());
    let mock = mock.start().await;
    let (port, pem) = over_tls(mock.address(), "h1.test", b"http/1.1").await;
    let files = TestFolder::new("command-proxy");
    let roots = files.write("h1.pem", &pem).display().to_string();
    let url = format!("https://h1.test:{port}/mcp");
    let with = |user: &str| {
        [
            ("HTTPS_PROXY", squid.url(user)),
            ("SSL_CERT_FILE", roots.clone()),
        ]
    };
    let (code, tools, errors) = blocking(|| list_tools(&url, &with(USER)));
    assert_eq!(code, Some(0), "{errors}");
    assert!(tools.contains("echo"), "{tools}");

    let (code, _, errors) = blocking(|| list_tools(&url, &with("weir:CANARY")));
    assert_eq!(code, Some(3), "{errors}");
    let proxy = squid.port.address();
    for part in [
        format!("the forward proxy {proxy} refused a tunnel to h1.test:{port} with HTTP 407"),
        "correct HTTPS_PROXY".to_owned(),
    ] {
        assert!(errors.contains(&part), "{errors}");
    }
    // This machine is reached directly.
    let (code, tools, errors) = blocking(|| list_tools(&mock.url(), &with("weir:CANARY")));
    assert!(code == Some(0) && tools.contains("echo"), "{errors}");

    let mut command = stdio_host::command(&[&url]);
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    command.envs(with(USER));
    let mut host = StdioHost::spawn(Revision::V2025_11_25, command);
    host.initialize().await;
    let tools = host.ask("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"][0]["name"], "echo", "{tools}");
}
