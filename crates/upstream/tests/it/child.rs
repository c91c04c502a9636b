//! A small MCP server over standard streams: this test binary, started again with an environment
//! that sets its behaviour. The test harness prints lines of its own around it, as many real
//! servers do.
#![allow(
    clippy::disallowed_methods,
    reason = "a child that sleeps and exits as it is told is what is played here"
)]

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_process::keeper::KeeperProgram;
use weir_upstream::{SecretText, StdioUpstreamSettings, TransportSettings, UpstreamSettings};

use crate::fixtures::id;

const CHILD_BEHAVIOUR: &str = "WEIR_TEST_CHILD";
/// The file to which each child adds a line when it starts.
pub(crate) const STARTS: &str = "WEIR_TEST_STARTS";

/// Settings that start a child of this manner.
pub(crate) fn settings(manner: &str) -> UpstreamSettings {
    let program = std::env::current_exe().unwrap().display().to_string();
    let args = [
        "child::child_main",
        "--exact",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(String::from)
    .to_vec();
    let mut settings = UpstreamSettings::stdio(id(), program, args);
    let TransportSettings::Stdio(stdio) = &mut settings.transport else {
        unreachable!("built as stdio")
    };
    stdio
        .env
        .push((CHILD_BEHAVIOUR.to_owned(), SecretText::new(manner)));
    settings
}

/// Applies a change to the child's settings.
pub(crate) fn with(
    mut settings: UpstreamSettings,
    change: impl FnOnce(&mut StdioUpstreamSettings),
) -> UpstreamSettings {
    let TransportSettings::Stdio(stdio) = &mut settings.transport else {
        unreachable!("built as stdio")
    };
    change(stdio);
    settings
}

const KEEPER: &str = "WEIR_TEST_KEEPER";

/// Returns this test binary as the keeper of the children of a test.
pub(crate) fn keeper_program() -> KeeperProgram {
    let args = [
        "child::keeper_main",
        "--exact",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(Into::into)
    .to_vec();
    KeeperProgram {
        path: std::env::current_exe().unwrap(),
        args,
        env: vec![(KEEPER.into(), "yes".into())],
    }
}

/// Runs the keeper if the environment asks for it; otherwise it is an empty test.
#[test]
fn keeper_main() {
    if std::env::var_os(KEEPER).is_some() {
        weir_process::keeper::run().unwrap();
        std::process::exit(0);
    }
}

/// Runs the server if the environment asks for it; otherwise it is an empty test.
#[test]
#[expect(
    clippy::print_stdout,
    reason = "the server of this test speaks over its output"
)]
fn child_main() {
    let Ok(manner) = std::env::var(CHILD_BEHAVIOUR) else {
        return;
    };
    eprintln!("child of manner {manner}");
    if let Ok(file) = std::env::var(STARTS) {
        let starts = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file);
        writeln!(starts.unwrap(), "{}", std::process::id()).unwrap();
    }
    // The harness has begun a line.
    println!();
    let stubborn = manner == "stubborn";
    if stubborn {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // With a handler installed the signal no longer ends the process.
        let _entered = runtime.enter();
        drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap());
    }
    TestChildServer {
        manner,
        cancelled: Vec::new(),
        answers: Vec::new(),
        initialized: false,
        is_probed: false,
    }
    .serve();
    if stubborn {
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    std::process::exit(0);
}

struct TestChildServer {
    manner: String,
    cancelled: Vec<Value>,
    /// The answers to its own requests.
    answers: Vec<Value>,
    initialized: bool,
    is_probed: bool,
}

impl TestChildServer {
    fn serve(&mut self) {
        for line in std::io::stdin().lock().lines() {
            let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else {
                panic!("a line is a message")
            };
            self.take(&message);
        }
    }

    fn is_modern(&self) -> bool {
        self.manner.starts_with("modern")
    }

