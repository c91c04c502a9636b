//! The deciding steps: rules and scopes, limits, the tool's schema, and the credential at the
//! upstream.

use weir_core::catalog::TracedTool;
use weir_core::names::UpstreamId;
use weir_core::upstream::ListKind;
use weir_core::{Endpoint, Principal};
use weir_policy::rules::{PolicyOutcome, PolicyTarget};
use weir_upstream::{TokenAuthority, TransportSettings};

use super::Effect;
use super::walk::{Walk, list};

impl Walk<'_> {
    /// Explains scopes and rules.
    pub(super) fn rules(&mut self, endpoint: &Endpoint, principal: &Principal, tool: &TracedTool) {
        let target = PolicyTarget {
            kind: ListKind::Tools,
            endpoint: &endpoint.id,
            upstream: &tool.upstream,
            native: &tool.native,
            name: &tool.name,
            hints: tool.terms.hints,
            scopes: &tool.terms.scopes,
            tool: Some(tool.tool()),
        };
        let arguments = self.question.arguments.as_deref().map(str::as_bytes);
        let opinion = self.explainer.rules.explain(principal, &target, arguments);
        match &opinion.see {
            Some(outcome) => self.outcome(outcome, "see", Effect::Hides),
            None => self.say(
                "policy",
                Effect::Passes,
                "there is none, so everything is allowed",
            ),
        }
        if !opinion.lacks_for_tool.is_empty() {
            let lacking = list(&*opinion.lacks_for_tool);
            self.say(
                "scope",
                Effect::Hides,
                format!(
                    "the tool takes scopes that are lacking: {lacking}; a call is answered with 403 and asks for them"
                ),
            );
        }
        // A call needs both `see` and `call`. If `see` is denied, `call` is not evaluated.
        if let (Some(PolicyOutcome::Permitted(_)), Some(outcome)) = (&opinion.see, &opinion.call) {
            self.outcome(outcome, "call", Effect::Refuses);
            if arguments.is_none() && !matches!(outcome, PolicyOutcome::Permitted(_)) {
                self.say(
                    "policy",
                    Effect::Notes,
                    "no arguments were given: `call` is decided as for none",
                );
            }
        }
    }

    fn outcome(&mut self, outcome: &PolicyOutcome, action: &str, else_: Effect) {
        let (effect, text) = match outcome {
            PolicyOutcome::Permitted(rules) => (
                Effect::Passes,
                format!("`{action}` is permitted by {}", list(&**rules)),
            ),
            PolicyOutcome::NotPermitted => (else_, format!("no rule permits `{action}`")),
            PolicyOutcome::Forbidden { rule, reason: None } => {
                (else_, format!("rule {rule} forbids `{action}`"))
            }
            PolicyOutcome::Forbidden {
                rule,
                reason: Some(reason),
            } => (else_, format!("rule {rule} forbids `{action}`: {reason}")),
            PolicyOutcome::Unreadable(why) => (
                else_,
                format!(
                    "a rule about `{action}` looks at the arguments, and they cannot be read: {why}"
                ),
            ),
            PolicyOutcome::Undecided(why) => (
                else_,
                format!("`{action}` cannot be decided, so it is denied: {why}"),
            ),
        };
        self.say("policy", effect, text);
    }

    pub(super) async fn limits(
        &mut self,
        endpoint: &Endpoint,
        principal: &Principal,
        tool: &TracedTool,
    ) {
        let standing = self
            .explainer
            .limits
            .limit_status(principal, &endpoint.id, &tool.upstream, &tool.native)
            .await;
        let mut within = Vec::new();
        for limit in standing {
            match limit.refuses {
                Some(why) => self.say(
                    "limit",
                    Effect::Refuses,
                    format!("`{}` ({}): {why}", limit.limit, limit.allows),
                ),
                None => within.push(format!("`{}` ({})", limit.limit, limit.allows)),
            }
        }
        if !within.is_empty() {
            self.say("limit", Effect::Passes, format!("within {}", list(within)));
        }
    }

    pub(super) fn arguments(&mut self, tool: &TracedTool) {
        let Some(arguments) = &self.question.arguments else {
            return;
        };
        let mismatches = tool.mismatches(arguments.as_bytes());
        if !mismatches.is_empty() {
            self.say(
                "arguments",
                Effect::Refuses,
                format!("they do not match the tool's schema: {}", list(mismatches)),
            );
        }
        if let Some(secret) = tool.secret(arguments.as_bytes()) {
            self.say(
                "arguments",
                Effect::Refuses,
                format!("they have {secret}, and the upstream's `secrets` refuse it"),
            );
        }
    }

    /// Explains weir's credential at the upstream.
    pub(super) fn credential(&mut self, principal: &Principal, id: &UpstreamId) {
        let Some(plan) = self
            .config
            .upstreams
            .iter()
            .find(|plan| plan.settings.id == *id)
        else {
            return;
        };
        let TransportSettings::Http(http) = &plan.settings.transport else {
            return self.say(
                "credential",
                Effect::Passes,
                "none is needed: weir runs the server itself",
            );
        };
        let names = http.headers.iter().map(|(name, _)| name.as_str());
        let (effect, text) = match &http.auth {
            None if http.headers.is_empty() => (Effect::Passes, "none is sent".to_owned()),
            None => (
                Effect::Passes,
                format!("the config's own headers: {}", list(names)),
            ),
            Some(oauth) => {
                let at = match &oauth.authority {
                    TokenAuthority::Issuer(url) | TokenAuthority::TokenEndpoint(url) => {
                        url.as_str()
                    }
                    TokenAuthority::Provider(_) => "a login",
                };
                let has_token = principal
                    .subject()
                    .is_some_and(|subject| subject.is_by_token);
                match (&oauth.exchange, has_token) {
                    (None, _) => (Effect::Passes, format!("weir's own token from {at}")),
                    (Some(_), true) => (
                        Effect::Passes,
                        format!("the caller's token, exchanged at {at}"),
                    ),
                    (Some(_), false) => (
                        Effect::Refuses,
                        format!(
                            "`{id}` is called in its callers' names only, by tokens exchanged at {at}, and this sender has no access token"
                        ),
                    ),
                }
            }
        };
        self.say("credential", effect, text);
    }
}
