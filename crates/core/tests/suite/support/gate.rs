//! Gates without rules, or with few: rules by name decide on visibility, calls and waiting. They
//! keep the records.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use weir_core::admit::Gates;
use weir_core::catalog::Item;
use weir_core::names::EndpointId;
use weir_core::port::{
    Action, Attempt, Audience, Audit, Authorizer, Decision, Ended, Entrance, Entry, Limiter,
    Permit, Sight, Verdict,
};
use weir_core::{Call, Failure, FailureKind, Principal};

/// A restriction of a principal for tools of a native name.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Hidden,
    Scope(&'static str),
    Denied,
    /// Calls wait until the semaphore has a place.
    Queue(Arc<tokio::sync::Semaphore>),
}

/// Lets all principals in and all calls through, except for its rules (principal, native name).
#[derive(Default)]
pub(crate) struct Gate {
    rules: Mutex<Vec<(String, String, Rule)>>,
    outcomes: Mutex<Vec<&'static str>>,
    refused: Mutex<Vec<&'static str>>,
    /// No call without a record, and no record can be kept.
    pub(crate) closed: Mutex<bool>,
}

impl Gate {
    pub(crate) fn all(self: &Arc<Self>) -> Gates {
        Gates {
            authorizer: self.clone(),
            limiter: self.clone(),
            audit: self.clone(),
        }
    }

    pub(crate) fn rule(&self, who: &str, native: &str, rule: Rule) {
        self.rules
            .lock()
            .unwrap()
            .push((who.to_owned(), native.to_owned(), rule));
    }

    pub(crate) fn forget(&self) {
        self.rules.lock().unwrap().clear();
    }

    pub(crate) fn outcomes(&self) -> Vec<&'static str> {
        self.outcomes.lock().unwrap().clone()
    }

    pub(crate) fn refused(&self) -> Vec<&'static str> {
        self.refused.lock().unwrap().clone()
    }

    fn of(&self, principal: &Principal, item: &Item) -> Vec<Rule> {
        let rules = self.rules.lock().unwrap();
        let who = principal.to_string();
        rules
            .iter()
            .filter(|(name, tool, _)| *name == who && **tool == *item.tool.native)
            .map(|r| r.2.clone())
            .collect()
    }
}

impl Authorizer for Gate {
    fn may_enter(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        Ok(())
    }

    fn audience(&self, principal: &Principal, _: &EndpointId) -> Option<Audience> {
        let rules = self.rules.lock().unwrap();
        let text = format!(
            "{:?}",
            rules
                .iter()
                .filter(|rule| rule.0 == principal.to_string())
                .collect::<Vec<_>>()
        );
        let mut name = [0u8; 16];
        text.bytes().enumerate().for_each(|(at, byte)| {
            name[at % 16] = byte
                .wrapping_mul(31)
                .wrapping_add(name[at % 16].rotate_left(3))
        });
        (!rules.is_empty()).then_some(Audience(name))
    }

    fn may_see(&self, principal: &Principal, _: &EndpointId, item: &Item) -> Sight {
        let rules = self.of(principal, item);
        let sight = rules.iter().find_map(|rule| match rule {
            Rule::Hidden => Some(Sight::Hidden),
            Rule::Scope(scope) => Some(Sight::Scopes(Arc::new([(*scope).into()]))),
            Rule::Denied | Rule::Queue(_) => None,
        });
        sight.unwrap_or(Sight::Seen)
    }

    fn may_call(&self, principal: &Principal, _: &Call, item: &Item) -> Result<Verdict, Failure> {
        match self
            .of(principal, item)
            .iter()
            .any(|rule| matches!(rule, Rule::Denied))
        {
            true => Err(Failure::new(FailureKind::Denied, "no")),
            false => Ok(Verdict::default()),
        }
    }
}

impl Limiter for Gate {
    fn arrive(&self, _: IpAddr) -> Result<(), Failure> {
        Ok(())
    }

    fn request(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        Ok(())
    }

    fn call<'a>(
        &'a self,
        principal: &'a Principal,
        _: &'a Call,
        item: &'a Item,
    ) -> Result<Entry<'a>, Failure> {
        let queue = self
            .of(principal, item)
            .into_iter()
            .find_map(|rule| match rule {
                Rule::Queue(queue) => Some(queue),
                _ => None,
            });
        Ok(match queue {
            Some(queue) => Entry::Later(Box::pin(async {
                Ok(Permit::holding(queue.acquire_owned().await.unwrap()))
            })),
            None => Entry::Now(Permit::free()),
        })
    }
}

impl Audit for Gate {
    fn entered(&self, _: &Entrance<'_>) {}

    fn decided(&self, _: &Attempt<'_>, decision: Decision<'_>) -> Result<(), Failure> {
        if let Decision::Refused(failure) = decision {
            self.refused.lock().unwrap().push(failure.reason());
        }
        match *self.closed.lock().unwrap() {
            true => Err(Failure::new(
                FailureKind::Overloaded,
                "no record can be kept",
            )),
            false => Ok(()),
        }
    }

    fn ended(&self, _: &Attempt<'_>, ended: &Ended) {
        self.outcomes.lock().unwrap().push(ended.outcome);
    }

    fn operated(&self, _: &Action<'_>) {}
}
