//! One pairing: an upstream of a revision, weir in front of it, and clients of a revision.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockServerBuilder, MockTool};
use weir_testkit::{MockBehaviour, MockServer, MockStdio, SseRelay};
use weir_wire::{LogLevel, Revision};

use crate::harness::{CheckedClient, WeirDeployment};

/// The transport between weir and the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairingTransport {
    Http,
    Stdio,
    /// HTTP+SSE, the transport of 2024-11-05.
    Sse,
}

/// The address part of an upstream's config.
pub struct PairingUpstreamConfig {
    pub config: Value,
    _relay: Option<SseRelay>,
}

impl PairingTransport {
    /// Returns the config of the upstream over this transport. Over standard streams a child relays
    /// the mock server, and over HTTP+SSE another server does.
    pub async fn reached(self, mock_server: &MockServer) -> PairingUpstreamConfig {
        match self {
            Self::Http => PairingUpstreamConfig {
                config: json!({ "url": mock_server.url() }),
                _relay: None,
            },
            Self::Stdio => {
                let (command, args) = MockStdio::relay(&mock_server.url()).command();
                PairingUpstreamConfig {
                    config: json!({ "command": command, "args": args }),
                    _relay: None,
                }
            }
            Self::Sse => {
                let relay = SseRelay::start(&mock_server.url()).await;
                PairingUpstreamConfig {
                    config: json!({ "url": relay.url() }),
                    _relay: Some(relay),
                }
            }
        }
    }

    /// Reports if all messages of a legacy server come on one stream that does not name the call of
    /// a message.
    pub fn is_single_stream(self) -> bool {
        matches!(self, Self::Stdio | Self::Sse)
    }
}

/// The revisions of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamEra {
    One(Revision),
    /// Both eras: over HTTP on one URL, over standard streams one in each process.
    BothEras,
}

impl UpstreamEra {
    /// Returns the revision that weir speaks to it for a client.
    pub fn revision_for(self, client: Revision) -> Revision {
        match self {
            Self::One(revision) => revision,
            Self::BothEras if client.is_modern() => Revision::MODERN,
            Self::BothEras => Revision::NEWEST_LEGACY,
        }
    }

    pub fn builder(self) -> MockServerBuilder {
        match self {
            Self::One(revision) if revision.is_modern() => MockServer::modern(),
            Self::One(revision) => MockServer::legacy(revision),
            Self::BothEras => MockServer::dual(),
        }
    }
}

pub struct ScenarioPairing {
    pub weir: WeirDeployment,
    pub mock_server: MockServer,
    /// The gate that its gated tools wait for.
    pub gate: CallGate,
    pub client: Revision,
    /// The revision that weir speaks to the upstream for this client.
    pub upstream: Revision,
    pub has_both_eras: bool,
    pub transport: PairingTransport,
    _reached: PairingUpstreamConfig,
}

/// A tool as people write them, with unknown keywords in its schema and a number that no double
/// holds.
pub const RICH: &str = r#"{"name":"rich","description":"d\u00e9j\u00e0 \"vu\"","inputSchema":{"type":"object","$comment":"kept","x-unknown":{"z":1,"a":12345678901234567890123},"properties":{"n":{"type":"integer","const":9007199254740993}},"if":{"required":["n"]},"then":{"title":"t"}},"_meta":{"com.example/key":[null,1.50]},"x-member":"stays"}"#;

/// The part that must be in a client's list byte for byte.
pub const RICH_SCHEMA: &str = r#""inputSchema":{"type":"object","$comment":"kept","x-unknown":{"z":1,"a":12345678901234567890123},"properties":{"n":{"type":"integer","const":9007199254740993}},"if":{"required":["n"]},"then":{"title":"t"}},"_meta":{"com.example/key":[null,1.50]},"x-member":"stays""#;

/// The number of tools that only fill pages.
pub const FILLERS: usize = 7;

impl ScenarioPairing {
    pub async fn start(client: Revision, server: UpstreamEra, transport: PairingTransport) -> Self {
        let gate = CallGate::new();
        let upstream = server.revision_for(client);
        let mock_server =
            mock_server(server.builder(), upstream, client.min(upstream), &gate).await;
        let reached = transport.reached(&mock_server).await;
        // The same server once more, with a shorter idle deadline.
        let mut hasty = reached.config.clone();
        hasty["deadlines"] = json!({ "idle": "3s" });
        let weir = WeirDeployment::start(json!({
            "upstreams": { "shop": reached.config, "hasty": hasty },
            "endpoints": {
                "/mcp": { "upstreams": ["shop"], "page": { "items": 4 } },
                "/shop": { "upstream": "shop" },
                "/hasty": { "upstream": "hasty" },
            },
            "limits": { "progress_interval": "0ms" },
            "change_window": "50ms",
        }))
        .await;
        let has_both_eras = server == UpstreamEra::BothEras;
        Self {
            weir,
            mock_server,
            gate,
            client,
            upstream,
            has_both_eras,
            transport,
            _reached: reached,
        }
    }

