//! Extensions that weir does not implement: a client uses them with the server of a transparent
//! endpoint. Methods that no revision defines go to that server, too.
//!
//! The router decides if the client may make such a call, as for every call. Notifications that no
//! revision defines are dropped, because no answer could refuse one.

use std::sync::Arc;

use weir_core::call::InputMode;
use weir_core::{Authenticated, Call};
use weir_era::lift::LiftedRequest;
use weir_layers::failure::RequestResult;
use weir_layers::request::request_context::HttpRequestContext;
use weir_wire::Revision;
use weir_wire::message::Request;
use weir_wire::method::{Method, MethodName};

use crate::method::canonical_call::canonical_call;
use crate::reply::encode;
use crate::reply::encode::response_context::{ResponseContext, UrlElicitationForm};
use crate::reply::running_call::{OwnedCall, RunningCall};

/// False if an operator selects tools of the endpoint, because an unknown extension could bypass the
/// selection.
pub(crate) fn may_be_offered(context: &HttpRequestContext) -> bool {
    let catalog = context.shared().catalog();
    let endpoint = catalog.endpoint(context.endpoint());
    endpoint.is_none_or(|endpoint| endpoint.tools.is_none())
}

/// The name of a method that no revision defines, if the endpoint is transparent and selects no
/// tools.
pub(crate) fn extension_method(
    context: &HttpRequestContext,
    name: &MethodName,
) -> Option<Arc<str>> {
    let name = name.extension_name()?;
    let endpoint = context.shared().catalog().endpoint(context.endpoint())?;
    (endpoint.mode.is_transparent() && endpoint.tools.is_none()).then(|| name.into())
}

/// Serves a modern request with a method that no revision defines.
pub(crate) async fn serve(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    request: &Request,
    lifted: LiftedRequest,
) -> RequestResult {
    let token = lifted.progress_token.clone();
    let extension = extension_method(context, &request.method);
    let call = Arc::new(Call {
        input_mode: InputMode::Rounds,
        extension,
        ..canonical_call(context, Method::Extension, lifted)
    });
    let (router, call) = (context.shared().router.clone(), sender.for_payload(call));
    let running = RunningCall::new(Box::pin(async move { router.call(call).await }));
    let response = ResponseContext::new(
        context,
        sender,
        request.id.clone(),
        Revision::MODERN,
        Method::Extension,
    )
    .with_progress_token(token)
    .with_url_elicitation(UrlElicitationForm::Unsupported);
    encode::encode_reply(response, OwnedCall::by_connection(running)).await
}
