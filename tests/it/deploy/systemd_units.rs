//! The systemd units, checked by systemd, and the shell completions, run by the shell.

use std::process::Command;

use weir_testkit::TestFolder;

use super::{deploy_tool, read, run_checked, whole_output};
use crate::harness::{peers_are_enabled, weir_binary};

/// The highest score that systemd may give the service ("exposure", 0.0 to 10.0). The rest is the
/// network, and the needs of weir's child processes.
const EXPOSURE: f64 = 1.5;

/// Writes the units unchanged except for the path of the binary, because `verify` looks for it.
fn units() -> TestFolder {
    let folder = TestFolder::new("units");
    for unit in ["weir.service", "weir.socket"] {
        let text = read(&format!("deploy/systemd/{unit}"))
            .replace("/usr/local/bin/weir", &weir_binary().display().to_string());
        folder.write(unit, &text);
    }
    folder
}

#[test]
fn systemd_takes_the_units_and_finds_them_closed() {
    let folder = units();
    let service = folder.file("weir.service");
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&service)
        .arg(folder.file("weir.socket"))
        .output();
    let verified = verified
        .unwrap_or_else(|error| panic!("systemd-analyze (Debian package systemd): {error}"));
    assert!(
        verified.status.success() && whole_output(&verified).trim().is_empty(),
        "{}",
        whole_output(&verified)
    );
    let judged = run_checked(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(&service),
    );
    let last = judged
        .lines()
        .find(|line| line.contains("Overall exposure level"))
        .unwrap_or_else(|| panic!("{judged}"));
    let level: f64 = last
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{last}"));
    assert!(level <= EXPOSURE, "{last}");
}

/// systemd gives a dynamic user `/` as home folder, which `npx` and `uvx` cannot write to.
#[test]
fn home_of_child_processes_is_the_state_folder() {
    let unit = read("deploy/systemd/weir.service");
    let setting = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name));
    assert_eq!(setting("DynamicUser="), Some("yes"), "{unit}");
    let state = setting("StateDirectory=").expect("a state folder");
    let home = setting("Environment=HOME=");
    assert_eq!(home, Some(format!("/var/lib/{state}").as_str()), "{unit}");
}

#[test]
fn the_socket_is_where_the_default_config_listens() {
    let unit = read("deploy/systemd/weir.socket");
    assert!(
        unit.lines()
            .any(|line| line == "ListenStream=127.0.0.1:8080"),
        "{unit}"
    );
    assert!(
        unit.lines().any(|line| line == "Service=weir.service"),
        "{unit}"
    );
}

#[test]
fn hadolint_finds_nothing_in_the_dockerfile() {
    if peers_are_enabled() {
        let found = deploy_tool("hadolint")
            .arg(super::root().join("Dockerfile"))
            .output()
            .unwrap();
        assert!(
            found.status.success() && whole_output(&found).trim().is_empty(),
            "{}",
            whole_output(&found)
        );
    }
}

#[test]
fn completions_name_every_command_and_bash_completes_with_them() {
    let folder = TestFolder::new("completions");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run_checked(Command::new(weir_binary()).args(["completions", shell]));
        for command in ["serve", "check", "health", "completions", "explain"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(
            !script.contains("keeper"),
            "{shell} offers a hidden command"
        );
        folder.write(shell, &script);
    }
    // The shell's steps when a user types `weir he` and a tab.
    let asked = "source \"$1\"; COMP_WORDS=(weir he); COMP_CWORD=1; _weir weir he weir; echo \"${COMPREPLY[*]}\"";
    let completed = run_checked(
        Command::new("bash")
            .args(["-c", asked, "bash"])
            .arg(folder.file("bash")),
    );
    assert!(
        completed.split_whitespace().any(|word| word == "health"),
        "{completed}"
    );
}

// Proves R286.
#[test]
fn health_command_reports_alive_ready_and_gone() {
    let upstream = "upstreams: { a: { url: \"http://127.0.0.1:1/mcp\" } }";
    let folder = TestFolder::new("health");
    let file = folder.file("weir.yaml");
    let weir = crate::harness::Weir::with_upstreams(
        serde_json::json!({ "a": { "url": "http://127.0.0.1:1/mcp" } }),
    );
    let ask = |more: &[&str]| {
        Command::new(weir_binary())
            .arg("health")
            .args(more)
            .env_remove("WEIR_CONFIG")
            .output()
            .unwrap()
    };
    let admin = weir.admin_url();
    for (more, word) in [
        (&["--admin", &admin][..], "ready"),
        (&["--admin", &admin, "--alive"][..], "alive"),
    ] {
        let said = ask(more);
        assert_eq!(
            (said.status.code(), whole_output(&said).trim()),
            (Some(0), word)
        );
    }
    // By its config, as in a container: for every listen address the command asks on this machine,
    // even if the rest of the file has errors.
    let address = admin.trim_start_matches("http://127.0.0.1");
    for text in [
        format!("admin: {{ listen: \"0.0.0.0{address}\" }}\n{upstream}\n"),
        format!("admin: {{ listen: \"0.0.0.0{address}\" }}\nlisen: 1\n"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let said = ask(&["--config", file.to_str().unwrap()]);
        assert_eq!(
            said.status.code(),
            Some(0),
            "{text}: {}",
            whole_output(&said)
        );
    }
    drop(weir);
    let said = ask(&["--config", file.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(3), "{}", whole_output(&said));
    std::fs::write(&file, "admin: { listen: off }\n").unwrap();
    assert_eq!(
        ask(&["--config", file.to_str().unwrap()]).status.code(),
        Some(2)
    );
    let not_ready = crate::harness::Weir::start_unready(serde_json::json!({
        "upstreams": { "a": { "url": "http://127.0.0.1:1/mcp" } },
        "auth": { "mode": "oauth", "issuers": [{ "issuer": "http://127.0.0.1:1" }] },
    }));
    let said = ask(&["--admin", &not_ready.admin_url()]);
    assert_eq!(said.status.code(), Some(1), "{}", whole_output(&said));
    assert_eq!(
        ask(&["--admin", &not_ready.admin_url(), "--alive"])
            .status
            .code(),
        Some(0)
    );
}
