//! Authorization: rules, scopes and selection through the binary, and if `weir explain` agrees with
//! the answers to clients.

mod explain_command;
mod narrower_credentials;
mod scope_challenges;
mod visible_tools;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{ClientAnswer, MockServer, RawClient};

use crate::auth::api_key;
use crate::harness::Weir;

const RULES: &str = r#"
@id("writers") permit(principal in Group::"writers", action, resource);
@id("readers") permit(principal in Group::"readers", action, resource == Tool::"one/read");
@id("tmp-only") @reason("only /tmp may be written to")
forbid(principal, action == Action::"call", resource == Tool::"one/write")
unless { context.arguments.hasTag("/path") && context.arguments.getTag("/path") like "/tmp/*" };
"#;

/// weir over one server of five tools, with rules, for two machines with a key each.
pub struct WeirWithRules {
    pub upstream: MockServer,
    pub weir: Weir,
    pub config: Value,
    writer: KeyedMachine,
    reader: KeyedMachine,
}

/// A machine's key, and its id in the config.
pub struct KeyedMachine {
    pub key: String,
    pub id: String,
}

impl KeyedMachine {
    /// Returns a machine with its entry in the config.
    fn new(name: &str) -> (Self, Value) {
        let (key, mut entry) = api_key(name);
        entry["groups"] = json!([format!("{name}s")]);
        (
            Self {
                key,
                id: entry["id"].as_str().unwrap().to_owned(),
            },
            entry,
        )
    }

    /// Returns the caller's claims as `weir explain` takes them.
    pub fn claims(&self) -> String {
        json!({ "api_key": self.id }).to_string()
    }
}

impl WeirWithRules {
    /// Starts weir with further sections of the config.
    pub async fn with(more: Value) -> Self {
        let path = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
        let tools = ["read", "write", "hidden", "wipe", "strict"].map(|name| match name {
            "strict" => MockTool::new(name).with("inputSchema", path.clone()),
            _ => MockTool::new(name),
        });
        let upstream = tools
            .into_iter()
            .fold(MockServer::dual(), |server, tool| server.with(tool))
            .start()
            .await;
        let ((writer, one), (reader, other)) =
            (KeyedMachine::new("writer"), KeyedMachine::new("reader"));
        let mut config = json!({
            "auth": { "mode": "required", "api_keys": [one, other] },
            "upstreams": { "one": { "url": upstream.url(), "tools": { "wipe": { "scopes": ["admin"] } } } },
            "endpoints": { "/mcp": { "upstreams": ["one"], "tools": { "exclude": ["*hidden"] } } },
            "policy": { "inline": RULES },
        });
        for (section, value) in more.as_object().unwrap() {
            config[section] = value.clone();
        }
        let weir = Weir::with_config(config.clone());
        let office = Self {
            upstream,
            weir,
            config,
            writer,
            reader,
        };
        crate::harness::wait_until_async("the list", async || {
            (!office.listed(&office.writer).await.is_empty()).then_some(())
        })
        .await;
        office
    }

    pub fn machines(&self) -> [&KeyedMachine; 2] {
        [&self.writer, &self.reader]
    }

    pub fn client(&self, machine: &KeyedMachine) -> RawClient {
        RawClient::new(&self.weir.url("/mcp"))
            .with_header("x-api-key", &machine.key)
            .modern()
    }

    /// Returns the names in a machine's list.
    pub async fn listed(&self, machine: &KeyedMachine) -> Vec<String> {
        names(
            &self
                .client(machine)
                .ask("tools/list", json!({}))
                .await
                .unwrap(),
        )
    }
}

pub fn names(answer: &ClientAnswer) -> Vec<String> {
    let tools = answer.result()["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Reports if a call was made.
pub fn is_made(answer: &ClientAnswer) -> bool {
    answer.status.is_success()
        && answer.last().get("error").is_none()
        && answer.result()["isError"] != json!(true)
}
