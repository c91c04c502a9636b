//! All policies of the operator, for all endpoints: immutable, made when the config is loaded.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Audience;
use weir_core::principal::Principal;
use weir_core::toolset::ToolHints;
use weir_core::upstream::ListKind;

use crate::rules::attribute_reads::AttributeReads;
use crate::rules::decision::{self, AccessDecision};
use crate::rules::entities;
use crate::rules::policy_file::PolicyFile;
use crate::rules::policy_target::{PolicyTarget, report};
use crate::rules::rule_index::RuleIndex;

/// Cached decisions about whole upstreams.
const KEPT_WHOLE: usize = 1024;

/// Cached decisions. Each is a few hundred bytes, or a few thousand if a rule reads arguments.
const KEPT: usize = 16_384;

/// The rules for one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRules {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Scopes that every caller of the endpoint must have.
    pub scopes: Vec<Arc<str>>,
    /// Scopes that tools of it take.
    pub tool_scopes: Vec<Arc<str>>,
    /// Rules for it, beside the common ones.
    pub files: Vec<PolicyFile>,
}

/// The operator's policies. Two are equal if they were made of the same parts.
pub struct EndpointPolicies {
    digest: [u8; 32],
    common: Vec<PolicyFile>,
    endpoint_rules: Vec<EndpointRules>,
    policies: HashMap<EndpointId, EndpointPolicy>,
    /// For endpoints without rules of their own.
    rest: EndpointPolicy,
}

/// The policy of one endpoint.
pub(super) struct EndpointPolicy {
    pub(super) scopes: Arc<[Arc<str>]>,
    /// The scopes that tools of the endpoint take.
    tool_scopes: Arc<[Arc<str>]>,
    /// True if a rule reads scopes.
    rules_read_scopes: bool,
    pub(super) index: RuleIndex,
    /// True if there is a policy. One without any rule permits no calls.
    pub(super) is_ruled: bool,
    /// The attributes that tell two principals apart here; absent if they do not matter.
    reads: Option<AttributeReads>,
    seed: Sha256,
    cases: Cache<DecisionKey, Arc<AccessDecision>>,
    /// True if an audience sees and may call all of an upstream.
    wholes: Cache<(Audience, UpstreamId), bool>,
}

/// The inputs of a decision, for one audience.
type DecisionKey = (
    Audience,
    ListKind,
    UpstreamId,
    Arc<str>,
    Arc<str>,
    ToolHints,
);

impl EndpointPolicies {
    /// Builds the policies: `common` ones hold on all endpoints. Without any rules everything is
    /// allowed.
    #[must_use]
    pub fn new(common: Vec<PolicyFile>, endpoint_rules: Vec<EndpointRules>) -> Self {
        let mut hash = Sha256::new();
        common.iter().for_each(|file| hash.update(file.digest()));
        for rules in &endpoint_rules {
            for (mark, scopes) in [(0, &rules.scopes), (1, &rules.tool_scopes)] {
                hash.update([mark]);
                let name = (mark == 0).then(|| rules.endpoint.as_str());
                for text in name.into_iter().chain(scopes.iter().map(|scope| &**scope)) {
                    hash.update((text.len() as u64).to_be_bytes());
                    hash.update(text.as_bytes());
                }
            }
            hash.update([2]);
            rules
                .files
                .iter()
                .for_each(|file| hash.update(file.digest()));
        }
        let digest: [u8; 32] = hash.finalize().into();
        let policy = |rules: Option<&EndpointRules>| EndpointPolicy::new(&digest, &common, rules);
        let policies = endpoint_rules
            .iter()
            .map(|rules| (rules.endpoint.clone(), policy(Some(rules))))
            .collect();
        let rest = policy(None);
        Self {
            digest,
            common,
            endpoint_rules,
            policies,
            rest,
        }
    }

    /// The scopes that every caller of an endpoint must have.
    #[must_use]
    pub fn scopes(&self, endpoint: &EndpointId) -> &[Arc<str>] {
        &self.endpoint_policy(endpoint).scopes
    }

    /// The texts with rules for all endpoints.
    #[must_use]
    pub fn common(&self) -> &[PolicyFile] {
        &self.common
    }

    /// The texts with rules for one endpoint alone.
    #[must_use]
    pub fn own(&self, endpoint: &EndpointId) -> &[PolicyFile] {
        let rules = self
            .endpoint_rules
            .iter()
            .find(|rules| rules.endpoint == *endpoint);
        rules
            .map(|rules| rules.files.as_slice())
            .unwrap_or_default()
    }

