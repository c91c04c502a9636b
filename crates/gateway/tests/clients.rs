//! Files of eight MCP clients, written after their public documentation: the binary takes them as
//! they are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weir_testkit::TestFolder;

/// A client, its fixture, the place of its file in a home folder, and its servers.
const CLIENTS: [(&str, &str, &str, &[&str]); 8] = [
    (
        "claude-desktop",
        "claude_desktop_config.json",
        ".config/Claude/claude_desktop_config.json",
        &["filesystem", "brave-search", "sqlite"],
    ),
    (
        "claude-code",
        "claude.json",
        ".claude.json",
        &["shop-db", "sentry", "asana", "api-server", "airtable"],
    ),
    (
        "cursor",
        "cursor.json",
        ".cursor/mcp.json",
        &["postgres", "notes", "linear"],
    ),
    (
        "vscode",
        "vscode.json",
        ".config/Code/User/mcp.json",
        &["perplexity", "project", "context7"],
    ),
    (
        "gemini",
        "gemini.json",
        ".gemini/settings.json",
        &["pythontools", "httpserver"],
    ),
    (
        "windsurf",
        "windsurf.json",
        ".codeium/windsurf/mcp_config.json",
        &["github", "remote-http"],
    ),
    (
        "codex",
        "codex.toml",
        ".codex/config.toml",
        &["context7-codex", "figma"],
    ),
    (
        "zed",
        "zed.json",
        ".config/zed/settings.json",
        &["local-mcp-server", "older", "remote-mcp-server"],
    ),
];

/// The variables that the files refer to.
const VARIABLES: [(&str, &str); 12] = [
    ("API_KEY", "k-0001"),
    ("DATABASE_HOST", "postgresql://db.example.com/x"),
    ("NOTES_KEY", "k-0002"),
    ("LINEAR_TOKEN", "k-0003"),
    ("DB_CONNECTION_STRING", "db.example.com"),
    ("EXTERNAL_API_KEY", "k-0004"),
    ("AUTH_TOKEN", "k-0005"),
    ("LOCAL_TOKEN", "k-0006"),
    ("OTHER_TOKEN", "k-0007"),
    ("FIGMA_OAUTH_TOKEN", "k-0008"),
    ("FIGMA_TEAM", "design"),
    ("WEIR_WORKSPACE_FOLDER", "."),
];

/// A home folder for a test.
struct ClientFilesHome(TestFolder);

impl ClientFilesHome {
    fn new(name: &str) -> Self {
        let home = TestFolder::new(name);
        fs::create_dir(home.file("work")).unwrap();
        Self(home)
    }

    /// Returns a home folder with the files of all clients.
    fn full(name: &str) -> Self {
        let home = Self::new(name);
        for (_, file, place, _) in CLIENTS {
            home.copy(file, &home.place(place));
        }
        home.copy("cursor.env", ".cursor/cursor.env");
        home.copy("vscode.env", "work/vscode.env");
        home
    }

    /// Returns the path of a file on this system.
    fn place(&self, place: &str) -> String {
        let is_application = place.starts_with(".config/") && !place.starts_with(".config/zed");
        if cfg!(target_os = "macos") && is_application {
            return place.replacen(".config", "Library/Application Support", 1);
        }
        place.to_owned()
    }

    fn copy(&self, fixture: &str, place: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/clients")
            .join(fixture);
        // The one project that a file names must exist.
        let project = self.0.file("work").display().to_string();
        self.write(
            place,
            &fs::read_to_string(from)
                .unwrap()
                .replace("/srv/shop", &project),
        );
    }

    fn write(&self, place: &str, text: &str) -> PathBuf {
        self.0.write(place, text)
    }

