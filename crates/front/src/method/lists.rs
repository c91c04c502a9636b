//! Answers from the catalog: lists, and weir's description of itself.

use std::time::Duration;

use bytes::Bytes;
use weir_catalog::ListPageRequest;
use weir_core::upstream::{ListKind, ListKinds};
use weir_core::{Authenticated, CapabilityClass, Failure, FailureKind, Principal, SessionKey};
use weir_era::capabilities::OfferedCapabilities;
use weir_era::render::{self, PageFacts};
use weir_layers::http::message_parts::MessageParts;
use weir_layers::request::request_context::HttpRequestContext;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::{RequestId, Revision};

use crate::method::extensions;
use crate::method::offered_methods::{check_offered_or_ask, list_of_method};

/// The result of a list. Its items are the cached page itself.
pub(crate) struct ListResult {
    envelope: Bytes,
    /// The items end the message.
    items: Bytes,
}

impl ListResult {
    /// The response to the request with this id.
    pub(crate) fn response(self, id: &RequestId) -> MessageParts {
        let head = weir_wire::write::response_head(id);
        MessageParts::new([head, self.envelope, self.items])
    }
}

/// A request for a page of a list.
pub(crate) struct ListRequest<'a> {
    pub(crate) revision: Revision,
    /// The method, which names the list.
    pub(crate) method: Method,
    pub(crate) class: CapabilityClass,
    /// The session with lists of its own.
    pub(crate) session: Option<SessionKey>,
    pub(crate) params: &'a Params,
}

/// The result of one of the lists.
pub(crate) async fn list_page(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    ListRequest {
        revision,
        method,
        class,
        session,
        params,
    }: ListRequest<'_>,
) -> Result<ListResult, Failure> {
    check_offered_or_ask(context, sender, session, method, class).await?;
    let kind = list_of_method(method).ok_or_else(|| Failure::internal("a page of no list"))?;
    let shared = context.shared();
    let cursor = params
        .cursor()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let (endpoint, principal, cursor) = (context.endpoint(), sender.principal(), cursor.as_deref());
    let ask = ListPageRequest {
        endpoint,
        class,
        principal,
        session,
        kind,
        cursor,
    };
    let page = shared.catalog().page(ask).await?;
    let most = context.limits().page_cache_bytes;
    let budget = &shared.ports.budgets.results;
    let items = shared.pages.items(revision, &page, most, budget);
    let items = items.ok_or_else(|| {
        let text =
            "There is no memory for the list: other answers wait for clients that read slowly";
        Failure::new(FailureKind::Busy, text).retry_after(Duration::from_secs(1))
    })?;
    let facts = PageFacts {
        next_cursor: page.next_cursor.as_deref(),
        ttl_ms: page.ttl_ms,
        // A cache that several callers share does not check their credentials.
        public: page.public && principal.is_anonymous(),
        missing: page
            .view
            .missing
            .iter()
            .map(|missing| (missing.upstream.to_string(), missing.reason.as_str()))
            .collect(),
    };
    Ok(ListResult {
        envelope: render::list(revision, kind, &context.route.identity, &facts),
        items,
    })
}

/// The features of the upstreams that are not hidden from the principal.
fn endpoint_offer(
    context: &HttpRequestContext,
    class: CapabilityClass,
    principal: &Principal,
) -> OfferedCapabilities {
    let (catalog, endpoint) = (context.shared().catalog(), context.endpoint());
    let features = catalog.offered_features(endpoint, class, principal);
    OfferedCapabilities {
        tools: features.tools,
        prompts: features.prompts,
        resources: features.resources,
        subscribe: features.subscribes,
        completions: features.completes,
        without_notifications: ListKinds::default(),
        logging: true,
        tasks: features.tasks,
        apps: features.apps,
        task_list: false,
        extensions: if extensions::may_be_offered(context) {
            features.extensions
        } else {
            Vec::new()
        },
    }
}

/// The lists that the endpoint declares to a principal; templates belong to resources.
pub(crate) fn declared_lists(
    context: &HttpRequestContext,
    class: CapabilityClass,
    principal: &Principal,
) -> ListKinds {
    let (catalog, endpoint) = (context.shared().catalog(), context.endpoint());
    let features = catalog.offered_features(endpoint, class, principal);
    let declared = [
        (features.tools, ListKind::Tools),
        (features.prompts, ListKind::Prompts),
        (features.resources, ListKind::Resources),
    ];
    let kinds = declared.into_iter().filter(|(is_declared, _)| *is_declared);
    kinds.map(|(_, kind)| kind).collect()
}

/// The own instructions of the upstreams that the principal sees, labelled if there are several.
fn joined_instructions(
    context: &HttpRequestContext,
    class: CapabilityClass,
    principal: &Principal,
) -> Option<String> {
    let catalog = context.shared().catalog();
    let abouts = catalog.about(context.endpoint(), class, principal);
    let alone = abouts.len() == 1;
    let parts: Vec<String> = abouts
        .iter()
        .filter_map(|(id, about)| {
            let text = about
                .instructions
                .as_deref()
                .filter(|text| !text.trim().is_empty())?;
            Some(if alone {
                text.to_owned()
            } else {
                format!("{id}: {text}")
            })
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// The time that a client may cache the result of `server/discover` if all upstreams are known: the
/// offer changes with a reload, and with an upstream that comes up with other capabilities.
const DISCOVERED_TTL_MS: u32 = 60_000;

/// The result of `server/discover`. It does not fail while an upstream is down; it waits for first
/// walks, within a limit.
pub(crate) async fn discover_result(
    context: &HttpRequestContext,
    class: CapabilityClass,
    principal: &Principal,
) -> Bytes {
    context
        .shared()
        .catalog()
        .settled_view(context.endpoint(), ListKind::Tools, class)
        .await;
    let offer = OfferedCapabilities {
        without_notifications: context
            .shared()
            .catalog()
            .lists_without_notifications(context.endpoint()),
        ..endpoint_offer(context, class, principal)
    };
    let view = context
        .shared()
        .catalog()
        .view(context.endpoint(), ListKind::Tools, class);
    let is_known = view.is_some_and(|view| view.missing.is_empty());
    let ttl_ms = if is_known { DISCOVERED_TTL_MS } else { 0 };
    render::discovered(
        &context.route.identity,
        &offer,
        joined_instructions(context, class, principal).as_deref(),
        ttl_ms,
    )
}

/// The result of `initialize`, for a client of this class.
pub(crate) async fn initialize_result(
    context: &HttpRequestContext,
    revision: Revision,
    class: CapabilityClass,
    principal: &Principal,
) -> Bytes {
    context
        .shared()
        .catalog()
        .settled_view(context.endpoint(), ListKind::Tools, class)
        .await;
    let offer = OfferedCapabilities {
        // Tasks are listed for clients with distinct principals.
        task_list: !principal.is_anonymous(),
        ..endpoint_offer(context, class, principal)
    };
    render::initialized(
        revision,
        &context.route.identity,
        &offer,
        joined_instructions(context, class, principal).as_deref(),
    )
}
