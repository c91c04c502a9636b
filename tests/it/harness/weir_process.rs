//! The weir binary with a config, on free loopback ports.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use weir_testkit::{TestFolder, emitted_messages};

use super::test_process::TestProcess;

/// Any free port: weir writes its number into a file.
const ANY_PORT: &str = "127.0.0.1:0";

/// The time in which weir gets the first lists before it answers without them, unless the config
/// has another one. With the default of 2 s a test whose first call comes at once would depend on
/// the speed of the machine.
const FIRST_LIST_WAIT: &str = "10s";

/// The name of the config file.
const CONFIG_FILE: &str = "weir.json";

/// The log filter of weir, for the output of a failed test.
const LOG: &str = "warn,weir=debug";

/// A running weir.
pub struct Weir {
    pub process: TestProcess,
    port: u16,
    admin: u16,
    folder: TestFolder,
    /// The limit of its peak memory, checked when it is dropped, in bytes.
    bound: Option<usize>,
}

impl Weir {
    /// Starts weir in front of these upstreams (in the form of the config) and waits until it is
    /// ready.
    pub fn with_upstreams(upstreams: Value) -> Self {
        let mut config = json!({});
        config["upstreams"] = upstreams;
        Self::with_config(config)
    }

    /// Starts weir with this config; `listen` and `admin.listen` are added.
    pub fn with_config(config: Value) -> Self {
        Self::until(&[], config, "/readyz", LOG)
    }

    /// Starts weir as [`Self::with_config`] does, with another log filter.
    pub fn with_log_filter(config: Value, filter: &str) -> Self {
        Self::until(&[], config, "/readyz", filter)
    }

    /// Starts weir as [`Self::with_config`] does, with this many MiB as `limits.memory`. When it is
    /// dropped, its peak must be at most 1.1 times that: the guarantee that every flood is checked
    /// against.
    pub fn with_memory_limit(mebibytes: usize, mut config: Value) -> Self {
        config["limits"]["memory"] = json!(format!("{mebibytes}MiB"));
        let mut weir = Self::with_config(config);
        weir.bound = Some(mebibytes << 20);
        weir
    }

    fn check_memory(&self) {
        let Some(bound) = self.bound else { return };
        let peak = self.peak_memory();
        eprintln!("weir had at most {} MiB of {} MiB", peak >> 20, bound >> 20);
        assert!(
            peak <= bound / 10 * 11,
            "{} MiB of {} MiB: {}",
            peak >> 20,
            bound >> 20,
            self.process.output()
        );
    }

    /// Starts weir, but waits only until it is alive: a dependency is missing.
    pub fn start_unready(config: Value) -> Self {
        Self::until(&[], config, "/healthz", LOG)
    }

    /// Starts weir as [`Self::with_config`] does, by another program that gets weir's command line.
    pub fn start_with_wrapper(wrapper: &[&str], config: Value) -> Self {
        Self::until(wrapper, config, "/readyz", LOG)
    }

    /// Starts another build of weir as [`Self::with_config`] does.
    pub fn start_program(program: &Path, config: Value) -> Self {
        let program = program.to_str().expect("a path of text");
        // The name of the usual build comes first.
        let run = r#"shift; exec "$0" "$@""#;
        Self::start_with_wrapper(&["sh", "-c", run, program], config)
    }

    /// Starts weir as [`Self::with_config`] does, at the config's own `listen`.
    pub fn with_own_listen(config: Value) -> Self {
        Self::start(&[], config, "/readyz", LOG)
    }

    fn until(wrapper: &[&str], mut config: Value, page: &str, log: &str) -> Self {
        config["listen"] = json!(ANY_PORT);
        Self::start(wrapper, config, page, log)
    }

