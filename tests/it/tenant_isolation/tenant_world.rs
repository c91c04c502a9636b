//! One weir or several replicas, a server of each era behind them, and two tenants with a key each.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockTool;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Replicas, Weir, WeirDeployment};

/// A client revision of each era.
pub const BOTH: [Revision; 2] = [Revision::NEWEST_LEGACY, Revision::MODERN];

/// A principal.
pub struct Tenant {
    /// Its name, which is also the scope that its own tools take, and the start of their names.
    pub name: &'static str,
    key: &'static str,
    /// SHA-256 of the key, as the config has it.
    digest: &'static str,
    /// The text that it sends, and that no other client may ever get.
    pub canary: &'static str,
}

pub const TENANTS: [Tenant; 2] = [
    Tenant {
        name: "ada",
        key: "weir_ada_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG",
        digest: "8d165fba2a037a4702c4b349be99d78417883369d9588e873861b7d1d49f2080",
        canary: "PRIVATE-of-ada",
    },
    Tenant {
        name: "bob",
        key: "weir_bob_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG",
        digest: "bbf0578daa76a1ba63fabd38f17e0757b400aa876171eec931b94413789842b9",
        canary: "PRIVATE-of-bob",
    },
];

impl Tenant {
    /// Returns a client of its own.
    pub async fn client(&self, url: &str, revision: Revision) -> CheckedClient {
        CheckedClient::open_with_header(url, revision, self.header()).await
    }

    /// Returns the header with its key.
    pub fn header(&self) -> (&'static str, &'static str) {
        ("x-api-key", self.key)
    }

    /// Returns its key as the config has it.
    pub fn api_key(&self) -> Value {
        json!({ "id": self.name, "sha256": self.digest, "subject": self.name, "scopes": [self.name] })
    }

    /// Returns the other tenant.
    pub fn other(&self) -> &'static Self {
        TENANTS
            .iter()
            .find(|other| other.name != self.name)
            .unwrap()
    }

    /// Reports if it may see a tool, by its exposed name.
    pub fn sees(&self, tool: &str) -> bool {
        !tool.contains(self.other().name)
    }
}

pub struct TenantWorld {
    pub weir: WeirDeployment,
    pub old: MockServer,
    pub new: MockServer,
    /// Has prompts and resources, and makes tasks of calls.
    pub library: Arc<MockServer>,
}

/// The rules of access to the library; tools go by scopes.
const RULES: &str = r#"
    permit(principal, action, resource);
    forbid(principal, action, resource) when { principal.scopes.contains("ada") && resource.native like "memo:bob*" };
    forbid(principal, action, resource) when { principal.scopes.contains("bob") && resource.native like "memo:ada*" };
    forbid(principal, action, resource) when { principal.scopes.contains("ada") && resource.native like "ui:*" };
    forbid(principal, action, resource is Prompt) when { principal.scopes.contains("bob") && resource.native == "linked" };
"#;

impl TenantWorld {
    /// Starts one weir.
    pub async fn start() -> Self {
        // weir's output is kept in memory, and it would be millions of lines.
        let one = async |config| {
            let weir = Weir::with_log_filter(config, "warn");
            WeirDeployment::Single(Box::new(weir))
        };
        Self::with_deployment(one).await
    }

    /// Starts so many replicas. Each request of a client goes to another one than the one before.
    pub async fn start_replicated(count: usize) -> Self {
        let several = async |config| {
            let replicas = Replicas::start(count, config).await;
            WeirDeployment::Replicated(Box::new(replicas))
        };
        Self::with_deployment(several).await
    }

    async fn with_deployment(start: impl AsyncFnOnce(Value) -> WeirDeployment) -> Self {
        let old = MockServer::legacy(Revision::NEWEST_LEGACY).start().await;
        let new = MockServer::modern().start().await;
        let library = Arc::new(
            MockServer::modern()
                .with_library()
                .with_tasks()
                .start()
                .await,
        );
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        let form = json!({ "message": "Who are you?", "requestedSchema": schema });
        let question = json!({ "q": { "method": "elicitation/create", "params": form } });
        let asks = [
            MockBehaviour::ask("elicitation/create", form),
            MockBehaviour::input_required(question, Some("its own")),
        ];
        for (upstream, ask) in [&old, &new].into_iter().zip(asks) {
            upstream.set_tools(
                tools(&[])
                    .into_iter()
                    .chain([MockTool::new("ask").does(ask)]),
            );
        }
        let config = json!({
            "upstreams": { "old": { "url": old.url() }, "new": { "url": new.url() }, "library": { "url": library.url() } },
            "policy": { "inline": RULES },
            "endpoints": { "/mcp": {
                "upstreams": ["old", "new", "library"],
                "page": { "items": 2 },
                "tools": { "scopes": { "*ada*": ["ada"], "*bob*": ["bob"] } },
            } },
            "auth": { "mode": "required", "api_keys": TENANTS.each_ref().map(Tenant::api_key) },
            "limits": { "sessions_per_principal": 1000, "streams_per_principal": 1000, "progress_interval": "0ms" },
        });
        Self {
            weir: start(config).await,
            old,
            new,
            library,
        }
    }

    pub fn url(&self) -> String {
        self.weir.url("/mcp")
    }

    /// Adds tools to the modern server.
    pub fn set_more_tools(&self, more: &[&str]) {
        self.new.set_tools(tools(more));
        self.new.notify_list_changed();
    }

    /// Asserts that no session of a server ever carried texts of both tenants.
    pub fn check_sessions(&self, upstream: &MockServer) {
        let mut owners = std::collections::HashMap::new();
        for request in upstream.requests_of("tools/call") {
            let Some(session) = request.session() else {
                continue;
            };
            let body = request.message.to_string();
            let tenant = TENANTS
                .iter()
                .find(|tenant| body.contains(tenant.canary))
                .map(|tenant| tenant.name);
            let owner = owners.entry(session.to_owned()).or_insert(tenant);
            assert_eq!(
                *owner,
                tenant,
                "R277: a session of {} is shared",
                upstream.url()
            );
        }
    }
}

/// Returns a tool for all, one of each tenant, and these.
fn tools(more: &[&str]) -> Vec<MockTool> {
    let named = ["echo", "ada_tool", "bob_tool"]
        .into_iter()
        .chain(more.iter().copied());
    named
        .map(|name| MockTool::new(name).does(MockBehaviour::progress(1)))
        .collect()
}

/// Returns every text of an answer, to be searched.
pub fn everything(messages: &[Value]) -> String {
    messages.iter().map(Value::to_string).collect()
}
