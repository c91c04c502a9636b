//! The first hour of a new user: each command of README.md and docs/quickstart.md unchanged, and
//! the servers that people really have, of npm and PyPI, behind one weir.
//!
//! A command is run with replacements: free ports for the two listeners and for a server, folders
//! of the test for folders of a reader, and weir's own version. [`doc_pages::is_as_shown`] defines
//! the differences that the output may have.

mod doc_pages;
mod first_failures;
mod new_user_machine;

use std::process::Command;

use serde_json::json;

use crate::harness::{ForeignServer, TestProcess, peers, peers_are_enabled, wait_until};
use doc_pages::{PageCommand, commands, file, is_as_shown};
use new_user_machine::{NewUserMachine, printed};

/// A running weir, and its URLs for clients and operators.
struct FirstHourWeir {
    process: TestProcess,
    clients: String,
    operators: String,
}

impl FirstHourWeir {
    fn start(mut command: Command) -> Self {
        command.env("RUST_LOG", "warn");
        let mut process = TestProcess::start(command);
        let addresses: serde_json::Value = serde_json::from_str(&format!(
            "{{\"clients\":{}",
            process.wait_for_line("{\"clients\":")
        ))
        .unwrap();
        let url = |name: &str| format!("http://{}", addresses[name].as_str().unwrap());
        Self {
            clients: url("clients"),
            operators: url("operators"),
            process,
        }
    }

    /// Starts `weir quickstart`, which prints its addresses for a person.
    fn quickstart(machine: &NewUserMachine) -> Self {
        let mut process =
            TestProcess::start(machine.shell("exec weir quickstart --listen 127.0.0.1:0"));
        let clients = process
            .wait_for_line("  weir tools ")
            .trim_end_matches("/mcp")
            .to_owned();
        let operators = process
            .wait_for_line("For operators: ")
            .split_once("/ is")
            .unwrap()
            .0
            .to_owned();
        Self {
            process,
            clients,
            operators,
        }
    }

    /// Returns a text of a page with the addresses of this weir.
    fn here(&self, text: &str) -> String {
        text.replace("http://127.0.0.1:8080", &self.clients)
            .replace("http://127.0.0.1:8081", &self.operators)
    }

    /// Runs a command of a page until it prints the output that the page shows: a list follows a
    /// change after a moment.
    fn run_page_command(&self, machine: &NewUserMachine, command: &PageCommand) {
        let (text, shows) = (self.here(&command.text), &command.shows);
        let version = format!("weir {}", env!("CARGO_PKG_VERSION"));
        let shows: Vec<String> = shows
            .iter()
            .map(|line| self.here(line).replace("weir 0.1.0", &version))
            .collect();
        let mut last = String::new();
        let is_done = || {
            let output = machine
                .shell(&text)
                .env("WEIR_ADMIN", &self.operators)
                .output()
                .unwrap();
            last = printed(&output);
            // A command that a page shows without output must succeed.
            (is_as_shown(&shows, &last) && (!shows.is_empty() || output.status.success()))
                .then_some(())
        };
        let what = format!("{text} to print {shows:?}");
        let found =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait_until(&what, is_done)));
        assert!(found.is_ok(), "{what}; it printed\n{last}");
    }
}

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Runs the commands of docs/quickstart.md; below each command is its output.
// Proves R004.
#[test]
fn quickstart_page_commands_print_the_documented_output() {
    let (page, machine) = (page("docs/quickstart.md"), NewUserMachine::new());
    machine.folder.write("weir.yaml", file(&page, "yaml"));
    let weir = FirstHourWeir::quickstart(&machine);
    let all = commands(&page);
    for command in all
        .iter()
        .filter(|command| command.text != "weir quickstart")
    {
        weir.run_page_command(&machine, command);
    }
    assert!(all.len() > 9, "{} commands", all.len());
}

/// Commands of README.md for developers of weir, which are run elsewhere.
const OF_DEVELOPERS: [&str; 1] = ["cargo xtask test"];

// Proves R004.
#[test]
fn readme_commands_work_as_documented() {
    if !peers_are_enabled() {
        return;
    }
    let (page, machine) = (page("README.md"), NewUserMachine::new());
    let documents = machine.folder.file("documents");
    std::fs::create_dir(&documents).unwrap();
    let (_everything, everything) = ForeignServer::Everything.over_http();
    let config = file(&page, "yaml").replace("http://127.0.0.1:3001/mcp", &everything);
    let config = config
        .replace("/srv/docs", documents.to_str().unwrap())
        .replace("127.0.0.1:8080", "127.0.0.1:0");
    let config = format!("{config}admin: {{ listen: 127.0.0.1:0 }}\n");
    machine.folder.write("weir.yaml", &config);

    let quickstart = FirstHourWeir::quickstart(&machine);
    let mut served = None;
    for command in commands(&page) {
        let text = command.text.as_str();
        match text {
            // The same program, built already.
            "cargo run --release -- quickstart" => {
                let tools = PageCommand {
                    text: "weir tools http://127.0.0.1:8080/mcp".to_owned(),
                    shows: vec!["desk__calculate ...".to_owned()],
                };
                quickstart.run_page_command(&machine, &tools);
            }
            _ if text.ends_with("--watch") => {
                let watching =
                    TestProcess::start(machine.shell(&format!("exec {}", quickstart.here(text))));
                wait_until("the tool that comes", || {
                    watching.output().contains("coin_flip").then_some(())
                });
            }
            "weir serve --config weir.yaml" => {
                served = Some(FirstHourWeir::start(
                    machine.shell(&format!("exec {text} --address-file /dev/stdout")),
                ));
            }
            _ if text.starts_with("weir ") => quickstart.run_page_command(&machine, &command),
            _ => assert!(
                OF_DEVELOPERS.contains(&text),
                "nobody runs `{text}` here: teach this test what it does"
            ),
        }
    }
    quickstart.process.signal("TERM");

    // The statements of the page about the names, and about the operators' listener.
    let weir = served.expect("the page serves its config");
    let shown = |url: &str, tool: &str| PageCommand {
        text: format!("weir tools {url} --wait"),
        shows: vec![format!("{tool} ...")],
    };
    weir.run_page_command(
        &machine,
        &shown("http://127.0.0.1:8080/mcp", "files__read_file"),
    );
    weir.run_page_command(
        &machine,
        &shown("http://127.0.0.1:8080/mcp", "everything__echo"),
    );
    weir.run_page_command(
        &machine,
        &shown("http://127.0.0.1:8080/mcp/files", "read_file"),
    );
    for (path, words) in [
        ("", "<h1>weir"),
        ("/healthz", "alive"),
        ("/readyz", "ready"),
        ("/metrics", "weir_upstream_up"),
    ] {
        assert!(page.contains("has a status page, `/healthz`, `/readyz`, `/metrics`"));
        let command = format!("curl --silent --show-error --fail {}{path}", weir.operators);
        assert!(machine.run(&command).contains(words), "{path}");
    }
}