    fn start(wrapper: &[&str], mut config: Value, page: &str, log: &str) -> Self {
        emitted_messages::start_recording();
        complete(&mut config);
        let folder = TestFolder::new("weir");
        let file = folder.write(CONFIG_FILE, &config.to_string());
        let weir = weir_binary();
        let mut command = match wrapper {
            [] => Command::new(weir),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(weir);
                command
            }
        };
        command
            .arg("serve")
            .arg("--config")
            .arg(&file)
            .args(["--address-file", "/dev/stdout"])
            .env("RUST_LOG", log);
        // A secret that no child of weir may see.
        command.env("WEIR_TEST_SECRET", "CANARY-of-weirs-own-environment");
        let mut process = TestProcess::start(command);
        let addresses = process.wait_for_line(r#"{"clients":"#);
        let [port, admin] = ports(&format!(r#"{{"clients":{addresses}"#));
        let mut weir = Self {
            process,
            port,
            admin,
            folder,
            bound: None,
        };
        weir.wait_until(page);
        weir
    }

    fn wait_until(&mut self, page: &str) {
        super::wait_until("weir to be ready", || {
            assert!(
                !self.process.has_exited(),
                "weir ended: {}",
                self.process.final_output()
            );
            let answer = get(self.admin, page).unwrap_or_default();
            answer.starts_with("HTTP/1.1 200").then_some(())
        });
    }

    /// Returns its peak memory, in bytes.
    pub fn peak_memory(&self) -> usize {
        self.status("VmHWM:")
    }

    /// Returns its current memory, in bytes.
    pub fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    fn status(&self, line: &str) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find_map(|text| text.strip_prefix(line))
            .unwrap();
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<usize>()
            .unwrap()
            * 1024
    }

    /// Returns the sum of a metric's series whose labels contain all of these texts.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.get_admin_page("/metrics");
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label))
        });
        series
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Returns the URL of an endpoint.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the address of the clients' listener.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Returns a page of the admin listener: head and body.
    pub fn get_admin_page(&self, path: &str) -> String {
        get(self.admin, path).unwrap()
    }

    /// Returns the URL of the operators' listener.
    pub fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    /// Returns the path of the config file.
    pub fn config_file(&self) -> PathBuf {
        self.folder.file(CONFIG_FILE)
    }

    /// Writes a copy of the current config file with weir's actual addresses, for a command that
    /// looks them up there.
    pub fn config_with_addresses(&self) -> PathBuf {
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(self.config_file()).unwrap()).unwrap();
        config["listen"] = json!(format!("127.0.0.1:{}", self.port));
        config["admin"]["listen"] = json!(format!("127.0.0.1:{}", self.admin));
        self.folder
            .write("weir-with-addresses.json", &config.to_string())
    }

    /// Returns the config as its file has it.
    pub fn config(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.config_file()).unwrap()).unwrap()
    }

    /// Rewrites the config, as an editor would: by a rename.
    pub fn rewrite_config(&self, mut config: Value) {
        config["listen"] = json!(ANY_PORT);
        complete(&mut config);
        let next = self.folder.write("weir.json.next", &config.to_string());
        std::fs::rename(next, self.config_file()).unwrap();
    }

    /// Runs a command of the weir CLI and waits for its end.
    pub fn run_cli(arguments: &[&str]) -> Output {
        Command::new(weir_binary())
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs `weir tools URL` on an endpoint; returns the names. Some upstreams may be down.
    pub fn list_tools(&self, path: &str) -> Vec<String> {
        let output = Self::run_cli(&["tools", &self.url(path), "--json"]);
        let is_listed = matches!(output.status.code(), Some(0 | 4));
        assert!(
            is_listed,
            "{}{}",
            String::from_utf8_lossy(&output.stderr),
            self.process.output()
        );
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let tools = listed.as_array().unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until an endpoint lists all of these: a foreign server may take longer to start than a
    /// list waits for it.
    pub fn wait_until_listed(&self, path: &str, wanted: &[&str]) {
        super::wait_until(&format!("{wanted:?}"), || {
            let listed = self.list_tools(path);
            wanted
                .iter()
                .all(|tool| listed.iter().any(|name| name == tool))
                .then_some(())
        });
    }

    /// Runs `weir call URL TOOL JSON --json`; returns the result object.
    pub fn call_tool(&self, path: &str, tool: &str, arguments: &Value) -> Value {
        let output = Self::run_cli(&[
            "call",
            &self.url(path),
            tool,
            &arguments.to_string(),
            "--json",
        ]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {output:?}\n{}", self.process.output());
        })
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- weir said:\n{}", self.process.output());
        } else {
            self.check_memory();
        }
    }
}

/// Adds the values of every config of these tests.
fn complete(config: &mut Value) {
    config["admin"]["listen"] = json!(ANY_PORT);
    if config["first_list_wait"].is_null() {
        config["first_list_wait"] = json!(FIRST_LIST_WAIT);
    }
}

/// Returns the path of the binary under test: named by the environment, or built beside this test.
pub fn weir_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("WEIR_BIN") {
        return named.into();
    }
    let beside = std::env::current_exe().unwrap();
    let beside = beside.ancestors().nth(2).unwrap().join("weir");
    assert!(
        beside.exists(),
        "{} is missing: build it first (cargo build), or set WEIR_BIN",
        beside.display()
    );
    beside
}

/// Returns the ports of clients and operators in the line that `weir serve --address-file` writes.
fn ports(line: &str) -> [u16; 2] {
    let written: Value = serde_json::from_str(line).unwrap();
    ["clients", "operators"].map(|name| {
        written[name]
            .as_str()
            .unwrap()
            .parse::<SocketAddr>()
            .unwrap()
            .port()
    })
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the folder of the foreign peers.
pub fn peers() -> PathBuf {
    std::env::var_os("WEIR_PEERS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"),
        PathBuf::from,
    )
}
