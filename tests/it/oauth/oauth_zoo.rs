//! The authorization server as a process, and weir behind it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{ForeignServer, TestProcess, Weir, node_peer_command, wait_until};

/// The npm package `oidc-provider`; see tests/peers/node/idp.mjs.
pub struct OidcProvider {
    pub issuer: String,
    _process: TestProcess,
}

impl OidcProvider {
    /// Starts one with `ada` logged in.
    pub fn start() -> Self {
        let mut process = TestProcess::start(node_peer_command("idp.mjs"));
        Self {
            issuer: process.wait_for_line("listening "),
            _process: process,
        }
    }

    /// Changes its behaviour from now on.
    pub fn control(&self, change: &Value) {
        let (status, _) = self.ask(
            "POST",
            "/control",
            &["Content-Type: application/json"],
            &change.to_string(),
        );
        assert_eq!(status, 200);
    }

    /// Returns the count of an event: a name at the top, or a grant type.
    pub fn count(&self, what: &str) -> u64 {
        let (_, body) = self.ask("GET", "/control", &[], "");
        let seen: Value = serde_json::from_str(&body).unwrap();
        seen[what]
            .as_u64()
            .or(seen["grants"][what].as_u64())
            .unwrap_or_default()
    }

    /// Returns a token of the client `machine` for a resource.
    pub fn machine_token(&self, resource: &str, scope: &str) -> String {
        let form = format!("grant_type=client_credentials&resource={resource}&scope={scope}");
        // The credentials are machine:machine-secret.
        let headers = [
            "Content-Type: application/x-www-form-urlencoded",
            "Authorization: Basic bWFjaGluZTptYWNoaW5lLXNlY3JldA==",
        ];
        let (status, body) = self.ask("POST", "/token", &headers, &form);
        assert_eq!(status, 200, "{body}");
        let granted: Value = serde_json::from_str(&body).unwrap();
        granted["access_token"].as_str().unwrap().to_owned()
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let host = self.issuer.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        // HTTP/1.0: an answer without chunks.
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}

/// A zoo server behind weir, which accepts the tokens of an authorization server.
pub struct OauthZoo {
    pub idp: OidcProvider,
    pub weir: Weir,
}

impl OauthZoo {
    /// Starts all of it, and waits until the zoo's tools are listed.
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    /// Starts all of it with a change to weir's config.
    pub fn with(change: impl FnOnce(&mut Value)) -> Self {
        let idp = OidcProvider::start();
        let mut config = json!({
            "upstreams": { "zoo": ForeignServer::TypeScript1.as_child() },
            "endpoints": { "/mcp": { "upstreams": ["zoo"] } },
            "auth": { "mode": "oauth", "issuers": [{ "issuer": idp.issuer }] },
        });
        change(&mut config);
        let town = Self {
            idp,
            weir: Weir::with_config(config),
        };
        let token = town.idp.machine_token(&town.url(), "mcp");
        wait_until("the zoo to be listed", || {
            town.listed(&token).contains("zoo__draw").then_some(())
        });
        town
    }

    /// Returns the endpoint's URL, all that clients know.
    pub fn url(&self) -> String {
        self.weir.url("/mcp")
    }

    fn listed(&self, token: &str) -> String {
        let listed = weir(&["tools", &self.url(), "--json"])
            .env("WEIR_TOKEN", token)
            .output()
            .unwrap();
        // A list that lacks an upstream exits with 4.
        assert!(
            matches!(listed.status.code(), Some(0 | 4)),
            "{listed:?}\n{}",
            self.weir.process.output()
        );
        String::from_utf8(listed.stdout).unwrap()
    }
}

/// Returns the weir command line, without the logins of this machine.
pub fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::harness::weir_binary());
    command
        .args(arguments)
        .env_remove("WEIR_TOKEN")
        .env("XDG_STATE_HOME", "/nonexistent/state");
    command
}