    pub(super) fn endpoint_policy(&self, endpoint: &EndpointId) -> &EndpointPolicy {
        self.policies.get(endpoint).unwrap_or(&self.rest)
    }
}

impl EndpointPolicy {
    fn new(digest: &[u8; 32], common: &[PolicyFile], rules: Option<&EndpointRules>) -> Self {
        let own = rules
            .map(|rules| rules.files.as_slice())
            .unwrap_or_default();
        let index = RuleIndex::of(common.iter().chain(own).flat_map(|file| file.rules.iter()));
        let is_ruled = !common.is_empty() || !own.is_empty();
        let tool_scopes = rules.map(|rules| rules.tool_scopes.clone());
        let tool_scopes: Arc<[Arc<str>]> = tool_scopes.unwrap_or_default().into();
        let scoped = !tool_scopes.is_empty();
        let rules_read_scopes = index.reads.scopes;
        let reads = index.reads.and(AttributeReads {
            scopes: scoped,
            ..AttributeReads::default()
        });
        let mut seed = Sha256::new();
        seed.update(digest);
        Self {
            scopes: rules
                .map(|rules| rules.scopes.as_slice())
                .unwrap_or_default()
                .into(),
            tool_scopes,
            rules_read_scopes,
            reads: (scoped || is_ruled).then_some(reads),
            index,
            is_ruled,
            seed,
            cases: Cache::new(KEPT),
            wholes: Cache::new(KEPT_WHOLE),
        }
    }

    /// The scopes that a principal asks for, to have these `needed` ones: beside them, those of its
    /// own that count at the endpoint. A client may replace its token by one with these scopes alone.
    pub(super) fn scopes_to_request(
        &self,
        principal: &Principal,
        needed: &[Arc<str>],
    ) -> Arc<[Arc<str>]> {
        let own = principal
            .subject()
            .map(|subject| &*subject.scopes)
            .unwrap_or_default();
        let counts = |scope: &&Arc<str>| {
            self.rules_read_scopes
                || self.scopes.contains(scope)
                || self.tool_scopes.contains(scope)
        };
        let kept = own.iter().filter(counts);
        let mut all: Vec<_> = needed.iter().chain(kept).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all.into()
    }

    /// The audience of a principal. `endpoint` is part of it, because one policy may serve several
    /// endpoints.
    pub(super) fn audience(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
    ) -> Option<Audience> {
        self.reads
            .map(|reads| entities::audience(&self.seed, endpoint, principal, reads))
    }

    /// True if the rules let the principal see and call all that an upstream has or may have; an
    /// undecidable case is false.
    pub(super) fn shows_all(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> bool {
        if !self.is_ruled {
            return true;
        }
        let Some(audience) = self.audience(principal, endpoint) else {
            return false;
        };
        let key = (audience, upstream.clone());
        if let Some(known) = self.wholes.get(&key) {
            return known;
        }
        // It has no name: no rule that counts reads one.
        let (kind, hints, nameless) = (ListKind::Resources, ToolHints::default(), Arc::from(""));
        let (native, name) = (&nameless, &nameless);
        let target = PolicyTarget {
            kind,
            endpoint,
            upstream,
            native,
            name,
            hints,
            scopes: &[],
            tool: None,
        };
        let shows = decision::shows_all(&self.index, principal, &target).unwrap_or_else(|why| {
            report(&why, &target);
            false
        });
        self.wholes.insert(key, shows);
        shows
    }

    /// The case of a principal and a tool, if any rule decides.
    pub(super) fn case(
        &self,
        principal: &Principal,
        target: &PolicyTarget<'_>,
    ) -> Option<Arc<AccessDecision>> {
        if !self.is_ruled {
            return None;
        }
        let audience = self.audience(principal, target.endpoint)?;
        let PolicyTarget {
            kind,
            upstream,
            native,
            name,
            hints,
            ..
        } = *target;
        let key = (
            audience,
            kind,
            upstream.clone(),
            native.clone(),
            name.clone(),
            hints,
        );
        if let Some(known) = self.cases.get(&key) {
            return Some(known);
        }
        let case = Arc::new(AccessDecision::new(&self.index, principal, target));
        self.cases.insert(key, case.clone());
        Some(case)
    }
}

impl Default for EndpointPolicies {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

impl PartialEq for EndpointPolicies {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for EndpointPolicies {}

impl fmt::Debug for EndpointPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointPolicies")
            .field("common", &self.common)
            .field("endpoint_rules", &self.endpoint_rules)
            .finish_non_exhaustive()
    }
}