    /// Runs weir in the folder `work`, with no variables but `HOME` and these.
    fn weir(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let command = command
            .args(arguments)
            .current_dir(self.0.file("work"))
            .env_clear();
        command
            .env("HOME", self.0.path())
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the output of a run, and asserts that it has no secret of the files.
fn said(output: &Output) -> String {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!said.contains("canary"), "a secret was printed:\n{said}");
    said
}

/// Returns `VARIABLES`, with the folder of the project.
fn variables(home: &ClientFilesHome) -> Vec<(&'static str, String)> {
    let folder = home.0.file("work").display().to_string();
    VARIABLES
        .map(|(name, value)| {
            (
                name,
                if value == "." {
                    folder.clone()
                } else {
                    value.to_owned()
                },
            )
        })
        .to_vec()
}

fn borrowed<'a>(variables: &'a [(&str, String)]) -> Vec<(&'a str, &'a str)> {
    variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

#[test]
fn every_file_passes_check_without_an_edit() {
    let home = ClientFilesHome::full("check");
    let variables = variables(&home);
    for (client, _, place, servers) in CLIENTS {
        let file = home.0.file(&home.place(place)).display().to_string();
        let output = home.weir(&["check", &file], &borrowed(&variables));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{client}: {said}");
        // Servers of a project of Claude Code are for `import`.
        let served = servers
            .iter()
            .filter(|server| **server != "shop-db")
            .count();
        assert!(
            said.contains(&format!("good, {served} upstreams")),
            "{client}: {said}"
        );
        for line in said
            .lines()
            .filter(|line| line.contains(" warning: ") || line.contains(" note: "))
        {
            let rest = line
                .strip_prefix(&format!("{file}:"))
                .unwrap_or_else(|| panic!("{client}: {line}"));
            assert!(
                rest.split(':').next().unwrap().parse::<u32>().is_ok(),
                "{client}: no line in: {line}"
            );
        }
    }
}

#[test]
fn ignored_keys_are_reported_with_their_line() {
    let home = ClientFilesHome::full("warnings");
    let variables = variables(&home);
    for (place, line, words) in [
        (
            ".config/Claude/claude_desktop_config.json",
            2,
            "2 keys are not used by weir and are ignored: `globalShortcut`",
        ),
        (
            ".claude.json",
            2,
            "(`weir import FILE` takes the servers of `projects`, too)",
        ),
        (
            ".cursor/mcp.json",
            18,
            "mcpServers.linear.auth: is not used",
        ),
        (
            ".cursor/mcp.json",
            20,
            "mcpServers.old: is left out, because it is `disabled`",
        ),
        (
            ".config/Code/User/mcp.json",
            4,
            "inputs.0: `perplexity-key` is asked for at the start",
        ),
        (
            ".config/Code/User/mcp.json",
            14,
            "servers.perplexity.dev: is not a known key",
        ),
        (
            ".config/Code/User/mcp.json",
            21,
            "servers.project.sandboxEnabled: is not kept",
        ),
        (
            ".gemini/settings.json",
            18,
            "mcpServers.httpServer.excludeTools: is not kept: all tools",
        ),
        (
            ".gemini/settings.json",
            20,
            "mcpServers.google-workspace: is left out",
        ),
        (
            ".codex/config.toml",
            19,
            "mcp_servers.chrome_devtools: is left out, because it is not `enabled`",
        ),
        (
            ".config/zed/settings.json",
            17,
            "context_servers.older.settings: is not a known key",
        ),
        (
            ".config/zed/settings.json",
            22,
            "context_servers.mcp-server-github: is left out",
        ),
    ] {
        let file = home.0.file(&home.place(place)).display().to_string();
        let said = said(&home.weir(&["check", &file], &borrowed(&variables)));
        let begins = format!("{file}:{line}: ");
        let found = said
            .lines()
            .any(|said| said.starts_with(&begins) && said.contains(words));
        assert!(found, "no `{begins}.. {words}` in:\n{said}");
    }
}

#[test]
fn all_files_import_into_one_config_that_passes_check() {
    let home = ClientFilesHome::full("import");
    let folder = home.0.file("work").display().to_string();
    let output = home.weir(
        &["import", "--write", "weir.yaml"],
        &[("WEIR_WORKSPACE_FOLDER", &folder)],
    );
    let listed = said(&output);
    assert_eq!(output.status.code(), Some(0), "{listed}");
    let file = home.0.file("work/weir.yaml");
    let written = fs::read_to_string(&file).unwrap();
    assert!(
        !written.contains("canary"),
        "a secret was written:\n{written}"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    for (client, _, place, servers) in CLIENTS {
        assert!(
            listed.contains(&home.0.file(&home.place(place)).display().to_string()),
            "{client}:\n{listed}"
        );
        for server in servers {
            assert!(
                written.lines().any(|line| line == format!("  {server}:")),
                "{client}: {server} in:\n{written}"
            );
        }
    }
    // Each variable that is named is needed by the config, and with all of them it is good.
    let needed: Vec<String> = written
        .lines()
        .filter_map(|line| {
            line.strip_prefix("#   ")?
                .split_once(": ")
                .map(|(name, _)| name.to_owned())
        })
        .collect();
    assert!(
        needed
            .iter()
            .any(|name| name == "WEIR_INPUT_PERPLEXITY_KEY"),
        "{needed:?}"
    );
    assert!(
        needed
            .iter()
            .any(|name| name == "GITHUB_PERSONAL_ACCESS_TOKEN"),
        "{needed:?}"
    );
    let value = |name: &str| {
        if name == "WEIR_WORKSPACE_FOLDER" {
            folder.clone()
        } else {
            "v-0001-2".to_owned()
        }
    };
    let set: Vec<(&str, String)> = needed
        .iter()
        .map(|name| (name.as_str(), value(name)))
        .collect();
    let output = home.weir(&["check", "weir.yaml"], &borrowed(&set));
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}\n{written}",
        said(&output)
    );
    for name in &needed {
        let others: Vec<_> = borrowed(&set)
            .into_iter()
            .filter(|(other, _)| other != name)
            .collect();
        let output = home.weir(&["check", "weir.yaml"], &others);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{name} is not needed:\n{written}"
        );
    }
}

