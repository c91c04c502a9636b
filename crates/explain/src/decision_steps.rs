//! The deciding steps: rules and scopes, limits, the tool's schema, and the credential at the
//! upstream.

use weir_catalog::TracedTool;
use weir_core::names::UpstreamId;
use weir_core::upstream::ListKind;
use weir_core::{Endpoint, Principal};
use weir_policy::rules::{PolicyOutcome, PolicyTarget};
use weir_upstream::{TokenAuthority, TransportSettings};

use crate::call_walk::{CallWalk, join_with_commas};
use crate::explanation::StepEffect;

impl CallWalk<'_> {
    /// Explains scopes and rules.
    pub(super) fn explain_rules(
        &mut self,
        endpoint: &Endpoint,
        principal: &Principal,
        tool: &TracedTool,
    ) {
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
        let explained = self.explainer.rules.explain(principal, &target, arguments);
        match &explained.see {
            Some(outcome) => self.explain_outcome(outcome, "see", StepEffect::Hides),
            None => self.add_step(
                "policy",
                StepEffect::Passes,
                "no policy is configured, so everything is allowed",
            ),
        }
        if !explained.lacks_for_tool.is_empty() {
            let lacking = join_with_commas(&*explained.lacks_for_tool);
            self.add_step(
                "scope",
                StepEffect::Hides,
                format!(
                    "scopes of the tool are missing: {lacking}; a call is answered with 403, which names them"
                ),
            );
        }
        // A call needs both `see` and `call`. If `see` is denied, `call` is not evaluated.
        if let (Some(PolicyOutcome::Permitted(_)), Some(outcome)) =
            (&explained.see, &explained.call)
        {
            self.explain_outcome(outcome, "call", StepEffect::Refuses);
            if arguments.is_none() && !matches!(outcome, PolicyOutcome::Permitted(_)) {
                self.add_step(
                    "policy",
                    StepEffect::Notes,
                    "no arguments were given: `call` is evaluated without arguments",
                );
            }
        }
    }

    fn explain_outcome(&mut self, outcome: &PolicyOutcome, action: &str, denied: StepEffect) {
        let (effect, text) = match outcome {
            PolicyOutcome::Permitted(rules) => (
                StepEffect::Passes,
                format!("`{action}` is permitted by {}", join_with_commas(&**rules)),
            ),
            PolicyOutcome::NotPermitted => (denied, format!("no rule permits `{action}`")),
            PolicyOutcome::Forbidden { rule, reason: None } => {
                (denied, format!("rule {rule} forbids `{action}`"))
            }
            PolicyOutcome::Forbidden {
                rule,
                reason: Some(reason),
            } => (denied, format!("rule {rule} forbids `{action}`: {reason}")),
            PolicyOutcome::Unreadable(why) => (
                denied,
                format!(
                    "a rule about `{action}` looks at the arguments, and they cannot be read: {why}"
                ),
            ),
            PolicyOutcome::Undecided(why) => (
                denied,
                format!("`{action}` cannot be decided, so it is denied: {why}"),
            ),
        };
        self.add_step("policy", effect, text);
    }

    pub(super) async fn explain_limits(
        &mut self,
        endpoint: &Endpoint,
        principal: &Principal,
        tool: &TracedTool,
    ) {
        let status = self
            .explainer
            .limits
            .limit_status(principal, &endpoint.id, &tool.upstream, &tool.native)
            .await;
        let mut within = Vec::new();
        for limit in status {
            match limit.refuses {
                Some(why) => self.add_step(
                    "limit",
                    StepEffect::Refuses,
                    format!("`{}` ({}): {why}", limit.limit, limit.allows),
                ),
                None => within.push(format!("`{}` ({})", limit.limit, limit.allows)),
            }
        }
        if !within.is_empty() {
            self.add_step(
                "limit",
                StepEffect::Passes,
                format!("within {}", join_with_commas(within)),
            );
        }
    }

    pub(super) fn explain_arguments(&mut self, tool: &TracedTool) {
        let Some(arguments) = &self.question.arguments else {
            return;
        };
        let mismatches = tool.mismatches(arguments.as_bytes());
        if !mismatches.is_empty() {
            self.add_step(
                "arguments",
                StepEffect::Refuses,
                format!(
                    "they do not match the tool's schema: {}",
                    join_with_commas(mismatches)
                ),
            );
        }
        if let Some(secret) = tool.secret(arguments.as_bytes()) {
            self.add_step(
                "arguments",
                StepEffect::Refuses,
                format!("they contain {secret}, and `secrets` of the upstream refuses it"),
            );
        }
    }

    /// Explains weir's credential at the upstream.
    pub(super) fn explain_credential(&mut self, principal: &Principal, id: &UpstreamId) {
        let Some(plan) = self
            .config
            .upstreams
            .iter()
            .find(|plan| plan.settings.id == *id)
        else {
            return;
        };
        let TransportSettings::Http(http) = &plan.settings.transport else {
            return self.add_step(
                "credential",
                StepEffect::Passes,
                "none is needed: weir runs the server itself",
            );
        };
        let names = http.headers.iter().map(|(name, _)| name.as_str());
        let (effect, text) = match &http.auth {
            None if http.headers.is_empty() => (StepEffect::Passes, "none is sent".to_owned()),
            None => (
                StepEffect::Passes,
                format!("the config's own headers: {}", join_with_commas(names)),
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
                    (None, _) => (StepEffect::Passes, format!("weir's own token from {at}")),
                    (Some(_), true) => (
                        StepEffect::Passes,
                        format!("the caller's token, exchanged at {at}"),
                    ),
                    (Some(_), false) => (
                        StepEffect::Refuses,
                        format!(
                            "`{id}` needs the caller's token, exchanged at {at}, and this sender has no access token"
                        ),
                    ),
                }
            }
        };
        self.add_step("credential", effect, text);
    }
}
