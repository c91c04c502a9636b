//! A typical server written with `rmcp`: a sum with structured output, a job that reports progress
//! and logs, a tool that adds a tool.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::PeerFlags;

#[derive(Clone)]
struct WorkshopServer {
    versions: &'static [ProtocolVersion],
    grown: Arc<AtomicBool>,
    changes: watch::Sender<u32>,
}

const MODERN: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];
const LEGACY: &[ProtocolVersion] = &[
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
];

/// Serves until the process is ended.
pub(crate) async fn serve(flags: &PeerFlags) -> anyhow::Result<()> {
    let versions = match flags.text("era", "legacy") {
        "modern" => MODERN,
        "legacy" => LEGACY,
        other => bail!("--era {other}: modern or legacy"),
    };
    let workshop = WorkshopServer {
        versions,
        grown: Arc::default(),
        changes: watch::Sender::new(0),
    };
    if flags.maybe("stdio").is_some() {
        workshop
            .serve(rmcp::transport::stdio())
            .await?
            .waiting()
            .await?;
        return Ok(());
    }
    over_http(move || workshop.clone()).await
}

/// Serves the handlers that `handler` makes for each session, or each request of a modern client,
/// until the process is ended.
pub(crate) async fn over_http<H: ServerHandler>(
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let service = TowerToHyperService::new(StreamableHttpService::new(
        move || Ok(handler()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default().with_legacy_session_mode(true),
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await.context("accept")?;
        let service = service.clone();
        tokio::spawn(async move {
            let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // A client that leaves is no error of this server's.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn schema(value: Value) -> Arc<JsonObject> {
    if let Value::Object(object) = value {
        Arc::new(object)
    } else {
        Arc::default()
    }
}

impl WorkshopServer {
    fn tools(&self) -> Vec<Tool> {
        let pair = json!({
            "type": "object", "required": ["a", "b"],
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } }
        });
        let mut sum = Tool::new("sum", "Adds two whole numbers", schema(pair));
        sum.output_schema = Some(schema(json!({
            "type": "object", "required": ["sum"], "properties": { "sum": { "type": "integer" } }
        })));
        let steps = json!({ "type": "object", "properties": { "steps": { "type": "integer" } } });
        let mut tools = vec![
            sum,
            Tool::new("saw", "Works in steps, telling of each", schema(steps)),
            Tool::new("grow", "Adds a tool", schema(json!({ "type": "object" }))),
        ];
        if self.grown.load(Ordering::SeqCst) {
            tools.push(Tool::new(
                "plane",
                "What `grow` added",
                schema(json!({ "type": "object" })),
            ));
        }
        tools
    }

    async fn saw(&self, steps: i64, context: &RequestContext<RoleServer>) -> CallToolResult {
        for step in 1..=steps {
            if context.ct.is_cancelled() {
                break;
            }
            if let Some(token) = context.meta.get_progress_token() {
                let note =
                    ProgressNotificationParam::new(token, step as f64).with_total(steps as f64);
                let _ = context.peer.notify_progress(note).await;
            }
            let log = LoggingMessageNotificationParam::new(
                LoggingLevel::Info,
                json!(format!("step {step}")),
            );
            let _ = context.peer.notify_logging_message(log).await;
            // Steps must take a while for a caller to be able to cancel between them.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        CallToolResult::success(vec![ContentBlock::text(format!("{steps} steps"))])
    }
}

impl ServerHandler for WorkshopServer {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.versions)
    }
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("workshop", "1.0.0"))
            .with_instructions("Saws and planes")
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult {
            tools: self.tools(),
            ..Default::default()
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let number = |name: &str| arguments.get(name).and_then(Value::as_i64);
        let result = match &*request.name {
            "sum" => {
                let (Some(a), Some(b)) = (number("a"), number("b")) else {
                    return Err(ErrorData::invalid_params(
                        "a and b must be whole numbers",
                        None,
                    ));
                };
                let mut result =
                    CallToolResult::success(vec![ContentBlock::text((a + b).to_string())]);
                result.structured_content = Some(json!({ "sum": a + b }));
                result
            }
            "saw" => self.saw(number("steps").unwrap_or(3), &context).await,
            "grow" => {
                self.grown.store(true, Ordering::SeqCst);
                self.changes.send_modify(|count| *count += 1);
                // In a legacy session the notification goes to this client's stream; a modern one
                // gets it by `listen`.
                let _ = context.peer.notify_tool_list_changed().await;
                CallToolResult::success(vec![ContentBlock::text("grown")])
            }
            "plane" if self.grown.load(Ordering::SeqCst) => {
                CallToolResult::success(vec![ContentBlock::text("smooth")])
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(result.into())
    }
}
