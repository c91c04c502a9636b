//! `weir connect`: the entries that it writes into files of MCP clients are read back by
//! `weir import`, and the rest of the files stays.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weir_testkit::TestFolder;

const TWO: &str = "https://weir.example.com/mcp/two";
const URL: &str = "https://weir.example.com/mcp/files";

/// A client, the fixture of its file, and its place in a home folder.
const CLIENTS: [(&str, &str, &str); 8] = [
    (
        "claude-desktop",
        "claude_desktop_config.json",
        ".config/Claude/claude_desktop_config.json",
    ),
    ("claude-code", "claude.json", ".claude.json"),
    ("cursor", "cursor.json", ".cursor/mcp.json"),
    ("vscode", "vscode.json", ".config/Code/User/mcp.json"),
    ("gemini", "gemini.json", ".gemini/settings.json"),
    (
        "windsurf",
        "windsurf.json",
        ".codeium/windsurf/mcp_config.json",
    ),
    ("codex", "codex.toml", ".codex/config.toml"),
    ("zed", "zed.json", ".config/zed/settings.json"),
];

/// A home folder for a test.
struct ConnectHome(TestFolder);

impl ConnectHome {
    fn new(name: &str) -> Self {
        let home = TestFolder::new(name);
        fs::create_dir(home.file("work")).unwrap();
        Self(home)
    }

    fn file(&self, place: &str) -> PathBuf {
        let is_application = place.starts_with(".config/") && !place.starts_with(".config/zed");
        if cfg!(target_os = "macos") && is_application {
            return self
                .0
                .file(&place.replacen(".config", "Library/Application Support", 1));
        }
        self.0.file(place)
    }

