//! The operator's rules for calls, resolved per tool once instead of on every call.

use std::collections::HashMap;
use std::sync::Arc;

use crate::endpoint::UpstreamRules;
use crate::schema::Validation;
use crate::upstream::Deadlines;

/// What the operator says about the calls of one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time limits.
    pub deadlines: Deadlines,
    /// Schema validation.
    pub validation: Validation,
}

/// The rules of one upstream, ready for looking up.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) given: UpstreamRules,
    common: Arc<Terms>,
    exceptions: HashMap<String, Arc<Terms>>,
}

impl Rules {
    pub(super) fn new(given: UpstreamRules) -> Self {
        let common = Terms { deadlines: given.deadlines, validation: given.validation };
        let exceptions = given
            .tools
            .iter()
            .map(|(native, rules)| {
                let deadlines = rules.deadlines.unwrap_or(common.deadlines);
                let validation = rules.validation.unwrap_or(common.validation);
                (native.clone(), Arc::new(Terms { deadlines, validation }))
            })
            .collect();
        Self { given, common: Arc::new(common), exceptions }
    }

    pub(super) fn of(&self, native: &str) -> Arc<Terms> {
        self.exceptions.get(native).unwrap_or(&self.common).clone()
    }
}
