//! The lists of a server, over all their pages, and the upstreams that a weir reports as missing.

use serde_json::{Value, json};
use weir_wire::{Method, error_code, meta};

use crate::client::Client;
use crate::client::error::ClientError;

/// A list with more pages is taken for endless.
const MOST_PAGES: usize = 1000;

/// One of the lists of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerList {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
}

impl ServerList {
    fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::ResourcesTemplatesList,
        }
    }

    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The word for one item.
    pub fn item(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
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
    pub async fn list(&mut self, list: ServerList) -> Result<ListedItems, ClientError> {
        let mut listed = ListedItems::default();
        let mut params = Value::Null;
        for _ in 0..MOST_PAGES {
            let mut page = match self
                .request(list.method(), params.clone(), &mut |_| {})
                .await
            {
                Err(ClientError::Refused {
                    code: error_code::METHOD_NOT_FOUND,
                    ..
                }) if list != ServerList::Tools && params.is_null() => {
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
        Err(self.not_mcp(format!("its list of {}s does not end", list.item())))
    }
}
