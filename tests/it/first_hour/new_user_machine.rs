//! The machine of a new user: a folder to work in, and `weir`, `npx` and `uvx` on the `PATH`. The
//! latter two start the packages that the tests have installed, by the names of their registries,
//! and fetch no packages.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use weir_testkit::TestFolder;

use crate::harness::{peers, weir_binary};

const NPX: &str = r#"#!/bin/sh
# npx -y @modelcontextprotocol/server-NAME ARGUMENT...
[ "$1" = -y ] || { echo "npx: -y is missing" >&2; exit 1; }
main="NODE_MODULES/$2/dist/index.js"
[ -f "$main" ] || { echo "npx: there is no package $2 here" >&2; exit 1; }
shift 2
exec node "$main" "$@"
"#;

const UVX: &str = r#"#!/bin/sh
# uvx mcp-server-NAME ARGUMENT...
module="$(printf %s "$1" | tr - _)"
shift
exec PYTHON -m "$module" "$@"
"#;

pub struct NewUserMachine {
    /// The working folder of the commands.
    pub folder: TestFolder,
    path: String,
}

impl NewUserMachine {
    pub fn new() -> Self {
        let folder = TestFolder::new("first-hour");
        let programs = folder.file("programs");
        std::fs::create_dir(&programs).unwrap();
        let node_modules = peers().join("node/node_modules");
        let python = peers().join("python/.venv1/bin/python");
        write_program(
            &programs.join("npx"),
            &NPX.replace("NODE_MODULES", node_modules.to_str().unwrap()),
        );
        write_program(
            &programs.join("uvx"),
            &UVX.replace("PYTHON", python.to_str().unwrap()),
        );
        std::os::unix::fs::symlink(weir_binary(), programs.join("weir")).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        Self { folder, path }
    }

    /// Returns a shell command that is not started yet.
    pub fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .current_dir(self.folder.path())
            .env("PATH", &self.path);
        shell.env("XDG_STATE_HOME", self.folder.file("state"));
        for name in ["WEIR_CONFIG", "WEIR_ADMIN", "WEIR_TOKEN", "RUST_LOG"] {
            shell.env_remove(name);
        }
        shell
    }

    /// Runs a command that must succeed; returns its output.
    pub fn run(&self, command: &str) -> String {
        let output = self.shell(command).output().unwrap();
        assert!(output.status.success(), "{command}: {}", printed(&output));
        printed(&output)
    }
}

/// Returns both streams of a command, as a terminal shows them.
pub fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
