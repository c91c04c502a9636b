//! Programs that people use as MCP clients, in front of weir, without an account and on loopback
//! alone: `mcp-remote`, Claude Code and Gemini CLI. The last two are large, so they are left out by
//! default; `cargo xtask prove` installs and runs them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use weir_testkit::{MockServer, TestFolder};

use crate::harness::{TEST_TIMEOUT, TestProcess, Weir, peers, peers_are_enabled, weir_binary};

/// The tool's result, as JSON escapes it inside of a text.
const RESULT: &str = r#"\"n\":7"#;

/// Returns the path of the Node that the programs need.
fn node() -> PathBuf {
    std::env::var_os("WEIR_NODE22").map_or_else(|| "node".into(), PathBuf::from)
}

/// Starts weir in front of a server with one tool, `one__tool_0000`, which answers with its
/// arguments.
async fn weir() -> (MockServer, Weir) {
    let server = MockServer::dual().tools(1).start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": server.url() } }));
    weir.wait_until_listed("/mcp", &["one__tool_0000"]);
    (server, weir)
}

/// A home folder.
struct HomeFolder(TestFolder);

impl HomeFolder {
    fn new() -> Self {
        let home = TestFolder::new("home");
        std::fs::create_dir(home.file("work")).unwrap();
        std::fs::create_dir(home.file("tmp")).unwrap();
        Self(home)
    }

