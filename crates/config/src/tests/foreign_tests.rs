//! Files of other programs, and their distinction from weir's own.

use proptest::prelude::*;
use weir_config_file::foreign::inputs::{InputSource, InputVariable};
use weir_config_file::local_host::is_local;
use weir_upstream::{SecretText, TransportSettings};

use super::*;

/// Returns the environment variables of a child process.
fn env(pairs: &[(&str, &str)]) -> Vec<(String, SecretText)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), SecretText::new(*value)))
        .collect()
}

/// Loads a file of a folder.
fn load_file(file: &std::path::Path) -> LoadOutcome {
    ConfigLoader::new(ConfigSource::File(file.to_owned()), &environment).load()
}

fn said(text: &str) -> String {
    load(text).report.to_string()
}

// Proves C01.
#[test]
fn mcp_client_config_listens_only_on_loopback() {
    for container in ["mcpServers", "servers", "context_servers", "mcp_servers"] {
        let config = good(&format!(
            r#"{{ "{container}": {{ "a": {{ "command": "npx" }} }}, "theme": "dark" }}"#
        ));
        assert!(is_local(config.front.listen), "{container}");
        assert!(
            config
                .admin
                .as_ref()
                .is_some_and(|admin| is_local(admin.listen)),
            "{container}"
        );
        assert!(
            !config.auth.required && config.waivers == Waivers::default(),
            "{container}"
        );
        assert_eq!(config.upstreams.len(), 1, "{container}");
    }
}

// Proves C01.
#[test]
fn a_misspelt_key_of_weir_is_an_error_beside_the_servers_of_another_program() {
    for key in [
        "auht",
        "Auth",
        "AUTH",
        "auths",
        "listne",
        "allowedHosts",
        "tsl",
        "polcy",
        "endpoint",
        "rate",
        "audti",
        "authentication",
        "policies",
        "tlsConfig",
    ] {
        for container in ["mcpServers", "servers"] {
            let text = format!(
                "{{ \"{container}\": {{ \"a\": {{ \"command\": \"npx\" }} }},\n\"{key}\": {{}} }}"
            );
            let outcome = load(&text);
            assert!(outcome.config.is_none(), "{text}");
            assert!(
                outcome
                    .report
                    .to_string()
                    .contains(&format!("weir.yaml:2: error: {key}: unknown key")),
                "{}",
                outcome.report
            );
        }
    }
}

