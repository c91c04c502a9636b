//! The operator's rules for calls, resolved per tool once instead of on every call.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call_deadlines::CallDeadlines;
use crate::endpoint::{ResultLimit, UpstreamRules};
use crate::schema::check_mode::Validation;
use crate::secrets::SecretSearch;
use crate::toolset::ToolHints;

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

/// The rules of one upstream, ready for looking up.
#[derive(Debug)]
pub(super) struct ResolvedRules {
    pub(super) given: UpstreamRules,
    common: Arc<CallTerms>,
    /// The rules of methods that no revision knows.
    methods: Arc<CallTerms>,
    exceptions: HashMap<String, Arc<CallTerms>>,
}

impl ResolvedRules {
    pub(super) fn new(given: UpstreamRules) -> Self {
        let (deadlines, validation) = (given.deadlines, given.validation);
        let (scopes, hints) = (Arc::new([]) as Arc<[_]>, ToolHints::default());
        let (secrets, results) = (given.secrets.clone(), given.results);
        let (clean, safe_to_repeat) = (None, false);
        let common = CallTerms {
            deadlines,
            validation,
            scopes,
            hints,
            clean,
            safe_to_repeat,
            secrets,
            results,
        };
        let exceptions = given
            .tools
            .iter()
            .map(|(native, rules)| {
                let deadlines = rules.deadlines.unwrap_or(common.deadlines);
                let validation = rules.validation.unwrap_or(common.validation);
                let (clean, safe_to_repeat) = (rules.clean, rules.safe_to_repeat);
                let terms = CallTerms {
                    deadlines,
                    validation,
                    clean,
                    safe_to_repeat,
                    ..common.clone()
                };
                (native.clone(), Arc::new(terms.taking(&rules.scopes)))
            })
            .collect();
        let all: Vec<_> = given
            .tools
            .iter()
            .flat_map(|(_, rules)| rules.scopes.iter().cloned())
            .collect();
        let methods = Arc::new(common.clone().taking(&all));
        Self {
            given,
            common: Arc::new(common),
            methods,
            exceptions,
        }
    }

    /// The tools that the operator names and the server does not list.
    pub(super) fn absent(&self, is_listed: impl Fn(&str) -> bool) -> Vec<String> {
        let named = self.given.tools.iter().map(|(native, _)| native);
        named.filter(|native| !is_listed(native)).cloned().collect()
    }

    pub(super) fn of(&self, native: &str) -> Arc<CallTerms> {
        self.exceptions.get(native).unwrap_or(&self.common).clone()
    }

    /// Those of a method that no revision knows: with the scopes of all tools.
    pub(super) fn of_methods(&self) -> Arc<CallTerms> {
        self.methods.clone()
    }
}

impl CallTerms {
    /// The same, and these scopes too.
    fn taking(mut self, more: &[Arc<str>]) -> Self {
        if !more.is_empty() {
            let mut all: Vec<_> = self.scopes.iter().chain(more).cloned().collect();
            all.sort_unstable();
            all.dedup();
            self.scopes = all.into();
        }
        self
    }

    /// The same on an endpoint with further scopes or hints; shared if there are none.
    pub(super) fn on(self: Arc<Self>, scopes: &[Arc<str>], hints: ToolHints) -> Arc<Self> {
        if scopes.is_empty() && hints == self.hints {
            return self;
        }
        Arc::new(Self {
            hints,
            ..Self::clone(&self).taking(scopes)
        })
    }
}
