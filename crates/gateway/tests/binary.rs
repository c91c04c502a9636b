//! The commands of the binary that run no gateway: help, check, schema, keys, and starts that fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn weir(arguments: &[&str]) -> Output {
    weir_with(arguments, &[])
}

/// Runs weir with these variables.
fn weir_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(arguments)
        .env_remove("WEIR_ADDRESS_FILE")
        .env_remove("WEIR_CONFIG")
        .env_remove("WEIR_ADMIN")
        .env_remove("WEIR_TOKEN")
        .env_remove("RUST_LOG")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A file with this text, removed on drop.
struct TestConfigFile(PathBuf);

impl TestConfigFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}.yaml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TestConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn help_lists_every_user_command() {
    let help = out(&weir(&["--help"]));
    for command in [
        "serve",
        "stdio",
        "check",
        "quickstart",
        "tools",
        "describe",
        "call",
        "prompts",
        "resources",
        "schema",
        "keygen",
    ] {
        assert!(
            help.lines()
                .any(|line| line.trim_start().starts_with(command)),
            "{command} in:\n{help}"
        );
    }
    assert!(
        !help.contains("docs"),
        "made for the project, not for users"
    );
    let call = out(&weir(&["call", "--help"]));
    assert!(
        call.contains("WEIR_TOKEN") && call.contains("exits with 1"),
        "{call}"
    );
    assert_eq!(
        out(&weir(&["--version"])).trim(),
        format!("weir {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn empty_variable_counts_as_unset() {
    let nowhere = "http://127.0.0.1:1";
    for (variable, arguments) in [
        ("WEIR_CONFIG", &["check"][..]),
        ("WEIR_CONFIG", &["stdio"]),
        ("WEIR_CONFIG", &["health", "--admin", nowhere]),
        ("WEIR_ADMIN", &["health", "--config", "/nowhere/weir.yaml"]),
        ("WEIR_ADDRESS_FILE", &["health", "--admin", nowhere]),
        ("WEIR_ADDRESS_FILE", &["serve", "/nowhere/weir.yaml"]),
        ("WEIR_TOKEN", &["tools", nowhere]),
        ("WEIR_AUDIT_KEYS", &["audit", "verify", "/nowhere/audit"]),
    ] {
        let empty = weir_with(arguments, &[(variable, "")]);
        let unset = weir(arguments);
        assert_eq!(err(&empty), err(&unset), "{variable}");
        assert_eq!(empty.status, unset.status, "{variable}");
    }
}

#[test]
fn config_that_is_named_twice_is_refused() {
    let (one, other) = ("/nowhere/one.yaml", "/nowhere/other.yaml");
    for command in ["serve", "check", "doctor", "init", "stdio"] {
        let output = weir(&[command, one, "--config", other]);
        let text = err(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(text.contains("name the config once"), "{command}: {text}");
        // An argument comes before the variable.
        let output = weir_with(&[command, one], &[("WEIR_CONFIG", other)]);
        let text = err(&output) + &out(&output);
        assert!(
            text.contains(one) && !text.contains(other),
            "{command}: {text}"
        );
    }
}

#[test]
fn every_command_is_in_the_page_of_commands() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    let help = out(&weir(&["--help"]));
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  "));
    let names: Vec<&str> = commands
        .filter_map(|line| {
            line.get(2..)?
                .split(' ')
                .next()
                .filter(|name| !name.is_empty())
        })
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(
            page.contains(&format!("`weir {name}`")),
            "docs/cli.md lacks {name}"
        );
    }
    for code in 0..=5 {
        assert!(
            page.contains(&format!("\n| {code} | ")),
            "docs/cli.md lacks exit code {code}"
        );
    }
}

#[test]
fn check_prints_everything_and_exits_with_2() {
    let bad = TestConfigFile::new("check-bad", "lisen: 1\nupstreams:\n  a: { url: ftp://x }\n");
    let output = weir(&["check", bad.path()]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "{file}:1: error: lisen: unknown key (did you mean `listen`?)\n\
         {file}:3: error: upstreams.a.url: is not an http or https URL (write http://host:port/mcp)\n",
        file = bad.path()
    );
    assert_eq!(out(&output), expected);
    let good = TestConfigFile::new(
        "check-good",
        "upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }\n",
    );
    let output = weir(&["check", good.path()]);
    assert!(output.status.success());
    assert_eq!(
        out(&output),
        format!("{}: good, 1 upstream and 2 endpoints\n", good.path())
    );
}

#[test]
fn check_refuses_audit_files_that_a_start_refuses() {
    let foreign = TestConfigFile::new("check-foreign", "a file of another program\n");
    let refusals = TestConfigFile::new("check-audit", "");
    std::fs::remove_file(refusals.path()).unwrap();
    let beside = format!("{}.refusals", refusals.path());
    std::fs::write(&beside, "also foreign\n").unwrap();
    for (named, refused) in [
        (foreign.path(), foreign.path()),
        (refusals.path(), beside.as_str()),
    ] {
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\naudit: {{ file: {{ path: {named} }} }}\nupstreams: {{}}\n"
        );
        let config = TestConfigFile::new("check-audit-config", &text);
        let before = std::fs::read(refused).unwrap();
        let checked = weir(&["check", config.path()]);
        let said = out(&checked);
        assert_eq!(checked.status.code(), Some(1), "{said}");
        let expected = format!("error: audit.file.path: audit records cannot be kept in {refused}");
        assert!(said.contains(&expected), "{said}");
        assert!(!said.contains("good"), "{said}");
        assert_eq!(std::fs::read(refused).unwrap(), before);
        let started = weir(&["serve", "--config", config.path()]);
        assert!(!started.status.success());
        assert!(err(&started).contains(refused), "{}", err(&started));
    }
    std::fs::remove_file(&beside).unwrap();
    // An absent file is no error, and is not made.
    let absent = refusals.path();
    let text = format!("audit: {{ file: {{ path: {absent} }} }}\nupstreams: {{}}\n");
    let config = TestConfigFile::new("check-audit-config", &text);
    std::fs::remove_file(absent).ok();
    let checked = weir(&["check", config.path()]);
    assert!(checked.status.success(), "{}", out(&checked));
    assert!(!std::path::Path::new(absent).exists());
}

