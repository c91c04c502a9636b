//! Command lines of `mock-stdio`, a small MCP server on standard input and output that behaves or
//! misbehaves as its flags and tools demand. It belongs to this package; [`MockStdio::command`]
//! finds it, and builds it if it is missing or outdated.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use weir_wire::Revision;

use crate::emitted_messages;

const NAME: &str = "mock-stdio";

/// A command line, put together flag by flag.
///
/// With any flags it has these tools: `env` (its environment as structured content), `echo`,
/// `progress` (`{"count"}` notifications, `{"every_ms"}` apart), `log` (one message of level info),
/// `hang` (until cancelled; sends progress once on request), `cancelled` (the count of cancelled
/// requests), `add_tool` (adds `added_N` and sends a notification), `pids` (its own and its
/// grandchild's), `exit` (`{"code"}`, at once, without an answer), `stderr` (`{"bytes"}`), `huge`
/// (`{"bytes"}` of text), `count` (the number of its calls in this process, and the process id; with
/// `{"wait_ms"}` after so long, with `{"hang": true}` never) and `ask` (sends its client `roots/list` first, or `{"ask", "params"}`,
/// and then returns the answer).
#[derive(Clone, Debug)]
#[must_use]
pub struct MockStdio {
    arguments: Vec<String>,
}

impl MockStdio {
    /// Speaks 2026-07-28 alone.
    pub fn modern() -> Self {
        Self {
            arguments: vec!["--era".to_owned(), "modern".to_owned()],
        }
    }

    /// Speaks legacy revisions up to this one; answers `server/discover` with -32601.
    pub fn legacy(newest: Revision) -> Self {
        let era = Self {
            arguments: vec!["--era".to_owned(), "legacy".to_owned()],
        };
        era.with("--revision", newest.as_str())
    }

    /// Relays the server at this URL, such as a [`crate::MockServer`], without messages of its own.
    pub fn relay(url: &str) -> Self {
        Self {
            arguments: Vec::new(),
        }
        .with("--relay", url)
    }

    /// Does not answer `server/discover`, like some old servers with an unknown method.
    pub fn silent_to_discover(self) -> Self {
        self.flag("--silent-to-discover")
    }

    /// Has so many more echoing tools, `tool_0000` and so on.
    pub fn tools(self, count: usize) -> Self {
        self.with("--tools", &count.to_string())
    }

    /// Ends, without an answer, after so many requests.
    pub fn exit_after(self, requests: usize) -> Self {
        self.with("--exit-after", &requests.to_string())
    }

    /// Writes so many bytes to standard error first.
    pub fn flood_stderr(self, bytes: usize) -> Self {
        self.with("--flood-stderr", &bytes.to_string())
    }

    /// Prints lines that are not JSON first, as chatty programs do.
    pub fn noisy(self) -> Self {
        self.flag("--noise")
    }

    /// Never ends by itself: it ignores SIGTERM and the end of its input. It ends only with its
    /// parent process.
    pub fn ignore_sigterm(self) -> Self {
        self.flag("--ignore-sigterm")
    }

    /// Has a child of its own that sleeps for five minutes.
    pub fn grandchild(self) -> Self {
        self.flag("--grandchild")
    }

    /// Never reads its input, until its parent process ends.
    pub fn hang(self) -> Self {
        self.flag("--hang")
    }

    /// Adds a line with its process id to a file when it starts, so that a test can count starts.
    pub fn starts_file(self, path: &Path) -> Self {
        self.with("--starts-file", &path.to_string_lossy())
    }

    /// Adds a line with its process id and the number of the call to a file for each call of
    /// `count`, so that a test can count executions.
    pub fn calls_file(self, path: &Path) -> Self {
        self.with("--calls-file", &path.to_string_lossy())
    }

    /// The program and its arguments.
    ///
    /// # Panics
    /// The program is missing and cannot be built.
    pub fn command(&self) -> (PathBuf, Vec<String>) {
        let kept = emitted_messages::folder()
            .map(|folder| ["--keep".to_owned(), folder.to_string_lossy().into_owned()]);
        (
            program(),
            self.arguments
                .iter()
                .cloned()
                .chain(kept.into_iter().flatten())
                .collect(),
        )
    }

    fn with(self, flag: &str, value: &str) -> Self {
        let mut more = self.flag(flag);
        more.arguments.push(value.to_owned());
        more
    }

    fn flag(mut self, flag: &str) -> Self {
        self.arguments.push(flag.to_owned());
        self
    }
}

/// The path of an up-to-date `mock-stdio`. Cargo builds the programs of a package only for that
/// package's own tests, so the tests of other crates may have to ask for it.
fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let test =
                std::env::current_exe().unwrap_or_else(|error| panic!("where am I: {error}"));
            // <target>/<profile>/deps/<test>
            let profile = test
                .ancestors()
                .find(|folder| folder.file_name().is_some_and(|name| name == "deps"));
            let profile = profile
                .and_then(Path::parent)
                .unwrap_or_else(|| panic!("no target folder: {}", test.display()));
            let program = profile.join(NAME);
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let newest = [
                "bin/mock-stdio/main.rs",
                "bin/mock-stdio/flags.rs",
                "relay.rs",
            ];
            let newest = newest
                .map(|file| changed(&source.join(file)))
                .into_iter()
                .max()
                .flatten();
            if changed(&program) < newest {
                build(profile);
            }
            program
        })
        .clone()
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata()
        .and_then(|metadata| metadata.modified())
        .ok()
}

fn build(profile: &Path) {
    let target = profile.parent().unwrap_or(profile);
    let mut cargo =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.args(["build", "--quiet", "--offline", "--bin", NAME]);
    cargo.args([
        Path::new("--manifest-path"),
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"),
    ]);
    cargo.args([Path::new("--target-dir"), target]);
    // A folder has the name of its profile, except `debug`: this is the folder of `dev`.
    if let Some(name) = profile.file_name().filter(|name| *name != "debug") {
        cargo.arg("--profile").arg(name);
    }
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cargo build {NAME}: {error}"));
    assert!(
        output.status.success(),
        "cargo build {NAME}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
