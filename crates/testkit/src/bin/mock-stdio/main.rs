//! An MCP server on standard input and output that behaves or misbehaves as its flags demand.
//! `weir_testkit::MockStdio` documents flags and tools; unknown flags are an error.
#![allow(
    clippy::disallowed_methods,
    reason = "a child that sleeps and exits as it is told is what is played here"
)]

mod flags;

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use weir_testkit::{emitted_messages, relay, schemas};
use weir_wire::{Revision, error_code, meta};

use flags::MockStdioFlags;

/// The state that the threads share.
#[derive(Debug, Default)]
struct MockStdioState {
    added: usize,
    /// Calls of `count`.
    counted: usize,
    /// Ids of modern listen requests, as JSON.
    listeners: Vec<Value>,
    /// Dropping a sender cancels the request of that id.
    running: HashMap<String, Sender<()>>,
    /// Running requests that were cancelled.
    cancelled: usize,
    /// The server's own requests that wait for a response: method and sender, by id.
    asking: HashMap<String, (String, Sender<Value>)>,
}

struct MockStdioServer {
    flags: MockStdioFlags,
    state: Mutex<MockStdioState>,
    grandchild: Option<Child>,
}

fn main() -> Result<(), String> {
    let flags = flags::parse(std::env::args().skip(1))?;
    if flags.ignore_sigterm {
        ignore_sigterm()?;
    }
    if let Some(path) = &flags.starts_file {
        append_line(path, &std::process::id().to_string())?;
    }
    if let Some(folder) = &flags.keep {
        emitted_messages::start_recording_in(folder.as_ref());
    }
    flood_stderr(flags.flood_stderr);
    if flags.noise {
        write_lines("mock-stdio is starting up...\n{\"not\": finished");
    }
    if let Some(url) = &flags.relay {
        return relayed(url);
    }
    let sleeper = || {
        Command::new("sleep")
            .arg("300")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    let grandchild = flags
        .grandchild
        .then(sleeper)
        .transpose()
        .map_err(|error| format!("no grandchild: {error}"))?;
    let server = Arc::new(MockStdioServer {
        flags,
        state: Mutex::default(),
        grandchild,
    });
    if !server.flags.hang {
        server.run();
    }
    if server.flags.hang || server.flags.ignore_sigterm {
        sleep_until_parent_ends();
    }
    Ok(())
}

/// Adds a line to a file.
fn append_line(path: &str, line: &str) -> Result<(), String> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    file.and_then(|mut file| writeln!(file, "{line}"))
        .map_err(|error| format!("{path}: {error}"))
}

/// Relays until the end of the input.
fn relayed(url: &str) -> Result<(), String> {
    let (sender, relayed, mut messages) = relay::connect(url);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        tokio::join!(relayed, async {
            while let Some(mut lines) = messages.recv().await {
                // Messages that wait are written together.
                while let Ok(next) = messages.try_recv() {
                    lines.push('\n');
                    lines.push_str(&next);
                }
                write_lines(&lines);
            }
        });
    });
    Ok(())
}

/// Sleeps until the parent process has ended. A parent that was killed cannot end this process, and
/// no other process would.
fn sleep_until_parent_ends() {
    /// A process without its parent is adopted by the first process of the system, or by a nearer
    /// reaper.
    const FIRST: u32 = 1;
    let (parent, mut now) = (
        std::os::unix::process::parent_id(),
        std::os::unix::process::parent_id(),
    );
    while now == parent && now != FIRST {
        std::thread::sleep(Duration::from_millis(100));
        now = std::os::unix::process::parent_id();
    }
}

