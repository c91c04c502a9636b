//! Extensions that weir does not understand: they are between a modern client and the one server of a transparent endpoint, by
//! their identifiers. Methods that no revision knows pass where both have an extension in common.

use weir_core::call::AskedBy;
use weir_core::upstream::Extension;
use weir_core::{Authenticated, Call};
use weir_era::capabilities::declared;
use weir_era::lift::Lifted;
use weir_wire::Revision;
use weir_wire::message::Request;
use weir_wire::method::OF_EXTENSION;
use weir_wire::params::Meta;

use crate::encode::{self, Asked};
use crate::modern::canonical;
use crate::observe::Answer;
use crate::running::{Owned, Running};
use crate::stack::Context;

/// What an endpoint offers of them. Where an operator selects tools, what nobody understands could lead past that.
pub(crate) fn offered(context: &Context) -> Vec<Extension> {
    let (catalog, endpoint) = (&context.shared.catalog, &context.endpoint);
    let selects = catalog.endpoint(endpoint).is_some_and(|endpoint| endpoint.tools.is_some());
    if selects { Vec::new() } else { catalog.extensions(endpoint) }
}

/// Whether client and server have an extension in common.
pub(crate) fn are_shared(context: &Context, meta: &Meta) -> bool {
    let Ok(Some(raw)) = meta.client_capabilities() else { return false };
    let theirs = offered(context);
    !theirs.is_empty() && declared(&raw).iter().any(|(own, _)| theirs.iter().any(|(name, _)| name == own))
}

/// Serves a request whose method no revision knows.
pub(crate) async fn serve(context: &Context, known: &Authenticated<()>, request: &Request, lifted: Lifted) -> Answer {
    let token = lifted.token.clone();
    let extension = Some(request.method.as_str().into());
    let call = Call { asked: AskedBy::Rounds, extension, ..canonical(context, OF_EXTENSION, lifted) };
    let (router, call) = (context.shared.router.clone(), known.with(call));
    let running = Running::new(Box::pin(async move { router.call(call).await }));
    let asked = Asked::new((context, known), request.id.clone(), (Revision::MODERN, OF_EXTENSION), token);
    encode::answer(asked, Owned::by_connection(running)).await
}
