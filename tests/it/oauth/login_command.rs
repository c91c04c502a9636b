//! `weir login`, and the commands that use a login.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::json;
use weir_testkit::TestFolder;
use weir_wire::Revision;

use super::oauth_zoo::{OauthZoo, weir};
use crate::harness::{TestProcess, node_peer_command, peers_are_enabled, wait_until_async};
use crate::stdio::stdio_host::{self, StdioHost};

const CAT: &str = r#"{"animal":"cat"}"#;

/// A user with a state folder of their own.
struct LoginUser {
    state: TestFolder,
}

impl LoginUser {
    fn new(name: &str) -> Self {
        Self {
            state: TestFolder::new(name),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = weir(arguments);
        command.env("XDG_STATE_HOME", self.state.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs `weir login`, with a browser that follows its URL; returns the exit code and the
    /// output.
    fn login(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(&["login", "--no-browser"]);
        command.args(arguments);
        let mut process = TestProcess::start(command);
        let page = format!("http{}", process.wait_for_line("http"));
        let mut browser = node_peer_command("browser.mjs");
        let browsed = browser.arg(page).output().unwrap();
        assert!(browsed.status.success(), "{browsed:?}");
        (process.wait_for_exit(), process.final_output())
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

// Proves R241.
#[test]
fn a_login_is_kept_used_refreshed_and_ended() {
    if !peers_are_enabled() {
        return;
    }
    let (town, ada) = (OauthZoo::start(), LoginUser::new("ada"));
    let url = town.url();

    let stranger = ada.run(&["tools", &url]);
    assert_eq!(stranger.status.code(), Some(3));
    assert!(
        text(&stranger).contains(&format!("weir login {url}")),
        "{}",
        text(&stranger)
    );

    // The first token has expired already when it is used: weir refuses it, and the command gets
    // another.
    town.idp
        .control(&json!({ "stale": 1, "refresh": "offline" }));
    let (code, said) = ada.login(&[&url]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("logged in at {} for {url}", town.idp.issuer)),
        "{said}"
    );
    let file = ada.state.file("weir/tokens.json");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let called = ada.run(&["call", &url, "zoo__draw", CAT]);
    assert!(
        called.status.success() && text(&called).contains("A cat"),
        "{}",
        text(&called)
    );
    assert_eq!(town.idp.count("refresh_token"), 1);
    assert!(ada.run(&["tools", &url]).status.success());
    assert_eq!(
        town.idp.count("refresh_token"),
        1,
        "a token that is good is not refreshed"
    );

    // The token can be put into a client's file, and is not printed.
    let client = ada.state.file("mcp.json").display().to_string();
    let connected = ada.run(&[
        "connect",
        "cursor",
        &url,
        "--with-secret",
        "--write",
        "--file",
        &client,
    ]);
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let token = kept.as_object().unwrap().values().next().unwrap()["access_token"]
        .as_str()
        .unwrap();
    assert!(
        connected.status.success() && !text(&connected).contains(token),
        "{}",
        text(&connected)
    );
    assert!(
        std::fs::read_to_string(&client)
            .unwrap()
            .contains(&format!("\"Bearer {token}\""))
    );

    let out = ada.run(&["logout", &url]);
    assert!(
        out.status.success() && text(&out).contains("logged out"),
        "{}",
        text(&out)
    );
    assert!(
        !std::fs::read_to_string(&file)
            .unwrap()
            .contains("access_token")
    );
    assert_eq!(ada.run(&["tools", &url]).status.code(), Some(3));
}

/// A token that ends soon is refreshed before it is sent.
// Proves R267.
#[test]
fn a_token_is_refreshed_before_it_ends() {
    if !peers_are_enabled() {
        return;
    }
    let (town, ada) = (OauthZoo::start(), LoginUser::new("early"));
    town.idp.control(&json!({ "ttl": 5 }));
    let (code, said) = ada.login(&[&town.url()]);
    assert_eq!(code, Some(0), "{said}");
    town.idp.control(&json!({ "ttl": 600 }));
    assert!(ada.run(&["tools", &town.url()]).status.success());
    assert!(ada.run(&["tools", &town.url()]).status.success());
    assert_eq!(town.idp.count("refresh_token"), 1);
}

#[test]
fn denied_consent_is_no_login() {
    if !peers_are_enabled() {
        return;
    }
    let (town, nobody) = (OauthZoo::start(), LoginUser::new("nobody"));
    town.idp.control(&json!({ "user": "nobody" }));
    let (code, said) = nobody.login(&[&town.url()]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("access_denied: the user said no"), "{said}");
    assert!(said.contains("request other scopes with --scope"), "{said}");
    assert!(!nobody.state.file("weir/tokens.json").exists());
}

/// The refusal of a call names the login that it needs; the login keeps the earlier scopes.
// Proves R245, R266.
#[test]
fn login_can_be_extended_with_additional_scopes() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::with(|config| {
        config["endpoints"]["/mcp"]["scopes"] = json!(["mcp"]);
        config["endpoints"]["/mcp"]["tools"] =
            json!({ "scopes": { "zoo__weigh": ["tools:write"] } });
    });
    let (url, ada) = (town.url(), LoginUser::new("wide"));
    assert_eq!(ada.login(&[&url]).0, Some(0));
    let refused = ada.run(&["call", &url, "zoo__weigh", CAT]);
    assert_eq!(refused.status.code(), Some(3));
    let advice = text(&refused);
    assert!(
        advice.contains(&format!("weir login {url} --scope")) && advice.contains("tools:write"),
        "{advice}"
    );
    let (code, said) = ada.login(&[&url, "--scope", "tools:write"]);
    assert_eq!(code, Some(0), "{said}");
    let called = ada.run(&["call", &url, "zoo__weigh", CAT]);
    assert!(called.status.success(), "{}", text(&called));
}

/// `weir stdio` uses a login that comes later, refreshes a token that is refused, and explains how
/// to log in until then.
// Proves R241.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_standard_streams_uses_the_login() {
    if !peers_are_enabled() {
        return;
    }
    let (town, ada) = (OauthZoo::start(), LoginUser::new("stdio"));
    let url = town.url();
    let host = |revision| {
        let mut command = stdio_host::command(&[&url]);
        command.env("XDG_STATE_HOME", ada.state.path());
        StdioHost::spawn(revision, command)
    };
    let mut early = host(Revision::NEWEST_LEGACY);
    let refused = early.initialize().await;
    let message = refused["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("{refused}"));
    assert!(message.contains(&format!("weir login {url}")), "{message}");

    // The first token has expired already when it is used: weir refuses it, and gets another.
    town.idp.control(&json!({ "stale": 1 }));
    let (code, said) = ada.login(&[&url]);
    assert_eq!(code, Some(0), "{said}");
    for revision in [Revision::NEWEST_LEGACY, Revision::MODERN] {
        let mut host = host(revision);
        if !revision.is_modern() {
            assert!(host.initialize().await.get("result").is_some());
        }
        let drawn = host
            .ask(
                "tools/call",
                json!({ "name": "zoo__draw", "arguments": { "animal": "cat" } }),
            )
            .await;
        assert!(drawn["result"].to_string().contains("A cat"), "{drawn}");
        host.end_well().await;
    }
    assert_eq!(
        town.idp.count("refresh_token"),
        1,
        "a token that is good is not refreshed"
    );
    // The host that was started before the login.
    let early = &mut early;
    wait_until_async("the login to be used", async || {
        early
            .initialize()
            .await
            .get("result")
            .is_some()
            .then_some(())
    })
    .await;
    assert!(early.names().await.contains(&"zoo__draw".to_owned()));
}
