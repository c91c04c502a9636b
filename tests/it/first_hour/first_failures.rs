//! The failures of a first hour, once each: a command reports it in the words of the docs.

use super::doc_pages::is_as_shown;
use super::new_user_machine::{NewUserMachine, printed};
use super::{FirstHourWeir, page};
use crate::harness::peers_are_enabled;

/// Returns the example below `weir doctor` in docs/cli.md; times, versions and addresses of its
/// reader's machine may differ.
fn shown_by_the_page() -> Vec<String> {
    let page = page("docs/cli.md");
    let block = page
        .split("```")
        .find(|block| block.trim_start().starts_with("ok     files"))
        .unwrap()
        .trim();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(", ").collect();
        match words.split_last() {
            Some((time, rest)) if time.ends_with(" s") => format!("{}, ... s", rest.join(", ")),
            _ if line.contains("node: v") => "ok     node: v...".to_owned(),
            _ => line.replace("127.0.0.1:8080", "127.0.0.1:0"),
        }
    };
    block.lines().map(line).collect()
}

#[test]
fn doctor_output_matches_its_documentation_page() {
    if !peers_are_enabled() {
        return;
    }
    let machine = NewUserMachine::new();
    let config = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
upstreams:
  files: { command: npx, args: [-y, \"@modelcontextprotocol/server-filesystem\", .] }
  wiki: { command: sh, args: [-c, \"echo 'Error: WIKI_TOKEN is not set' >&2; exit 1\"] }
";
    machine.folder.write("weir.yaml", config);
    let output = machine.shell("weir doctor weir.yaml").output().unwrap();
    let (shown, found) = (shown_by_the_page(), printed(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown.len() > 4 && is_as_shown(&shown, &found),
        "{shown:#?} in\n{found}"
    );
}

/// A command, the exit code that docs/cli.md has for its mistake, and its output.
struct CommandMistake {
    command: &'static str,
    code: i32,
    says: &'static [&'static str],
}

const MISTAKES: [CommandMistake; 8] = [
    CommandMistake {
        command: "weir call http://127.0.0.1:8080/mcp desk__calculat expression=1",
        code: 3,
        says: &["did you mean `desk__calculate`?"],
    },
    CommandMistake {
        command: "weir tools http://127.0.0.1:8080/mpc",
        code: 3,
        says: &["404", "/mcp"],
    },
    CommandMistake {
        command: "weir tools 127.0.0.1:8080/mcp",
        code: 2,
        says: &["http"],
    },
    CommandMistake {
        command: "weir tools http://127.0.0.1:1/mcp",
        code: 3,
        says: &["connection refused", "start the server"],
    },
    CommandMistake {
        command: "weir check nowhere.yaml",
        code: 2,
        says: &["nowhere.yaml", "No such file"],
    },
    CommandMistake {
        command: "weir check misspelt.yaml",
        code: 2,
        says: &[
            "misspelt.yaml:2: error: auht: unknown key",
            "did you mean `auth`?",
        ],
    },
    CommandMistake {
        command: "weir serve --config weir.yaml --log inof",
        code: 2,
        says: &["inof", "info"],
    },
    CommandMistake {
        command: "weir admin --admin http://127.0.0.1:1 upstreams",
        code: 3,
        says: &["no admin listener of weir answers", "--config FILE"],
    },
];

#[test]
fn common_first_mistakes_have_a_clear_message_and_exit_code() {
    let machine = NewUserMachine::new();
    std::fs::write(
        machine.folder.file("misspelt.yaml"),
        "upstreams: {}\nauht: { mode: required }\n",
    )
    .unwrap();
    machine.folder.write("weir.yaml", "upstreams: {}\n");
    let weir = FirstHourWeir::quickstart(&machine);
    let ready = super::PageCommand {
        text: "weir tools http://127.0.0.1:8080/mcp".to_owned(),
        shows: vec!["desk__calculate ...".to_owned()],
    };
    weir.run_page_command(&machine, &ready);
    let page = page("docs/cli.md");
    for CommandMistake {
        command,
        code,
        says,
    } in MISTAKES
    {
        let output = machine.shell(&weir.here(command)).output().unwrap();
        let found = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{command}: {found}");
        assert!(
            page.contains(&format!("\n| {code} | ")),
            "{code} is no code of the page"
        );
        assert!(
            says.iter().all(|word| found.contains(word)),
            "{command}: {says:?} in {found}"
        );
    }
}