    fn write(&self, place: &str, text: &str) -> PathBuf {
        let file = self.file(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    /// Runs weir in the folder `work`, with no variables but `HOME` and these.
    fn weir(&self, arguments: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(arguments)
            .current_dir(self.0.file("work"))
            .env_clear()
            .stdin(Stdio::null());
        CommandOutput::of(
            &command
                .env("HOME", self.0.path())
                .envs(variables.iter().copied())
                .output()
                .unwrap(),
        )
    }
}

#[derive(Debug)]
struct CommandOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

impl CommandOutput {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

fn fixture(name: &str) -> String {
    fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/clients")
            .join(name),
    )
    .unwrap()
}

#[test]
fn connect_writes_an_importable_entry_and_keeps_the_rest_of_the_file() {
    let home = ConnectHome::new("round");
    for (client, file, place) in CLIENTS {
        let before = fixture(file);
        let path = home.write(place, &before);
        for arguments in [
            &["connect", client, URL, "--write"][..],
            &["connect", client, TWO, "--write", "--name", "two", "--key"],
        ] {
            let said = home.weir(arguments, &[]);
            assert_eq!(said.code, Some(0), "{client}: {said:?}");
            assert!(
                said.out.contains(" + ") && !said.out.contains(" - "),
                "{client}: {said:?}"
            );
            assert!(!said.out.contains("canary"), "{client}: {said:?}");
        }
        let after = fs::read_to_string(&path).unwrap();
        // Every line is still there, comments too, but for a comma behind the former last entry.
        let bare = |line: &str| line.trim_end().trim_end_matches(',').to_owned();
        let mut lines = after.lines().map(bare);
        for line in before.lines().map(bare) {
            assert!(
                lines.any(|other| other == line),
                "{client}: `{line}` is gone:\n{after}"
            );
        }
        let imported = home.weir(&["import", client], &[]);
        assert_eq!(imported.code, Some(0), "{client}: {imported:?}");
        // weir itself is a bridge for Claude Desktop, so the URL is an argument there.
        for (name, url) in [("weir", URL), ("two", TWO)] {
            let entry = imported.out.split(&format!("\n  {name}:\n")).nth(1);
            let entry =
                entry.unwrap_or_else(|| panic!("{client}: no {name} in:\n{}", imported.out));
            let first = entry.lines().next().unwrap();
            let wanted = format!("    url: {url}");
            let bridged = entry.lines().nth(1) == Some(&format!("    args: [stdio, {url}]"));
            assert!(
                first == wanted || client == "claude-desktop" && bridged,
                "{client}: {entry}"
            );
        }
        let has_variables = !["claude-desktop", "zed"].contains(&client);
        let variable = if client == "vscode" {
            "${WEIR_INPUT_TWO_KEY}"
        } else {
            "${WEIR_TOKEN}"
        };
        let header = format!("      Authorization: \"Bearer {variable}\"");
        assert_eq!(
            imported.out.matches(&header).count(),
            usize::from(has_variables),
            "{client}:\n{}",
            imported.out
        );
        let again = home.weir(&["connect", client, URL, "--write"], &[]);
        assert_eq!(
            (again.code, again.out.contains("has this entry already")),
            (Some(0), true),
            "{client}: {again:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), after, "{client}");
    }
}

#[test]
fn connect_creates_a_missing_file_with_mode_0600_and_the_printed_text() {
    let home = ConnectHome::new("fresh");
    for (client, _, place) in CLIENTS {
        let printed = home.weir(&["connect", client, URL], &[]);
        assert_eq!(printed.code, Some(0), "{client}: {printed:?}");
        let path = home.file(place);
        assert!(
            !path.exists(),
            "{client}: nothing is written without --write"
        );
        assert!(
            printed.err.contains(&path.display().to_string()),
            "{client}: {printed:?}"
        );
        assert_eq!(
            home.weir(&["connect", client, URL, "--write"], &[]).code,
            Some(0),
            "{client}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), printed.out, "{client}");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600,
            "{client}"
        );
    }
}

#[test]
fn the_entries_are_those_of_the_clients_documentation() {
    let home = ConnectHome::new("entries");
    let printed = |client: &str, more: &[&str]| {
        let said = home.weir(&[&["connect", client, URL][..], more].concat(), &[]);
        assert_eq!(said.code, Some(0), "{said:?}");
        (said.out, said.err)
    };
    let json = |client: &str, more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&printed(client, more).0).unwrap()
    };
    let header =
        |reference: &str| serde_json::json!({ "Authorization": format!("Bearer {reference}") });
    let key = &["--key", "MY_KEY"][..];
    let server = json("claude-code", key);
    let wanted = serde_json::json!({ "type": "http", "url": URL, "headers": header("${MY_KEY}") });
    assert_eq!(server["mcpServers"]["weir"], wanted);
    let wanted = serde_json::json!({ "url": URL, "headers": header("${env:MY_KEY}") });
    assert_eq!(json("cursor", key)["mcpServers"]["weir"], wanted);
    let server = json("vscode", key);
    let wanted =
        serde_json::json!({ "type": "http", "url": URL, "headers": header("${input:weir-key}") });
    assert_eq!(server["servers"]["weir"], wanted);
    assert_eq!(server["inputs"][0]["id"], "weir-key");
    assert_eq!(server["inputs"][0]["password"], true);
    let wanted = serde_json::json!({ "httpUrl": URL, "headers": header("${MY_KEY}") });
    assert_eq!(json("gemini", key)["mcpServers"]["weir"], wanted);
    let wanted = serde_json::json!({ "serverUrl": URL, "headers": header("${env:MY_KEY}") });
    assert_eq!(json("windsurf", key)["mcpServers"]["weir"], wanted);
    assert_eq!(
        json("zed", &[])["context_servers"]["weir"],
        serde_json::json!({ "url": URL })
    );
    let desktop = &json("claude-desktop", &[])["mcpServers"]["weir"];
    assert_eq!(desktop["args"], serde_json::json!(["stdio", URL]));
    assert!(
        desktop["command"].as_str().unwrap().ends_with("weir"),
        "{desktop}"
    );
    let (codex, advice) = printed("codex", key);
    assert_eq!(
        codex,
        format!("[mcp_servers.weir]\nurl = \"{URL}\"\nbearer_token_env_var = \"MY_KEY\"\n")
    );
    assert!(
        advice.contains(&format!(
            "codex mcp add weir --url {URL} --bearer-token-env-var MY_KEY"
        )),
        "{advice}"
    );
    let (_, advice) = printed("claude-code", key);
    let command = format!(
        "claude mcp add --transport http weir {URL} --header 'Authorization: Bearer ${{MY_KEY}}'"
    );
    assert!(advice.contains(&command), "{advice}");
}

#[test]
fn a_stored_credential_is_written_when_it_is_asked_for_and_never_shown() {
    let home = ConnectHome::new("secret");
    let token = [("WEIR_TOKEN", "canary-0123456789")];
    for (client, file, place) in CLIENTS {
        let path = home.write(place, &fixture(file));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let said = home.weir(
            &["connect", client, URL, "--write", "--with-secret"],
            &token,
        );
        assert_eq!(said.code, Some(0), "{client}: {said:?}");
        assert!(
            !said.out.contains("canary") && !said.err.contains("canary"),
            "{client}: {said:?}"
        );
        assert!(
            said.err.contains("other users can read it"),
            "{client}: {said:?}"
        );
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text.matches("canary-0123456789").count(),
            1,
            "{client}:\n{text}"
        );
    }
    for (arguments, variables, words) in [
        (
            &["connect", "zed", URL, "--with-secret"][..],
            &[][..],
            "there is no credential for",
        ),
        (
            &[
                "connect",
                "zed",
                "http://weir.example.com/mcp",
                "--with-secret",
            ],
            &token,
            "neither https nor on this machine",
        ),
        (
            &["connect", "zed", URL, "--with-secret"],
            &[("WEIR_TOKEN", "a b")],
            "characters that are not allowed in a token",
        ),
    ] {
        let said = home.weir(arguments, variables);
        assert_eq!(
            (said.code, said.err.contains(words)),
            (Some(2), true),
            "{said:?}"
        );
    }
}