#[test]
fn the_schema_is_the_checked_in_one() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");
    assert_eq!(
        out(&weir(&["schema"])),
        std::fs::read_to_string(file).unwrap()
    );
}

// Proves G05.
#[test]
fn a_start_that_cannot_be_fails_with_a_clear_text() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let upstream = "upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }";
    let table = [
        ("yaml", "listen: [1\n".to_owned(), 2, "not valid YAML"),
        (
            "unset",
            "upstreams: { a: { url: \"${WEIR_TEST_UNSET}\" } }\n".to_owned(),
            2,
            "WEIR_TEST_UNSET is not set",
        ),
        (
            "open",
            format!("listen: 0.0.0.0:0\n{upstream}\n"),
            2,
            "every client that reaches 0.0.0.0:0",
        ),
        ("empty", String::new(), 2, "the file is empty"),
        (
            "comment",
            "# upstreams: {}\n---\n".to_owned(),
            2,
            "the file is empty",
        ),
        ("braces", "{}\n".to_owned(), 2, "the file is empty"),
        (
            "null",
            format!("{upstream}\nauth:\n"),
            2,
            "auth: has no value",
        ),
        (
            "rules",
            format!("{upstream}\npolicy: {{ inline: \"\" }}\n"),
            2,
            "policy.inline: has no rule",
        ),
        (
            "key",
            format!("keys: [{{ id: 1, secret: changeme }}]\n{upstream}\n"),
            2,
            "keys.0.secret",
        ),
        (
            "port",
            format!("listen: {address}\nadmin: {{ listen: off }}\n{upstream}\n"),
            1,
            "another program has this port",
        ),
        (
            "admin",
            format!("listen: 127.0.0.1:0\nadmin: {{ listen: \"{address}\" }}\n{upstream}\n"),
            1,
            "for operators: ",
        ),
        (
            "away",
            format!("listen: 192.0.2.1:1\nauth: {{ allow_anyone: true }}\n{upstream}\n"),
            1,
            "does not have that address",
        ),
    ];
    for (name, text, code, words) in table {
        let config = TestConfigFile::new(&format!("start-{name}"), &text);
        let output = weir(&["serve", "--config", config.path()]);
        assert_eq!(output.status.code(), Some(code), "{name}: {}", err(&output));
        assert!(err(&output).contains(words), "{name}: {}", err(&output));
    }
    let output = weir(&["serve", "--config", "/nowhere/weir.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("/nowhere/weir.yaml: error: cannot be read"),
        "{}",
        err(&output)
    );
    assert_eq!(
        weir(&["serve"]).status.code(),
        Some(2),
        "no config is no start"
    );
}

/// The quickstart has no config in which a user could write `auth`.
#[test]
fn quickstart_listens_on_this_machine_only() {
    let output = weir(&["quickstart", "--listen", "0.0.0.0:0"]);
    let said = err(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("addresses of this machine only, such as 127.0.0.1:8080"),
        "{said}"
    );
}

/// A wrong value is found before weir is asked.
#[test]
fn admin_options_are_checked_by_the_command() {
    for (arguments, option) in [
        (["admin", "disable", "desk", "--ttl", "5x"], "--ttl"),
        (["admin", "disable", "desk", "--ttl", "0s"], "--ttl"),
        (["admin", "drain", "desk", "--ttl", "30"], "--ttl"),
        (
            ["admin", "catalog", "--endpoint=/mcp", "--kind", "foo"],
            "--kind",
        ),
    ] {
        let output = weir(&arguments);
        let said = err(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(option), "{arguments:?}: {said}");
    }
    for ttl in ["500ms", "30 m", "12h"] {
        let arguments = ["admin", "disable", "desk", "--ttl", ttl];
        let output = weir(&[&arguments[..], &["--admin", "http://127.0.0.1:1"]].concat());
        assert_eq!(output.status.code(), Some(3), "{ttl}: {}", err(&output));
    }
}

