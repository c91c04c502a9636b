//! The protections that a config gives up explicitly, such as `policy: off`. A missing key does not
//! give up a protection.

use std::collections::BTreeSet;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{
    OrOff, OrderedMap, RawAdmin, RawAuth, RawClientAuth, RawConfig, RawEndpoint, RawMetricsAccess,
    RawOnFailure, RawSecretArguments, RawTeamFile, RawUncounted, RawUpstream, RawValidation,
};

/// The paths at which a config's files give up a protection explicitly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waivers {
    /// The paths with a value that gives up the protection, such as `off`.
    given_up: BTreeSet<ConfigPath>,
    /// The paths that `allow_weaker` lists, as written in refusals.
    allowed: BTreeSet<String>,
    /// The paths of `validation` and `asks` keys that are present, with any value.
    present_keys: BTreeSet<ConfigPath>,
}

impl Waivers {
    /// Reports if the files give up the protection at this path, or at a section that contains it.
    #[must_use]
    pub fn gives_up(&self, place: &ConfigPath) -> bool {
        (1..=place.depth()).any(|n| self.given_up.contains(&place.first(n)))
    }

    /// Reports if `allow_weaker` lists this path, or a section that contains it.
    #[must_use]
    pub fn allows(&self, place: &ConfigPath) -> bool {
        !self.allowed.is_empty()
            && (1..=place.depth()).any(|n| self.allowed.contains(&place.first(n).to_string()))
    }

    /// Reports if a file has the key at this path.
    pub fn has_key(&self, place: &ConfigPath) -> bool {
        self.present_keys.contains(place)
    }

    /// Collects the waivers of the main file.
    pub fn of(raw: &RawConfig, report: &mut ConfigReport) -> Self {
        let mut all = Self::default();
        raw.auth.iter().for_each(|auth| all.note_auth(auth));
        raw.admin.iter().for_each(|admin| all.note_admin(admin));
        all.note(ConfigPath::at("tls"), OrOff::is_off(raw.tls.as_ref()));
        let tls = OrOff::section(raw.tls.as_ref());
        let is_optional =
            tls.is_some_and(|tls| matches!(tls.client_auth, Some(RawClientAuth::Optional)));
        all.note(ConfigPath::at("tls.client_auth"), is_optional);
        all.note(ConfigPath::at("policy"), OrOff::is_off(raw.policy.as_ref()));
        all.note(ConfigPath::at("rates"), OrOff::is_off(raw.rates.as_ref()));
        let rates = OrOff::section(raw.rates.as_ref());
        let goes_on =
            rates.is_some_and(|rates| matches!(rates.uncounted, Some(RawUncounted::Allow)));
        all.note(ConfigPath::at("rates.uncounted"), goes_on);
        all.note(ConfigPath::at("audit"), OrOff::is_off(raw.audit.as_ref()));
        let audit = OrOff::section(raw.audit.as_ref());
        let is_open =
            audit.is_some_and(|audit| matches!(audit.on_failure, Some(RawOnFailure::Open)));
        all.note(ConfigPath::at("audit.on_failure"), is_open);
        all.note(
            ConfigPath::at("audit.stdout"),
            audit.is_some_and(|audit| audit.stdout == Some(false)),
        );
        all.note_validation(&ConfigPath::root(), raw.validation.as_ref());
        all.note_part(raw.upstreams.as_ref(), raw.endpoints.as_ref());
        all.note_allowed(raw.allow_weaker.as_deref(), report, |_| true);
        all
    }