#[test]
fn each_client_imports_by_its_name_and_prints_the_config() {
    let home = ClientFilesHome::full("named");
    for (client, _, _, servers) in CLIENTS {
        let output = home.weir(&["import", client], &borrowed(&variables(&home)));
        said(&output);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{client}: {}",
            text(&output.stderr)
        );
        let printed = text(&output.stdout);
        for server in servers {
            let id = server.trim_end_matches("-codex");
            assert!(
                printed.lines().any(|line| line == format!("  {id}:")),
                "{client}: {id} in:\n{printed}"
            );
        }
    }
    assert_eq!(
        fs::read_dir(home.0.file("work")).unwrap().count(),
        1,
        "nothing was written"
    );
}

#[test]
fn a_file_of_a_project_works_in_the_project() {
    let home = ClientFilesHome::new("project");
    home.copy("vscode.json", "work/.vscode/mcp.json");
    home.copy("vscode.env", "work/vscode.env");
    let output = home.weir(&["check", ".vscode/mcp.json"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = home.weir(&["import"], &[]);
    let printed = text(&output.stdout);
    let work = fs::canonicalize(home.0.file("work"))
        .unwrap()
        .display()
        .to_string();
    assert!(printed.contains(&format!("    cwd: {work}\n")), "{printed}");
    assert!(
        printed.contains(&format!("{work}/build/index.js")),
        "{printed}"
    );
    assert!(printed.contains("      DEBUG: \"1\"\n"), "{printed}");
    assert!(
        printed.contains("      PROJECT_TOKEN: \"${PROJECT_TOKEN}\"\n"),
        "{printed}"
    );
    assert!(!printed.contains("canary"), "{printed}");
}

#[test]
fn inputs_are_answered_by_variables_where_there_is_no_terminal() {
    let home = ClientFilesHome::full("inputs");
    let file = home
        .0
        .file(&home.place(".config/Code/User/mcp.json"))
        .display()
        .to_string();
    let folder = home.0.file("work").display().to_string();
    let output = home.weir(
        &["serve", "--config", &file],
        &[("WEIR_WORKSPACE_FOLDER", &folder)],
    );
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let wanted = ":13: error: servers.perplexity.env.PERPLEXITY_API_KEY: `${input:perplexity-key}` has no value: the prompt \
                  at the terminal got no answer (set the environment variable WEIR_INPUT_PERPLEXITY_KEY where weir starts)";
    assert!(said.contains(wanted), "{said}");
    assert!(
        !said.contains("WEIR_INPUT_REGION where"),
        "it has a default:\n{said}"
    );
}

#[test]
fn empty_file_has_no_servers_and_a_wrong_one_is_an_error() {
    let home = ClientFilesHome::new("empty");
    let run = |arguments: &[&str]| {
        let output = home.weir(arguments, &[]);
        (output.status.code().unwrap(), said(&output))
    };
    for empty in ["{}", "", "{ \"mcpServers\": null }"] {
        home.write("work/empty.json", empty);
        let (code, said) = run(&["import", "empty.json"]);
        assert_eq!(
            (code, said.contains("no server to import")),
            (1, true),
            "{empty}: {said}"
        );
        assert!(!said.contains("error:"), "{empty}: {said}");
    }
    for (wrong, why) in [
        (
            "no config\n",
            "wrong.json: error: expected a map of settings, found a string",
        ),
        (
            "{\n \"mcpServers\": [] }",
            "wrong.json:2: error: mcpServers: expected a map, found a list",
        ),
    ] {
        home.write("work/wrong.json", wrong);
        let (code, said) = run(&["import", "wrong.json"]);
        assert_eq!((code, said.contains(why)), (2, true), "{wrong}: {said}");
    }
}

#[test]
fn import_overwrites_only_with_force_and_reports_skipped_servers() {
    let home = ClientFilesHome::new("refuse");
    let run = |arguments: &[&str]| {
        let output = home.weir(arguments, &[]);
        (output.status.code().unwrap(), said(&output))
    };
    let (code, said) = run(&["import"]);
    assert_eq!(
        (
            code,
            said.contains("name a file, such as: weir import mcp.json")
        ),
        (1, true),
        "{said}"
    );
    let (code, said) = run(&["import", "nowhere.json"]);
    assert_eq!(
        (
            code,
            said.contains("neither a file nor a client; clients are claude-desktop,")
        ),
        (2, true),
        "{said}"
    );
    home.write("work/broken.json", "{\n  \"mcpServers\": [\n}");
    let (code, said) = run(&["import", "broken.json"]);
    assert_eq!(
        (
            code,
            said.contains("broken.json:3: error: this is not valid JSON")
        ),
        (2, true),
        "{said}"
    );
    home.write("work/none.json", "{ \"mcpServers\": {} }");
    let (code, said) = run(&["import", "none.json"]);
    assert_eq!(
        (code, said.contains("no server to import")),
        (1, true),
        "{said}"
    );
    // The entries that `weir connect` writes would make weir an upstream of itself.
    home.write(
        "work/weir.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"npx\" }, \"own\": { \"url\": \"http://localhost:8080/mcp\" }, \
         \"by_stdio\": { \"command\": \"/bin/weir\", \"args\": [\"stdio\", \"http://127.0.0.1:8080/mcp\"] } } }",
    );
    let (code, said) = run(&["import", "weir.json"]);
    assert_eq!(
        (code, said.matches("leads to this weir itself").count()),
        (0, 2),
        "{said}"
    );
    assert!(
        !said.contains("  own:\n") && said.contains("  a:\n"),
        "{said}"
    );
    assert!(said.contains("listen: 127.0.0.1:8080\n"), "{said}");
    home.write(
        "work/mcp.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"npx\" }, \"b\": { \"url\": \"ftp://x\" } } }",
    );
    home.write("work/weir.yaml", "# mine\n");
    let (code, said) = run(&["import", "mcp.json", "--write", "weir.yaml"]);
    assert_eq!((code, said.contains("add --force")), (2, true), "{said}");
    assert_eq!(
        fs::read_to_string(home.0.file("work/weir.yaml")).unwrap(),
        "# mine\n"
    );
    let (code, said) = run(&["import", "mcp.json", "--write", "weir.yaml", "--force"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("left out: url is not an http or https URL"),
        "{said}"
    );
    assert!(
        fs::read_to_string(home.0.file("work/weir.yaml"))
            .unwrap()
            .contains("  a:\n    command: npx\n")
    );
}

#[test]
fn import_keeps_other_servers_on_the_port_of_the_written_config() {
    let home = ClientFilesHome::new("port");
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": {
             "sse": { "url": "http://localhost:8080/sse" },
             "other": { "url": "http://127.0.0.1:8080/other/mcp" },
             "own": { "url": "http://localhost:8080/mcp/files?x=1" },
             "next": { "url": "http://localhost:8082/mcp" } } }"#,
    );
    home.write(
        "work/again.json",
        r#"{ "mcpServers": { "again": { "url": "http://localhost:8080/mcp/files?x=1" } } }"#,
    );
    let output = home.weir(&["import", "mcp.json", "again.json"], &[]);
    let (written, said) = (text(&output.stdout), said(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    for id in ["sse", "other", "next"] {
        assert!(written.contains(&format!("  {id}:\n    url: ")), "{said}");
    }
    assert!(!written.contains("8080/mcp"), "{written}");
    // The second file's entry is left out for the same reason as the first one's.
    assert_eq!(
        said.matches("leads to this weir itself").count(),
        2,
        "{said}"
    );
    assert!(!said.contains("is the same as"), "{said}");
    // 8081 is the port of the operators' listener.
    assert!(written.contains("listen: 127.0.0.1:8083\n"), "{written}");
    assert!(
        said.contains("listens on port 8083, because a server has port 8080"),
        "{said}"
    );
}

#[test]
fn a_key_that_weir_has_as_well_makes_check_point_at_import() {
    let home = ClientFilesHome::full("mixture");
    for (place, key, words) in [
        (
            ".gemini/settings.json",
            "\"general\"",
            "note: mcpServers: is used together with `telemetry`",
        ),
        (
            ".config/zed/settings.json",
            "\"theme\"",
            "error: context_servers: is used together with `telemetry`",
        ),
    ] {
        let file = home.0.file(&home.place(place));
        let text = fs::read_to_string(&file).unwrap().replacen(
            key,
            &format!("\"telemetry\": {{ \"enabled\": false }}, {key}"),
            1,
        );
        fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let output = home.weir(&["check", &file], &borrowed(&variables(&home)));
        let checked = said(&output);
        assert_eq!(output.status.code(), Some(2), "{checked}");
        assert!(
            checked.contains(words) && checked.contains("`weir import FILE` converts"),
            "{checked}"
        );
        let output = home.weir(&["import", &file], &[]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
}

#[test]
fn servers_in_the_settings_of_vs_code_are_found() {
    let home = ClientFilesHome::new("settings");
    home.write(
        "work/settings.json",
        "{ // mine\n \"editor.tabSize\": 2, \"mcp\": { \"servers\": { \"a\": { \"command\": \"npx\" } } } }",
    );
    let output = home.weir(&["import", "settings.json"], &[]);
    assert!(
        text(&output.stdout).contains("  # settings.json:2\n  a:\n    command: npx\n"),
        "{}",
        said(&output)
    );
    home.write(
        "work/settings.json",
        r#"{ "mcp": { "inputs": [{ "id": "key", "description": "The key of a" }],
             "servers": { "a": { "command": "npx", "env": { "KEY": "${input:key}" } } } } }"#,
    );
    let output = home.weir(&["import", "settings.json"], &[]);
    let said = said(&output);
    assert!(
        text(&output.stdout).contains("KEY: \"${WEIR_INPUT_KEY}\"")
            && said.contains("  WEIR_INPUT_KEY  The key of a"),
        "{said}"
    );
}

/// `mcp-remote` fills in such an argument itself. As a reference of weir's the variable would have
/// to be set where weir starts, and the header would stand in the list of processes.
#[test]
fn argument_that_names_a_variable_of_its_own_server_stays_as_written() {
    let home = ClientFilesHome::new("own-variable");
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": { "remote": { "command": "npx",
             "args": ["mcp-remote", "https://mcp.example/sse", "--header", "Authorization:${AUTH_HEADER}"],
             "env": { "AUTH_HEADER": "Bearer abc" } } } }"#,
    );
    let checked = home.weir(&["check", "mcp.json"], &[]);
    assert!(checked.status.success(), "{}", said(&checked));
    let imported = home.weir(&["import", "mcp.json"], &[]);
    let config = text(&imported.stdout);
    assert!(config.contains("Authorization:$${AUTH_HEADER}"), "{config}");
    assert!(
        config.contains("AUTH_HEADER: \"Bearer ${AUTH_HEADER}\""),
        "{config}"
    );
}

