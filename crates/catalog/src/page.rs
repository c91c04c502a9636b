//! Pages: a client's list cut into parts, each of one consistent view.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;
use weir_core::call::SessionKey;
use weir_core::capability::CapabilityClass;
use weir_core::endpoint::PageSize;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::EndpointId;
use weir_core::principal::Principal;
use weir_core::upstream::ListKind;

use crate::Catalog;
use crate::cursor::{Cursor, CursorScope};
use crate::session_lists::session_views::SessionClient;
use crate::view::View;

/// A client's request for a page of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListPageRequest<'a> {
    /// The endpoint.
    pub endpoint: &'a EndpointId,
    /// The requests that the client accepts, not yet cut to those that weir carries.
    pub class: CapabilityClass,
    /// The principal that asks.
    pub principal: &'a Principal,
    /// The client's session; its server may have a list for it alone.
    pub session: Option<SessionKey>,
    /// The kind of list.
    pub kind: ListKind,
    /// The cursor at which it goes on; absent is the beginning, the empty string is a cursor.
    pub cursor: Option<&'a str>,
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct CatalogPage {
    /// The list it is a part of. Every page of one reading of a list is of the same version.
    pub view: Arc<View>,
    /// The positions of the page's items in the view.
    pub range: Range<usize>,
    /// The cursor of the next part, if there is one.
    pub next_cursor: Option<String>,
    /// For how long a client may keep this page, in milliseconds; 0 for a page of a superseded
    /// view.
    pub ttl_ms: u64,
    /// True if any cache may keep it: the view is public, and no principal sees less of it.
    pub public: bool,
}

impl Catalog {
    /// Returns one page from memory. No upstream is asked, unless it announced a change in the
    /// client's own session. Only the first page of a fresh start waits, see
    /// [`Self::settled_view`].
    ///
    /// # Errors
    ///
    /// [`Failure::bad_cursor`] for a cursor that does not open here or whose view is gone;
    /// `Unavailable` if the endpoint is gone.
    pub async fn page(&self, ask: ListPageRequest<'_>) -> Result<CatalogPage, Failure> {
        let audience = self.audience(ask.endpoint, ask.principal);
        let scope = CursorScope {
            principal: ask.principal,
            endpoint: ask.endpoint,
            audience,
            kind: ask.kind,
        };
        let Some(text) = ask.cursor else {
            let shared = self.settled_view(ask.endpoint, ask.kind, ask.class).await;
            let view = match ask.session {
                Some(session) => {
                    let client = SessionClient {
                        endpoint: ask.endpoint,
                        class: ask.class,
                        principal: ask.principal,
                        session,
                    };
                    self.session_view(&client, shared, ask.kind).await
                }
                None => shared,
            };
            return self.cut(&ask, &scope, &view, &PageStart::Beginning);
        };
        let cursor = Cursor::open(&self.sealer, &scope, text)?;
        // A client of another class sees another list: a cursor into one has no meaning in the
        // other. A cursor into the list of clients with sessions goes on there for every client.
        let of_list = |class: CapabilityClass| class.without(CapabilityClass::SESSIONS);
        if of_list(cursor.class) != of_list(ask.class) {
            return Err(Failure::bad_cursor());
        }
        self.outstanding_cursors.remove(cursor.list);
        let of_session = ask
            .session
            .and_then(|client| self.session_views.find(client, cursor.version));
        let view = match of_session {
            Some(view) => view,
            None => self
                .pinned(ask.endpoint, ask.kind, &cursor)
                .await
                .ok_or_else(Failure::bad_cursor)?,
        };
        self.cut(&ask, &scope, &view, &PageStart::At(cursor))
    }

    /// The view a cursor points into. Another replica may have made it: this one may have to learn
    /// its lists first.
    async fn pinned(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        cursor: &Cursor,
    ) -> Option<Arc<View>> {
        let view = self.list_view(endpoint, kind, cursor.class)?;
        if let Some(view) = view.pinned(cursor.version, Instant::now()) {
            return Some(view);
        }
        self.settled_view(endpoint, kind, cursor.class).await;
        view.pinned(cursor.version, Instant::now())
    }

    fn cut(
        &self,
        ask: &ListPageRequest<'_>,
        scope: &CursorScope<'_>,
        whole: &Arc<View>,
        start: &PageStart,
    ) -> Result<CatalogPage, Failure> {
        let size = self.endpoint(ask.endpoint).map(|endpoint| endpoint.page);
        let size = size.ok_or_else(|| {
            Failure::new(
                FailureKind::Unavailable,
                "This endpoint is not served any more",
            )
        })?;
        let (from, class) = match start {
            PageStart::Beginning => (0, ask.class),
            PageStart::At(cursor) => (cursor.position as usize, cursor.class),
        };
        // A cursor points into the part that its owner sees of the whole that it names.
        let view = self.visible_part(ask.endpoint, whole.clone(), ask.principal);
        if from >= view.items.len() && matches!(start, PageStart::At(_)) {
            return Err(Failure::bad_cursor());
        }
        let range = from..end(&view, from, size);
        let next_cursor = (range.end < view.items.len()).then(|| {
            let list = match start {
                PageStart::Beginning => self.new_list_id(),
                PageStart::At(cursor) => cursor.list,
            };
            let position = u32::try_from(range.end).unwrap_or(u32::MAX);
            whole.promise_cursor();
            if let Some(client) = ask.session.filter(|_| whole.is_of_session) {
                self.session_views.keep(client, whole);
            }
            self.outstanding_cursors.add(list, ask.endpoint);
            Cursor {
                version: whole.version,
                class,
                position,
                list,
            }
            .seal(&self.sealer, &*self.context.ports.random, scope)
        });
        let current = self
            .view(ask.endpoint, ask.kind, class)
            .is_some_and(|now| now.version == whole.version);
        let ttl_ms = if current { view.ttl_ms() } else { 0 };
        Ok(CatalogPage {
            public: view.public,
            view,
            range,
            next_cursor,
            ttl_ms,
        })
    }

    fn new_list_id(&self) -> u64 {
        let mut bytes = [0; 8];
        self.context.ports.random.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }
}

enum PageStart {
    Beginning,
    At(Cursor),
}

/// As many items as fit; at least one.
fn end(view: &View, from: usize, size: PageSize) -> usize {
    let mut bytes = 0;
    let rest = view.items[from..].iter().take(size.items.max(1));
    let fitting = rest.take_while(|item| {
        let first = bytes == 0;
        bytes += item.tool.raw.len() + item.exposed.len();
        first || bytes <= size.bytes
    });
    from + fitting.count()
}