    /// Opens a client of the endpoint that renames.
    pub async fn client(&self) -> CheckedClient {
        CheckedClient::open(&self.weir.url("/mcp"), self.client).await
    }

    /// Opens a client of the transparent endpoint.
    pub async fn direct(&self) -> CheckedClient {
        CheckedClient::open(&self.weir.url("/shop"), self.client).await
    }

    /// Returns the resources that the upstream has subscribers of, sorted. Each replica subscribes
    /// for its own clients, so a resource may have several.
    pub fn subscribed_resources(&self, mock_server: &MockServer) -> Vec<String> {
        let mut all = mock_server.subscriptions();
        if self.weir.processes() > 1 {
            all.dedup();
        }
        all
    }

    /// Reports if both sides know structured content.
    pub fn is_structured(&self) -> bool {
        self.client.has_structured_content() && self.upstream.has_structured_content()
    }
}

async fn mock_server(
    builder: MockServerBuilder,
    revision: Revision,
    common: Revision,
    gate: &CallGate,
) -> MockServer {
    let strict = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let patient = (1..=5).flat_map(|n| {
        [
            AnswerStep::Wait(Duration::from_millis(650)),
            AnswerStep::Progress(n, 5),
        ]
    });
    builder
        .page_size(5)
        .with(MockTool::raw(RICH))
        .tool("content", MockBehaviour::result(content(common)))
        .tool("fails", MockBehaviour::result(failed()))
        .tool(
            "error",
            MockBehaviour::error(
                4242,
                "sold out",
                json!({ "left": 0, "big": 9_007_199_254_740_993_i64 }),
            ),
        )
        .with(MockTool::new("strict").with("inputSchema", strict))
        .with(listing(revision))
        .tool(
            "pings",
            MockBehaviour::steps([
                AnswerStep::Ask {
                    method: "ping",
                    params: json!({}),
                },
                AnswerStep::Answer,
            ]),
        )
        .tool("progress", MockBehaviour::progress(3))
        .tool(
            "log",
            MockBehaviour::log(&[LogLevel::Debug, LogLevel::Info, LogLevel::Error]),
        )
        .tool("chatty", MockBehaviour::unasked_log(LogLevel::Info))
        .tool(
            "patient",
            MockBehaviour::steps(patient.chain([AnswerStep::Echo])),
        )
        .tool("silent", MockBehaviour::hang())
        .tool("stuck", MockBehaviour::hang_after_progress())
        .tool("gated", MockBehaviour::gated_after_progress(gate))
        .tools(FILLERS)
        .with_library()
        .start()
        .await
}

/// Returns a tool whose result is a list, a form that only the newest revision has.
fn listing(revision: Revision) -> MockTool {
    let tool = MockTool::new("listing");
    if !revision.is_modern() {
        return tool;
    }
    let result = json!({ "content": [], "structuredContent": [1, 2] });
    tool.with(
        "outputSchema",
        json!({ "type": "array", "items": { "type": "integer" } }),
    )
    .does(MockBehaviour::result(result))
}

/// Returns a result with every type of content that both sides know, and unknown members.
pub fn content(common: Revision) -> Value {
    let mut blocks = vec![
        json!({ "type": "text", "text": "line\none \u{1F980} \u{2028}" }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }),
        json!({ "type": "resource", "resource": { "uri": "file:///a", "mimeType": "text/plain", "text": "in" } }),
        json!({ "type": "resource", "resource": { "uri": "file:///b", "blob": "aGk=" } }),
    ];
    if common.has_audio() {
        blocks.push(json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }));
    }
    if common.has_resource_link() {
        blocks.push(json!({ "type": "resource_link", "uri": "file:///c", "name": "c" }));
    }
    let mut result = json!({
        "content": blocks,
        "isError": false,
        "_meta": { "com.example/trace": { "deep": [1, null] } },
        "x-unknown": { "exact": 9_007_199_254_740_993_i64 },
    });
    if common.has_structured_content() {
        result["structuredContent"] =
            json!({ "n": 9_007_199_254_740_993_i64, "list": [], "nothing": null });
    }
    result
}

/// Returns a tool's own failure.
pub fn failed() -> Value {
    json!({
        "content": [{ "type": "text", "text": "the disk is full" }],
        "isError": true,
        "_meta": { "com.example/code": 7 },
    })
}