#[test]
fn value_of_another_kind_is_reported_by_import() {
    let home = ClientFilesHome::new("wrong-kind");
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": { "a": { "command": "node", "args": "server.js --port 1", "disabled": false } } }"#,
    );
    let imported = home.weir(&["import", "mcp.json"], &[]);
    let said = said(&imported);
    assert!(
        said.contains("mcpServers.a.args: is not kept: expected a list"),
        "{said}"
    );
    assert!(!said.contains("disabled"), "{said}");
}

#[test]
fn import_and_check_start_nothing() {
    let home = ClientFilesHome::new("start");
    let trace = home.0.file("started");
    let servers = format!(
        "{{ \"mcpServers\": {{ \"a\": {{ \"command\": \"/bin/sh\", \"args\": [\"-c\", \"touch {}\"] }} }} }}",
        trace.display()
    );
    home.write(".cursor/mcp.json", &servers);
    let output = home.weir(&["import"], &[]);
    assert!(
        said(&output).contains(&format!("/bin/sh -c 'touch {}'", trace.display())),
        "the command is shown"
    );
    let file = home.0.file(".cursor/mcp.json").display().to_string();
    assert_eq!(home.weir(&["check", &file], &[]).status.code(), Some(0));
    assert!(!trace.exists());
}

#[test]
fn two_servers_of_one_name_get_two_ids_and_the_same_one_is_taken_once() {
    let home = ClientFilesHome::new("names");
    home.write(
        ".cursor/mcp.json",
        r#"{ "mcpServers": { "git": { "command": "uvx", "args": ["mcp-server-git"] } } }"#,
    );
    home.write(
        ".gemini/settings.json",
        r#"{ "mcpServers": { "git": { "command": "git-mcp", "env": { "TOKEN": "canary-one-1" } },
             "Git 2": { "command": "uvx", "args": ["mcp-server-git"] } } }"#,
    );
    let output = home.weir(&["import"], &[]);
    let printed = text(&output.stdout);
    let listed = text(&output.stderr);
    assert!(
        printed.contains("  git:\n    command: uvx\n") && printed.contains("  git-gemini:\n"),
        "{printed}"
    );
    assert!(
        listed.contains("git, as `git-gemini`") && listed.contains("is the same as `git`, from"),
        "{listed}"
    );
    assert!(!said(&output).contains("git-2:"), "{printed}");
}

