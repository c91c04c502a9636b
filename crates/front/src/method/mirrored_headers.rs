//! Arguments that a tool also asks for as headers (`Mcp-Param-*`). A router that reads the header
//! must not get another value than the tool (2026-07-28, Streamable HTTP, "Custom headers").

use http::HeaderValue;
use weir_core::upstream::ListKind;
use weir_era::lift::LiftedRequest;
use weir_era::lower::{annotated_headers, mismatched_header};
use weir_layers::request::request_head::RequestHead;
use weir_wire::header::{MAX_LEN, ReceivedHeader};
use weir_wire::method::Method;

/// Compares the headers of a call with its arguments; returns the error, or `None` if they agree.
/// Headers that the tool does not ask for are ignored. A request from inside the process has no
/// such headers.
pub(crate) async fn check_param_headers(
    head: RequestHead<'_>,
    method: Method,
    lifted: &LiftedRequest,
) -> Option<String> {
    let context = head.context;
    if method != Method::ToolsCall || context.peer().in_memory {
        return None;
    }
    let (catalog, class) = (context.shared().catalog(), lifted.capabilities.class);
    let mut whole = catalog.view(context.endpoint(), ListKind::Tools, class)?;
    // Most endpoints have no such tool, and skip the search.
    if whole.settled && !whole.is_mirrored() {
        return None;
    }
    let name = lifted.params.name().ok().flatten()?;
    if !whole.settled && whole.find(&name).item().is_none() {
        // Right after a start the tools are not known yet, nor their headers. The call would wait,
        // too.
        whole = Box::pin(catalog.settled_view(context.endpoint(), ListKind::Tools, class)).await;
    }
    whole
        .find(&name)
        .item()
        .filter(|item| item.tool.has_header_arguments)?;
    // A tool that the principal may not see counts as unknown.
    let seen = catalog.visible_view(
        context.endpoint(),
        ListKind::Tools,
        class,
        head.sender.principal(),
    )?;
    let tool = &seen.find(&name).item()?.tool;
    let annotated = annotated_headers(&tool.raw).ok()?;
    let arguments = lifted.params.arguments().ok().flatten();
    let given = |name: &str| {
        let values = head.headers.get_all(format!("mcp-param-{name}"));
        ReceivedHeader::of(values.iter().map(HeaderValue::as_bytes))
    };
    let wrong = mismatched_header(&annotated, arguments.as_deref(), given)?;
    Some(format!(
        "`Mcp-Param-{wrong}` is missing, given twice, malformed, longer than {MAX_LEN} bytes, differs from the argument or has none"
    ))
}
