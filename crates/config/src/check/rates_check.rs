//! `rates`: checks each limit, applies inheritance, and converts it to the limiter's settings.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{
    Frequency, OrderedMap, RawConcurrency, RawLimit, RawRate, RawRates, RawToolLimit, RawUncounted,
};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Rate;
use weir_policy::limit::{
    ConcurrencyLimits, LimitSettings, RateLimit, ToolLimit, ToolPattern, UncountedQuota,
};

use crate::check::count_check::check_count;
use crate::checked_config::Config;

/// The largest rate. A higher one is no limit in practice.
const MAX_PER_SECOND: u64 = 1_000_000;
/// The longest time in which a burst is available again. A longer one is a typing mistake, and has
/// no room in the numbers of a bucket.
const MAX_REFILL: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
const LIMIT_HINT: &str = "write { rate: 20/s, burst: 100 } or { daily: 10000 }";

pub(super) fn check(raw: Option<RawRates>, report: &mut ConfigReport) -> LimitSettings {
    let Some(raw) = raw else {
        return LimitSettings::default();
    };
    let root = ConfigPath::at("rates");
    let address = raw.address.and_then(|RawRate { rate, burst }| {
        let own = RawLimit {
            rate,
            burst,
            daily: None,
        };
        limit("address", own, None, &root.key("address"), report)
    });
    let principal = raw
        .principal
        .and_then(|own| limit("principal", own, None, &root.key("principal"), report));
    // An entry inherits the keys that it leaves out from `principal`.
    let base = raw.principal;
    let mut named =
        |section: &str, entries: Option<OrderedMap<RawLimit>>, base| -> Vec<(String, RateLimit)> {
            let one = section.trim_end_matches('s');
            let entries = entries.unwrap_or_default().0.into_iter();
            let checked = entries.filter_map(|(name, own)| {
                let path = root.key(section).key(&name);
                Some((
                    limit(&format!("{one}:{name}"), own, base, &path, report)?,
                    name,
                ))
            });
            checked.map(|(limit, name)| (name, limit)).collect()
        };
    let endpoints = named("endpoints", raw.endpoints, base);
    let groups = named("groups", raw.groups, base);
    let clients = named("clients", raw.clients, base);
    let upstreams = named("upstreams", raw.upstreams, None);
    LimitSettings {
        address,
        endpoints: endpoints
            .into_iter()
            .map(|(path, limit)| (EndpointId::new(&path), limit))
            .collect(),
        groups: groups
            .into_iter()
            .map(|(name, limit)| (Arc::from(name), limit))
            .collect(),
        clients: clients
            .into_iter()
            .map(|(id, limit)| (Arc::from(id), limit))
            .collect(),
        tools: tools(raw.tools, principal.as_ref(), &root.key("tools"), report),
        upstreams: upstreams
            .into_iter()
            .filter_map(|(id, limit)| upstream(&id, limit, &root, report))
            .collect(),
        concurrency: concurrency(raw.concurrency, &root.key("concurrency"), report),
        uncounted: match raw.uncounted {
            None | Some(RawUncounted::Allow) => UncountedQuota::Allowed,
            Some(RawUncounted::Refuse) => UncountedQuota::Refused,
        },
        principal,
    }
}

/// Checks that need the whole config: limits of absent upstreams and endpoints. They are warnings,
/// because teams' files come and go.
pub(super) fn check_targets_exist(config: &Config, report: &mut ConfigReport) {
    let (rates, root) = (&config.rates, ConfigPath::at("rates"));
    let of_callers = [
        ("principal", rates.principal.is_some()),
        ("endpoints", !rates.endpoints.is_empty()),
        ("groups", !rates.groups.is_empty()),
        ("clients", !rates.clients.is_empty()),
    ];
    for (key, _) in of_callers
        .iter()
        .filter(|(_, given)| *given && !config.auth.required)
    {
        let problem = ConfigProblem::warning(
            root.key(key),
            "has no effect: without `auth`, weir cannot tell callers apart",
        );
        report.add(problem.hint("limit `address` or `upstreams`, or write `auth`"));
    }
    let mut warn = |path, what: &str| {
        let message = format!("has no effect: there is no such {what}");
        report.add(ConfigProblem::warning(path, message));
    };
    let has_upstream = |fits: &dyn Fn(&UpstreamId) -> bool| {
        let mut plans = config.upstreams.iter();
        plans.any(|plan| fits(&plan.settings.id))
    };
    for ToolLimit { pattern, .. } in &rates.tools {
        if !has_upstream(&|id| pattern.is_of_upstream(id)) {
            warn(root.key("tools").key(pattern.as_str()), "upstream");
        }
    }
    for id in rates.upstreams.keys() {
        if !has_upstream(&|known| known == id) {
            warn(root.key("upstreams").key(id), "upstream");
        }
    }
    for id in rates.endpoints.keys() {
        if !config.endpoints.iter().any(|endpoint| endpoint.id == *id) {
            warn(root.key("endpoints").key(id), "endpoint");
        }
    }
}