/// Runs a command with a credential in `TOKEN`; returns the exit code and the output.
fn run_with_token(home: &ClientFilesHome, arguments: &[&str]) -> (i32, String) {
    let output = home.weir(arguments, &[("TOKEN", "k-0001")]);
    (output.status.code().unwrap(), said(&output))
}

#[test]
fn init_writes_a_config_that_add_fills() {
    let home = ClientFilesHome::new("add");
    let run = |arguments: &[&str]| run_with_token(&home, arguments);
    let file = home.0.file("work/weir.yaml");
    let read = || fs::read_to_string(&file).unwrap();
    assert_eq!(run(&["init"]).0, 0);
    let first = read();
    let (code, said) = run(&["check", "weir.yaml"]);
    assert_eq!(
        (code, said.contains("no upstreams are configured")),
        (0, true),
        "{said}"
    );
    let (code, said) = run(&["init"]);
    assert_eq!(
        (code, said.contains("weir.yaml exists already")),
        (2, true),
        "{said}"
    );
    let (code, said) = run(&[
        "add",
        "files",
        "--env",
        "LEVEL=info",
        "--",
        "npx",
        "-y",
        "@x/server",
        "/srv/a b",
    ]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&[
        "add",
        "docs",
        "https://docs.example.com/mcp",
        "-H",
        "Authorization: Bearer ${TOKEN}",
    ]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&["check", "weir.yaml"]);
    assert_eq!(
        (code, said.contains("good, 2 upstreams")),
        (0, true),
        "{said}"
    );
    let now = read();
    for line in first.lines().filter(|line| *line != "upstreams: {}") {
        assert!(now.contains(line), "{line} is gone:\n{now}");
    }
    assert!(
        now.contains("    args: [-y, \"@x/server\", \"/srv/a b\"]\n"),
        "{now}"
    );
}