#[test]
fn a_file_with_a_key_of_weir_is_its_own() {
    let both = r#"{ "context_servers": { "a": { "command": "npx" } }, "telemetry": {} }"#;
    assert!(
        said(both).contains("is used together with `telemetry`"),
        "{}",
        said(both)
    );
    assert!(
        said(both).contains("`weir import FILE` converts"),
        "{}",
        said(both)
    );
    let own = r#"{ "mcpServers": { "a": { "command": "npx" } }, "listen": "127.0.0.1:1", "theme": "dark" }"#;
    assert!(
        said(own).contains("error: theme: unknown key"),
        "{}",
        said(own)
    );
    // A YAML file is never foreign.
    let yaml = "mcpServers: { a: { command: npx } }\ntheme: dark\n";
    assert!(
        said(yaml).contains("weir.yaml:2: error: theme: unknown key"),
        "{}",
        said(yaml)
    );
    assert!(said("servers: { a: { command: npx } }\n").contains("error: servers: unknown key"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In a file of weir's own, every unknown key is an error.
    // Proves C01.
    #[test]
    fn an_unknown_key_in_a_file_of_weir_is_an_error(key in "[a-zA-Z_][a-zA-Z0-9_-]{0,14}", json in any::<bool>()) {
        prop_assume!(!weir_config_file::schema::keys().contains(&key));
        let servers = "\"mcpServers\": { \"a\": { \"command\": \"npx\" } }";
        let text = if json {
            format!("{{ \"listen\": \"127.0.0.1:1\", {servers}, \"{key}\": 1 }}")
        } else {
            format!("{servers}\n\"{key}\": 1\n")
        };
        let outcome = load(&text);
        prop_assert!(outcome.config.is_none(), "{}", text);
        prop_assert!(outcome.report.has_errors());
    }

    /// A key that is one edit away from a key of weir's never makes a file foreign.
    // Proves C01.
    #[test]
    fn one_edit_of_a_key_of_weir_is_an_error(n in 0_usize..100, at in 0_usize..20, letter in "[a-z]", edit in 0_u8..4) {
        let keys = weir_config_file::schema::keys();
        let mut key: Vec<char> = keys[n % keys.len()].chars().collect();
        let at = at % key.len();
        match edit {
            0 => { key.remove(at); }
            1 => key.insert(at, letter.chars().next().unwrap()),
            2 => key[at] = letter.chars().next().unwrap(),
            _ => key.swap(at, (at + 1).min(keys[n % keys.len()].len() - 1)),
        }
        let key: String = key.into_iter().collect();
        prop_assume!(!key.is_empty() && !["servers", "mcpServers"].contains(&key.as_str()));
        prop_assume!(keys[n % keys.len()] != "mcpServers");
        let text = format!("{{ \"servers\": {{ \"a\": {{ \"command\": \"npx\" }} }}, \"{key}\": {{}} }}");
        prop_assert!(load(&text).config.is_none(), "{}", text);
    }
}

#[test]
fn servers_in_each_programs_format_are_accepted() {
    let config = good(
        r#"{ "mcpServers": {
            "gemini": { "httpUrl": "http://x/gemini" },
            "windsurf": { "serverUrl": "http://x/windsurf", "headers": { "X-Count": 3 } },
            "claude": { "type": "sse", "url": "http://x/sse" },
            "numbers": { "command": "npx", "args": ["--port", 80, 1.5, true], "env": { "PORT": 80, "ON": true } },
            "zed": { "command": { "path": "uvx", "args": ["a"], "env": { "A": "b" } } },
            "codex": { "url": "http://x/codex", "bearer_token_env_var": "TOKEN", "env_http_headers": { "X-Port": "PORT" } },
            "both": { "httpUrl": "http://x/one", "url": "http://x/two" }
        } }"#,
    );
    let url = |id: &str| {
        let plan = config
            .upstreams
            .iter()
            .find(|plan| plan.settings.id.as_str() == id)
            .unwrap();
        let TransportSettings::Http(http) = &plan.settings.transport else {
            panic!("{id}")
        };
        (
            http.url.to_string(),
            http.headers
                .iter()
                .map(|(name, _)| name.to_string())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(url("gemini"), ("http://x/gemini".to_owned(), vec![]));
    assert_eq!(
        url("windsurf"),
        ("http://x/windsurf".to_owned(), vec!["x-count".to_owned()])
    );
    assert_eq!(
        url("codex"),
        (
            "http://x/codex".to_owned(),
            vec!["authorization".to_owned(), "x-port".to_owned()]
        )
    );
    assert_eq!(url("both").0, "http://x/one");
    let child = |id: &str| {
        let plan = config
            .upstreams
            .iter()
            .find(|plan| plan.settings.id.as_str() == id)
            .unwrap();
        let TransportSettings::Stdio(child) = &plan.settings.transport else {
            panic!("{id}")
        };
        (child.args.clone(), child.env.clone())
    };
    assert_eq!(child("numbers").0, ["--port", "80", "1.5", "true"]);
    assert_eq!(child("numbers").1, env(&[("PORT", "80"), ("ON", "true")]));
    assert_eq!(child("zed"), (vec!["a".to_owned()], env(&[("A", "b")])));
}

#[test]
fn references_of_other_programs_are_filled_in() {
    let folder = TestFolder::new("foreign-references");
    let file = folder.write(
        "x/.vscode/mcp.json",
        r#"{ "inputs": [{ "id": "port", "default": "99" }, { "id": "key", "password": true, "default": "no" }],
             "servers": {
               "a": { "command": "${workspaceFolder}${/}run", "args": ["${workspaceFolderBasename}", "${env:PORT}",
                      "${NOT_SET:-x}", "${input:port}", "$PORT"] },
               "b": { "command": "npx", "cwd": "sub", "args": ["${input:key}", "${input:none}"] } } }"#,
    );
    std::fs::create_dir_all(folder.file("x/sub")).unwrap();
    let outcome = load_file(&file);
    let said = outcome.report.to_string();
    assert!(
        said.contains("mcp.json:5: error: servers.b.args.0: `${input:key}` has no value"),
        "{said}"
    );
    assert!(
        said.contains("servers.b.args.1: no entry of `inputs` has the id `none`"),
        "{said}"
    );
    let answer = |input: &InputVariable| (input.id == "key").then(|| "typed".to_owned());
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace(", \"${input:none}\"", "");
    std::fs::write(&file, text).unwrap();
    let mut loader = ConfigLoader::new(ConfigSource::File(file.clone()), &environment)
        .with_inputs(InputSource::Prompt(&answer));
    let config = loader.load().config.unwrap();
    let child = |config: &Config, n: usize| {
        let TransportSettings::Stdio(child) = &config.upstreams[n].settings.transport else {
            panic!("no child")
        };
        (child.command.clone(), child.args.clone(), child.cwd.clone())
    };
    let project = folder.file("x");
    let (command, args, cwd) = child(&config, 0);
    assert_eq!(command, project.join("run").display().to_string());
    assert_eq!(args, ["x", "9000", "x", "99", "$PORT"]);
    assert_eq!(
        cwd,
        Some(project.clone()),
        "a project's program starts in the project"
    );
    assert_eq!(child(&config, 1).1, ["typed"]);
    assert_eq!(child(&config, 1).2, Some(project.join("sub")));
    // A reload does not prompt, and keeps the entered values.
    let config = loader.load().config.unwrap();
    assert_eq!(child(&config, 1).1, ["typed"]);
}

#[test]
fn a_file_of_variables_is_read_and_watched() {
    let folder = TestFolder::new("foreign-env-file");
    let file = folder.write(
        "mcp.json",
        "{ \"mcpServers\": { \"a\": { \"command\": \"npx\",\n\"envFile\": \"a.env\", \"env\": { \"A\": \"mine\" } } } }",
    );
    let variables = |outcome: &LoadOutcome| {
        let TransportSettings::Stdio(child) = &outcome.config.as_ref().unwrap().upstreams[0]
            .settings
            .transport
        else {
            panic!("no child")
        };
        child.env.clone()
    };
    let mut loader = ConfigLoader::new(ConfigSource::File(file), &environment);
    let said = loader.load().report.to_string();
    assert!(
        said.contains("mcp.json:2: error: mcpServers.a.envFile: ")
            && said.contains("cannot be read"),
        "{said}"
    );
    folder.write("a.env", "A=theirs\nB='${TOKEN}'\n");
    assert!(loader.is_stale());
    let wanted = env(&[("A", "mine"), ("B", "${TOKEN}")]);
    assert_eq!(
        variables(&loader.load()),
        wanted,
        "what the file says is no reference"
    );
    assert!(!loader.is_stale());
    folder.write("a.env", "A=1\n\nnothing\n");
    assert!(loader.is_stale());
    let said = loader.load().report.to_string();
    assert!(
        said.contains("a.env:3: error: a variable name is missing before `=`"),
        "{said}"
    );
}

#[test]
fn team_file_may_not_use_env_file_or_inputs() {
    let folder = TestFolder::new("foreign-team");
    let main = folder.write(
        "weir.yaml",
        "include: teams\nteams: { a: { hosts: [\"a:9000\", a], commands: yes, env: [PORT], paths: [/mcp/a*] } }\nupstreams: { x: { url: http://x/ } }\n",
    );
    folder.write("teams/x.env", "A=1\n");
    let team = |server: &str| {
        folder.write(
            "teams/a.json",
            &format!("{{ \"mcpServers\": {{ \"a\": {server} }} }}"),
        );
        load_file(&main).report.to_string()
    };
    for (server, words) in [
        (
            "{ \"command\": \"npx\", \"envFile\": \"x.env\" }",
            "mcpServers.a.envFile: is for the main file alone",
        ),
        (
            "{ \"url\": \"http://a/${workspaceFolder}\" }",
            "this reference is for the main file alone",
        ),
        (
            "{ \"url\": \"http://a/${input:x}\" }",
            "this reference is for the main file alone",
        ),
        (
            "{ \"url\": \"http://a/${env:TOKEN}\" }",
            "TOKEN is a variable that the main file does not grant",
        ),
        (
            "{ \"url\": \"http://a/${TOKEN:-x}\" }",
            "TOKEN is a variable that the main file does not grant",
        ),
        (
            "{ \"url\": \"http://a/${userHome}\" }",
            "HOME is a variable that the main file does not grant",
        ),
    ] {
        assert!(team(server).contains(words), "{server}: {}", team(server));
    }
    let good = team("{ \"httpUrl\": \"http://a:${env:PORT}/\" }");
    assert!(!good.contains("error"), "{good}");
}

#[test]
fn secrets_of_other_programs_are_in_no_message() {
    let text = r#"{ "mcpServers": {
        "a": { "url": "ftp://canary", "headers": { "X-Bad": "canary\ncanary", "Authorization": "Bearer canary" } },
        "b": { "command": "npx", "env": { "A=B": "canary", "TOKEN": "canary" }, "args": ["${env:NOT_SET}canary"] },
        "c": { "type": "ws", "url": "canary" } } }"#;
    let outcome = load(text);
    assert!(outcome.config.is_none());
    assert!(
        !outcome.report.to_string().contains("canary"),
        "{}",
        outcome.report
    );
}
