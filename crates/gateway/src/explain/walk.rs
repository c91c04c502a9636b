//! Follows the path of a call step by step.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use weir_core::failure::FailureKind;
use weir_core::names::UpstreamId;
use weir_core::port::{Authorizer, Evidence};
use weir_core::{Endpoint, Principal, authenticate};

use super::{Effect, Explainer, Explanation, Question, Step};
use crate::config::Config;

pub(super) struct Walk<'a> {
    pub(super) explainer: &'a Explainer,
    pub(super) config: &'a Config,
    pub(super) question: &'a Question,
    principal: Option<String>,
    steps: Vec<Step>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        explainer: &'a Explainer,
        config: &'a Config,
        question: &'a Question,
    ) -> Self {
        Self {
            explainer,
            config,
            question,
            principal: None,
            steps: Vec::new(),
        }
    }

    pub(super) async fn go(mut self) -> Explanation {
        self.walk().await;
        let Self {
            mut steps,
            principal,
            question,
            ..
        } = self;
        // All causes count as equal here, so the first cause on the path stays first.
        steps.sort_by_key(|step| {
            if step.effect.stops() {
                Effect::Hides
            } else {
                step.effect
            }
        });
        Explanation {
            endpoint: plain(question.endpoint.as_str()),
            tool: plain(&question.tool),
            principal,
            listed: !steps.iter().any(|step| step.effect == Effect::Hides),
            callable: !steps.iter().any(|step| step.effect.stops()),
            live: self.explainer.catalog.is_some(),
            steps,
        }
    }

    async fn walk(&mut self) {
        let config = self.config;
        let Some(endpoint) = config
            .endpoints
            .iter()
            .find(|endpoint| endpoint.id == self.question.endpoint)
        else {
            let there: Vec<&str> = config
                .endpoints
                .iter()
                .map(|endpoint| endpoint.id.as_str())
                .collect();
            return self.say(
                "endpoint",
                Effect::Hides,
                format!("there is none of this path; there are {}", list(there)),
            );
        };
        let Some(principal) = self.sender(endpoint).await else {
            return;
        };
        self.kept_out(&principal);
        self.entrance(endpoint, &principal);
        let mut tools = self.tools(endpoint);
        if tools.is_empty() {
            return self.absent(endpoint);
        }
        let tool = tools.remove(0);
        if !tools.is_empty() {
            let others = list(
                tools
                    .iter()
                    .map(|tool| format!("{}/{}", tool.upstream, tool.native)),
            );
            self.say(
                "name",
                Effect::Notes,
                format!("it could also mean {others}"),
            );
        }
        let taken_out = self.taken_out(&tool.upstream);
        self.upstream(&tool.upstream);
        self.definition(&tool);
        if !taken_out {
            self.name(endpoint, &tool);
        }
        self.rules(endpoint, &principal, &tool);
        self.limits(endpoint, &principal, &tool).await;
        self.arguments(&tool);
        self.credential(&principal, &tool.upstream);
    }

    /// Explains the authentication of the sender.
    async fn sender(&mut self, endpoint: &Endpoint) -> Option<Principal> {
        let claims = self.question.claims.clone();
        let now = self.explainer.clock.wall();
        let claimed =
            match weir_policy::claimed_caller(&self.config.auth, &endpoint.id, claims, now) {
                Ok(claimed) => claimed,
                Err(why) => {
                    self.say("sender", Effect::Hides, why);
                    return None;
                }
            };
        let evidence = Evidence::none(Ipv4Addr::LOCALHOST.into(), &endpoint.id);
        // Never fails: the claims are accepted as true.
        let principal = authenticate(&claimed, &evidence, ())
            .await
            .ok()?
            .principal()
            .clone();
        let description = describe(&principal);
        self.principal = Some(plain(&match principal.subject() {
            Some(subject) => format!("{} of {}", subject.subject(), subject.issuer()),
            None => "nobody in particular".to_owned(),
        }));
        if let Some(note) = claimed.note {
            self.say("sender", Effect::Notes, note);
        }
        match claimed.refused {
            None => self.say("sender", Effect::Passes, description),
            Some(why) => {
                self.say("sender", Effect::Hides, format!("answered with 401: {why}"));
                // An anonymous sender cannot stand for one with credentials, so the walk ends.
                if principal.is_anonymous() {
                    return None;
                }
            }
        }
        Some(principal)
    }

    /// Explains an operator's override of the sender.
    fn kept_out(&mut self, principal: &Principal) {
        let word = principal
            .subject()
            .and_then(|subject| self.explainer.book.of_principal(subject));
        if let Some(word) = word {
            self.say(
                "operator",
                Effect::Hides,
                format!("{word}; answered with 403"),
            );
        }
    }

    /// Explains an operator's override of the upstream. Returns true if its tools are hidden from
    /// clients.
    pub(super) fn taken_out(&mut self, id: &UpstreamId) -> bool {
        let word = self.explainer.book.of_upstream(id);
        let is_out = word.is_some();
        word.into_iter()
            .for_each(|word| self.say("operator", Effect::Hides, word));
        is_out
    }

    fn entrance(&mut self, endpoint: &Endpoint, principal: &Principal) {
        let Err(failure) = self.explainer.rules.may_enter(principal, &endpoint.id) else {
            return;
        };
        let why = match failure.kind() {
            FailureKind::InsufficientScope(scopes) => {
                let own = principal
                    .subject()
                    .map(|subject| &*subject.scopes)
                    .unwrap_or_default();
                let lacking = scopes.iter().filter(|scope| !own.contains(scope));
                format!(
                    "answered with 403: this endpoint takes scopes that are lacking: {}",
                    list(lacking)
                )
            }
            _ => format!("answered with 403: {}", failure.message()),
        };
        self.say("scope", Effect::Hides, why);
    }

    /// Adds a step.
    pub(super) fn say(&mut self, stage: &str, effect: Effect, text: impl AsRef<str>) {
        self.steps.push(Step {
            stage: stage.to_owned(),
            effect,
            text: plain(text.as_ref()),
        });
    }
}

fn describe(principal: &Principal) -> String {
    let Some(subject) = principal.subject() else {
        return "nobody in particular: the anonymous principal".to_owned();
    };
    let mut text = format!("{} of {}", subject.subject(), subject.issuer());
    let mut add = |word: &str, values: &[Arc<str>]| {
        if !values.is_empty() {
            let _ = write!(text, "; {word} {}", list(values));
        }
    };
    add("client", subject.client.as_slice());
    add("acting for it", subject.actor.as_slice());
    add("groups", &subject.groups);
    add("scopes", &subject.scopes);
    text
}

/// Joins values with commas.
pub(super) fn list(values: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    values.join(", ")
}

/// Replaces control characters: names and errors come from upstreams, and must not steer a
/// terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
