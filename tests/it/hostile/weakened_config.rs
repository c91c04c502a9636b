//! Config files that lost a part of their text, and listening sockets that are bound elsewhere than
//! the file says: none of them lifts a protection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::json;
use weir_testkit::{MockServer, TestFolder};

use crate::audit::of_kind;
use crate::auth::api_key;
use crate::harness::{TestProcess, wait_until, weir_binary};

/// The operators' token of these tests.
const TOKEN: &str = "weir_0123456789_of-the-operators";

/// A folder with a config file.
struct ConfigFolder(TestFolder);

impl ConfigFolder {
    fn new(text: &str) -> Self {
        let folder = Self(TestFolder::new("hostile"));
        folder.write("weir.yaml", text);
        folder
    }

    /// Replaces a file by a rename, as an editor does.
    fn write(&self, name: &str, text: &str) {
        let next = self.0.write(".next", text);
        std::fs::rename(next, self.0.file(name)).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.file("weir.yaml")
    }
}

/// weir with a config and any bound addresses of its listeners.
struct BoundWeir {
    process: TestProcess,
    folder: ConfigFolder,
    clients: u16,
    operators: u16,
}

impl BoundWeir {
    fn start(text: &str) -> Self {
        Self::within(ConfigFolder::new(text))
    }

    fn within(folder: ConfigFolder) -> Self {
        let mut command = Command::new(weir_binary());
        command
            .arg("serve")
            .arg("--config")
            .arg(folder.file())
            .env("RUST_LOG", "info");
        let mut process = TestProcess::start(command);
        let served = wait_until("weir to serve", || {
            let is_over = process.has_exited();
            let said = process.output();
            assert!(
                !is_over || said.is_empty() || said.contains(" serves\""),
                "it ended: {said}"
            );
            said.lines()
                .find(|line| line.contains(" serves\""))
                .map(str::to_owned)
        });
        let served: serde_json::Value = serde_json::from_str(&served).unwrap();
        let port = |name: &str| {
            served[name]
                .as_str()
                .unwrap()
                .rsplit(':')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let (clients, operators) = (port("clients"), port("operators"));
        Self {
            process,
            folder,
            clients,
            operators,
        }
    }

    /// Rewrites the config, and waits until weir refuses it.
    fn is_refused(&self, text: &str) {
        self.refuses("weir.yaml", text);
    }

    /// Rewrites any of its files, and waits until weir refuses it.
    fn refuses(&self, name: &str, text: &str) {
        let refusals = || {
            self.process
                .output()
                .matches("config reload failed")
                .count()
        };
        let before = refusals();
        self.folder.write(name, text);
        wait_until("the refusal", || (refusals() > before).then_some(()));
    }

    /// Rewrites the config, and waits until no config is refused any more.
    fn is_taken(&self, text: &str) {
        self.folder.write("weir.yaml", text);
        wait_until("the file to be taken", || {
            self.refused_for().is_empty().then_some(())
        });
    }

    /// Returns the reasons for the refusal of the config in the files.
    fn refused_for(&self) -> Vec<String> {
        let page = ask(self.operators, "GET /metrics", "", "").1;
        let series = page
            .lines()
            .filter_map(|line| line.strip_prefix("weir_config_refused{reason=\""));
        let raised = series.filter_map(|rest| rest.strip_suffix("\"} 1"));
        raised.map(str::to_owned).collect()
    }

    /// Runs `weir admin reload` with these arguments; returns its exit code and its output.
    fn reload(&self, words: &[&str]) -> (Option<i32>, String) {
        let url = format!("http://127.0.0.1:{}", self.operators);
        let mut command = Command::new(weir_binary());
        command
            .args(["admin", "--admin", &url, "reload"])
            .args(words)
            .env("WEIR_ADMIN_TOKEN", TOKEN);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    /// Returns the status of a list of tools for a client with this key.
    fn list(&self, key: Option<&str>) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        } } });
        let mut headers =
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"
                .to_owned();
        headers.extend(key.map(|key| format!("X-API-Key: {key}\r\n")));
        ask(self.clients, "POST /mcp", &headers, &body.to_string()).0
    }

    /// Returns the status of the operators' API without a token.
    fn operate(&self) -> u16 {
        ask(self.operators, "GET /admin/upstreams", "", "").0
    }
}

