//! One page of a server's list, over whatever it is asked.

use bytes::{Bytes, BytesMut};
use weir_core::upstream::{Kinds, ListKind, ListPage};
use weir_core::{Failure, FailureKind};
use weir_era::hop::Tongue;
use weir_era::lower;
use weir_wire::write::ObjectWriter;
use weir_wire::{code, scan};

use crate::refusal::Refusal;
use crate::site::Site;

/// Reads a page. A server without the method contributes nothing.
///
/// # Errors
/// The request's own, or `BadAnswer`.
pub(crate) fn page(
    site: &Site,
    tongue: Tongue,
    kind: ListKind,
    outcome: Result<Bytes, Refusal>,
    drop_bad_mirrors: bool,
) -> Result<ListPage, Failure> {
    let result = match outcome {
        Ok(result) => result,
        Err(refusal) => {
            site.note_error(&refusal.failure);
            return match refusal.failure.kind() {
                FailureKind::Upstream(error) if error.code == code::METHOD_NOT_FOUND => Ok(ListPage::default()),
                _ => Err(refusal.failure),
            };
        }
    };
    let mut page = tongue.page(&result, kind.member()).map_err(|failure| failure.at(&site.id))?;
    if drop_bad_mirrors && kind == ListKind::Tools {
        // Such a tool must not be offered over HTTP: its headers could not be made.
        page.items.retain(|item| {
            let good = memchr::memmem::find(item, b"x-mcp-header").is_none() || lower::mirrors(item).is_ok();
            if !good {
                site.dropped("bad_mirror_annotation");
            }
            good
        });
    }
    Ok(page)
}

/// The member of a subscription's filter that asks for changes of a list. Both lists of resources have one.
const fn filter(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "toolsListChanged",
        ListKind::Prompts => "promptsListChanged",
        ListKind::Resources | ListKind::Templates => "resourcesListChanged",
    }
}

/// The filter of a subscription to changes of these lists.
pub(crate) fn wanted(kinds: Kinds) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    let mut object = ObjectWriter::new(&mut out);
    for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
        if kinds.has(kind) {
            object.boolean(filter(kind), true);
        }
    }
    object.end();
    out.freeze()
}

/// The lists of which an acknowledgment's `params` say that their changes will be told.
pub(crate) fn honoured(params: &[u8]) -> Kinds {
    let Some(range) = scan::find(params, "notifications") else { return Kinds::default() };
    let honoured = &params[range];
    let is_told =
        |kind: &ListKind| scan::find(honoured, filter(*kind)).is_some_and(|range| &honoured[range] == b"true");
    ListKind::ALL.into_iter().filter(is_told).collect()
}
