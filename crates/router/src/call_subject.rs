//! The subject of one call: its principal, the call itself and the item that it calls.

use std::sync::Arc;

use weir_core::authenticated::{Authenticated, AuthenticatedParts};
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::principal::Principal;
use weir_core::token::ClientToken;

/// The principal, call and item of one call. Its entry among the running calls, its admission and
/// its record share it: the counts of its own parts are shared by all calls of an item.
#[derive(Debug)]
pub(crate) struct CallSubject {
    pub(crate) principal: Principal,
    pub(crate) call: Arc<Call>,
    pub(crate) item: CatalogItem,
}

impl CallSubject {
    /// Takes the parts of an authenticated call of `item`, and the sender's token.
    pub(crate) fn of(
        call: Authenticated<Arc<Call>>,
        item: CatalogItem,
    ) -> (Arc<Self>, Option<ClientToken>) {
        let AuthenticatedParts {
            principal,
            token,
            inner: call,
        } = call.into_parts();
        let subject = Self {
            principal,
            call,
            item,
        };
        (Arc::new(subject), token)
    }
}