#[test]
fn add_refuses_faulty_upstreams_and_keeps_the_mode_of_the_file() {
    let home = ClientFilesHome::new("add-refused");
    let run = |arguments: &[&str]| run_with_token(&home, arguments);
    let file = home.0.file("work/weir.yaml");
    let read = || fs::read_to_string(&file).unwrap();
    assert_eq!(run(&["init"]).0, 0);
    assert_eq!(run(&["add", "docs", "http://x/mcp"]).0, 0);
    let now = read();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    for (arguments, words) in [
        (
            &["add", "docs", "http://x/mcp"][..],
            "already has an upstream `docs`",
        ),
        (
            &["add", "web", "ftp://x"],
            "upstreams.web.url: is not an http or https URL",
        ),
        (&["add", "My Files", "http://x/mcp"], "such as `my-files`"),
        (
            &["add", "web", "http://x/", "-H", "nothing"],
            "is not of the form",
        ),
    ] {
        let (code, said) = run(arguments);
        assert_eq!(
            (code, said.contains(words)),
            (2, true),
            "{arguments:?}: {said}"
        );
        assert_eq!(read(), now, "{arguments:?}");
    }
    let (code, said) = run(&[
        "add",
        "web",
        "http://127.0.0.1:1/",
        "-H",
        "X-Api-Key: k-12345678",
    ]);
    assert_eq!(
        (code, said.contains("a credential in the file")),
        (0, true),
        "{said}"
    );
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o640
    );
}