    fn take(&mut self, message: &Value) {
        if self.manner == "both-gated" {
            if message["method"] == "initialize" && gate_says() == GATE_EXIT {
                std::process::exit(3);
            }
            self.manner = "both".to_owned();
        }
        if self.manner == "both" {
            // A process has the era of its first message, like servers on current SDKs.
            self.manner = if message["method"] == "initialize" {
                "legacy"
            } else {
                "modern"
            }
            .to_owned();
        }
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str().unwrap_or_default() {
            "server/discover" if self.is_modern() => answer(
                id,
                json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                    "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}},
                }),
            ),
            "server/discover" if self.manner == "silent" => {}
            "server/discover" if self.manner == "unreadable-to-discover" => {
                send(&json!({"id": id, "error": {"message": "unknown"}}));
            }
            "initialize" if self.manner == "refuses-to-begin" => {
                let error = json!({"code": -32000, "message": "no licence for weir"});
                send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            "server/discover" if self.manner == "exit-on-probe" => std::process::exit(1),
            // It starts so slowly that `initialize` follows the probe before it reads both.
            "server/discover" if self.manner == "late-exit-on-probe" => self.is_probed = true,
            "initialize" if self.is_probed => std::process::exit(1),
            "server/discover" if self.manner == "crash-at-start" => std::process::exit(3),
            "initialize" if self.manner == "modern-and-silent" => {}
            "initialize" if self.manner == "crash-at-start" => std::process::exit(3),
            // As in an example of the specification (2025-11-25, Lifecycle, "Error Handling").
            "initialize"
                if self.manner == "strict" && params["protocolVersion"] != "2024-11-05" =>
            {
                let data =
                    json!({"supported": ["2024-11-05"], "requested": params["protocolVersion"]});
                send(&json!({"jsonrpc": "2.0", "id": id, "error": {
                    "code": -32602, "message": "Unsupported protocol version", "data": data,
                }}));
            }
            "initialize" if !self.is_modern() => {
                let version = &params["protocolVersion"];
                let capabilities = json!({"tools": {"listChanged": true}, "logging": {}, "resources": {"subscribe": true}});
                answer(
                    id,
                    json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "child"}}),
                );
            }
            "notifications/initialized" => self.initialized = true,
            "notifications/cancelled" => self.cancelled.push(params["requestId"].clone()),
            "subscriptions/listen" if params.to_string().contains("bad:") => fail(id),
            "subscriptions/listen" if self.is_modern() => {
                let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
                notify(
                    "notifications/subscriptions/acknowledged",
                    json!({"_meta": meta, "notifications": params["notifications"]}),
                );
            }
            "resources/subscribe" if params["uri"] == "bad:hang" => {}
            "resources/subscribe" if params["uri"] == "bad:error" => fail(id),
            "resources/subscribe" => {
                answer(id, json!({}));
                notify(
                    "notifications/resources/updated",
                    json!({"uri": params["uri"]}),
                );
            }
            "logging/setLevel" | "resources/unsubscribe" => answer(id, json!({})),
            "tools/list" => answer(
                id,
                json!({"resultType": "complete", "tools": [{"name": "echo", "inputSchema": {}}]}),
            ),
            "tools/call" => self.call(id, params),
            "" => self.answers.push(message.clone()),
            "resources/read" => {
                crash_once(&params["uri"]);
                answer(id, json!({"resultType": "complete", "contents": []}));
            }
            _ => fail(id),
        }
    }

    fn call(&mut self, id: &Value, params: &Value) {
        assert!(
            self.is_modern() || self.initialized,
            "a call before the handshake"
        );
        let token = &params["_meta"]["progressToken"];
        let text = match params["name"].as_str().unwrap_or_default() {
            "echo" => params["arguments"].to_string(),
            "env" => {
                let names: Vec<_> = std::env::vars()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                names.join("\n")
            }
            "pid" => std::process::id().to_string(),
            "cancelled" => json!(self.cancelled).to_string(),
            "progress" => {
                for n in 1..=2 {
                    notify(
                        "notifications/progress",
                        json!({"progressToken": token, "progress": n}),
                    );
                }
                notify(
                    "notifications/message",
                    json!({"level": "error", "data": "x"}),
                );
                "done".to_owned()
            }
            "add" => {
                notify("notifications/tools/list_changed", json!({}));
                "added".to_owned()
            }
            "flood" => {
                for n in 0..20_000 {
                    eprintln!("noise {n} {}", "x".repeat(100));
                }
                "flooded".to_owned()
            }
            "big" => "x".repeat(3 << 20),
            "grandchild" => {
                #[expect(
                    clippy::zombie_processes,
                    reason = "that nobody waits for it is the point"
                )]
                let sleeper = std::process::Command::new("sleep")
                    .arg("600")
                    .spawn()
                    .unwrap();
                sleeper.id().to_string()
            }
            "hang" => return,
            "ask" => {
                let schema = json!({"type": "object", "properties": {}});
                return send(&json!({
                    "jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create",
                    "params": {"message": "Your name?", "requestedSchema": schema},
                }));
            }
            "answers" => json!(self.answers).to_string(),
            "block" => {
                std::thread::sleep(std::time::Duration::from_secs(600));
                return;
            }
            "print" => return print_answer(id, &params["arguments"]),
            "deaf" => {
                for n in 0..5000 {
                    send(
                        &json!({"jsonrpc": "2.0", "id": format!("own-{n}"), "method": params["arguments"]["asks"]}),
                    );
                }
                if params["arguments"]["for_ever"] == true {
                    // The answers to it wait, because it reads no more.
                    std::thread::sleep(std::time::Duration::from_secs(600));
                }
                "asked".to_owned()
            }
            "crash" => {
                eprintln!("fatal: out of cheese");
                std::process::exit(3)
            }
            "crash_once" => {
                if token.is_number() {
                    notify(
                        "notifications/progress",
                        json!({"progressToken": token, "progress": 1}),
                    );
                }
                crash_once(&params["arguments"]["file"]);
                "recovered".to_owned()
            }
            other => panic!("no tool {other}"),
        };
        answer(
            id,
            json!({"resultType": "complete", "content": [{"type": "text", "text": text}]}),
        );
    }
}

