//! A conformance server on the Rust SDK: both eras on one URL, with every tool, prompt and resource
//! that the official suite calls by name.
//!
//! Four tools ask their client by requests of their own while the call runs, which the SDK does in
//! legacy sessions alone; those of the modern era end a call with their questions. As in the SDK's
//! own server for the suite, `completion/complete` is answered without being declared
//! (`--completions` declares it), and `list_changed` may come without a change.

mod content;
mod plain_tools;
mod question_tools;
mod sampling_with_tools;
mod task_tools;

use anyhow::ensure;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::{PeerFlags, server};

/// The time that a client may keep a result, in milliseconds.
const TTL_MS: u64 = 60_000;

/// The number of changes that a slow subscription may lag behind before it misses some.
const CHANGES_KEPT: usize = 16;

/// Serves over HTTP until the process is ended.
pub(crate) async fn serve(flags: &PeerFlags) -> anyhow::Result<()> {
    ensure!(
        flags.maybe("stdio").is_none(),
        "the conformance server speaks HTTP alone"
    );
    let shared = ConformanceServer {
        tasks: TaskManager::new(),
        states: question_tools::SealedRequestStates::default(),
        changes: broadcast::Sender::new(CHANGES_KEPT),
        declares_completions: flags.maybe("completions").is_some(),
    };
    server::over_http(move || shared.clone()).await
}

#[derive(Clone)]
struct ConformanceServer {
    tasks: TaskManager,
    states: question_tools::SealedRequestStates,
    changes: broadcast::Sender<ChangedList>,
    declares_completions: bool,
}

/// A list that subscriptions are notified of.
#[derive(Clone, Copy)]
enum ChangedList {
    Tools,
    Prompts,
}

/// Converts JSON that this program wrote itself into a value of the SDK.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Returns the value as an object; any other value becomes an empty one.
fn object(value: Value) -> JsonObject {
    if let Value::Object(object) = value {
        object
    } else {
        JsonObject::new()
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Sends a log message to the caller. A modern one gets it only if its request names a level.
async fn log(context: &RequestContext<RoleServer>, text: &str) {
    let level = context.meta.log_level();
    if is_modern(context) && level.is_none() {
        return;
    }
    let note = LoggingMessageNotificationParam::new(
        level.unwrap_or(rmcp::model::LoggingLevel::Info),
        json!(text),
    );
    // A client that is gone needs no log.
    let _ = context.peer.notify_logging_message(note).await;
}

impl ConformanceServer {
    /// Notifies modern subscriptions, and the legacy session of the caller.
    async fn announce(&self, change: ChangedList, context: &RequestContext<RoleServer>) {
        // It fails without subscriptions, which is no error.
        let _ = self.changes.send(change);
        if !is_modern(context) {
            let _ = match change {
                ChangedList::Tools => context.peer.notify_tool_list_changed().await,
                ChangedList::Prompts => context.peer.notify_prompt_list_changed().await,
            };
        }
    }
}

impl ServerHandler for ConformanceServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_logging()
            .enable_tasks()
            .build();
        if self.declares_completions {
            capabilities.completions = ServerCapabilities::builder()
                .enable_completions()
                .build()
                .completions;
        }
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("rust-conformance", "1.0.0"))
            .with_instructions("Every name of the conformance suite is here.")
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
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            // Both fail for a kind that this subscription did not ask for.
            let _ = match change {
                Ok(ChangedList::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(ChangedList::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }

    /// The transport checks headers that repeat arguments of this tool.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == plain_tools::WITH_HEADER).then(plain_tools::with_header)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = ListToolsResult::with_all_items(plain_tools::all());
        Ok(listed
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        match &*name {
            "test_sampling" => question_tools::pushed_sampling(&request, &context).await,
            "test_sampling_with_tools" => sampling_with_tools::pushed(&context).await,
            "test_elicitation"
            | "test_elicitation_sep1034_defaults"
            | "test_elicitation_sep1330_enums" => {
                question_tools::pushed_elicitation(&request, &context).await
            }
            "test_missing_capability" | "test_streaming_elicitation" => {
                question_tools::needing(&request, &context)
            }
            name if name.starts_with(question_tools::PREFIX) => self.states.ask(&request, &context),
            name if task_tools::NAMES.contains(&name) => {
                task_tools::call(&self.tasks, request, &context).await
            }
            _ => plain_tools::call(self, &request, &context).await,
        }
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listed = ListResourcesResult::with_all_items(content::resources()?);
        Ok(listed
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let listed = ListResourceTemplatesResult::with_all_items(content::templates()?);
        Ok(listed
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = content::read(&request.uri)?;
        Ok(read
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public)
            .into())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // No resource here ever changes.
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let listed = ListPromptsResult::with_all_items(content::prompts()?);
        Ok(listed
            .with_ttl_ms(TTL_MS)
            .with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == question_tools::PROMPT {
            return question_tools::prompt(&request);
        }
        content::prompt(&request).map(Into::into)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        content::complete(&request)
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // All log messages of this server are of one level.
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks
            .update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}
