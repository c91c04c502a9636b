//! The comparison of two checked configs: the protections that the old one has, and that the new one neither has nor gives up by
//! name. A file that lost its end, or a section, reads as a config that never had it; the comparison tells them apart.
//!
//! It is pure: a reload and `weir check --against` use the same one.

use std::fmt;

use weir_core::Endpoint;
use weir_core::names::EndpointId;
use weir_policy::rules::{Book, Sheet};

use super::check::Part;
use super::report::Path;
use super::{AdminPlan, AuditPlan, Config, UpstreamPlan};

/// A protection that a config can lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Credentials of clients.
    Credentials,
    /// Credentials of operators.
    Operators,
    /// The choice of endpoints, where these have rules, scopes or a selection of tools.
    Endpoints,
    /// Rules.
    Policy,
    /// Scopes.
    Scopes,
    /// Limits of rates and quotas.
    Rates,
    /// The audit.
    Audit,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Credentials, Self::Operators, Self::Endpoints, Self::Policy, Self::Scopes, Self::Rates, Self::Audit];

    /// The key of the config that it is about, as metrics name it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Credentials => "auth",
            Self::Operators => "admin",
            Self::Endpoints => "endpoints",
            Self::Policy => "policy",
            Self::Scopes => "scopes",
            Self::Rates => "rates",
            Self::Audit => "audit",
        }
    }
}

/// A protection that the new config lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weakening {
    /// Which kind.
    pub protection: Protection,
    /// Where the config had it.
    pub path: Path,
    /// What is lost.
    pub message: String,
    /// How a file says that this is wanted.
    pub hint: String,
}

impl Weakening {
    fn new(protection: Protection, path: Path, message: impl Into<String>, wanted: impl fmt::Display) -> Self {
        Self { protection, path, message: message.into(), hint: format!("if this is wanted, {wanted}") }
    }
}

impl fmt::Display for Weakening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.message, self.hint)
    }
}

/// The protections that `old` has and `new` neither has nor gives up by name.
#[must_use]
pub fn weakenings(old: &Config, new: &Config) -> Vec<Weakening> {
    let mut all = Vec::new();
    all.extend(credentials(old, new));
    all.extend(operators(old, new));
    all.extend(endpoints(old, new));
    all.extend(rules(old.rules.common(), new.rules.common(), &Path::at("policy"), "all endpoints"));
    all.extend(Served::by(old).weakenings(&Served::by(new)));
    all.extend(rates(old, new));
    all.extend(audit(old, new));
    all.retain(|lost| !new.waivers.gives_up(&lost.path));
    all
}

/// The same for two versions of a team's file.
pub(super) fn team_weakenings(old: &Part, new: &Part) -> Vec<Weakening> {
    let [before, after] = [old, new].map(|part| Book::new(Vec::new(), part.rulings.clone()));
    let mut all = Served::of(old, &before).weakenings(&Served::of(new, &after));
    all.retain(|lost| !new.waivers.gives_up(&lost.path));
    all
}

fn credentials(old: &Config, new: &Config) -> Option<Weakening> {
    (old.auth.required && !new.auth.required).then(|| {
        let wanted = "write auth: { mode: none, allow_anyone: true }";
        Weakening::new(
            Protection::Credentials,
            Path::at("auth.mode"),
            "clients would need no credentials any more",
            wanted,
        )
    })
}

fn operators(old: &Config, new: &Config) -> Option<Weakening> {
    let was_guarded = old.admin.as_ref().is_some_and(AdminPlan::is_guarded);
    let is_open = new.admin.as_ref().is_some_and(|plan| !plan.is_guarded());
    (was_guarded && is_open).then(|| {
        let (path, message) = (Path::at("admin.auth"), "operators would need no credentials any more");
        Weakening::new(Protection::Operators, path, message, "write admin: { auth: off }")
    })
}

/// Default endpoints show every upstream, without what the named ones ask for.
fn endpoints(old: &Config, new: &Config) -> Option<Weakening> {
    let guards = |endpoint: &weir_core::Endpoint| {
        let rules = &old.rules;
        endpoint.tools.is_some() || !rules.scopes(&endpoint.id).is_empty() || !rules.own(&endpoint.id).is_empty()
    };
    let lost = old.endpoints.iter().find(|endpoint| guards(endpoint));
    let lost = lost.filter(|_| old.names_endpoints && !new.names_endpoints)?;
    let message = format!("are gone: /mcp would show every upstream, without what {} asks for or leaves out", lost.id);
    Some(Weakening::new(Protection::Endpoints, Path::at("endpoints"), message, "name the endpoints"))
}

/// What a config or a team's file serves, and the rules for it.
#[derive(Clone, Copy)]
struct Served<'a> {
    upstreams: &'a [UpstreamPlan],
    endpoints: &'a [Endpoint],
    rules: &'a Book,
}