#[test]
fn a_config_says_the_url_and_whether_clients_send_keys() {
    let home = ConnectHome::new("config");
    let hash = "9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d659a2feaa0c55ad015";
    let text = format!(
        "public_url: https://tools.example.com\nupstreams: {{ a: {{ url: http://127.0.0.1:9/mcp }} }}\n\
         endpoints: {{ /mcp: {{ upstreams: [a] }}, /one: {{ upstream: a }} }}\n\
         auth: {{ mode: required, api_keys: [{{ id: k1, subject: ci, sha256: \"{hash}\" }}] }}\n"
    );
    home.write("work/weir.yaml", &text);
    let said = home.weir(&["connect", "cursor", "--config", "weir.yaml"], &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("\"https://tools.example.com/mcp\"")
            && said.out.contains("${env:WEIR_TOKEN}"),
        "{said:?}"
    );
    let said = home.weir(&["connect", "cursor"], &[("WEIR_CONFIG", "weir.yaml")]);
    assert!(
        said.out.contains("\"https://tools.example.com/mcp\""),
        "{said:?}"
    );
    let said = home.weir(&["connect", "cursor", URL], &[("WEIR_CONFIG", "weir.yaml")]);
    assert!(
        said.out.contains(&format!("\"{URL}\"")) && !said.out.contains("headers"),
        "{said:?}"
    );
    let said = home.weir(
        &[
            "connect",
            "codex",
            "--config",
            "weir.yaml",
            "--endpoint",
            "/one",
        ],
        &[],
    );
    assert!(
        said.out.contains("https://tools.example.com/one"),
        "{said:?}"
    );
    let said = home.weir(&["connect", "zed", "--config", "weir.yaml"], &[]);
    assert!(
        said.err.contains("files of Zed have no variables") && !said.err.contains("browser"),
        "{said:?}"
    );
    let said = home.weir(&["connect", "zed", URL], &[]);
    assert!(said.err.contains("Zed opens a browser"), "{said:?}");
    let said = home.weir(
        &[
            "connect",
            "codex",
            "--config",
            "weir.yaml",
            "--endpoint",
            "/two",
        ],
        &[],
    );
    assert_eq!(
        (
            said.code,
            said.err
                .contains("no such endpoint in the config; it has /mcp, /one")
        ),
        (Some(2), true),
        "{said:?}"
    );
    home.write("work/bad.yaml", "lisen: 1\n");
    let said = home.weir(&["connect", "codex", "--config", "bad.yaml"], &[]);
    assert_eq!(
        (said.code, said.err.contains("lisen")),
        (Some(2), true),
        "{said:?}"
    );
    home.write(
        "work/open.yaml",
        "listen: 0.0.0.0:9000\nauth: { mode: none, allow_anyone: true }\nupstreams: { a: { url: http://127.0.0.1:9/mcp } }\n",
    );
    let said = home.weir(&["connect", "cursor", "--config", "open.yaml"], &[]);
    assert!(
        said.out.contains("\"http://127.0.0.1:9000/mcp\"") && !said.out.contains("headers"),
        "{said:?}"
    );
}

