//! The built binary serves another program's file as it is, and on loopback alone.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use command_fds::{CommandFdExt as _, FdMapping};
use weir_testkit::{MockServer, TestFolder};

/// A process that is killed on drop.
struct RunningWeir(Child);

impl Drop for RunningWeir {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts weir with the file, at a socket bound to `host`, because the file has no key for a port.
/// The terminal, if given, is its standard input and error.
fn serve(file: &Path, host: &str, terminal: Option<&OwnedFd>) -> (RunningWeir, SocketAddr) {
    let sockets = [host, "127.0.0.1"].map(|host| TcpListener::bind((host, 0)).unwrap());
    let address = sockets[0].local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["serve", "--config"])
        .arg(file)
        .env_remove("LISTEN_PID")
        .env_remove("RUST_LOG");
    command
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", "clients:operators")
        .env("FOREIGN_TOKEN", "k-0001");
    match terminal {
        Some(terminal) => {
            let own = || terminal.try_clone().unwrap();
            command.stdin(own()).stderr(own());
        }
        None => {
            command.stdin(Stdio::null()).stderr(Stdio::piped());
        }
    }
    let sockets = (3..).zip(sockets.map(OwnedFd::from));
    let mappings = sockets
        .map(|(child_fd, parent_fd)| FdMapping {
            parent_fd,
            child_fd,
        })
        .collect();
    command.fd_mappings(mappings).unwrap();
    (RunningWeir(command.spawn().unwrap()), address)
}

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .env_remove("WEIR_TOKEN")
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_another_programs_file_are_served() {
    let (one, two) = (
        MockServer::modern().tools(1).start().await,
        MockServer::modern().tools(1).start().await,
    );
    let text = format!(
        "{{\n  // As an editor writes it.\n  \"theme\": \"dark\",\n  \"servers\": {{\n    \"One\": {{ \"type\": \"http\", \"url\": \"{}\",\n\
         \"headers\": {{ \"X-Token\": \"${{env:FOREIGN_TOKEN}}\" }} }},\n    \"two\": {{ \"httpUrl\": \"{}\", \"trust\": true }},\n  }},\n}}\n",
        one.url(),
        two.url()
    );
    let folder = TestFolder::new("foreign");
    let file = folder.write("served.json", &text);
    let (_weir, address) = serve(&file, "127.0.0.1", None);
    let url = format!("http://{address}/mcp");
    // The socket is open before weir is, so the command waits for its answer. The first list may
    // lack a server that has not answered yet.
    let tools = async || {
        let url = url.clone();
        let listed = tokio::task::spawn_blocking(move || weir(&["tools", &url]))
            .await
            .unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
            + &String::from_utf8_lossy(&listed.stderr)
    };
    let mut said = tools().await;
    for _ in 0..100 {
        if said.contains("one__tool_0000") && said.contains("two__tool_0000") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        said = tools().await;
    }
    assert!(
        said.contains("one__tool_0000") && said.contains("two__tool_0000"),
        "{said}"
    );
}

#[test]
fn another_programs_file_is_not_served_to_other_machines() {
    let text = "{ \"mcpServers\": { \"a\": { \"url\": \"http://127.0.0.1:1/mcp\" } }, \"theme\": \"dark\" }";
    let folder = TestFolder::new("foreign");
    let file = folder.write("exposed.json", text);
    let (mut weir, address) = serve(&file, "0.0.0.0", None);
    let mut said = String::new();
    weir.0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(weir.0.wait().unwrap().code(), Some(2), "{said}");
    assert!(
        said.contains(&format!(
            "every client that reaches {address} could call every tool"
        )),
        "{said}"
    );
}

/// Reads from a terminal up to a text.
fn read_up_to(terminal: &mut std::fs::File, text: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains(text) && terminal.read(&mut byte).unwrap() == 1 {
        seen.push(byte[0]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_asked_for_at_the_terminal_and_a_secret_is_not_shown() {
    let one = MockServer::modern().tools(1).start().await;
    let text = format!(
        "{{ \"inputs\": [\n{{ \"type\": \"promptString\", \"id\": \"key\", \"description\": \"The key\", \"password\": true }},\n\
         {{ \"type\": \"pickString\", \"id\": \"region\", \"options\": [\"eu\", \"us\"] }}],\n\
         \"servers\": {{ \"one\": {{ \"url\": \"{}\", \"headers\": {{ \"X-Key\": \"${{input:key}}/${{input:region}}\" }} }} }} }}",
        one.url()
    );
    let folder = TestFolder::new("foreign");
    let file = folder.write("asked.json", &text);
    let terminal = nix::pty::openpty(None, None).unwrap();
    let (weir, _) = serve(&file, "127.0.0.1", Some(&terminal.slave));
    let mut person = std::fs::File::from(terminal.master);
    let shown = tokio::task::spawn_blocking(move || {
        let mut shown = read_up_to(&mut person, "The key (`key`): ");
        person.write_all(b"typed-once-1\n").unwrap();
        shown += &read_up_to(&mut person, "region (`region`): ");
        person.write_all(b"2\n").unwrap();
        shown += &read_up_to(&mut person, " serves");
        shown
    });
    let shown = shown.await.unwrap();
    assert!(!shown.contains("typed-once-1"), "{shown}");
    let has_key = || {
        one.requests().iter().any(|request| {
            request
                .headers
                .get("x-key")
                .is_some_and(|key| key == "typed-once-1/us")
        })
    };
    while !has_key() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop((weir, terminal.slave));
}