impl<'a> Served<'a> {
    fn by(config: &'a Config) -> Self {
        Self { upstreams: &config.upstreams, endpoints: &config.endpoints, rules: &config.rules }
    }

    fn of(part: &'a Part, rules: &'a Book) -> Self {
        Self { upstreams: &part.upstreams, endpoints: &part.endpoints, rules }
    }

    /// The rules and scopes of single endpoints and tools that the `new` version lost.
    fn weakenings(&self, new: &Self) -> Vec<Weakening> {
        let mut all = Vec::new();
        for endpoint in new.endpoints {
            let (id, path) = (&endpoint.id, Path::at("endpoints").key(&endpoint.id).key("policy"));
            all.extend(rules(self.rules.own(id), new.rules.own(id), &path, id.as_str()));
        }
        all.extend(scopes(self, new));
        all
    }
}

/// What became of the texts with rules of one `policy`.
fn rules(old: &[Sheet], new: &[Sheet], path: &Path, of: &str) -> Vec<Weakening> {
    if !old.is_empty() && new.is_empty() {
        let message = format!("the rules of {of} would be gone");
        return vec![Weakening::new(Protection::Policy, path.clone(), message, "write policy: off there")];
    }
    let cut = new.iter().filter_map(|sheet| {
        let earlier = old.iter().find(|earlier| earlier.name() == sheet.name())?;
        let lost = Some(sheet.forbids_cut_off(earlier)).filter(|lost| *lost > 0)?;
        let message = format!("{} lost its end, and {lost} of its rules that forbid with it", sheet.name());
        // Not the policy's own place, which `off` would give up.
        let path = path.key(sheet.name());
        Some(Weakening::new(Protection::Policy, path, message, "end the text with a comment that says so"))
    });
    cut.collect()
}

fn scopes(old: &Served<'_>, new: &Served<'_>) -> Vec<Weakening> {
    let mut all = Vec::new();
    let lost = |path: Path, of: &dyn fmt::Display, wanted: &str| {
        Weakening::new(Protection::Scopes, path, format!("the scopes of {of} would be gone"), wanted)
    };
    for endpoint in new.endpoints {
        let path = Path::at("endpoints").key(&endpoint.id);
        if !old.rules.scopes(&endpoint.id).is_empty() && new.rules.scopes(&endpoint.id).is_empty() {
            all.push(lost(path.key("scopes"), &endpoint.id, "write scopes: []"));
        }
        if has_tool_scopes(old, &endpoint.id) && !has_tool_scopes(new, &endpoint.id) {
            all.push(lost(path.key("tools").key("scopes"), &format!("tools of {}", endpoint.id), "write scopes: {}"));
        }
    }
    for (plan, name) in old.upstreams.iter().flat_map(tools_with_scopes) {
        let id = &plan.settings.id;
        let now = new.upstreams.iter().find(|plan| plan.settings.id == *id);
        if now.is_some_and(|now| tools_with_scopes(now).all(|(_, other)| other != name)) {
            let path = Path::at("upstreams").key(id).key("tools").key(name).key("scopes");
            all.push(lost(path, &format!("{id}/{name}"), "write scopes: []"));
        }
    }
    all
}

fn has_tool_scopes(served: &Served<'_>, id: &EndpointId) -> bool {
    let mut sets = served.endpoints.iter().filter(|endpoint| endpoint.id == *id).filter_map(|it| it.tools.as_ref());
    sets.any(|tools| !tools.scopes.is_empty())
}

/// The tools of an upstream that take scopes of their own, by name.
fn tools_with_scopes(plan: &UpstreamPlan) -> impl Iterator<Item = (&UpstreamPlan, &str)> {
    let tools = plan.rules.tools.iter().filter(|(_, tool)| !tool.scopes.is_empty());
    tools.map(move |(name, _)| (plan, name.as_str()))
}

fn rates(old: &Config, new: &Config) -> Option<Weakening> {
    (old.rates.is_limited() && !new.rates.is_limited()).then(|| {
        Weakening::new(Protection::Rates, Path::at("rates"), "no rate would be limited any more", "write rates: off")
    })
}

fn audit(old: &Config, new: &Config) -> Option<Weakening> {
    let (Some(was), now) = (&old.audit, &new.audit) else { return None };
    let lost = |place: &str, message: &str, wanted: &str| {
        Some(Weakening::new(Protection::Audit, Path::at(place), message, wanted))
    };
    match now {
        None => lost("audit", "no records would be kept any more", "write audit: off"),
        Some(AuditPlan { closed: false, .. }) if was.closed => {
            let message = "calls would go on while no records can be kept";
            lost("audit.on_failure", message, "write on_failure: open")
        }
        Some(_) => None,
    }
}