fn limit(
    name: &str,
    own: RawLimit,
    base: Option<RawLimit>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<RateLimit> {
    let base = base.unwrap_or_default();
    let has_rate = own.rate.or(base.rate).is_some();
    if own.rate.is_none() && own.daily.is_none() && (own.burst.is_none() || !has_rate) {
        if !report.has_error_under(path) {
            report.add(ConfigProblem::error(path.clone(), "has no limit").hint(LIMIT_HINT));
        }
        return None;
    }
    if own.burst.is_some() && !has_rate {
        report.add(
            ConfigProblem::error(path.key("burst"), "has no effect without a rate")
                .hint(LIMIT_HINT),
        );
    }
    if own.daily == Some(0) {
        report.add(
            ConfigProblem::error(path.key("daily"), "must be at least 1")
                .hint("to deny all calls, write a policy"),
        );
    }
    let (frequency, burst) = if own.rate.is_some() {
        (own.rate, own.burst)
    } else {
        (base.rate, own.burst.or(base.burst))
    };
    let rate = frequency.and_then(|frequency| rate(frequency, burst, path, report));
    Some(RateLimit::new(name, rate, own.daily.or(base.daily)))
}

fn rate(
    frequency: Frequency,
    burst: Option<u32>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<Rate> {
    let Frequency { count, per } = frequency;
    if u64::from(count) > MAX_PER_SECOND * per.as_secs() {
        report.add(ConfigProblem::error(
            path.key("rate"),
            "is more than the maximum of 1000000 in a second",
        ));
    }
    let Some(count) = NonZeroU32::new(count) else {
        let problem = ConfigProblem::error(path.key("rate"), "must be at least 1");
        report.add(problem.hint("to deny all calls, write a policy"));
        return None;
    };
    let Some(burst) = burst.map_or(Some(count), NonZeroU32::new) else {
        report.add(ConfigProblem::error(
            path.key("burst"),
            "must be at least 1: no call could pass",
        ));
        return None;
    };
    if per.as_nanos() * u128::from(burst.get()) > MAX_REFILL.as_nanos() * u128::from(count.get()) {
        let problem = ConfigProblem::error(
            path.key("burst"),
            "is more than the rate refills in 100 years",
        );
        report.add(problem.hint("write a smaller burst"));
        return None;
    }
    Some(Rate { count, per, burst })
}

fn tools(
    raw: Option<OrderedMap<RawToolLimit>>,
    principal: Option<&RateLimit>,
    root: &ConfigPath,
    report: &mut ConfigReport,
) -> Vec<ToolLimit> {
    let entries = raw.unwrap_or_default().0.into_iter();
    entries
        .filter_map(|(text, raw)| tool(&text, raw, principal, &root.key(&text), report))
        .collect()
}

fn tool(
    text: &str,
    raw: RawToolLimit,
    principal: Option<&RateLimit>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<ToolLimit> {
    let RawToolLimit {
        rate,
        burst,
        daily,
        cost,
        shared,
    } = raw;
    let pattern = ToolPattern::new(text).map_err(|why| {
        let hint = "write <upstream>/<the tool's own name>, such as files/write_* or */delete_*";
        report.add(
            ConfigProblem::error(path.clone(), format!("is not a tool pattern: {why}")).hint(hint),
        );
    });
    let cost = NonZeroU32::new(cost.unwrap_or(1));
    if cost.is_none() {
        report.add(ConfigProblem::error(path.key("cost"), "must be at least 1"));
    }
    let most = principal.and_then(RateLimit::rate).map(|rate| rate.burst);
    if let (Some(cost), Some(most)) = (cost, most)
        && cost > most
    {
        let problem = ConfigProblem::warning(
            path.key("cost"),
            format!("is more than a principal's burst ({most})"),
        );
        report.add(problem.hint("such a call takes the whole burst"));
    }
    let name = format!("tool:{text}");
    let own = RawLimit { rate, burst, daily };
    let limit = match (rate, daily, raw.cost) {
        // An entry with only a cost is valid.
        (None, None, Some(_)) if burst.is_none() => RateLimit::new(name, None, None),
        _ => limit(&name, own, None, path, report)?,
    };
    Some(ToolLimit {
        pattern: pattern.ok()?,
        limit,
        cost: cost?,
        shared: shared.unwrap_or(false),
    })
}

fn upstream(
    id: &str,
    limit: RateLimit,
    root: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<(UpstreamId, RateLimit)> {
    match UpstreamId::new(id) {
        Ok(id) => Some((id, limit)),
        Err(error) => {
            report.add(ConfigProblem::error(
                root.key("upstreams").key(id),
                error.to_string(),
            ));
            None
        }
    }
}

fn concurrency(
    raw: Option<RawConcurrency>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> ConcurrencyLimits {
    let usual = ConcurrencyLimits::default();
    let Some(raw) = raw else { return usual };
    if raw.principal == Some(0) {
        report.add(ConfigProblem::error(
            path.key("principal"),
            "must be at least 1: no call could pass",
        ));
    }
    check_count(raw.principal, 0, &path.key("principal"), report);
    check_count(raw.queue, 0, &path.key("queue"), report);
    ConcurrencyLimits {
        principal: raw.principal.unwrap_or(usual.principal),
        queue: raw.queue.unwrap_or(usual.queue),
        upstream_queue: raw.queue.unwrap_or(usual.upstream_queue),
        wait: raw.wait.map_or(usual.wait, |time| time.0),
        ..usual
    }
}
