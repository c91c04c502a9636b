//! An item of an endpoint's lists, and the operator's rules for calls of it.

use std::sync::Arc;

use crate::call_deadlines::CallDeadlines;
use crate::capability::CapabilityClass;
use crate::endpoint::ResultLimit;
use crate::secrets::SecretSearch;
use crate::server_item::ServerItem;
use crate::toolset::ToolHints;
use weir_schema::Validation;

/// An item under the name that clients see.
#[derive(Clone, Debug)]
pub struct CatalogItem {
    /// The name it has on this endpoint.
    pub exposed: Arc<str>,
    /// The item of its server.
    pub tool: Arc<ServerItem>,
    /// The operator's rules for its calls.
    pub terms: Arc<CallTerms>,
    /// The part of its callers' class without which its server lists it: calls of it are made
    /// without that part.
    pub listed_without: CapabilityClass,
}

/// The operator's rules for the calls of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTerms {
    /// Time limits.
    pub deadlines: CallDeadlines,
    /// Schema validation.
    pub validation: Validation,
    /// Scopes that a caller has to have, beside the endpoint's own; sorted, each once.
    pub scopes: Arc<[Arc<str>]>,
    /// The hints about the tool's behaviour that rules may believe: the operator's own, and those
    /// of a trusted upstream's tool.
    pub hints: ToolHints,
    /// True if hidden characters are removed from its results; if absent, the endpoint's setting
    /// counts.
    pub clean: Option<bool>,
    /// The operator's permission to make a call a second time if the connection broke during the
    /// first.
    pub safe_to_repeat: bool,
    /// The search for secrets.
    pub secrets: Option<Arc<SecretSearch>>,
    /// The bound of its results.
    pub results: Option<ResultLimit>,
}

impl CallTerms {
    /// The same, and these scopes too.
    #[must_use]
    pub fn with_scopes(mut self, more: &[Arc<str>]) -> Self {
        if !more.is_empty() {
            let mut all: Vec<_> = self.scopes.iter().chain(more).cloned().collect();
            all.sort_unstable();
            all.dedup();
            self.scopes = all.into();
        }
        self
    }

    /// The same on an endpoint with further scopes or hints; shared if there are none.
    #[must_use]
    pub fn on_endpoint(self: Arc<Self>, scopes: &[Arc<str>], hints: ToolHints) -> Arc<Self> {
        if scopes.is_empty() && hints == self.hints {
            return self;
        }
        Arc::new(Self {
            hints,
            ..Self::clone(&self).with_scopes(scopes)
        })
    }
}