/// weir may run elsewhere, with an environment of its own.
#[test]
fn add_takes_variables_that_are_not_set_here() {
    let home = ClientFilesHome::new("add-unset");
    let run = |arguments: &[&str]| run_with_token(&home, arguments);
    let header = "Authorization: Bearer ${UNSET_HERE}";
    for arguments in [
        &["add", "web", "http://x/", "-H", header][..],
        &["add", "port", "http://127.0.0.1:${UNSET_HERE}/mcp"],
        &["add", "whole", "${UNSET_HERE}", "-H", header],
        &["add", "run", "--env", "A=${UNSET_HERE}", "--", "npx"],
    ] {
        let (code, said) = run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        assert_eq!(
            said.matches("UNSET_HERE is not set here").count(),
            1,
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("$${"), "{said}");
        assert!(said.contains("refuses it without UNSET_HERE"), "{said}");
    }
    let now = fs::read_to_string(home.0.file("work/weir.yaml")).unwrap();
    assert!(now.contains("\"Bearer ${UNSET_HERE}\""), "{now}");
    let (code, said) = run(&["check", "weir.yaml"]);
    assert!(
        code == 2 && said.contains("environment variable UNSET_HERE is not set"),
        "{said}"
    );
    let (code, said) = run(&["add", "set", "http://x/", "-H", "A: ${TOKEN}"]);
    assert!(code == 0 && !said.contains("not set here"), "{said}");
}

#[test]
fn add_creates_a_config_and_leaves_files_of_other_programs() {
    let home = ClientFilesHome::new("add-created");
    let run = |arguments: &[&str]| run_with_token(&home, arguments);
    let (code, _) = run(&["add", "one", "--config", "new.yaml", "--", "npx", "server"]);
    assert_eq!(code, 0);
    assert_eq!(run(&["check", "new.yaml"]).0, 0);
    // A word that YAML takes for another value than a string.
    let (code, said) = run(&["add", "null", "http://x/", "--config", "new.yaml"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(run(&["check", "new.yaml"]).0, 0);
    home.write(
        "work/mcp.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"npx\" } } }",
    );
    let (code, said) = run(&["add", "one", "--config", "mcp.json", "--", "npx", "server"]);
    assert_eq!(
        (
            code,
            said.contains("`weir import FILE --write weir.yaml` converts it")
        ),
        (2, true),
        "{said}"
    );
}

#[test]
fn folder_of_a_variable_that_is_not_set_is_imported() {
    let home = ClientFilesHome::new("unset-folder");
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": { "a": { "command": "npx", "cwd": "${workspaceFolder}/sub" },
             "b": { "command": "npx", "cwd": "${env:B_FOLDER}" },
             "c": { "command": "npx", "cwd": "/no/such/folder" } } }"#,
    );
    let imported = home.weir(&["import", "mcp.json"], &[]);
    let (config, said) = (text(&imported.stdout), said(&imported));
    assert!(
        config.contains("cwd: \"${WEIR_WORKSPACE_FOLDER}/sub\"")
            && config.contains("cwd: \"${B_FOLDER}\""),
        "{said}"
    );
    assert!(
        said.contains("  B_FOLDER  ") && said.contains("  WEIR_WORKSPACE_FOLDER  "),
        "{said}"
    );
    assert!(said.contains("left out: cwd is not a folder"), "{said}");
}

#[test]
fn credential_in_a_url_is_replaced_at_its_own_place() {
    let home = ClientFilesHome::new("url-place");
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": { "a": { "url": "https://demo.example.com/demo?api_key=demo&x=demo" },
             "b": { "command": "npx", "args": ["mcp-remote", "https://u.example/sse?key=u"] } } }"#,
    );
    let imported = home.weir(&["import", "mcp.json"], &[]);
    let config = text(&imported.stdout);
    for kept in [
        "https://demo.example.com/demo?api_key=${A_API_KEY}&x=demo",
        "https://u.example/sse?key=${B_KEY}",
    ] {
        assert!(config.contains(kept), "{config}");
    }
}

#[test]
fn no_credential_reaches_the_config_or_the_terminal() {
    let home = ClientFilesHome::new("secrets");
    let random = "9f86d081canary4c7d659a2feaa0c55ad015";
    let servers = format!(
        r#"{{ "mcpServers": {{
          "args": {{ "command": "npx", "args": ["--api-key", "canary1", "--token=canary2", "-e", "DB_PASSWORD=canary3",
            "--header", "Authorization: Bearer canary4", "postgres://me:canary5@db/x", "postgres://me:canary6@${{HOST}}/x",
            "https://x/mcp?access_token=canary7", "{random}"] }},
          "env": {{ "command": "npx", "env": {{ "A_KEY": "canary8", "PLAIN": "{random}", "URL": "redis://:canary9@${{HOST}}",
            "TOKEN": "${{MISSING:-canary10}}", "LEVEL": "${{LEVEL:-info}}", "B_TOKEN": "${{B_TOKEN:-canary11}}" }} }},
          "url": {{ "url": "https://x/s/{random}/mcp?key=canary12", "headers": {{ "X-Api-Key": "canary13", "Cookie": "a=canary14",
            "X-Other": "token canary15" }} }} }} }}"#
    );
    home.write("work/mcp.json", &servers);
    let output = home.weir(&["import", "mcp.json"], &[]);
    let printed = said(&output).replace(random, "canary");
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(!printed.contains("canary"), "{printed}");
    for kept in [
        "\"${LEVEL:-info}\"",
        "postgres://me:${ARGS_PASSWORD}@${HOST}/x",
        "\"token ${URL_X_OTHER}\"",
        "/s/***/mcp?key=***",
    ] {
        assert!(printed.contains(kept), "{kept} in:\n{printed}");
    }
}

