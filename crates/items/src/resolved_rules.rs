//! The operator's rules for calls, resolved per tool once instead of on every call.

use std::collections::HashMap;
use std::sync::Arc;

use weir_core::catalog_item::CallTerms;
use weir_core::endpoint::UpstreamRules;
use weir_core::toolset::ToolHints;

/// The rules of one upstream, ready for looking up.
#[derive(Debug)]
pub struct ResolvedRules {
    /// The rules as given.
    pub given: UpstreamRules,
    common: Arc<CallTerms>,
    /// The rules of methods that no revision knows.
    methods: Arc<CallTerms>,
    exceptions: HashMap<String, Arc<CallTerms>>,
}

impl ResolvedRules {
    /// Resolves the rules.
    #[must_use]
    pub fn new(given: UpstreamRules) -> Self {
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
                (native.clone(), Arc::new(terms.with_scopes(&rules.scopes)))
            })
            .collect();
        let all: Vec<_> = given
            .tools
            .iter()
            .flat_map(|(_, rules)| rules.scopes.iter().cloned())
            .collect();
        let methods = Arc::new(common.clone().with_scopes(&all));
        Self {
            given,
            common: Arc::new(common),
            methods,
            exceptions,
        }
    }

    /// The tools that the operator names and the server does not list.
    pub fn absent(&self, is_listed: impl Fn(&str) -> bool) -> Vec<String> {
        let named = self.given.tools.iter().map(|(native, _)| native);
        named.filter(|native| !is_listed(native)).cloned().collect()
    }

    /// The terms of calls of a tool, by its native name.
    #[must_use]
    pub fn of(&self, native: &str) -> Arc<CallTerms> {
        self.exceptions.get(native).unwrap_or(&self.common).clone()
    }

    /// Those of a method that no revision knows: with the scopes of all tools.
    pub fn of_methods(&self) -> Arc<CallTerms> {
        self.methods.clone()
    }
}
