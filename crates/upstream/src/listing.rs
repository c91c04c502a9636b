//! One page of a server's list, over whatever it is asked.

use bytes::Bytes;
use weir_core::upstream::ListPage;
use weir_core::{Failure, FailureKind};
use weir_era::hop::Tongue;
use weir_era::lower;
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
    let mut page = tongue.page(&result, "tools").map_err(|failure| failure.at(&site.id))?;
    if drop_bad_mirrors {
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

/// True if an acknowledgment's `params` say that changes of the tools will be told.
pub(crate) fn honours_tools(params: &[u8]) -> bool {
    scan::find(params, "notifications").is_some_and(|range| {
        let honoured = &params[range];
        scan::find(honoured, "toolsListChanged").is_some_and(|range| &honoured[range] == b"true")
    })
}