#[test]
fn a_name_that_is_an_id_stays_and_another_name_makes_way() {
    let home = ClientFilesHome::new("own-ids");
    home.write(
        "work/mcp.json",
        "{ \"mcpServers\": { \"My Server!\": { \"command\": \"a\" }, \"my-server\": { \"command\": \"b\" } } }",
    );
    let output = home.weir(&["import", "mcp.json"], &[]);
    let config = String::from_utf8(output.stdout).unwrap();
    let at = |text: &str| {
        config
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {config}"))
    };
    assert!(
        at("my-server-2:") < at("command: a") && at("command: a") < at("my-server:"),
        "{config}"
    );
}

#[test]
fn servers_of_opencode_are_imported() {
    let home = ClientFilesHome::new("opencode");
    home.write(
        "work/opencode.json",
        r#"{
  "$schema": "https://opencode.ai/config.json",
  "theme": "opencode",
  // With comments.
  "mcp": {
    "every": { "type": "local", "command": ["npx", "-y", "server"], "environment": { "MODE": "all" }, "enabled": true },
    "away": { "type": "remote", "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer {env:AWAY_TOKEN}" } },
    "off": { "type": "local", "command": ["bun", "x"], "enabled": false },
  },
}"#,
    );
    let output = home.weir(&["import", "opencode.json"], &[]);
    let config = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for text in [
        "every:",
        "command: npx",
        "MODE: all",
        "url: https://mcp.example.com/mcp",
        "Bearer ${AWAY_TOKEN}",
    ] {
        assert!(config.contains(text), "{text}: {config}");
    }
    assert!(!config.contains("bun"), "{config}");
}

#[test]
fn credentials_in_command_lines_become_variables_or_are_named() {
    let home = ClientFilesHome::new("command-lines");
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": {
             "a": { "command": "bash", "args": ["-c", "GITHUB_TOKEN=canary-1 npx -y srv"] },
             "b": { "command": "bash", "args": ["-lc", "export API_KEY='canary 2'; exec node x.js --token canary-3"] },
             "c": { "command": "npx", "args": ["-y", "srv", "--token canary-4", "--config", "{\"apiKey\":\"canary-5\"}"] } } }"#,
    );
    let imported = home.weir(&["import", "mcp.json"], &[]);
    let (config, listing) = (text(&imported.stdout), said(&imported));
    for kept in [
        r#""GITHUB_TOKEN=${A_GITHUB_TOKEN} npx -y srv""#,
        r#""export API_KEY='${B_API_KEY}'; exec node x.js --token ${B_TOKEN}""#,
        r#""--token ${C_TOKEN}""#,
        r#""{\"apiKey\":\"${C_APIKEY}\"}""#,
    ] {
        assert!(config.contains(kept), "{kept}: {config}");
    }
    assert!(!listing.contains("canary"), "{listing}");
    assert!(
        listing.contains("The credentials that were found are not in the config."),
        "{listing}"
    );
    home.write(
        "work/mcp.json",
        r#"{ "mcpServers": { "a": { "command": "bash", "args": ["-c", "API_KEY=a\"canary\" npx -y srv"] } } }"#,
    );
    let imported = home.weir(&["import", "mcp.json"], &[]);
    assert!(text(&imported.stdout).contains("canary"));
    let listing = text(&imported.stderr);
    for part in [
        "argument 2 seems to hold a credential, `API_KEY`, which stays in the config",
        "Some arguments, named above, seem to hold credentials",
    ] {
        assert!(listing.contains(part), "{listing}");
    }
    assert!(
        !listing.contains("canary") && !listing.contains("are not in the config"),
        "{listing}"
    );
}
