//! Servers and clients of the official SDKs, as processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weir_testkit::TestFolder;

use super::client_driver::ClientDriver;
use super::test_process::TestProcess;
use super::weir_process::peers;

/// Returns true if this run has the npm and Python packages of the peers. With `--quick` it prints
/// a line and returns false.
pub fn peers_are_enabled() -> bool {
    let quick = std::env::var_os("WEIR_QUICK").is_some();
    if quick {
        eprintln!("left out: --quick runs nothing that needs npm or Python packages");
    }
    !quick
}

/// A foreign server.
#[derive(Clone, Copy, Debug)]
pub enum ForeignServer {
    Everything,
    Filesystem,
    Memory,
    Fetch,
    FastMcp,
    LowLevel,
    /// A server that announces a new tool in the session of the call that added it.
    Growing,
    /// A server on the Python SDK 2.x, with tools that ask.
    Asking,
    /// An unchanged example that comes with the TypeScript SDK 1.x: its name, and the variable that
    /// sets its port, if it speaks HTTP.
    Example(&'static str, &'static str),
    /// An example with its port in its source: `ported.mjs` gives it another one when it runs.
    Fixed(&'static str),
    TypeScript1,
    /// Tools that change the lists of their own session. The silent one has no GET stream.
    Toolsets,
    SilentToolsets,
    RmcpLegacy,
    RmcpModern,
    /// The conformance fixture, on the TypeScript SDK 2.x, in one era.
    Fixture(&'static str),
    /// The conformance servers of both eras, whose questions of the legacy era are asked while
    /// their call runs.
    DualTypeScript,
    DualRust,
    DualFastMcp,
    /// A server of both eras on the TypeScript SDK 2.x, with a tool in each era alone.
    Apart,
}

fn node(module: &str) -> Vec<String> {
    vec![
        "node".into(),
        peers().join("node").join(module).display().to_string(),
    ]
}

fn python(venv: &str, program: &[&str]) -> Vec<String> {
    let bin = peers()
        .join("python")
        .join(venv)
        .join("bin/python")
        .display()
        .to_string();
    let mut words = vec![bin];
    words.extend(program.iter().map(|word| (*word).to_owned()));
    words
}

fn script(name: &str) -> String {
    peers().join("python").join(name).display().to_string()
}

/// Returns the upstream config of a child process of weir.
fn child(words: &[String]) -> Value {
    let (command, arguments) = words.split_first().unwrap();
    // Node and Python are found by PATH; npm packages may want a home.
    json!({ "command": command, "args": arguments, "env": { "PATH": std::env::var("PATH").unwrap() } })
}

impl ForeignServer {
    /// Returns the command line that starts it on stdio.
    fn stdio(self) -> Vec<String> {
        let mut words = match self {
            Self::Everything => {
                node("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
            }
            Self::Filesystem => {
                node("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
            }
            Self::Memory => node("node_modules/@modelcontextprotocol/server-memory/dist/index.js"),
            Self::Fetch => python(".venv1", &["-m", "mcp_server_fetch"]),
            Self::FastMcp => python(".venv1", &[&script("fastmcp_server.py")]),
            Self::LowLevel => python(".venv1", &[&script("lowlevel_server.py")]),
            Self::Growing => python(".venv1", &[&script("growing_server.py")]),
            Self::Example(name, _) => node(&format!(
                "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/{name}.js"
            )),
            Self::Fixed(name) => {
                let mut words = Self::Example(name, "").stdio();
                let ported = peers().join("node/ported.mjs").display().to_string();
                words.splice(1..1, ["--import".into(), ported]);
                words
            }
            Self::Asking => python(".venv2", &[&script("asking_server.py")]),
            Self::TypeScript1 => node("mcpserver.mjs"),
            Self::Toolsets | Self::SilentToolsets => node("toolsets.mjs"),
            Self::RmcpLegacy | Self::RmcpModern => {
                vec![env!("CARGO_BIN_EXE_rmcp-peer").into(), "serve".into()]
            }
            Self::Fixture(_) => node("fixture/main.mjs"),
            Self::DualTypeScript | Self::DualRust | Self::DualFastMcp | Self::Apart => {
                panic!("{self:?} speaks HTTP")
            }
        };
        match self {
            Self::Filesystem => words.push(std::env::temp_dir().display().to_string()),
            Self::RmcpLegacy => words.extend(["--era".into(), "legacy".into(), "--stdio".into()]),
            Self::SilentToolsets => words.push("--silent".into()),
            Self::RmcpModern => words.extend(["--era".into(), "modern".into(), "--stdio".into()]),
            Self::Fixture(era) => words.extend(["--era".into(), era.into(), "--stdio".into()]),
            Self::Everything
            | Self::Memory
            | Self::Fetch
            | Self::FastMcp
            | Self::LowLevel
            | Self::Growing
            | Self::Example(..)
            | Self::Fixed(_)
            | Self::Asking
            | Self::TypeScript1
            | Self::Toolsets
            | Self::DualTypeScript
            | Self::DualRust
            | Self::DualFastMcp
            | Self::Apart => {}
        }
        words
    }

    /// Returns the upstream config of it as a child process of weir.
    pub fn as_child(self) -> Value {
        child(&self.stdio())
    }

    /// Returns the upstream config of a server whose calls become tasks with progress, until there
    /// is a file `end`. The file `steps` has the number of its reports.
    pub fn task_progress(end: &Path, steps: &Path) -> Value {
        let files = [end, steps].map(|file| file.display().to_string());
        let program = script("task_progress_server.py");
        child(&python(".venv1", &[&program, &files[0], &files[1]]))
    }

    /// Starts it as an HTTP server of its own; returns the process and its URL.
    pub fn over_http(self) -> (TestProcess, String) {
        let words = match self {
            Self::Everything => return everything("streamableHttp", "mcp"),
            Self::Example(_, variable) => {
                return start_on_free_port(&self.stdio(), variable, "mcp");
            }
            Self::Fixed(_) => return start_on_free_port(&self.stdio(), "PORT", "mcp"),
            Self::FastMcp
            | Self::LowLevel
            | Self::Growing
            | Self::Asking
            | Self::TypeScript1
            | Self::Toolsets
            | Self::SilentToolsets => {
                let mut words = self.stdio();
                words.extend(["--transport", "http", "--port", "0"].map(String::from));
                words
            }
            Self::RmcpLegacy | Self::RmcpModern => {
                let mut words = self.stdio();
                words.pop();
                words
            }
            Self::Fixture(era) => {
                let mut words = node("fixture/main.mjs");
                words.extend(["--port", "0", "--era", era].map(String::from));
                words
            }
            Self::DualTypeScript => node("dual.mjs"),
            Self::Apart => {
                let mut words = node("dual.mjs");
                words.push("--apart".into());
                words
            }
            // Clients of the SDKs do not request completions of a server that does not declare
            // them.
            Self::DualRust => {
                vec![
                    env!("CARGO_BIN_EXE_rmcp-peer").into(),
                    "conformance".into(),
                    "--completions".into(),
                ]
            }
            Self::DualFastMcp => python(
                ".venv-fastmcp",
                &[&script("fastmcp_dual.py"), "--transport", "http"],
            ),
            Self::Filesystem | Self::Memory | Self::Fetch => panic!("{self:?} has no HTTP form"),
        };
        let mut process = TestProcess::start(command(&words));
        let url = process.wait_for_line("listening ");
        (process, url)
    }
}

impl ForeignServer {
    /// Starts it as a server of HTTP+SSE alone; returns the process and its URL.
    pub fn over_sse(self) -> (TestProcess, String) {
        if matches!(self, Self::Everything) {
            return everything("sse", "sse");
        }
        let mut words = self.stdio();
        words.extend(["--transport", "sse", "--port", "0"].map(String::from));
        let mut process = TestProcess::start(command(&words));
        let url = process.wait_for_line("listening ");
        (process, url)
    }
}

fn everything(transport: &str, path: &str) -> (TestProcess, String) {
    let mut words = ForeignServer::Everything.stdio();
    words.push(transport.into());
    start_on_free_port(&words, "PORT", path)
}

/// Starts a server that takes its port from a variable, and does not print the port that it got.
fn start_on_free_port(words: &[String], variable: &str, path: &str) -> (TestProcess, String) {
    let mut command = command(words);
    command.env(variable, "0");
    let mut process = TestProcess::start(command);
    let port = process.listening_port();
    (process, format!("http://127.0.0.1:{port}/{path}"))
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// A foreign client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignClient {
    TypeScript1,
    TypeScript2(&'static str),
    Python1,
    Python2,
    /// The same in one era, without a probe.
    Python2As(&'static str),
    Rmcp(&'static str),
}

/// The output of a client driver: one JSON object a line.
#[derive(Debug)]
pub struct DriverEvents(pub Vec<Value>);

impl DriverEvents {
    /// Returns all lines about one kind of event.
    pub fn lines_of(&self, event: &str) -> Vec<&Value> {
        self.0
            .iter()
            .filter(|line| line["event"] == event)
            .collect()
    }

    /// Returns the only line about it.
    pub fn only_line(&self, event: &str) -> &Value {
        let all = self.lines_of(event);
        assert_eq!(all.len(), 1, "one `{event}` in {self:?}");
        all[0]
    }

    /// Returns the tool names of the last list.
    pub fn names(&self) -> Vec<&str> {
        let last = *self
            .lines_of("tools")
            .last()
            .unwrap_or_else(|| panic!("no list in {self:?}"));
        last["names"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect()
    }
}

impl ForeignClient {
    fn words(self) -> (Vec<String>, Option<&'static str>) {
        match self {
            Self::TypeScript1 => (node("client_v1.mjs"), None),
            Self::TypeScript2(era) => (node("client_v2.mjs"), Some(era)),
            Self::Python1 => (python(".venv1", &[&script("client_v1.py")]), None),
            Self::Python2 => (python(".venv2", &[&script("client_v2.py")]), None),
            Self::Python2As(era) => (python(".venv2", &[&script("client_v2.py")]), Some(era)),
            Self::Rmcp(era) => (
                vec![env!("CARGO_BIN_EXE_rmcp-peer").into(), "client".into()],
                Some(era),
            ),
        }
    }

    /// Starts a scenario against a URL in a process of its own.
    pub fn start(self, url: &str, scenario: &[&str]) -> TestProcess {
        let (mut words, era) = self.words();
        words.push(url.to_owned());
        words.extend(scenario.iter().map(|word| (*word).to_owned()));
        if let Some(era) = era {
            words.extend(["--era".into(), era.to_owned()]);
        }
        TestProcess::start(command(&words))
    }

    /// Runs a scenario against a URL; it must succeed.
    pub fn run(self, url: &str, scenario: &[&str]) -> DriverEvents {
        let (went_well, seen, told) = self.attempt(url, scenario);
        assert!(went_well, "{self:?} {scenario:?}: {seen:?} {told}");
        seen
    }

    /// Runs a scenario against a URL that refuses it; returns its events, with the client's error
    /// at the end.
    pub fn run_refused(self, url: &str, scenario: &[&str]) -> DriverEvents {
        let (went_well, seen, told) = self.attempt(url, scenario);
        assert!(!went_well, "{self:?} {scenario:?}: {seen:?} {told}");
        seen
    }

    fn attempt(self, url: &str, scenario: &[&str]) -> (bool, DriverEvents, String) {
        let (program, era) = self.words();
        let mut words = vec![url.to_owned()];
        words.extend(scenario.iter().map(|word| (*word).to_owned()));
        if let Some(era) = era {
            words.extend(["--era".into(), era.to_owned()]);
        }
        // An interpreter takes longer to load an SDK than a scenario takes, so drivers are kept. A
        // login begins in a fresh process.
        if !matches!(self, Self::Rmcp(_)) && !scenario.contains(&"--auth") {
            return ClientDriver::attempt(&program, &words);
        }
        let output = command(&[program, words].concat())
            .output()
            .unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let seen = DriverEvents(
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
        );
        (output.status.success(), seen, told)
    }
}

/// Returns a Python program of the peers' folder, with the packages of the SDK 2.x.
pub fn python_peer_command(program: &str) -> Command {
    command(&python(".venv2", &[&script(program)]))
}

/// Returns a Node program of the peers' folder, without its arguments.
pub fn node_peer_command(program: &str) -> Command {
    let mut words = node(program);
    // oidc-provider and the browser want a newer Node than the SDKs do.
    if let Some(newer) = std::env::var_os("WEIR_NODE22") {
        words[0] = newer.into_string().unwrap();
    }
    command(&words)
}

/// Runs the inspector's CLI mode; returns its answer as JSON.
pub fn inspector(url: &str, method: &[&str]) -> Value {
    inspect(&[url, "--transport", "http"], method)
}

/// Runs the inspector's CLI mode with a server that it starts itself.
pub fn inspector_of_command(command: &[String], method: &[&str]) -> Value {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    inspect(&words, method)
}

fn inspect(server: &[&str], method: &[&str]) -> Value {
    let cli: PathBuf = peers().join("node/node_modules/.bin/mcp-inspector");
    let mut command = Command::new(cli);
    command
        .arg("--cli")
        .args(server)
        .arg("--method")
        .args(method);
    // It stores its own settings in the home folder.
    let home = TestFolder::new("inspector");
    command.env("HOME", home.path());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}
