//! Config files that lost a part of what they said, and listening sockets that are bound elsewhere than the file says: none of
//! them opens what was closed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::json;
use weir_testkit::Mockup;

use crate::auth::api_key;
use crate::harness::{Process, binary, free_port, until};

/// The operators' token of these tests.
const TOKEN: &str = "weir_0123456789_of-the-operators";

/// A folder with a config file, gone with the value.
struct ConfigFolder(PathBuf);

impl ConfigFolder {
    fn new(text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-hostile-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(&folder).unwrap();
        let folder = Self(folder);
        folder.write("weir.yaml", text);
        folder
    }

    /// Replaces a file by a rename, as an editor does.
    fn write(&self, name: &str, text: &str) {
        let next = self.0.join(".next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.0.join(name)).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.join("weir.yaml")
    }
}

impl Drop for ConfigFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// weir with a config whose listeners may be bound to any address.
struct Bound {
    process: Process,
    folder: ConfigFolder,
    clients: u16,
    operators: u16,
}

impl Bound {
    fn start(text: &str) -> Self {
        let folder = ConfigFolder::new(text);
        let mut command = Command::new(binary());
        command.arg("serve").arg("--config").arg(folder.file()).env("RUST_LOG", "info");
        let process = Process::start(command);
        let served = until("weir to serve", || {
            let said = process.said();
            said.lines().find(|line| line.contains(" serves\"")).map(str::to_owned)
        });
        let served: serde_json::Value = serde_json::from_str(&served).unwrap();
        let port = |name: &str| served[name].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        let (clients, operators) = (port("clients"), port("operators"));
        Self { process, folder, clients, operators }
    }

    /// Rewrites the config, and waits until weir refuses it.
    fn is_refused(&self, text: &str) {
        let refusals = || self.process.said().matches("nothing was changed").count();
        let before = refusals();
        self.folder.write("weir.yaml", text);
        until("the refusal", || (refusals() > before).then_some(()));
    }

    /// The status of a list of tools for a client with this key.
    fn list(&self, key: Option<&str>) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        } } });
        let mut headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"
            .to_owned();
        headers.extend(key.map(|key| format!("X-API-Key: {key}\r\n")));
        ask(self.clients, "POST /mcp", &headers, &body.to_string()).0
    }

    /// The status of the operators' API without a token.
    fn operate(&self) -> u16 {
        ask(self.operators, "GET /admin/upstreams", "", "").0
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- weir said:\n{}", self.process.said());
        }
    }
}

/// One request over loopback: the status and the whole answer.
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

/// A config that serves every address of the machine, in an order in which a cut leaves no `auth` and no `listen`.
fn wide(upstream: &Mockup, entry: &serde_json::Value) -> [String; 2] {
    let url = upstream.url();
    let head = format!("public_url: http://127.0.0.1:1\nupstreams:\n  one: {{ url: \"{url}\" }}\n");
    let rest = format!(
        "auth: {{ mode: required, api_keys: [{entry}] }}\nlisten: 0.0.0.0:0\n\
         admin: {{ listen: \"0.0.0.0:0\", auth: {{ token: {TOKEN} }} }}\n"
    );
    [head, rest]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g01_a_reload_takes_no_authentication_off_a_listener_that_others_reach() {
    let upstream = Mockup::modern().tools(1).start().await;
    let (key, entry) = api_key("build");
    let [head, rest] = wide(&upstream, &entry);
    let weir = Bound::start(&format!("{head}{rest}"));
    assert_eq!((weir.list(None), weir.list(Some(&key)), weir.operate()), (401, 200, 401));
    let no_clients_auth = format!("{head}listen: 127.0.0.1:0\nadmin: {{ auth: {{ token: {TOKEN} }} }}\n");
    let no_operators = format!("{head}{}", rest.lines().next().unwrap());
    for cut in [&head, &no_clients_auth, &no_operators] {
        weir.is_refused(cut);
        assert_eq!((weir.list(None), weir.list(Some(&key)), weir.operate()), (401, 200, 401), "{cut}");
    }
    assert!(weir.process.said().contains("0.0.0.0:"), "it says where it is bound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g01_a_process_that_takes_over_judges_the_sockets_it_is_given() {
    let upstream = Mockup::modern().tools(1).start().await;
    let url = upstream.url();
    let head = format!("upstreams:\n  one: {{ url: \"{url}\" }}\n");
    let open = "auth: { mode: none, allow_anyone: true }\nlisten: 0.0.0.0:0\nadmin: { listen: \"127.0.0.1:0\" }\n";
    let weir = Bound::start(&format!("{head}{open}"));
    // Good for a process that binds what the file says, and not for one that is given a socket of every address.
    weir.is_refused(&format!("{head}listen: 127.0.0.1:0\nadmin: {{ listen: \"127.0.0.1:0\" }}\n"));
    weir.process.signal("USR2");
    until("the refusal", || weir.process.said().contains("this process goes on").then_some(()));
    assert!(weir.process.said().contains("weir cannot start: auth.mode"), "the other process says why");
    assert_eq!(weir.list(None), 200, "what the file allowed by name goes on");
}

/// Starts weir with sockets that are bound to the addresses of the first two arguments: the clients' and the operators'.
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
    command.args(["-c", MANAGER, clients, operators]).arg(binary()).arg("serve").arg("--config").arg(folder.file());
    command.output().unwrap()
}

#[test]
fn g05_a_start_judges_the_sockets_of_a_service_manager_by_where_they_are_bound() {
    let head = "upstreams: { one: { url: \"http://127.0.0.1:1/mcp\" } }\nlisten: 127.0.0.1:0\n";
    let admin = "admin: { listen: \"127.0.0.1:0\" }\n";
    for (clients, operators, words) in [
        ("0.0.0.0", "127.0.0.1", "the listener for clients is bound"),
        ("127.0.0.1", "0.0.0.0", "the listener for operators is bound"),
    ] {
        let output = managed(clients, operators, &format!("{head}{admin}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.contains("0.0.0.0:"), "{said}");
    }
}
