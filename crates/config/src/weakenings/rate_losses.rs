//! Rate limits and quotas. A limit with a higher value is not a loss.

use weir_config_file::config_report::ConfigPath;
use weir_policy::limit::{LimitSettings, RateLimit, ToolLimit, UncountedQuota};

use crate::checked_config::Config;
use crate::weakenings::weakening::ProtectionLoss;

/// Finds the loss of all limits together.
pub(super) fn all_limits(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let is_lost = old.rates.is_limited() && !new.rates.is_limited();
    let loss = || {
        ProtectionLoss::new(
            ConfigPath::at("rates"),
            "rates would no longer be limited",
            "write rates: off",
        )
    };
    is_lost.then(loss).into_iter().collect()
}

/// Finds the loss of single limits. The removal of an entry for a few is no loss if the limit for
/// all principals applies to them.
pub(super) fn single_limits(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let (was, now) = (&old.rates, &new.rates);
    if !now.is_limited() {
        return Vec::new();
    }
    let root = ConfigPath::at("rates");
    let mut all = Vec::new();
    let everybody = now.principal.as_ref();
    all.extend(losses(
        root.key("address"),
        was.address.as_ref(),
        now.address.as_ref(),
    ));
    all.extend(losses(
        root.key("principal"),
        was.principal.as_ref(),
        everybody,
    ));
    for (id, limit) in &was.endpoints {
        if new.endpoints.iter().any(|endpoint| endpoint.id == *id) {
            let now = now.endpoints.get(id).or(everybody);
            all.extend(losses(root.key("endpoints").key(id), Some(limit), now));
        }
    }
    for (name, limit) in &was.groups {
        let own = now
            .groups
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, limit)| limit);
        all.extend(losses(
            root.key("groups").key(name),
            Some(limit),
            own.or(everybody),
        ));
    }
    for (id, limit) in &was.clients {
        all.extend(losses(
            root.key("clients").key(id),
            Some(limit),
            now.clients.get(id).or(everybody),
        ));
    }
    for (id, limit) in &was.upstreams {
        if new.upstreams.iter().any(|plan| plan.settings.id == *id) {
            all.extend(losses(
                root.key("upstreams").key(id),
                Some(limit),
                now.upstreams.get(id),
            ));
        }
    }
    all.extend(was.tools.iter().flat_map(|tool| tools(tool, now, &root)));
    all
}

/// Compares the handling of calls whose quota cannot be counted.
pub(super) fn uncounted(old: &Config, new: &Config) -> Vec<ProtectionLoss> {
    let refuses = |config: &Config| config.rates.uncounted == UncountedQuota::Refused;
    let is_lost = refuses(old) && !refuses(new) && new.rates.is_limited();
    let loss = || {
        let message = "calls would continue when their quota cannot be counted";
        ProtectionLoss::new(
            ConfigPath::at("rates.uncounted"),
            message,
            "write uncounted: allow",
        )
    };
    is_lost.then(loss).into_iter().collect()
}

fn losses(
    path: ConfigPath,
    was: Option<&RateLimit>,
    now: Option<&RateLimit>,
) -> Vec<ProtectionLoss> {
    let parts = |limit: Option<&RateLimit>| {
        let limit = limit.map(|limit| (limit.rate().is_some(), limit.daily().is_some()));
        limit.unwrap_or_default()
    };
    let ((was_rate, was_daily), (rate, daily)) = (parts(was), parts(now));
    let message = "this limit would be removed";
    if (was_rate || was_daily) && !(rate || daily) {
        return vec![ProtectionLoss::without_own_key(path, message)];
    }
    let parts = [("rate", was_rate && !rate), ("daily", was_daily && !daily)];
    parts
        .into_iter()
        .filter(|(_, is_lost)| *is_lost)
        .map(|(key, _)| ProtectionLoss::without_own_key(path.key(key), message))
        .collect()
}

/// Compares the limit of some tools. Another pattern that covers all of them can replace it.
fn tools(was: &ToolLimit, now: &LimitSettings, root: &ConfigPath) -> Vec<ProtectionLoss> {
    let path = root.key("tools").key(was.pattern.as_str());
    let same = now.tools.iter().find(|tool| tool.pattern == was.pattern);
    let now = same.or_else(|| {
        now.tools
            .iter()
            .find(|tool| tool.pattern.covers(&was.pattern))
    });
    let mut all = losses(path.clone(), Some(&was.limit), now.map(|tool| &tool.limit));
    if was.shared && now.is_some_and(|tool| !tool.shared) {
        let message = "each principal would have a budget as large as the one that all shared";
        all.push(ProtectionLoss::without_own_key(path.key("shared"), message));
    }
    all
}