#[test]
fn another_entry_of_the_name_is_replaced_by_force_alone() {
    let home = ConnectHome::new("force");
    for (client, text) in [
        (
            "cursor",
            "{\n  // mine\n  \"mcpServers\": {\n    \"weir\": { \"url\": \"http://old/\" } // old\n  }\n}\n",
        ),
        (
            "codex",
            "# mine\n[mcp_servers.weir] # old\nurl = \"http://old/\"\n[mcp_servers.weir.http_headers]\nX-A = \"b\"\n\n[tui]\na = 1\n",
        ),
    ] {
        let place = CLIENTS.iter().find(|(name, ..)| *name == client).unwrap().2;
        let path = home.write(place, text);
        let said = home.weir(&["connect", client, URL, "--write"], &[]);
        assert_eq!(
            (said.code, said.err.contains("replace it with --force")),
            (Some(2), true),
            "{said:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let said = home.weir(&["connect", client, URL, "--write", "--force"], &[]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.out.contains(" - ") && said.out.contains("http://old/"),
            "{said:?}"
        );
        let now = fs::read_to_string(&path).unwrap();
        assert!(
            now.contains("mine") && now.contains(URL) && !now.contains("http://old/"),
            "{now}"
        );
        assert_eq!(now.contains("[tui]\na = 1\n"), client == "codex", "{now}");
    }
}

#[test]
fn uneditable_file_prints_the_entry() {
    let home = ConnectHome::new("refuse");
    for (client, text, words) in [
        (
            "cursor",
            "{ \"mcpServers\": [] }",
            "is written in a way that weir does not edit",
        ),
        ("cursor", "{ \"mcpServers\": {", "fix it first"),
        (
            "codex",
            "mcp_servers = { other = { url = \"http://x/\" } }\n",
            "is written in a way that weir does not edit",
        ),
    ] {
        let path = home.write(
            CLIENTS.iter().find(|(name, ..)| *name == client).unwrap().2,
            text,
        );
        let said = home.weir(&["connect", client, URL, "--write"], &[]);
        assert_eq!(
            (said.code, said.err.contains(words)),
            (Some(2), true),
            "{said:?}"
        );
        assert!(said.out.contains(URL), "the entry is printed: {said:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    let project = home.weir(&["connect", "cursor", URL, "--write", "--project"], &[]);
    assert_eq!(project.code, Some(0), "{project:?}");
    assert!(home.0.file("work/.cursor/mcp.json").is_file());
    for (arguments, words) in [
        (
            &["connect", "windsurf", URL, "--write", "--project"][..],
            "Windsurf has no files of projects",
        ),
        (&["connect", "cursr", URL], "did you mean cursor?"),
        (&["connect", "--write"], "<CLIENT>"),
        (
            &["connect", URL],
            "name the client first, such as: weir connect cursor",
        ),
        (
            &["connect", "cursor", "ftp://x/"],
            "not an http or https URL",
        ),
        (
            &["connect", "cursor", "http://me:canary@x/mcp"],
            "the URL has a credential in it",
        ),
        (
            &["connect", "cursor", URL, "--name", "a b"],
            "use letters, digits",
        ),
        (
            &["connect", "cursor", URL, "--key", "1 2"],
            "not the name of an environment variable",
        ),
    ] {
        let said = home.weir(arguments, &[]);
        assert_eq!(
            (said.code, said.err.contains(words)),
            (Some(2), true),
            "{arguments:?}: {said:?}"
        );
    }
    let listed = home.weir(&["connect"], &[]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for (client, _, place) in CLIENTS {
        let file = home.file(place).display().to_string();
        assert!(
            listed
                .out
                .lines()
                .any(|line| line.starts_with(client) && line.ends_with(&file)),
            "{client}: {listed:?}"
        );
    }
    let usual = home.weir(&["connect", "cursor"], &[]);
    assert!(
        usual.out.contains("\"http://127.0.0.1:8080/mcp\""),
        "{usual:?}"
    );
}