/// Returns the servers that a user adds one after another, as their own pages instruct, and a call
/// of each: its arguments, and a part of the answer.
fn real_servers(machine: &NewUserMachine) -> Vec<(String, String, &'static str)> {
    let folder = machine.folder.file("repository");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("note.txt"), "the weir holds the river\n").unwrap();
    machine.run("git -C repository init --quiet --initial-branch=main");
    let here = folder.display();
    let python = peers().join("python");
    let fastmcp = format!(
        "{} {}",
        python.join(".venv1/bin/python").display(),
        python.join("fastmcp_server.py").display()
    );
    let of = |add: &str, call: String, answer| {
        (
            format!("weir add {add}"),
            format!("weir call URL {call}"),
            answer,
        )
    };
    vec![
        of(
            &format!("files -- npx -y @modelcontextprotocol/server-filesystem {here}"),
            format!("files__read_text_file path={here}/note.txt"),
            "the weir holds the river",
        ),
        of(
            &format!("memory --env MEMORY_FILE_PATH={}/memory.jsonl -- npx -y @modelcontextprotocol/server-memory", machine.folder.path().display()),
            r#"memory__create_entities '{"entities": [{"name": "weir", "entityType": "dam", "observations": []}]}'"#.to_owned(),
            "\"dam\"",
        ),
        of(
            "thinking -- npx -y @modelcontextprotocol/server-sequential-thinking",
            r#"thinking__sequentialthinking '{"thought": "first", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}'"#.to_owned(),
            "\"thoughtNumber\": 1",
        ),
        of(
            "everything -- npx -y @modelcontextprotocol/server-everything",
            "everything__echo message=hello".to_owned(),
            "hello",
        ),
        of(
            "time -- uvx mcp-server-time --local-timezone UTC",
            "time__convert_time source_timezone=UTC time=12:00 target_timezone=Asia/Tokyo".to_owned(),
            "21:00",
        ),
        of(&format!("git -- uvx mcp-server-git --repository {here}"), format!("git__git_status repo_path={here}"), "note.txt"),
        of("fetch -- uvx mcp-server-fetch", "fetch__fetch url=http://127.0.0.1:1/".to_owned(), "robots.txt"),
        of(&format!("sums -- {fastmcp}"), "sums__add a=2 b=3".to_owned(), "5"),
    ]
}

#[test]
fn the_servers_that_people_have_are_added_tried_listed_and_called() {
    if !peers_are_enabled() {
        return;
    }
    let machine = NewUserMachine::new();
    let servers = real_servers(&machine);
    machine.run("weir init");
    for (add, _, _) in &servers {
        machine.run(add);
    }
    let file = machine.folder.file("weir.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let free = text
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:8081", "127.0.0.1:0");
    std::fs::write(&file, free).unwrap();
    assert!(
        machine
            .run("weir check weir.yaml")
            .contains("weir.yaml: good, 8 upstreams and 9 endpoints")
    );
    let examined = machine.run("weir doctor weir.yaml");
    assert_eq!(
        examined
            .lines()
            .filter(|line| line.starts_with("ok ") && line.contains("protocol 20"))
            .count(),
        8,
        "{examined}"
    );
    let weir = FirstHourWeir::start(
        machine.shell("exec weir serve --config weir.yaml --address-file /dev/stdout"),
    );
    let url = format!("{}/mcp", weir.clients);
    let listed = machine.run(&format!("weir tools {url} --wait=2m"));
    for (_, call, answer) in &servers {
        let call = call.replace("URL", &url);
        let tool = call.split(' ').nth(3).unwrap();
        assert!(listed.contains(tool), "{tool} in {listed}");
        // `fetch` refuses a page of this machine that has no robots.txt; the error is an answer of
        // the server's own.
        let output = machine.shell(&call).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(i32::from(tool == "fetch__fetch")),
            "{call}: {}",
            printed(&output)
        );
        assert!(
            printed(&output).contains(answer),
            "{call}: {}",
            printed(&output)
        );
    }
    let states: serde_json::Value = serde_json::from_str(&machine.run(&format!(
        "weir admin --admin {} --json upstreams",
        weir.operators
    )))
    .unwrap();
    let up = states["upstreams"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|upstream| upstream["state"] == "up")
        .count();
    assert_eq!(json!(up), json!(8), "{states:#}");
}