    /// Collects the waivers of a team's file.
    pub(crate) fn of_team(raw: &RawTeamFile, report: &mut ConfigReport) -> Self {
        let mut all = Self::default();
        all.note_part(raw.upstreams.as_ref(), raw.endpoints.as_ref());
        let upstreams = raw
            .upstreams
            .iter()
            .flat_map(|all| &all.0)
            .map(|(id, _)| ConfigPath::at("upstreams").key(id));
        let endpoints = raw
            .endpoints
            .iter()
            .flat_map(|all| &all.0)
            .map(|(id, _)| ConfigPath::at("endpoints").key(id));
        let own: Vec<String> = upstreams
            .chain(endpoints)
            .map(|place| place.to_string())
            .collect();
        // A team may give up only the protections of its own upstreams and endpoints.
        let is_own = |place: &str| {
            let rests = own
                .iter()
                .filter_map(|own| place.strip_prefix(own.as_str()));
            rests
                .into_iter()
                .any(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        all.note_allowed(raw.allow_weaker.as_deref(), report, is_own);
        all
    }

    /// Adds the waivers of another file.
    pub fn extend(&mut self, other: Self) {
        self.given_up.extend(other.given_up);
        self.allowed.extend(other.allowed);
        self.present_keys.extend(other.present_keys);
    }

    fn note(&mut self, place: ConfigPath, is_given_up: bool) {
        if is_given_up {
            self.given_up.insert(place);
        }
    }

    fn note_auth(&mut self, auth: &RawAuth) {
        self.note(ConfigPath::at("auth.mode"), auth.allow_anyone == Some(true));
        for issuer in auth.issuers.iter().flatten() {
            let name = issuer.issuer.as_deref().unwrap_or_default();
            self.note(
                ConfigPath::at("auth.issuers").key(name).key("strict_type"),
                issuer.strict_type == Some(false),
            );
        }
    }

    fn note_admin(&mut self, admin: &RawAdmin) {
        self.note(
            ConfigPath::at("admin.auth"),
            OrOff::is_off(admin.auth.as_ref()),
        );
        self.note(
            ConfigPath::at("admin.metrics"),
            matches!(admin.metrics, Some(RawMetricsAccess::Open)),
        );
    }

    fn note_validation(&mut self, at: &ConfigPath, raw: Option<&RawValidation>) {
        let Some(raw) = raw else { return };
        for (side, is_written) in [
            ("input", raw.input.is_some()),
            ("output", raw.output.is_some()),
        ] {
            if is_written {
                self.present_keys.insert(at.key("validation").key(side));
            }
        }
    }

    fn note_part(
        &mut self,
        upstreams: Option<&OrderedMap<RawUpstream>>,
        endpoints: Option<&OrderedMap<RawEndpoint>>,
    ) {
        for (id, upstream) in upstreams.iter().flat_map(|all| &all.0) {
            let at = ConfigPath::at("upstreams").key(id);
            self.note_validation(&at, upstream.validation.as_ref());
            if upstream.asks.is_some() {
                self.present_keys.insert(at.key("asks"));
            }
            let secrets = upstream.secrets.as_ref();
            self.note(at.key("secrets"), OrOff::is_off(secrets));
            let arguments = OrOff::section(secrets).and_then(|secrets| secrets.arguments);
            let is_off = matches!(arguments, Some(RawSecretArguments::Off));
            self.note(at.key("secrets").key("arguments"), is_off);
            for (name, tool) in upstream.tools.iter().flat_map(|tools| &tools.0) {
                let at = at.key("tools").key(name);
                self.note_validation(&at, tool.validation.as_ref());
                self.note(
                    at.key("scopes"),
                    tool.scopes.as_ref().is_some_and(Vec::is_empty),
                );
            }
        }
        for (path, endpoint) in endpoints.iter().flat_map(|all| &all.0) {
            let place = ConfigPath::at("endpoints").key(path);
            self.note(place.key("policy"), OrOff::is_off(endpoint.policy.as_ref()));
            self.note(
                place.key("scopes"),
                endpoint.scopes.as_ref().is_some_and(Vec::is_empty),
            );
            let Some(tools) = &endpoint.tools else {
                continue;
            };
            let place = place.key("tools");
            self.note(
                place.key("exclude"),
                tools.exclude.as_ref().is_some_and(Vec::is_empty),
            );
            let place = place.key("scopes");
            let scopes = tools.scopes.as_ref();
            self.note(
                place.clone(),
                scopes.is_some_and(|scopes| scopes.0.is_empty()),
            );
            for (pattern, _) in scopes
                .iter()
                .flat_map(|all| &all.0)
                .filter(|(_, scopes)| scopes.is_empty())
            {
                self.note(place.key(pattern), true);
            }
        }
    }

    fn note_allowed(
        &mut self,
        raw: Option<&[String]>,
        report: &mut ConfigReport,
        is_own: impl Fn(&str) -> bool,
    ) {
        for (n, place) in raw.unwrap_or_default().iter().enumerate() {
            if place.is_empty() || !is_own(place) {
                let problem = ConfigProblem::error(
                    ConfigPath::at("allow_weaker").key(n),
                    "is not a path of this file",
                );
                report.add(
                    problem.hint(
                        "write the place that a refused reload names, such as rates.principal",
                    ),
                );
            } else {
                self.allowed.insert(place.clone());
            }
        }
    }
}
