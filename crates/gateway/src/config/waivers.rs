//! The protections that a config gives up by name, such as `policy: off`. What it merely does not mention is not given up.

use std::collections::BTreeSet;

use super::raw::{OrOff, Ordered, Raw, RawEndpoint, RawOnFailure, RawTeamFile, RawUpstream};
use super::report::Path;

/// The places where a config's files give up a protection by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waivers(BTreeSet<Path>);

impl Waivers {
    /// True where the files give up the protection of this place by name.
    #[must_use]
    pub fn gives_up(&self, place: &Path) -> bool {
        self.0.contains(place)
    }

    /// Those of the main file.
    pub(super) fn of(raw: &Raw) -> Self {
        let mut all = Self::default();
        let anyone = raw.auth.as_ref().is_some_and(|auth| auth.allow_anyone == Some(true));
        all.note(Path::at("auth.mode"), anyone);
        let operators = raw.admin.as_ref().is_some_and(|admin| OrOff::is_off(admin.auth.as_ref()));
        all.note(Path::at("admin.auth"), operators);
        all.note(Path::at("policy"), OrOff::is_off(raw.policy.as_ref()));
        all.note(Path::at("rates"), OrOff::is_off(raw.rates.as_ref()));
        all.note(Path::at("audit"), OrOff::is_off(raw.audit.as_ref()));
        let audit = OrOff::section(raw.audit.as_ref());
        let is_open = audit.is_some_and(|audit| matches!(audit.on_failure, Some(RawOnFailure::Open)));
        all.note(Path::at("audit.on_failure"), is_open);
        all.note_part(raw.upstreams.as_ref(), raw.endpoints.as_ref());
        all
    }

    /// Those of a team's file.
    pub(super) fn of_team(raw: &RawTeamFile) -> Self {
        let mut all = Self::default();
        all.note_part(raw.upstreams.as_ref(), raw.endpoints.as_ref());
        all
    }

    /// Adds those of another file.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn note(&mut self, place: Path, is_given_up: bool) {
        if is_given_up {
            self.0.insert(place);
        }
    }

    fn note_part(&mut self, upstreams: Option<&Ordered<RawUpstream>>, endpoints: Option<&Ordered<RawEndpoint>>) {
        for (id, upstream) in upstreams.iter().flat_map(|all| &all.0) {
            for (name, tool) in upstream.tools.iter().flat_map(|tools| &tools.0) {
                let place = Path::at("upstreams").key(id).key("tools").key(name).key("scopes");
                self.note(place, tool.scopes.as_ref().is_some_and(Vec::is_empty));
            }
        }
        for (path, endpoint) in endpoints.iter().flat_map(|all| &all.0) {
            let place = Path::at("endpoints").key(path);
            self.note(place.key("policy"), OrOff::is_off(endpoint.policy.as_ref()));
            self.note(place.key("scopes"), endpoint.scopes.as_ref().is_some_and(Vec::is_empty));
            let scopes = endpoint.tools.as_ref().and_then(|tools| tools.scopes.as_ref());
            self.note(place.key("tools").key("scopes"), scopes.is_some_and(|scopes| scopes.0.is_empty()));
        }
    }
}
