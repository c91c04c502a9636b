//! The lists of a server, over all their pages, and the upstreams that a weir reports as missing.

use serde_json::{Value, json};
use weir_core::upstream::ListKind;
use weir_wire::{error_code, meta};

use crate::client::Client;
use crate::client::error::ClientError;

/// A list with more pages is taken for endless.
const MAX_PAGES: usize = 1000;

/// The word for one item of a list.
pub fn item_word(list: ListKind) -> &'static str {
    match list {
        ListKind::Tools => "tool",
        ListKind::Prompts => "prompt",
        ListKind::Resources => "resource",
        ListKind::Templates => "resource template",
    }
}

/// All items of a list.
#[derive(Debug, Default)]
pub struct ListedItems {
    /// The items, as the server sent them.
    pub items: Vec<Value>,
    /// The upstreams of a weir that are missing in the list, in whole or in part.
    pub missing: Vec<MissingUpstream>,
}

/// An upstream of a weir that is missing in a list, in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingUpstream {
    /// Its id.
    pub upstream: String,
    /// `pending`, `down`, `stale`, `truncated` or `disabled`.
    pub reason: String,
}

impl MissingUpstream {
    /// True for an upstream that is starting or cannot be reached now.
    pub fn is_away(&self) -> bool {
        matches!(self.reason.as_str(), "pending" | "down" | "stale")
    }

    fn read(meta: &Value) -> Vec<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let upstreams = meta[meta::WEIR_UPSTREAMS].as_array().into_iter().flatten();
        upstreams
            .map(|one| Self {
                upstream: text(&one["upstream"]),
                reason: text(&one["reason"]),
            })
            .collect()
    }
}

impl Client {
    /// A list, over all pages. A server that does not have it has no items.
    pub async fn list(&mut self, list: ListKind) -> Result<ListedItems, ClientError> {
        let mut listed = ListedItems::default();
        let mut params = Value::Null;
        for _ in 0..MAX_PAGES {
            let mut page = match self
                .request(list.method(), params.clone(), &mut |_| {})
                .await
            {
                Err(ClientError::Refused {
                    code: error_code::METHOD_NOT_FOUND,
                    ..
                }) if list != ListKind::Tools && params.is_null() => {
                    return Ok(listed);
                }
                page => page?,
            };
            let Value::Array(mut items) = page[list.member()].take() else {
                return Err(self.not_mcp(format!("its list has no `{}`", list.member())));
            };
            listed.items.append(&mut items);
            for missing in MissingUpstream::read(&page["_meta"]) {
                if listed
                    .missing
                    .iter()
                    .all(|known| known.upstream != missing.upstream)
                {
                    listed.missing.push(missing);
                }
            }
            match page["nextCursor"].take() {
                Value::Null => return Ok(listed),
                Value::String(cursor) => params = json!({ "cursor": cursor }),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    return Err(self.not_mcp("its list goes on at a `nextCursor` that is no text"));
                }
            }
        }
        Err(self.not_mcp(format!("its list of {}s does not end", item_word(list))))
    }
}