/// Prints the text in the arguments in Latin-1, with the id of the call in place of `ID`. If the
/// arguments name two files, it makes the first one and waits for the other one. A text in `then`
/// follows later, when the first one was read.
fn print_answer(id: &Value, arguments: &Value) {
    if let Some(gate) = arguments["gate"].as_str() {
        std::fs::write(arguments["begun"].as_str().unwrap(), "").unwrap();
        while !Path::new(gate).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    print_latin1(id, arguments["text"].as_str().unwrap());
    if let Some(then) = arguments["then"].as_str() {
        std::thread::sleep(std::time::Duration::from_millis(200));
        print_latin1(id, then);
    }
}

fn print_latin1(id: &Value, text: &str) {
    let text = text.replace("ID", &id.to_string());
    let mut line: Vec<u8> = text
        .chars()
        .map(|character| u8::try_from(character).unwrap())
        .collect();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).unwrap();
    out.flush().unwrap();
}

/// The text of a gate that ends its process.
pub(crate) const GATE_EXIT: &str = "exit";

/// The file that lets a child go on, by its process id and the file of all starts.
pub(crate) fn gate(starts: &Path, pid: &str) -> PathBuf {
    starts.with_extension(pid)
}

/// Waits until the gate of this process has a text.
fn gate_says() -> String {
    let starts = std::env::var(STARTS).unwrap();
    let gate = gate(starts.as_ref(), &std::process::id().to_string());
    loop {
        match std::fs::read_to_string(&gate) {
            Ok(text) if !text.is_empty() => return text,
            Ok(_) | Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

/// Ends the process if the file does not exist, and creates it.
fn crash_once(file: &Value) {
    if std::fs::File::create_new(file.as_str().unwrap()).is_ok() {
        std::process::exit(3);
    }
}

fn answer(id: &Value, result: Value) {
    let mut message = json!({"jsonrpc": "2.0", "id": id});
    message["result"] = result;
    send(&message);
}

fn fail(id: &Value) {
    if !id.is_null() {
        send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"}}));
    }
}

fn notify(method: &str, params: Value) {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    message["params"] = params;
    send(&message);
}

fn send(message: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{message}").unwrap();
    out.flush().unwrap();
}
