//! A host that starts `weir stdio` and writes frames by hand.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use weir_testkit::{TestFolder, emitted_messages};
use weir_wire::{Revision, meta};

use crate::harness::{check_message, weir_binary, within_test_timeout};

/// A running `weir stdio` and the revision that its host speaks.
pub struct StdioHost {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    revision: Revision,
    capabilities: Value,
    next_id: u64,
    /// The methods of the requests that were sent, by their ids.
    asked: HashMap<String, String>,
    /// True if messages of other revisions come, too, so that no single schema fits.
    is_of_both_eras: bool,
    /// The messages that came while the host waited for another one.
    pub beside: Vec<Value>,
}

/// A config file.
pub struct StdioConfigFile {
    file: PathBuf,
    _folder: TestFolder,
}

impl StdioConfigFile {
    pub fn new(config: &Value) -> Self {
        let folder = TestFolder::new("stdio");
        Self {
            file: folder.write("weir.json", &config.to_string()),
            _folder: folder,
        }
    }

    pub fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }
}

/// Returns `weir stdio` with these arguments, without the environment variables of this machine
/// that it reads.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(weir_binary());
    command
        .arg("stdio")
        .args(arguments)
        .env("XDG_STATE_HOME", "/nonexistent/state")
        .kill_on_drop(true);
    for name in ["WEIR_CONFIG", "WEIR_TOKEN", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl StdioHost {
    /// Starts it without sending a message.
    pub fn start(revision: Revision, arguments: &[&str]) -> Self {
        Self::spawn(revision, command(arguments))
    }

    pub fn spawn(revision: Revision, mut command: Command) -> Self {
        emitted_messages::start_recording();
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let capabilities = json!({});
        Self {
            child,
            stdin,
            stdout,
            revision,
            capabilities,
            next_id: 1,
            asked: HashMap::new(),
            is_of_both_eras: false,
            beside: Vec::new(),
        }
    }

    /// Returns the same host, which speaks revisions of both eras.
    pub fn of_both_eras(self) -> Self {
        Self {
            is_of_both_eras: true,
            ..self
        }
    }

    /// Starts it and begins a session, if the revision has sessions.
    pub async fn open(revision: Revision, arguments: &[&str]) -> Self {
        Self::able(revision, arguments, json!({})).await
    }

    /// Does the same as `open` with these capabilities.
    pub async fn able(revision: Revision, arguments: &[&str], capabilities: Value) -> Self {
        let mut host = Self::start(revision, arguments);
        host.capabilities = capabilities;
        if !revision.is_modern() {
            let answer = host.initialize().await;
            assert_eq!(
                answer["result"]["protocolVersion"],
                revision.as_str(),
                "{answer}"
            );
        }
        host
    }

    /// Sends `initialize`, and `notifications/initialized` after a result.
    pub async fn initialize(&mut self) -> Value {
        let about = json!({ "name": "host", "version": "1" });
        let params = json!({
            "protocolVersion": self.revision.as_str(), "capabilities": self.capabilities, "clientInfo": about,
        });
        let answer = self.ask("initialize", params).await;
        if answer.get("result").is_some() {
            self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
                .await;
        }
        answer
    }

    /// Writes a line.
    pub async fn line(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin
            .write_all(format!("{text}\n").as_bytes())
            .await
            .unwrap();
        stdin.flush().await.unwrap();
    }

    pub async fn say(&mut self, message: &Value) {
        self.line(&message.to_string()).await;
    }

    /// Begins a request; returns its id.
    pub async fn begin(&mut self, method: &str, mut params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        if self.revision.is_modern() {
            params["_meta"][meta::PROTOCOL_VERSION] = json!(self.revision.as_str());
            params["_meta"][meta::CLIENT_CAPABILITIES] = self.capabilities.clone();
            params["_meta"][meta::CLIENT_INFO] = json!({ "name": "host", "version": "1" });
        }
        self.asked.insert(id.to_string(), method.to_owned());
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        id
    }

    /// Returns the next message, checked against the schema of the host's revision; `None` at the
    /// end of standard output.
    pub async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = within_test_timeout(
            "a line of weir stdio",
            self.stdout.as_mut().unwrap().read_line(&mut line),
        )
        .await
        .unwrap();
        if read == 0 {
            return None;
        }
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if self.revision.is_modern() {
            assert!(
                message.get("method").is_none() || message.get("id").is_none(),
                "a request was written: {message}"
            );
        }
        let items = message
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![message.clone()]);
        for item in items.iter().filter(|_| !self.is_of_both_eras) {
            let answered = self
                .asked
                .get(&item["id"].to_string())
                .filter(|_| item.get("method").is_none());
            check_message(self.revision, answered.map_or("", String::as_str), item);
        }
        Some(message)
    }

    /// Returns the answer to a request.
    pub async fn answer(&mut self, id: &Value) -> Value {
        loop {
            let message = self
                .next()
                .await
                .unwrap_or_else(|| panic!("the output ended: {:?}", self.beside));
            if message.get("method").is_none() && message["id"] == *id {
                return message;
            }
            self.beside.push(message);
        }
    }

    /// Returns the next message with this method.
    pub async fn heard(&mut self, method: &str) -> Value {
        if let Some(at) = self
            .beside
            .iter()
            .position(|message| message["method"] == method)
        {
            return self.beside.remove(at);
        }
        loop {
            let message = self
                .next()
                .await
                .unwrap_or_else(|| panic!("the output ended: {:?}", self.beside));
            if message["method"] == method {
                return message;
            }
            self.beside.push(message);
        }
    }

    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(&id).await
    }

    /// Returns the text of a tool's result.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self
            .ask(
                "tools/call",
                json!({ "name": tool, "arguments": arguments }),
            )
            .await;
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    /// Returns the names of the tools, once there are some.
    pub async fn names(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({})).await;
        let tools = answer["result"]["tools"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"));
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    pub async fn cancel(&mut self, id: &Value) {
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
            .await;
    }

    pub fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Closes standard input.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Closes standard output.
    pub fn close_output(&mut self) {
        // Replacing the reader closes its end of the pipe.
        self.stdout = None;
    }

    /// Waits for the end of the process.
    pub async fn ended(&mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
    }

    /// Reads to the end; returns the remaining messages, the exit code, and standard error.
    pub async fn end(mut self) -> (Vec<Value>, Option<i32>, String) {
        self.close();
        let mut left = std::mem::take(&mut self.beside);
        while let Some(message) = self.next().await {
            left.push(message);
        }
        let mut log = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .await
            .unwrap();
        let status = within_test_timeout("weir stdio to end", self.child.wait())
            .await
            .unwrap();
        (left, status.code(), log)
    }

    /// Ends it as a host does, by closing standard input; the exit code must be 0.
    pub async fn end_well(self) {
        let (_, code, log) = self.end().await;
        assert_eq!(code, Some(0), "{log}");
    }
}