impl MockStdioServer {
    /// Serves until the end of the input.
    fn run(self: &Arc<Self>) {
        let mut requests = 0;
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            self.record_message(&message);
            if message.get("id").is_some() && message.get("method").is_some() {
                requests += 1;
                if self.flags.exit_after.is_some_and(|most| requests >= most) {
                    std::process::exit(3);
                }
                let (server, id) = (Arc::clone(self), message["id"].to_string());
                // Registered before the next line is read, because that may be its cancellation.
                let (sender, cancelled) = channel();
                self.state.lock().running.insert(id.clone(), sender);
                std::thread::spawn(move || {
                    server.request(&message, &cancelled);
                    server.state.lock().running.remove(&id);
                });
            } else {
                self.notification(&message);
            }
        }
    }

    /// Records the client's message with its revision.
    fn record_message(&self, message: &Value) {
        let params = &message["params"];
        let named = [
            &params["_meta"][meta::PROTOCOL_VERSION],
            &params["protocolVersion"],
        ];
        let named = named
            .into_iter()
            .find_map(|version| Revision::parse(version.as_str()?));
        let newest = if self.flags.modern {
            Revision::MODERN
        } else {
            Revision::NEWEST_LEGACY
        };
        let revision = named.or(self.flags.revision).unwrap_or(newest);
        let state = self.state.lock();
        let answered = state
            .asking
            .get(&message["id"].to_string())
            .map(|(method, _)| method.as_str());
        emitted_messages::record_message(
            schemas::MessageSender::Client,
            revision,
            answered.unwrap_or_default(),
            message,
        );
    }

    fn notification(&self, message: &Value) {
        let mut state = self.state.lock();
        if message["method"] == "notifications/cancelled" {
            let id = &message["params"]["requestId"];
            state.cancelled += usize::from(state.running.remove(&id.to_string()).is_some());
            state.listeners.retain(|listener| listener != id);
        } else if message.get("method").is_none()
            && let Some((_, asking)) = state.asking.remove(&message["id"].to_string())
        {
            // An error means that the asking call is over.
            let _ = asking.send(message.clone());
        }
    }

    fn request(&self, message: &Value, cancelled: &Receiver<()>) {
        let (id, params) = (&message["id"], &message["params"]);
        let outcome = match message["method"].as_str().unwrap_or_default() {
            "server/discover" if self.flags.silent_to_discover => return,
            "server/discover" if self.flags.modern => Ok(discover()),
            "initialize" if !self.flags.modern => Ok(self.initialize(params)),
            "ping" | "logging/setLevel" if !self.flags.modern => Ok(json!({})),
            "subscriptions/listen" if self.flags.modern => return self.listen(id, params),
            "tools/list" => Ok(self.list()),
            "tools/call" => match self.call(id, params, cancelled) {
                Some(outcome) => outcome,
                None => return,
            },
            method => Err((error_code::METHOD_NOT_FOUND, format!("no method {method}"))),
        };
        match outcome {
            Ok(mut result) => {
                if self.flags.modern && result.get("resultType").is_none() {
                    result["resultType"] = json!("complete");
                }
                write_message(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
            }
            Err((code, why)) => write_message(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}),
            ),
        }
    }

    fn initialize(&self, params: &Value) -> Value {
        let newest = self.flags.revision.unwrap_or(Revision::NEWEST_LEGACY);
        let asked = params["protocolVersion"].as_str().and_then(Revision::parse);
        json!({
            "protocolVersion": asked.filter(|asked| *asked <= newest).unwrap_or(newest).as_str(),
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": "mock-stdio", "version": "1.0.0"},
        })
    }

    fn listen(&self, id: &Value, params: &Value) {
        let mark = json!({meta::SUBSCRIPTION_ID: id});
        let wanted = params["notifications"]["toolsListChanged"] == true;
        let granted = if wanted {
            json!({"toolsListChanged": true})
        } else {
            json!({})
        };
        // Locked over both, so that no change comes before the acknowledgement or is missed after
        // it.
        let mut state = self.state.lock();
        notify(
            "notifications/subscriptions/acknowledged",
            &json!({"notifications": granted, "_meta": mark}),
        );
        if wanted {
            state.listeners.push(id.clone());
        }
    }

    fn list(&self) -> Value {
        let own = [
            "env",
            "echo",
            "progress",
            "log",
            "hang",
            "cancelled",
            "add_tool",
            "pids",
            "exit",
            "stderr",
            "huge",
            "ask",
            "count",
        ];
        let numbered = (0..self.flags.tools).map(|number| format!("tool_{number:04}"));
        let added = (0..self.state.lock().added).map(|number| format!("added_{number}"));
        let names = own
            .into_iter()
            .map(str::to_owned)
            .chain(numbered)
            .chain(added);
        let tools: Vec<_> = names
            .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
            .collect();
        if self.flags.modern {
            return json!({"tools": tools, "ttlMs": 60_000, "cacheScope": "public"});
        }
        json!({"tools": tools})
    }

    /// Runs a tool; returns no outcome for a call that is never answered.
    fn call(
        &self,
        id: &Value,
        params: &Value,
        cancelled: &Receiver<()>,
    ) -> Option<Result<Value, (i64, String)>> {
        let arguments = params
            .get("arguments")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let number = |name: &str| arguments[name].as_u64().unwrap_or(0);
        let token = params["_meta"].get("progressToken");
        let name = params["name"].as_str().unwrap_or_default();
        Some(Ok(match name {
            "env" => {
                let env: Map<_, _> = std::env::vars()
                    .map(|(name, value)| (name, Value::String(value)))
                    .collect();
                structured(Value::Object(env))
            }
            "progress" => {
                for done in (1..=number("count")).filter(|_| token.is_some()) {
                    std::thread::sleep(Duration::from_millis(number("every_ms")));
                    notify(
                        "notifications/progress",
                        &json!({"progressToken": token, "progress": done}),
                    );
                }
                structured(arguments)
            }
            "log" => {
                notify(
                    "notifications/message",
                    &json!({"level": "info", "logger": "mock-stdio", "data": "a message"}),
                );
                structured(arguments)
            }
            "hang" => {
                if token.is_some() {
                    notify(
                        "notifications/progress",
                        &json!({"progressToken": token, "progress": 1}),
                    );
                }
                // Ends when the sender is dropped. A cancelled call has no answer.
                let _ = cancelled.recv();
                return None;
            }
            "count" => {
                let counted = self.count();
                if arguments["hang"] == true {
                    let _ = cancelled.recv();
                    return None;
                }
                std::thread::sleep(Duration::from_millis(number("wait_ms")));
                structured(json!({"count": counted, "pid": std::process::id()}))
            }
            "cancelled" => structured(json!({"calls": self.state.lock().cancelled})),
            "add_tool" => self.add_tool(),
            "pids" => {
                let grandchild = self.grandchild.as_ref().map(Child::id);
                structured(json!({"own": std::process::id(), "grandchild": grandchild}))
            }
            "exit" => std::process::exit(i32::try_from(number("code")).unwrap_or(1)),
            "stderr" => {
                flood_stderr(usize::try_from(number("bytes")).unwrap_or(usize::MAX));
                structured(arguments)
            }
            "huge" => {
                let text = "x".repeat(usize::try_from(number("bytes")).unwrap_or(0));
                json!({"content": [{"type": "text", "text": text}]})
            }
            "ask" if self.flags.modern => ask_by_result(params, &arguments),
            "ask" => self.ask_by_request(id, arguments),
            // On request its text differs from its structured content.
            "echo" if arguments.get("text").is_some() => json!({
                "content": [{"type": "text", "text": arguments["text"]}],
                "structuredContent": arguments["structured"],
            }),
            "echo" => structured(arguments),
            other if other.starts_with("tool_") || other.starts_with("added_") => {
                structured(arguments)
            }
            other => {
                return Some(Err((
                    error_code::INVALID_PARAMS,
                    format!("no tool {other}"),
                )));
            }
        }))
    }

    /// Asks the client with a request, and waits for its answer.
    fn ask_by_request(&self, id: &Value, arguments: Value) -> Value {
        let question = json!(format!("ask-{id}"));
        let (sender, answered) = channel();
        let mut asked = json!({"jsonrpc": "2.0", "id": question, "method": "roots/list"});
        if let Some(method) = arguments.get("ask") {
            (asked["method"], asked["params"]) = (method.clone(), arguments["params"].clone());
        }
        let method = asked["method"].as_str().unwrap_or_default().to_owned();
        self.state
            .lock()
            .asking
            .insert(question.to_string(), (method, sender));
        write_message(&asked);
        let answer = answered.recv().unwrap_or_default();
        structured(if arguments.get("ask").is_some() {
            answer
        } else {
            arguments
        })
    }

    /// Counts a call, in memory and in the file.
    fn count(&self) -> usize {
        let mut state = self.state.lock();
        state.counted += 1;
        if let Some(path) = &self.flags.calls_file {
            append_line(path, &format!("{} {}", std::process::id(), state.counted))
                .unwrap_or_else(|error| panic!("{error}"));
        }
        state.counted
    }

    fn add_tool(&self) -> Value {
        let mut state = self.state.lock();
        state.added += 1;
        if !self.flags.modern {
            write_message(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        }
        for id in &state.listeners {
            notify(
                "notifications/tools/list_changed",
                &json!({"_meta": {meta::SUBSCRIPTION_ID: id}}),
            );
        }
        let added = state.added;
        structured(json!({"tools": added}))
    }
}

