//! The client driver on `rmcp`.

mod library_scenario;
mod question_answers;
mod task_scenario;

use std::time::Duration;

use anyhow::{Context as _, bail};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, NumberOrString,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, Request, RequestMetaObject,
    SubscriptionFilter,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::PeerFlags;

/// The number of notifications kept until a scenario looks at them: more than any of them causes.
/// Later ones are dropped, so that the scenario fails.
const MOST_HEARD: usize = 4096;
/// The time that a handler of a notification may need after the result of its call.
const HANDLER_TIME: Duration = Duration::from_secs(10);

type ConnectedClient = RunningService<RoleClient, PrintingHandler>;

/// Runs one scenario.
pub(crate) async fn run(words: &[String], flags: &PeerFlags) -> anyhow::Result<()> {
    let [url, scenario, rest @ ..] = words else {
        bail!("client URL SCENARIO [TOOL] [JSON]")
    };
    let tool = rest.first().map_or("", String::as_str);
    let arguments: Value =
        serde_json::from_str(rest.get(1).map_or("{}", String::as_str)).context("arguments")?;
    let (told, mut heard) = mpsc::channel(MOST_HEARD);
    let client = connect(
        url,
        flags,
        PrintingHandler::new(told, flags, scenario == "task"),
    )
    .await?;
    match scenario.as_str() {
        "list" => list(&client).await?,
        "call" => print(
            &json!({ "event": "result", "result": call(&client, tool, &arguments, flags).await? }),
        ),
        "call-progress" | "logs" => {
            let result = call(&client, tool, &arguments, flags).await?;
            // The client's handlers run beside the call: its notifications were sent before its
            // result. The one of progress, which is certain, is waited for.
            tokio::task::yield_now().await;
            if scenario == "call-progress"
                && let Ok(Some(first)) = tokio::time::timeout(HANDLER_TIME, heard.recv()).await
            {
                print(&first);
            }
            while let Ok(seen) = heard.try_recv() {
                print(&seen);
            }
            print(&json!({ "event": "result", "result": result }));
        }
        "library" => library_scenario::run(&client, tool, &arguments).await?,
        "task" => task_scenario::run(&client, tool, &arguments).await?,
        "watch" => watch(&client, &mut heard, flags).await?,
        "unknown-tool" => match call(&client, "no_such_tool", &arguments, flags).await {
            Err(error) => print(
                &json!({ "event": "refused", "isError": false, "message": format!("{error:#}") }),
            ),
            Ok(result) if result["isError"] == true => {
                print(&json!({ "event": "refused", "isError": true }))
            }
            Ok(_) => bail!("the tool answered"),
        },
        other => bail!("no scenario {other}"),
    }
    client.cancel().await?;
    Ok(())
}

async fn connect(
    url: &str,
    flags: &PeerFlags,
    listener: PrintingHandler,
) -> anyhow::Result<ConnectedClient> {
    let modern = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match flags.text("era", "auto") {
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: modern,
        },
        "legacy" => ClientLifecycleMode::Initialize,
        "auto" => ClientLifecycleMode::Auto {
            preferred_versions: modern,
            legacy_version: None,
        },
        other => bail!("--era {other}: modern, legacy or auto"),
    };
    let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    let config = match flags.maybe("bearer") {
        Some(token) => config.auth_header(token),
        None => config,
    };
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = listener
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .context("connect")?;
    let about = client.peer_info();
    print(&json!({
        "event": "connected",
        "protocolVersion": about.as_ref().map(|about| about.protocol_version.as_str()),
        "server": about.as_ref().and_then(|about| about.server_info.as_ref()).map(|info| json!({ "name": info.name })),
        "instructions": about.as_ref().and_then(|about| about.instructions.as_deref()),
    }));
    Ok(client)
}

async fn list(client: &ConnectedClient) -> anyhow::Result<()> {
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let page = client
            .list_tools(Some(
                PaginatedRequestParams::default().with_cursor(cursor.take()),
            ))
            .await?;
        print(&json!({ "event": "page", "count": page.tools.len() }));
        names.extend(page.tools.into_iter().map(|tool| tool.name.into_owned()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    print(&json!({ "event": "tools", "names": names }));
    Ok(())
}

async fn call(
    client: &ConnectedClient,
    tool: &str,
    arguments: &Value,
    flags: &PeerFlags,
) -> anyhow::Result<Value> {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments.as_object().cloned();
    if flags.maybe("asks").is_some() {
        // This form of the call answers the questions at the end of a modern call, and calls again.
        return Ok(serde_json::to_value(client.call_tool(params).await?)?);
    }
    let mut options = PeerRequestOptions::no_options();
    if let Some(level) = flags.maybe("level") {
        let level: LoggingLevel = serde_json::from_value(json!(level)).context("--level")?;
        let mut meta = RequestMetaObject::new();
        meta.set_log_level(level);
        options = options.with_meta(meta);
    }
    let request = ClientRequest::CallToolRequest(Request::new(params));
    let answer = client
        .send_request_with_option(request, options)
        .await?
        .await_response()
        .await?;
    Ok(serde_json::to_value(answer)?)
}

async fn watch(
    client: &ConnectedClient,
    heard: &mut mpsc::Receiver<Value>,
    flags: &PeerFlags,
) -> anyhow::Result<()> {
    list(client).await?;
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    // A legacy server knows no `listen`: its notifications come to the handler.
    let mut subscription = client.listen(filter).await.ok();
    print(&json!({ "event": "watching" }));
    if let Some(tool) = flags.maybe("trigger") {
        call(client, tool, &json!({}), flags).await?;
    }
    match &mut subscription {
        Some(subscription) => {
            subscription
                .next()
                .await?
                .context("the subscription ended")?;
        }
        None => loop {
            let seen = heard.recv().await.context("the client ended")?;
            if seen["event"] == "list_changed" {
                break;
            }
        },
    }
    print(&json!({ "event": "list_changed", "kind": "tools" }));
    list(client).await
}

struct PrintingHandler {
    told: mpsc::Sender<Value>,
    /// The capabilities that the client declares.
    able: ClientCapabilities,
}

impl PrintingHandler {
    fn new(told: mpsc::Sender<Value>, flags: &PeerFlags, takes_tasks: bool) -> Self {
        let able = match (takes_tasks, flags.maybe("asks")) {
            (true, _) => question_answers::with_tasks(),
            (false, Some(_)) => question_answers::capabilities(),
            (false, None) => ClientCapabilities::default(),
        };
        Self { told, able }
    }
}

impl ClientHandler for PrintingHandler {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = self.able.clone();
        info
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        question_answers::sample(&params)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        question_answers::elicit(&params)
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        question_answers::roots()
    }

    async fn on_progress(
        &self,
        note: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let token = match note.progress_token.0 {
            NumberOrString::Number(number) => json!(number),
            NumberOrString::String(text) => json!(text),
        };
        let seen = json!({ "event": "progress", "progress": note.progress, "total": note.total, "token": token });
        let _ = self.told.try_send(seen);
    }

    async fn on_logging_message(
        &self,
        note: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let _ = self
            .told
            .try_send(json!({ "event": "log", "level": note.level, "data": note.data }));
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        let _ = self.told.try_send(json!({ "event": "list_changed" }));
    }
}

fn print(seen: &Value) {
    println!("{seen}");
}
