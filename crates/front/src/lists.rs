//! What is answered from the catalog: lists, and what weir says of itself.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use weir_core::catalog::{Page, PageAsk, Version};
use weir_core::upstream::ListKind;
use weir_core::{Authenticated, CapabilityClass, Failure};
use weir_era::capabilities::Offer;
use weir_era::render::{self, PageFacts};
use weir_wire::Revision;
use weir_wire::params::Params;

use crate::stack::Context;

/// Rendered items of pages, by what they depend on. Bounded in bytes: the oldest goes first.
#[derive(Default)]
pub(crate) struct PageCache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    pages: HashMap<Key, Bytes>,
    order: VecDeque<Key>,
    bytes: usize,
}

type Key = (Version, Range<usize>, Revision);

impl PageCache {
    fn items(&self, revision: Revision, page: &Page, most: usize) -> Bytes {
        let key = (page.view.version, page.range.clone(), revision);
        if let Some(kept) = self.lock().pages.get(&key) {
            return kept.clone();
        }
        let rendered = render::tools(revision, &page.view.items[page.range.clone()]);
        let mut kept = self.lock();
        if rendered.len() <= most && kept.pages.insert(key.clone(), rendered.clone()).is_none() {
            kept.bytes += rendered.len();
            kept.order.push_back(key);
            while kept.bytes > most
                && let Some(oldest) = kept.order.pop_front()
            {
                let freed = kept.pages.remove(&oldest).map_or(0, |page| page.len());
                kept.bytes -= freed;
            }
        }
        rendered
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of `tools/list`.
pub(crate) async fn tools(
    context: &Context,
    known: &Authenticated<()>,
    revision: Revision,
    class: CapabilityClass,
    params: &Params,
) -> Result<Bytes, Failure> {
    let shared = &context.shared;
    let cursor = params.cursor().map_err(|error| Failure::invalid_params(error.to_string()))?;
    let visible = shared.ports.authorizer.visible(known.principal(), &context.endpoint);
    let ask = PageAsk {
        endpoint: &context.endpoint,
        class,
        visible: &visible,
        principal: known.principal(),
        kind: ListKind::Tools,
        cursor: cursor.as_deref(),
    };
    let page = shared.catalog.page(ask).await?;
    let items = shared.pages.items(revision, &page, context.limits().page_cache_bytes);
    let facts = PageFacts {
        next_cursor: page.next_cursor.as_deref(),
        ttl_ms: page.ttl_ms,
        public: page.public,
        missing: page.view.missing.iter().map(|missing| (missing.upstream.to_string(), missing.reason)).collect(),
    };
    Ok(render::list(revision, &context.about, &items, &facts))
}

fn offer(context: &Context) -> Offer {
    Offer { tools: context.shared.catalog.offers(&context.endpoint, ListKind::Tools), logging: true }
}

/// The upstreams' own instructions, labelled where there are several.
fn instructions(context: &Context) -> Option<String> {
    let abouts = context.shared.catalog.about(&context.endpoint);
    let alone = abouts.len() == 1;
    let parts: Vec<String> = abouts
        .iter()
        .filter_map(|(id, about)| {
            let text = about.instructions.as_deref().filter(|text| !text.trim().is_empty())?;
            Some(if alone { text.to_owned() } else { format!("{id}: {text}") })
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// The result of `server/discover`. It never fails because an upstream is down; it waits for first walks, boundedly.
pub(crate) async fn discover(context: &Context, class: CapabilityClass) -> Bytes {
    context.shared.catalog.settled(&context.endpoint, class).await;
    render::discovered(&context.about, offer(context), instructions(context).as_deref())
}

/// The result of `initialize`.
pub(crate) async fn initialized(context: &Context, revision: Revision) -> Bytes {
    context.shared.catalog.settled(&context.endpoint, CapabilityClass::BASE).await;
    render::initialized(revision, &context.about, offer(context), instructions(context).as_deref())
}