    /// Returns a command with this home and no way to other machines: its other requests go to a
    /// closed port.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.0.path())
            .env("TMPDIR", self.0.file("tmp"));
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env(proxy, "http://127.0.0.1:9");
        }
        command
            .env("NO_PROXY", "127.0.0.1,localhost")
            .env("no_proxy", "127.0.0.1,localhost");
        command
            .stdin(Stdio::null())
            .current_dir(self.0.file("work"));
        command
    }

    /// Runs `weir connect`, which writes the entry into the client's own file.
    fn connect(&self, client: &str, url: &str) {
        let output = self
            .command(&weir_binary())
            .args(["connect", client, url, "--write"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// A server on standard streams.
struct McpRemoteBridge {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl McpRemoteBridge {
    fn start(mut command: Command) -> Self {
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = piped.spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        // The thread ends with the stream, which ends with the child.
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            input: child.stdin.take().unwrap(),
            child,
            lines,
        }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// Sends a request; returns its result.
    fn request(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let line = self.lines.recv_timeout(TEST_TIMEOUT).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }
}

impl Drop for McpRemoteBridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_remote_lists_and_calls_a_tool() {
    if !peers_are_enabled() {
        return;
    }
    let (_server, weir) = weir().await;
    let home = HomeFolder::new();
    let mut command = home.command(&node());
    command
        .arg(peers().join("node/node_modules/mcp-remote/dist/proxy.js"))
        .arg(weir.url("/mcp"));
    let mut bridge = McpRemoteBridge::start(command);
    let client = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "host", "version": "1" } });
    let greeted = bridge.request(1, "initialize", &client);
    assert_eq!(
        (&greeted["serverInfo"]["name"], &greeted["protocolVersion"]),
        (&json!("weir"), &json!("2025-06-18"))
    );
    bridge.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let listed = bridge.request(2, "tools/list", &json!({}));
    assert_eq!(listed["tools"][0]["name"], "one__tool_0000", "{listed}");
    let called = bridge.request(
        3,
        "tools/call",
        &json!({ "name": "one__tool_0000", "arguments": { "n": 7 } }),
    );
    assert_eq!(called["content"][0]["text"], r#"{"n":7}"#, "{called}");
}

/// Starts a language model on loopback that calls the tool, by the client's name for it, and
/// repeats its result; returns its process and URL.
fn model(tool: &str) -> (TestProcess, String) {
    let mut command = Command::new(node());
    command
        .arg(peers().join("clients/model.mjs"))
        .args([tool, r#"{"n":7}"#]);
    let mut process = TestProcess::start(command);
    let url = process.wait_for_line("listening ");
    (process, url)
}

/// Asserts that the model got weir's tool under the client's name for it, and the client printed
/// the tool's result.
fn assert_used(output: &Output, model: &TestProcess, tool: &str) {
    let printed = said(output);
    assert!(output.status.success(), "{printed}\n{}", model.output());
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(RESULT),
        "{printed}\n{}",
        model.output()
    );
    assert!(
        model.output().contains(&format!("\"{tool}\"")),
        "{}",
        model.output()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs large programs"]
async fn claude_code_connects_lists_and_calls_a_tool() {
    let (_server, weir) = weir().await;
    let (home, url) = (HomeFolder::new(), weir.url("/mcp"));
    let claude = |arguments: &[&str]| {
        let mut command = home.command(
            &peers().join("clients/node_modules/@anthropic-ai/claude-code-linux-x64/claude"),
        );
        for variable in [
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "DISABLE_AUTOUPDATER",
        ] {
            command.env(variable, "1");
        }
        command.args(arguments);
        command
    };
    let connected = |name: &str| {
        let output = claude(&["mcp", "list"]).output().unwrap();
        let listed = said(&output);
        let line = listed
            .lines()
            .find(|line| line.starts_with(&format!("{name}: ")))
            .unwrap_or_default()
            .to_owned();
        assert!(
            line.contains(&url) && line.contains("Connected"),
            "{listed}"
        );
    };
    let added = claude(&["mcp", "add", "--transport", "http", "own", &url])
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", said(&added));
    connected("own");
    home.connect("claude-code", &url);
    connected("weir");
    connected("own");
    let tool = "mcp__weir__one__tool_0000";
    let (model, model_url) = model(tool);
    let asked = claude(&["-p", "use the tool", "--allowedTools", tool])
        .env("ANTHROPIC_BASE_URL", model_url)
        .env("ANTHROPIC_API_KEY", "none")
        // The model gets all tools at once and need not search for them.
        .env("ENABLE_TOOL_SEARCH", "false")
        .output()
        .unwrap();
    assert_used(&asked, &model, tool);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs large programs"]
async fn gemini_cli_connects_lists_and_calls_a_tool() {
    let (_server, weir) = weir().await;
    let (home, url) = (HomeFolder::new(), weir.url("/mcp"));
    let settings = home.0.file(".gemini/settings.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let quiet = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } }, "privacy": { "usageStatisticsEnabled": false } });
    std::fs::write(&settings, quiet.to_string()).unwrap();
    let gemini = |arguments: &[&str]| {
        let mut command = home.command(&node());
        command
            .arg(peers().join("clients/node_modules/@google/gemini-cli/bundle/gemini.js"))
            .args(arguments);
        // Gemini CLI ignores a user's servers in a folder that is not trusted.
        command
            .env("GEMINI_TELEMETRY_ENABLED", "false")
            .env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        command
    };
    let added = gemini(&[
        "mcp",
        "add",
        "--scope",
        "user",
        "--transport",
        "http",
        "own",
        &url,
    ])
    .output()
    .unwrap();
    assert!(added.status.success(), "{}", said(&added));
    home.connect("gemini", &url);
    let listed = said(&gemini(&["mcp", "list"]).output().unwrap());
    for name in ["own", "weir"] {
        let line = listed
            .lines()
            .find(|line| line.contains(&format!(" {name}: ")))
            .unwrap_or_default();
        assert!(
            line.contains(&url) && line.contains("Connected"),
            "{listed}"
        );
    }
    let tool = "mcp_weir_one__tool_0000";
    let (model, model_url) = model(tool);
    let asked = gemini(&["-y", "-m", "gemini-2.5-flash", "-p", "use the tool"])
        .env("GOOGLE_GEMINI_BASE_URL", model_url)
        .env("GEMINI_API_KEY", "none")
        .output()
        .unwrap();
    assert_used(&asked, &model, tool);
}