/// A filter without a level must not pass `weir check` and then silence the log.
#[test]
fn a_misspelt_log_level_is_an_error_wherever_it_is_given() {
    let upstream = "upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }\n";
    let good = TestConfigFile::new("level-good", upstream);
    let bad = TestConfigFile::new("level-bad", &format!("{upstream}log: {{ level: inof }}\n"));
    for arguments in [
        ["check", bad.path()].as_slice(),
        &["serve", "--config", bad.path()],
        &["serve", "--config", good.path(), "--log", "inof"],
        &["check", good.path(), "--log", "info,weir_upstream=inof"],
        &["quickstart", "--log", "inof"],
    ] {
        let output = weir(arguments);
        let said = out(&output) + &err(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains("`inof` is not a log level, did you mean `info`?"),
            "{said}"
        );
        assert!(
            said.contains("Levels are trace, debug, info, warn, error, off"),
            "{said}"
        );
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command
        .args(["serve", "--config", good.path()])
        .env("RUST_LOG", "inof")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("RUST_LOG: `inof` is not a log level"),
        "{}",
        err(&output)
    );
}

/// Every command with a config takes it in the same ways.
#[test]
fn a_config_is_an_argument_an_option_or_a_variable() {
    let good = TestConfigFile::new(
        "named",
        "upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }\nadmin: { listen: off }\n",
    );
    for arguments in [
        ["check", good.path()].as_slice(),
        &["check", "--config", good.path()],
        &["check", "-c", good.path()],
    ] {
        assert!(
            out(&weir(arguments)).contains("good, 1 upstream and 2 endpoints"),
            "{arguments:?}"
        );
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command
        .arg("check")
        .env("WEIR_CONFIG", good.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    for arguments in [
        ["admin", "upstreams", "-c", good.path()].as_slice(),
        &["health", "--config", good.path()],
    ] {
        let output = weir(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(
            err(&output).contains("no listener for operators"),
            "{}",
            err(&output)
        );
    }
    // The `--admin` option wins over a config in the environment.
    let closed = weir_testkit::ClosedPort::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["health", "--admin", &format!("http://{}", closed.address())])
        .env("WEIR_CONFIG", good.path());
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    let alone = weir(&["explain", "--config", good.path(), "--tool", "a__x"]);
    assert!(
        out(&alone).contains("From the config alone"),
        "{}",
        err(&alone)
    );
}

/// A reader that closes the pipe causes neither a panic nor an error; a full disk is an error.
#[test]
fn closed_stdout_pipe_ends_a_command_quietly_and_a_full_disk_is_an_error() {
    for command in ["schema", "completions bash", "--help", "docs metrics"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"));
        let mut child = child
            .args(command.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        assert_eq!(err(&output), "", "{command}");
    }
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command
        .arg("schema")
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(
        err(&output).starts_with("weir: standard output cannot be written: No space left"),
        "{}",
        err(&output)
    );
}

#[test]
fn client_commands_fail_with_a_clear_text() {
    let closed = weir_testkit::ClosedPort::new();
    let nobody = format!("http://{}/mcp", closed.address());
    let operators = format!("http://{}", closed.address());
    let table: [(&[&str], i32, &str); 10] = [
        (&["tools", &nobody], 3, "connection refused by"),
        (
            &["prompts", &nobody],
            3,
            "start the server there, or correct the URL",
        ),
        (
            &["call", &nobody, "x", "hello"],
            2,
            "`hello` is not an argument: write KEY=VALUE",
        ),
        (
            &["admin", "--admin", &operators, "upstreams"],
            3,
            "no admin listener of weir answers",
        ),
        (
            &["health", "--admin", &operators],
            3,
            "--admin URL names it",
        ),
        (
            &["explain", "--admin", &operators, "--tool", "x"],
            3,
            "no admin listener of weir answers",
        ),
        (
            &["tools", "http://no-such-host.invalid/mcp"],
            3,
            "has no address (DNS)",
        ),
        (&["call", &nobody, "x", "{}"], 3, "cannot reach"),
        (&["call", &nobody, "x", "[1]"], 2, "arguments are an object"),
        (&["tools", "nonsense"], 2, "is not an http or https URL"),
    ];
    for (arguments, code, words) in table {
        let output = weir(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            err(&output)
        );
        assert!(
            err(&output).contains(words),
            "{arguments:?}: {}",
            err(&output)
        );
        assert_eq!(
            err(&output).lines().count(),
            1,
            "one line: {}",
            err(&output)
        );
    }
}
