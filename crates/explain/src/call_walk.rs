//! Follows the path of a call step by step.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use weir_config::Config;
use weir_core::failure::FailureKind;
use weir_core::names::UpstreamId;
use weir_core::port::{Authorizer, Evidence};
use weir_core::{Endpoint, Principal, authenticate};
use weir_text::{count, one_line};

use crate::access_question::AccessQuestion;
use crate::explainer::Explainer;
use crate::explanation::{Explanation, ExplanationStep, StepEffect};

pub(super) struct CallWalk<'a> {
    pub explainer: &'a Explainer,
    pub config: &'a Config,
    pub question: &'a AccessQuestion,
    principal: Option<String>,
    steps: Vec<ExplanationStep>,
}

impl<'a> CallWalk<'a> {
    pub(crate) fn new(
        explainer: &'a Explainer,
        config: &'a Config,
        question: &'a AccessQuestion,
    ) -> Self {
        Self {
            explainer,
            config,
            question,
            principal: None,
            steps: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) -> Explanation {
        self.run_steps().await;
        let Self {
            mut steps,
            principal,
            question,
            ..
        } = self;
        // All causes count as equal here, so the first cause on the path stays first.
        steps.sort_by_key(|step| {
            if step.effect.stops() {
                StepEffect::Hides
            } else {
                step.effect
            }
        });
        Explanation {
            endpoint: one_line(question.endpoint.as_str()),
            tool: one_line(&question.tool),
            principal,
            listed: !steps.iter().any(|step| step.effect == StepEffect::Hides),
            callable: !steps.iter().any(|step| step.effect.stops()),
            live: self.explainer.catalog.is_some(),
            steps,
        }
    }

    /// Explains why no endpoint has the path.
    fn explain_absent_endpoint(&mut self) {
        let path = self.question.endpoint.as_str();
        let mut team_files = self.config.team_files.iter();
        let left_out =
            team_files.find(|file| file.unserved.iter().any(|unserved| unserved.fits(path)));
        let endpoints = self.config.endpoints.iter();
        let why = match left_out {
            Some(file) => format!(
                "the file {} of `include` has errors and is left out: its paths answer 503",
                file.name
            ),
            None => format!(
                "no endpoint has this path; known endpoints: {}",
                join_with_commas(endpoints.map(|endpoint| endpoint.id.as_str()))
            ),
        };
        self.add_step("endpoint", StepEffect::Hides, why);
    }

    async fn run_steps(&mut self) {
        let config = self.config;
        let Some(endpoint) = config
            .endpoints
            .iter()
            .find(|endpoint| endpoint.id == self.question.endpoint)
        else {
            return self.explain_absent_endpoint();
        };
        let Some(principal) = self.explain_sender(endpoint).await else {
            return;
        };
        self.explain_block(&principal);
        self.explain_endpoint_scopes(endpoint, &principal);
        let mut tools = self.find_tools(endpoint);
        if tools.is_empty() {
            return self.explain_absent_tool(endpoint);
        }
        let called = self.called_item(endpoint, &principal);
        if let Some(item) = &called {
            // The sender may not see the tools that match the name better.
            tools.sort_by_key(|tool| !tool.is_item(item));
        }
        let tool = tools.remove(0);
        if !tools.is_empty() {
            let others = join_with_commas(
                tools
                    .iter()
                    .map(|tool| format!("{}/{}", tool.upstream, tool.native)),
            );
            self.add_step(
                "name",
                StepEffect::Notes,
                format!("it could also mean {others}"),
            );
        }
        let taken_out = self.explain_override(&tool.upstream);
        self.explain_upstream(&tool.upstream);
        self.explain_definition(&tool);
        if !taken_out {
            let is_called = called.is_some_and(|item| tool.is_item(&item));
            self.explain_name(endpoint, &tool, is_called);
        }
        self.explain_rules(endpoint, &principal, &tool);
        self.explain_limits(endpoint, &principal, &tool).await;
        self.explain_arguments(&tool);
        self.explain_audit();
        self.explain_credential(&principal, &tool.upstream);
    }

    /// Explains the authentication of the sender.
    async fn explain_sender(&mut self, endpoint: &Endpoint) -> Option<Principal> {
        let claims = self.question.claims.clone();
        let now = self.explainer.clock.wall();
        let claimed =
            match weir_policy::claimed_caller(&self.config.auth, &endpoint.id, claims, now) {
                Ok(claimed) => claimed,
                Err(why) => {
                    self.add_step("sender", StepEffect::Hides, why);
                    return None;
                }
            };
        let evidence = Evidence::none(Ipv4Addr::LOCALHOST.into(), &endpoint.id);
        // Never fails: the claims are accepted as true.
        let principal = authenticate(&claimed, &evidence)
            .await
            .ok()?
            .principal()
            .clone();
        let description = describe(&principal);
        self.principal = Some(one_line(&match principal.subject() {
            Some(subject) => format!("{} of {}", subject.subject(), subject.issuer()),
            None => "the anonymous principal".to_owned(),
        }));
        if let Some(note) = claimed.note {
            self.add_step("sender", StepEffect::Notes, note);
        }
        let unchecked = self.unchecked_token(&principal);
        let refused = claimed
            .refused
            .map(|why| format!("answered with 401: {why}"));
        match refused.or(unchecked) {
            None => self.add_step("sender", StepEffect::Passes, description),
            Some(why) => {
                self.add_step("sender", StepEffect::Hides, why);
                // An anonymous sender cannot stand for one with credentials, so the walk ends.
                if principal.is_anonymous() {
                    return None;
                }
            }
        }
        Some(principal)
    }

    /// Returns the refusal of every token of the principal's issuer, if none can be checked now.
    /// Adds a note if only tokens that weir does not remember are refused.
    fn unchecked_token(&mut self, principal: &Principal) -> Option<String> {
        let issuer = principal.subject()?.issuer();
        let all = self.explainer.credentials.as_ref()?.issuers();
        let status = all
            .into_iter()
            .find(|status| *status.issuer == *issuer && !status.ready)?;
        let attempts = count(status.failures, "failed attempt");
        if status.is_introspected {
            let note = format!(
                "the introspection endpoint of {issuer} does not answer ({attempts}): \
                 until it does, a new token is answered with 503"
            );
            self.add_step("sender", StepEffect::Notes, note);
            return None;
        }
        let keys = match status.keys_age {
            None => "were never fetched",
            Some(_) => "are too old",
        };
        Some(format!(
            "answered with 503: the keys of the issuer {issuer} {keys} ({attempts})"
        ))
    }

    /// Explains if the audit can keep the record of a call.
    fn explain_audit(&mut self) {
        let Some(audit) = self.explainer.audit.as_ref() else {
            return;
        };
        if audit.can_record() {
            if self.config.audit.is_some() {
                self.add_step("audit", StepEffect::Passes, "the call can be recorded");
            }
        } else {
            self.add_step(
                "audit",
                StepEffect::Refuses,
                "no record can be kept now, and `on_failure` is `closed`: \
                 look for `audit write failed` in the log",
            );
        }
    }

    /// Explains an operator's override of the sender.
    fn explain_block(&mut self, principal: &Principal) {
        let overrides = self.explainer.overrides.as_ref();
        let word = principal
            .subject()
            .and_then(|subject| overrides?.of_principal(subject));
        if let Some(word) = word {
            self.add_step(
                "operator",
                StepEffect::Hides,
                format!("{word}; answered with 403"),
            );
        }
    }

    /// Explains an operator's override of the upstream. Returns true if its tools are hidden from
    /// clients.
    pub(super) fn explain_override(&mut self, id: &UpstreamId) -> bool {
        let overrides = self.explainer.overrides.as_ref();
        let word = overrides.and_then(|overrides| overrides.of_upstream(id));
        let is_out = word.is_some();
        word.into_iter()
            .for_each(|word| self.add_step("operator", StepEffect::Hides, word));
        is_out
    }

    fn explain_endpoint_scopes(&mut self, endpoint: &Endpoint, principal: &Principal) {
        let Err(failure) = self.explainer.rules.may_enter(principal, &endpoint.id) else {
            return;
        };
        let why = if let FailureKind::InsufficientScope(scopes) = failure.kind() {
            let own = principal
                .subject()
                .map(|subject| &*subject.scopes)
                .unwrap_or_default();
            let lacking = scopes.iter().filter(|scope| !own.contains(scope));
            format!(
                "answered with 403: scopes of this endpoint are missing: {}",
                join_with_commas(lacking)
            )
        } else {
            format!("answered with 403: {}", failure.message())
        };
        self.add_step("scope", StepEffect::Hides, why);
    }

    /// Adds a step.
    pub(super) fn add_step(&mut self, stage: &str, effect: StepEffect, text: impl AsRef<str>) {
        self.steps.push(ExplanationStep {
            stage: stage.to_owned(),
            effect,
            text: one_line(text.as_ref()),
        });
    }
}

fn describe(principal: &Principal) -> String {
    let Some(subject) = principal.subject() else {
        return "the anonymous principal".to_owned();
    };
    let mut text = format!("{} of {}", subject.subject(), subject.issuer());
    let mut add = |word: &str, values: &[Arc<str>]| {
        if !values.is_empty() {
            let _ = write!(text, "; {word} {}", join_with_commas(values));
        }
    };
    add("client", subject.client.as_slice());
    add("acting for it", subject.actor.as_slice());
    add("groups", &subject.groups);
    add("scopes", &subject.scopes);
    text
}

/// Joins values with commas.
pub(super) fn join_with_commas(values: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    values.join(", ")
}