impl Drop for BoundWeir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- weir said:\n{}", self.process.output());
        }
    }
}

/// Sends one request over loopback; returns the status and the whole answer.
fn ask(port: u16, line: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// Returns a config that listens on every address of the machine, in an order in which a cut leaves
/// neither `auth` nor `listen`.
fn wide(upstream: &MockServer, entry: &serde_json::Value) -> [String; 2] {
    let url = upstream.url();
    let head = format!("public_url: http://127.0.0.1:1\nupstreams:\n  one: {{ url: \"{url}\" }}\n");
    let rest = format!(
        "auth: {{ mode: required, api_keys: [{entry}] }}\nlisten: 0.0.0.0:0\n\
         admin: {{ listen: \"0.0.0.0:0\", auth: {{ token: {TOKEN} }} }}\n"
    );
    [head, rest]
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_takes_no_authentication_off_a_listener_that_others_reach() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = api_key("build");
    let [head, rest] = wide(&upstream, &entry);
    let weir = BoundWeir::start(&format!("{head}{rest}"));
    assert_eq!(
        (weir.list(None), weir.list(Some(&key)), weir.operate()),
        (401, 200, 401)
    );
    let no_clients_auth =
        format!("{head}listen: 127.0.0.1:0\nadmin: {{ auth: {{ token: {TOKEN} }} }}\n");
    let no_operators = format!("{head}{}", rest.lines().next().unwrap());
    for cut in [&head, &no_clients_auth, &no_operators] {
        weir.is_refused(cut);
        assert_eq!(
            (weir.list(None), weir.list(Some(&key)), weir.operate()),
            (401, 200, 401),
            "{cut}"
        );
    }
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_restart_checks_the_config_against_inherited_sockets() {
    let upstream = MockServer::modern().tools(1).start().await;
    let url = upstream.url();
    let head = format!("upstreams:\n  one: {{ url: \"{url}\" }}\n");
    let open = "auth: { mode: none, allow_anyone: true }\nlisten: 0.0.0.0:0\nadmin: { listen: \"127.0.0.1:0\" }\n";
    let weir = BoundWeir::start(&format!("{head}{open}"));
    // Good for a process that binds the file's own addresses, and not for one that inherits a
    // socket of every address.
    weir.is_refused(&format!(
        "{head}listen: 127.0.0.1:0\nadmin: {{ listen: \"127.0.0.1:0\" }}\n"
    ));
    weir.process.signal("USR2");
    wait_until("the refusal", || {
        weir.process
            .output()
            .contains("graceful restart failed")
            .then_some(())
    });
    // The new process reports it when it ends, after it has closed its channel to the old one.
    wait_until("the other process's words", || {
        weir.process
            .output()
            .contains("start failed: auth.mode")
            .then_some(())
    });
    assert_eq!(
        weir.list(None),
        200,
        "what the file allowed by name goes on"
    );
}

/// Starts weir with sockets that are bound to the addresses of the first two arguments: the
/// clients' and the operators'.
const MANAGER: &str = r#"
import os, socket, sys
held = [socket.create_server((host, 0)) for host in sys.argv[1:3]]
for at, one in enumerate(held):
    os.dup2(one.fileno(), 20 + at)
for at in range(len(held)):
    os.dup2(20 + at, 3 + at)
    os.close(20 + at)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="clients:operators")
os.execv(sys.argv[3], sys.argv[3:])
"#;

fn managed(clients: &str, operators: &str, text: &str) -> Output {
    let folder = ConfigFolder::new(text);
    let mut command = Command::new("python3");
    command
        .args(["-c", MANAGER, clients, operators])
        .arg(weir_binary())
        .arg("serve")
        .arg("--config")
        .arg(folder.file());
    command.output().unwrap()
}

// Proves G05.
#[test]
fn a_start_judges_the_sockets_of_a_service_manager_by_where_they_are_bound() {
    let head = "upstreams: { one: { url: \"http://127.0.0.1:1/mcp\" } }\nlisten: 127.0.0.1:0\n";
    let admin = "admin: { listen: \"127.0.0.1:0\" }\n";
    for (clients, operators, words) in [
        ("0.0.0.0", "127.0.0.1", "the listener for clients is bound"),
        (
            "127.0.0.1",
            "0.0.0.0",
            "the listener for operators is bound",
        ),
    ] {
        let output = managed(clients, operators, &format!("{head}{admin}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.contains("0.0.0.0:"), "{said}");
    }
}

/// Returns a config on loopback in sections, each with a protection.
fn protected(upstream: &MockServer, entry: &serde_json::Value, audit: &str) -> [String; 7] {
    let listen = "listen: 127.0.0.1:0\npublic_url: http://127.0.0.1:1\n";
    [
        format!(
            "{listen}upstreams:\n  one: {{ url: \"{}\" }}\n",
            upstream.url()
        ),
        format!("admin:\n  listen: 127.0.0.1:0\n  auth: {{ token: {TOKEN} }}\n"),
        format!("auth:\n  mode: required\n  api_keys: [{entry}]\n"),
        "policy:\n  inline: permit(principal, action, resource);\n".to_owned(),
        "endpoints:\n  /mcp:\n    upstreams: [one]\n    scopes: [mcp]\n".to_owned(),
        "rates:\n  principal: { rate: 1000/s }\n".to_owned(),
        format!("audit:\n  file: {{ path: {audit} }}\n"),
    ]
}

/// Returns a key that is good for the scope of [`protected`].
fn scoped_key() -> (String, serde_json::Value) {
    let (key, mut entry) = api_key("build");
    entry["scopes"] = json!(["mcp"]);
    (key, entry)
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_cut_off_takes_no_protection_away() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = scoped_key();
    let sections = protected(&upstream, &entry, "audit.jsonl");
    let weir = BoundWeir::start(&sections.concat());
    assert_eq!(
        (weir.list(None), weir.list(Some(&key)), weir.operate()),
        (401, 200, 401)
    );
    let lost = ["admin", "auth", "policy", "endpoints", "rates", "audit"];
    for (at, reason) in (1..sections.len()).zip(lost) {
        weir.is_refused(&sections[..at].concat());
        let reasons = weir.refused_for();
        assert!(
            reasons.iter().any(|raised| raised == reason),
            "cut before `{reason}`: {reasons:?}"
        );
        assert_eq!(
            (weir.list(None), weir.list(Some(&key)), weir.operate()),
            (401, 200, 401),
            "cut before `{reason}`"
        );
    }
    // Equal errors are reported once: an empty file, then one whose key has no value.
    for nothing in [String::new(), format!("{}auth:\n", sections[0])] {
        weir.is_refused(&nothing);
        assert_eq!(
            (weir.refused_for(), weir.list(None)),
            (vec!["invalid".to_owned()], 401),
            "{nothing:?}"
        );
    }
    weir.is_refused(&sections.concat().replace("    scopes: [mcp]\n", ""));
    assert_eq!(weir.refused_for(), ["scopes"]);
    weir.is_refused(
        &sections
            .concat()
            .replace("  mode: required\n", "  mode: none\n")
            .replace("  api_keys", "  #"),
    );
    assert_eq!(
        (weir.refused_for(), weir.list(None)),
        (vec!["auth".to_owned()], 401),
        "none has to be said twice"
    );
    weir.is_taken(&sections.concat());
    // A protection that the file turns off by name is off.
    let open = [
        sections[0].as_str(),
        "admin: { listen: 127.0.0.1:0, auth: off }\nauth: { mode: none, allow_anyone: true }\npolicy: off\n",
        "endpoints: { /mcp: { upstreams: [one], scopes: [] } }\nrates: off\naudit: off\n",
    ];
    weir.folder.write("weir.yaml", &open.concat());
    wait_until("the open file to be taken", || {
        (weir.list(None) == 200 && weir.operate() == 200).then_some(())
    });
    assert_eq!(weir.refused_for(), Vec::<String>::new());
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_loses_one_of_several_protections_is_refused_until_it_gives_that_one_up() {
    let upstream = MockServer::modern().tools(2).start().await;
    let (key, entry) = scoped_key();
    let [head, admin, auth, policy, ..] = protected(&upstream, &entry, "audit.jsonl");
    let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    // Each section, the part of it that is lost, and the reason that is raised then.
    let parts = [
        (
            "rates: { principal: { rate: 1000/s }",
            ", address: { rate: 1000/s }",
            " }\n",
            "rates",
            "rates.address",
        ),
        (
            "endpoints: { /mcp: { upstreams: [one], scopes: [mcp]",
            ", tools: { include: [\"*0000\"] }",
            " } }\n",
            "tools",
            "",
        ),
        (
            "audit: { file: { path: audit.jsonl }",
            &format!(", key: {{ id: 1, secret: {secret} }}"),
            " }\n",
            "audit",
            "audit.key",
        ),
        (
            "validation: { input: enforce",
            ", output: enforce",
            " }\n",
            "validation",
            "",
        ),
    ];
    let text = |lost: Option<usize>| {
        let parts = parts
            .iter()
            .enumerate()
            .map(|(at, (begin, part, end, ..))| {
                let part = if lost == Some(at) { "" } else { part };
                format!("{begin}{part}{end}")
            });
        [&head, &admin, &auth, &policy]
            .into_iter()
            .cloned()
            .chain(parts)
            .collect::<String>()
    };
    let weir = BoundWeir::start(&text(None));
    assert_eq!(weir.list(Some(&key)), 200);
    for (at, (.., reason, place)) in parts.iter().enumerate() {
        weir.is_refused(&text(Some(at)));
        assert_eq!(weir.refused_for(), [*reason]);
        weir.is_taken(&text(None));
        if !place.is_empty() {
            // Turned off by its path, and on again.
            weir.is_refused(&text(Some(at)));
            weir.is_taken(&format!("{}allow_weaker: [{place}]\n", text(Some(at))));
            weir.is_taken(&text(None));
            wait_until("the whole file", || {
                weir.reload(&[]).0.filter(|code| *code == 0)
            });
        }
    }
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_with_a_token_takes_a_weaker_file_once_and_on_record() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = scoped_key();
    let sections = protected(&upstream, &entry, "audit.jsonl");
    let weaker: String = sections
        .iter()
        .filter(|section| !section.starts_with("rates"))
        .cloned()
        .collect();
    let weir = BoundWeir::start(&sections.concat());
    weir.is_refused(&weaker);
    assert_eq!(weir.refused_for(), ["rates"]);
    // Neither a plain reload accepts it nor a new process.
    let (code, said) = weir.reload(&[]);
    assert!(
        code == Some(1) && said.contains("rates: off") && said.contains("--allow-weaker"),
        "{code:?} {said}"
    );
    weir.process.signal("USR2");
    wait_until("the refusal", || {
        weir.process
            .output()
            .contains("a new process would take a weaker config")
            .then_some(())
    });
    let (code, said) = weir.reload(&["--allow-weaker", "--reason", "a drill"]);
    assert!(code == Some(0), "{said}");
    assert_eq!(
        (weir.refused_for(), weir.list(Some(&key))),
        (Vec::new(), 200)
    );
    let is_on_record = |who: &str, words: &str| {
        let records = of_kind(&weir.folder.0.file("audit.jsonl"), "admin");
        let fits = |it: &serde_json::Value| it["who"] == who && it["done"] == true;
        records
            .iter()
            .any(|it| fits(it) && it["detail"].as_str().unwrap().contains(words))
    };
    wait_until("the records", || {
        (is_on_record("token", "allowed to be weaker; a drill")
            && is_on_record("config", "weaker: rates: "))
        .then_some(())
    });
    // Once: the next file that loses them is refused again.
    weir.is_taken(&sections.concat());
    wait_until("the limits", || {
        weir.reload(&[]).0.filter(|code| *code == 0)
    });
    weir.is_refused(&weaker);
    assert_eq!(weir.refused_for(), ["rates"]);
}

// Proves G01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_admin_listener_cannot_allow_a_weaker_file() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (_, entry) = scoped_key();
    let [head, _, auth, ..] = protected(&upstream, &entry, "audit.jsonl");
    let admin = "admin: { listen: 127.0.0.1:0 }\n";
    let weir = BoundWeir::start(&format!("{head}{admin}{auth}"));
    weir.is_refused(&format!("{head}{admin}"));
    let (code, said) = weir.reload(&["--allow-weaker"]);
    assert!(
        code == Some(1) && said.contains("only an operator with a token"),
        "{code:?} {said}"
    );
    assert_eq!(weir.list(None), 401);
}

// Proves C22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_rules_that_lost_its_rules_or_its_end_opens_nothing() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = scoped_key();
    let [head, admin, auth, ..] = protected(&upstream, &entry, "audit.jsonl");
    let first = "permit(principal, action, resource);";
    let whole = format!(
        "{first}\nforbid(principal, action, resource) when {{ resource.native == \"tool_0000\" }};\n"
    );
    let folder = ConfigFolder::new(&format!(
        "{head}{admin}{auth}policy: {{ files: [main.cedar] }}\n"
    ));
    folder.write("main.cedar", &whole);
    let weir = BoundWeir::within(folder);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    } } });
    let headers = format!(
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nX-API-Key: {key}\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"
    );
    let listed = || {
        ask(weir.clients, "POST /mcp", &headers, &body.to_string())
            .1
            .contains("one__tool_0000")
    };
    assert!(!listed());
    for (text, reason) in [
        ("", "invalid"),
        (first, "policy"),
        ("// Everybody.\n", "invalid"),
    ] {
        weir.refuses("main.cedar", text);
        assert_eq!(weir.refused_for(), [reason], "{text:?}");
        assert!(!listed(), "{text:?}");
    }
    weir.folder
        .write("main.cedar", &whole.replace("forbid", "permit"));
    wait_until("a change of the rules", || listed().then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_a_file_that_is_rotated_takes_effect_by_itself() {
    let upstream = MockServer::modern().tools(1).start().await;
    let folder = ConfigFolder::new("upstreams: {}\n");
    std::fs::create_dir(folder.0.file("secrets")).unwrap();
    let secret = folder.0.file("secrets/token");
    std::fs::write(&secret, "canary-first\n").unwrap();
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: \"127.0.0.1:0\" }}\n\
         upstreams: {{ one: {{ url: \"{}\", headers: {{ x-key: \"${{file:{}}}\" }} }} }}\n",
        upstream.url(),
        secret.display()
    );
    folder.write("weir.yaml", &text);
    let weir = BoundWeir::within(folder);
    let has_sent = |key: &str| {
        upstream
            .requests()
            .iter()
            .any(|request| request.header("x-key") == Some(key))
    };
    wait_until("the first secret", || {
        has_sent("canary-first").then_some(())
    });
    assert!(!has_sent("canary-second"));
    let next = weir.folder.0.file("secrets/.next");
    std::fs::write(&next, "canary-second\n").unwrap();
    std::fs::rename(next, &secret).unwrap();
    wait_until("the second secret", || {
        has_sent("canary-second").then_some(())
    });
    assert!(!weir.process.output().contains("canary-"));
}

// Proves G01.
#[test]
fn check_against_an_older_config_exits_with_1_where_the_new_one_is_weaker() {
    let (_, entry) = scoped_key();
    let head = "upstreams: { one: { url: \"http://127.0.0.1:1/mcp\" } }\n";
    let auth = format!("auth: {{ mode: required, api_keys: [{entry}] }}\n");
    let old = ConfigFolder::new(&format!("{head}{auth}"));
    let checked = |text: &str| {
        let new = ConfigFolder::new(text);
        let mut command = Command::new(weir_binary());
        command
            .arg("check")
            .arg(new.file())
            .arg("--against")
            .arg(old.file());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (code, said) = checked(head);
    assert!(
        code == Some(1) && said.contains("weaker: auth.mode: "),
        "{code:?} {said}"
    );
    assert_eq!(checked(&format!("{head}{auth}")).0, Some(0));
    assert_eq!(
        checked(&format!(
            "{head}auth: {{ mode: none, allow_anyone: true }}\n"
        ))
        .0,
        Some(0)
    );
    assert_eq!(checked("").0, Some(2));
}
