//! The methods that an endpoint offers: they depend on what its servers declare.

use std::sync::Arc;

use weir_core::upstream::ListKind;
use weir_core::{Authenticated, CapabilityClass, Failure, FailureKind, SessionKey};
use weir_layers::request::request_context::HttpRequestContext;
use weir_wire::method::Method;
use weir_wire::params::Params;

use crate::method::canonical_call::call_without_item;

/// The list that a method asks for.
pub(crate) fn list_of_method(method: Method) -> Option<ListKind> {
    ListKind::ALL
        .into_iter()
        .find(|kind| kind.method() == method)
}

/// Returns true if a method goes to one upstream.
pub(crate) fn is_call(method: Method) -> bool {
    matches!(
        method,
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::CompletionComplete
    )
}

/// Checks that the endpoint supports a method about subscriptions, or about tasks of clients without
/// sessions, as far as its servers declare it to weir itself.
pub(crate) fn check_offered(context: &HttpRequestContext, method: Method) -> Result<(), Failure> {
    check_offered_to(context, method, CapabilityClass::BASE)
}

/// Checks that the endpoint supports a method for clients of a class, as far as its servers declare
/// it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other methods are about lists alone, or about none"
)]
pub(crate) fn check_offered_to(
    context: &HttpRequestContext,
    method: Method,
    class: CapabilityClass,
) -> Result<(), Failure> {
    let (catalog, endpoint) = (context.shared().catalog(), context.endpoint());
    let has = match method {
        Method::CompletionComplete => {
            catalog.completes(endpoint, class) || may_complete(context, class)
        }
        Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => catalog.subscribes(endpoint),
        Method::TasksGet
        | Method::TasksUpdate
        | Method::TasksCancel
        | Method::TasksResult
        | Method::TasksList => catalog.may_have_tasks(endpoint, class),
        _ => lists_of(method)
            .iter()
            .any(|kind| catalog.offers(endpoint, *kind, class)),
    };
    if has {
        Ok(())
    } else {
        Err(Failure::new(
            FailureKind::MethodNotFound,
            "No server of this endpoint has this",
        ))
    }
}

/// Checks that the endpoint supports a method for a client. Before a refusal, servers are asked for
/// what they do not declare: a server of both eras may have it in the `session` of the client, and
/// the server of a transparent endpoint may have a list without declaring it.
pub(crate) async fn check_offered_or_ask(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: Option<SessionKey>,
    method: Method,
    class: CapabilityClass,
) -> Result<(), Failure> {
    let Err(refused) = check_offered_to(context, method, class) else {
        return Ok(());
    };
    // Boxed, because calls rarely come here.
    Box::pin(find_sessions(context, sender, session, method, class)).await;
    if check_offered_to(context, method, class).is_ok()
        || Box::pin(has_undeclared(context, method, class)).await
    {
        Ok(())
    } else {
        Err(refused)
    }
}

/// Finds out if the servers have sessions, for a client with sessions. A list of several servers
/// searches nothing, because each search may start a process.
async fn find_sessions(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: Option<SessionKey>,
    method: Method,
    class: CapabilityClass,
) {
    let kinds = lists_of(method);
    let is_alone = context
        .shared()
        .catalog()
        .is_transparent(context.endpoint());
    let may_search = !kinds.is_empty() && (is_call(method) || is_alone);
    if may_search && let Some(call) = call_without_item(context, None, session, class) {
        let call = sender.for_payload(Arc::new(call));
        context.shared().router.find_sessions(&call, kinds).await;
    }
}

async fn has_undeclared(
    context: &HttpRequestContext,
    method: Method,
    class: CapabilityClass,
) -> bool {
    let (catalog, endpoint) = (context.shared().catalog(), context.endpoint());
    for kind in lists_of(method) {
        if catalog.offers_undeclared(endpoint, *kind, class).await {
            return true;
        }
    }
    false
}

/// The lists that a method depends on.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the two dozen other methods depend on no list"
)]
const fn lists_of(method: Method) -> &'static [ListKind] {
    match method {
        Method::ToolsList | Method::ToolsCall => &[ListKind::Tools],
        Method::PromptsList | Method::PromptsGet => &[ListKind::Prompts],
        Method::ResourcesTemplatesList => &[ListKind::Templates, ListKind::Resources],
        Method::CompletionComplete => {
            &[ListKind::Prompts, ListKind::Templates, ListKind::Resources]
        }
        Method::ResourcesList | Method::ResourcesRead => {
            &[ListKind::Resources, ListKind::Templates]
        }
        _ => &[],
    }
}

/// Checks a request for a task. Waits until it is known if calls of the endpoint can become tasks, as
/// long as the first lists of its servers may take.
///
/// # Errors
///
/// `Unavailable` if the server of the tool is unknown even then: it could run the call, but not as the
/// task that the client expects.
pub(crate) async fn check_task_support(
    context: &HttpRequestContext,
    class: CapabilityClass,
    params: &Params,
) -> Result<(), Failure> {
    let (catalog, endpoint) = (context.shared().catalog(), context.endpoint());
    let is_known =
        || catalog.has_tasks(endpoint, class) || !catalog.may_have_tasks(endpoint, class);
    if is_known() {
        return Ok(());
    }
    let tools = catalog.settled_view(endpoint, ListKind::Tools, class).await;
    // The server of a tool that is listed is known.
    let is_listed = |name: &str| tools.find(name).item().is_some();
    let name = params.name().ok().flatten();
    if is_known() || name.is_none_or(|name| is_listed(&name)) {
        return Ok(());
    }
    Err(Failure::new(
        FailureKind::Unavailable,
        "The server that has this tool is not known yet, nor if it has tasks; try again later",
    ))
}

/// Returns true if the server of a transparent endpoint has prompts or resources that could be
/// completed. The server itself then answers if it supports completion.
fn may_complete(context: &HttpRequestContext, class: CapabilityClass) -> bool {
    let (catalog, endpoint) = (context.shared().catalog(), context.endpoint());
    let has_some = catalog.offers(endpoint, ListKind::Prompts, class)
        || catalog.offers(endpoint, ListKind::Resources, class);
    has_some && catalog.is_transparent(endpoint)
}
