//! The check that a caller may read a resource, before weir subscribes to it in its own name.

use std::future::Future;
use std::sync::Arc;

use weir_catalog::Catalog;
use weir_core::Authenticated;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::Failure;
use weir_core::reply::{ReplyEnd, ReplyEvent};
use weir_wire::method::Method;

use crate::own_request::own_request;

/// Reads a resource in the name of the caller that subscribes to it, and returns the server's
/// refusal. Absent if calls use the same account as subscriptions: then the server decides about the
/// subscription itself. The content is not waited for.
pub(crate) fn read_as_caller(
    catalog: &Catalog,
    call: &Authenticated<Arc<Call>>,
    item: &CatalogItem,
) -> Option<impl Future<Output = Result<(), Failure>> + Send + use<>> {
    let upstream = catalog.upstream(&item.tool.upstream)?;
    if !upstream.uses_callers_accounts() {
        return None;
    }
    let read = Call {
        method: Method::ResourcesRead,
        ..Call::clone(call.inner())
    };
    let outbound = own_request(call, Arc::new(read), item.tool.native.clone());
    Some(async move {
        let mut reply = upstream.call(outbound).await;
        loop {
            match reply.next().await {
                Some(ReplyEvent::Note(_)) => {}
                Some(ReplyEvent::End(ReplyEnd::Failed(failure))) => return Err(*failure),
                // A server that asks a question does not refuse.
                Some(ReplyEvent::End(_) | ReplyEvent::Ask(_)) | None => return Ok(()),
            }
        }
    })
}