fn discover() -> Value {
    json!({
        "supportedVersions": [Revision::MODERN.as_str()],
        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
        "ttlMs": 60_000,
        "cacheScope": "public",
        "_meta": {meta::SERVER_INFO: {"name": "mock-stdio", "version": "1.0.0"}},
    })
}

/// Asks the client with the result of its call; the call comes again with the answers.
fn ask_by_result(params: &Value, arguments: &Value) -> Value {
    if let Some(answers) = params.get("inputResponses") {
        return structured(json!({"answers": answers, "state": params["requestState"]}));
    }
    let asked = json!({"question": {"method": arguments["ask"], "params": arguments["params"]}});
    json!({"resultType": "input_required", "inputRequests": asked, "requestState": "the child's own"})
}

fn structured(content: Value) -> Value {
    let mut result = json!({"content": [{"type": "text", "text": content.to_string()}]});
    result["structuredContent"] = content;
    result
}

fn notify(method: &str, params: &Value) {
    write_message(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}

fn write_message(message: &Value) {
    write_lines(&message.to_string());
}

/// Writes whole lines. An error means that the reader has closed the pipe.
fn write_lines(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn flood_stderr(bytes: usize) {
    let mut err = std::io::stderr().lock();
    let line = format!("{}\n", "e".repeat(99));
    for start in (0..bytes).step_by(line.len()) {
        let piece = &line.as_bytes()[line.len() - line.len().min(bytes - start)..];
        if err.write_all(piece).is_err() {
            return;
        }
    }
}

/// Handles SIGTERM by ignoring it.
fn ignore_sigterm() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let guard = runtime.enter();
    let kind = tokio::signal::unix::SignalKind::terminate();
    let mut signals = tokio::signal::unix::signal(kind).map_err(|error| error.to_string())?;
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async move { while signals.recv().await.is_some() {} })
    });
    Ok(())
}
