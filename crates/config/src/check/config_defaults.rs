//! Deadlines, validation, naming and pages: settings with a common value and one of a single
//! upstream, endpoint or tool.

use std::path::PathBuf;
use std::time::Duration;

use weir_catalog::{OPEN_TIME, WALK_TIME};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{
    RawAlphabet, RawCheck, RawConfig, RawDeadlines, RawNaming, RawOversized, RawPage, RawPrefix,
    RawResults, RawUpstreamDeadlines, RawValidation, Size, Time,
};
use weir_core::endpoint::{EndpointMode, NamePrefix, OversizedAction, PageSize, ResultLimit};
use weir_core::hold::HoldLimits;
use weir_core::names::{NameAlphabet, ToolNaming, UpstreamId};
use weir_core::upstream::CallDeadlines;
use weir_schema::{CheckMode, Validation};
use weir_upstream::OwnDeadlines;

use crate::check::count_check::check_count;
use crate::check::own_address_check::OwnAddresses;

/// The smallest `results.max`: room for the note in a cut result, and for the JSON around its text.
const MIN_RESULT_BYTES: usize = 1 << 10;

/// The settings of endpoints, upstreams and tools that set none of their own.
#[derive(Clone, Debug)]
pub(crate) struct ConfigDefaults {
    /// The folder that relative paths start at.
    pub(crate) folder: PathBuf,
    /// True if clients need credentials.
    pub(crate) auth: bool,
    /// True if all callers are one MCP client.
    pub(crate) one_host: bool,
    /// The addresses of this weir itself.
    pub(super) own_addresses: OwnAddresses,
    pub(crate) deadlines: CallDeadlines,
    /// The deadlines of weir's own requests to upstreams.
    pub(crate) own_deadlines: OwnDeadlines,
    pub(crate) validation: Validation,
    pub(crate) naming: ToolNaming,
    /// The same as written, for endpoints that change a part of it.
    pub(crate) raw_naming: RawNaming,
    pub(crate) prefix: NamePrefix,
    pub(crate) page: PageSize,
    /// The largest result that is held completely.
    pub(crate) largest_held: usize,
}

impl ConfigDefaults {
    pub(super) fn check(
        raw: &RawConfig,
        folder: &std::path::Path,
        report: &mut ConfigReport,
    ) -> Self {
        let (naming, prefix) = naming(raw.naming.as_ref(), None, &ConfigPath::at("naming"), report)
            .unwrap_or((ToolNaming::default(), NamePrefix::Always));
        let of_calls = raw.deadlines.map(RawUpstreamDeadlines::of_calls);
        Self {
            folder: folder.to_owned(),
            one_host: false,
            own_addresses: OwnAddresses::default(),
            auth: raw
                .auth
                .as_ref()
                .and_then(|auth| auth.mode.as_deref())
                .is_some_and(|mode| mode != "none"),
            deadlines: deadlines(
                of_calls.as_ref(),
                CallDeadlines::CALL,
                &ConfigPath::at("deadlines"),
                report,
            ),
            own_deadlines: own_deadlines(
                raw.deadlines,
                OwnDeadlines::default(),
                &ConfigPath::at("deadlines"),
                report,
            ),
            validation: validation(raw.validation.as_ref(), Validation::default()),
            naming,
            raw_naming: raw.naming.clone().unwrap_or_default(),
            prefix,
            page: page(
                raw.page.as_ref(),
                PageSize::default(),
                &ConfigPath::at("page"),
                report,
            ),
            largest_held: raw
                .limits
                .as_ref()
                .and_then(|limits| limits.hold_per_call)
                .map_or(HoldLimits::default().per_call, |size| size.0),
        }
    }

    /// Returns the mode of an endpoint with these upstreams and the default settings.
    pub(super) fn aggregate_mode(&self, upstreams: Vec<UpstreamId>) -> EndpointMode {
        EndpointMode::Aggregate {
            upstreams,
            naming: self.naming.clone(),
            prefix: self.prefix,
        }
    }
}

/// Returns deadlines. Absent keys come from `base`.
pub(super) fn deadlines(
    raw: Option<&RawDeadlines>,
    base: CallDeadlines,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> CallDeadlines {
    let Some(raw) = raw else { return base };
    let mut time = |time: Option<Time>, default, key: &str| {
        if time.is_some_and(|time| time.0.is_zero()) {
            report.add(ConfigProblem::error(path.key(key), "must not be zero"));
        }
        time.map_or(default, |time| time.0)
    };
    let found = CallDeadlines {
        connect: time(raw.connect, base.connect, "connect"),
        idle: time(raw.idle, base.idle, "idle"),
        hard: time(raw.hard, base.hard, "hard"),
        own_silence: None,
    };
    if raw.idle.is_some() && found.idle > found.hard {
        report.add(ConfigProblem::warning(
            path.key("idle"),
            "is longer than `hard`, which ends the call first",
        ));
    }
    found
}

/// Returns the deadlines of weir's own requests to an upstream. Absent keys come from `base`.
pub(super) fn own_deadlines(
    raw: Option<RawUpstreamDeadlines>,
    base: OwnDeadlines,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> OwnDeadlines {
    let Some(raw) = raw else { return base };
    let mut time = |time: Option<Time>, default, (key, most): (&str, Duration)| {
        match time {
            Some(time) if time.0.is_zero() => {
                report.add(ConfigProblem::error(path.key(key), "must not be zero"))
            }
            Some(time) if time.0 > most => {
                let text = format!(
                    "must be at most {}s, the limit of the operation that it is part of",
                    most.as_secs()
                );
                report.add(ConfigProblem::error(path.key(key), text));
            }
            Some(_) | None => {}
        }
        time.map_or(default, |time| time.0)
    };
    OwnDeadlines {
        list: time(raw.list, base.list, ("list", WALK_TIME)),
        probe: time(raw.probe, base.probe, ("probe", OPEN_TIME)),
        ..base
    }
}

/// Returns the validation. Absent keys come from `base`.
pub(super) fn validation(raw: Option<&RawValidation>, base: Validation) -> Validation {
    let Some(raw) = raw else { return base };
    let check = |check: Option<RawCheck>, default| match check {
        None => default,
        Some(RawCheck::Off) => CheckMode::Off,
        Some(RawCheck::Warn) => CheckMode::Warn,
        Some(RawCheck::Enforce) => CheckMode::Enforce,
    };
    Validation {
        input: check(raw.input, base.input),
        output: check(raw.output, base.output),
    }
}

/// Returns the bound of an upstream's results, or `None` if it has an error.
pub(super) fn results(
    raw: RawResults,
    defaults: &ConfigDefaults,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<ResultLimit> {
    let Some(Size(bytes)) = raw.max else {
        if !report.has_error_under(path) {
            report.add(
                ConfigProblem::error(path.clone(), "has no `max`")
                    .hint("write max: 1MiB, or remove the section"),
            );
        }
        return None;
    };
    let path = path.key("max");
    if bytes < MIN_RESULT_BYTES {
        report.add(ConfigProblem::error(path, "must be at least 1KiB"));
        return None;
    }
    if bytes > defaults.largest_held {
        let text = format!(
            "is more than the {} bytes of a result that can be held",
            defaults.largest_held
        );
        report.add(
            ConfigProblem::error(path, text)
                .hint("write a larger limits.hold_per_call, or a smaller one here"),
        );
        return None;
    }
    let over = match raw.over {
        None | Some(RawOversized::Refuse) => OversizedAction::Refuse,
        Some(RawOversized::Cut) => OversizedAction::Cut,
    };
    Some(ResultLimit {
        bytes,
        action: over,
    })
}

/// Returns the naming. Absent keys come from `base`. `None` if the combination has an error.
pub(super) fn naming(
    raw: Option<&RawNaming>,
    base: Option<&RawNaming>,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<(ToolNaming, NamePrefix)> {
    let none = RawNaming::default();
    let (raw, base) = (raw.unwrap_or(&none), base.unwrap_or(&none));
    let separator = raw
        .separator
        .as_deref()
        .or(base.separator.as_deref())
        .unwrap_or("__");
    let maximum = raw.maximum.or(base.maximum).unwrap_or(64);
    let alphabet = match raw.alphabet.or(base.alphabet) {
        None | Some(RawAlphabet::Strict) => NameAlphabet::Strict,
        Some(RawAlphabet::Dotted) => NameAlphabet::Dotted,
    };
    let prefix = match raw.prefix.or(base.prefix) {
        None | Some(RawPrefix::Always) => NamePrefix::Always,
        Some(RawPrefix::None) => NamePrefix::None,
    };
    match ToolNaming::new(separator, maximum, alphabet) {
        Ok(naming) => Some((naming, prefix)),
        Err(error) => {
            report.add(ConfigProblem::error(path.clone(), error.to_string()));
            None
        }
    }
}

/// Returns the page size. Absent keys come from `base`.
pub(super) fn page(
    raw: Option<&RawPage>,
    base: PageSize,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> PageSize {
    let Some(raw) = raw else { return base };
    check_count(raw.items, 1, &path.key("items"), report);
    if raw.bytes.is_some_and(|size| size.0 < 1024) {
        report.add(ConfigProblem::error(
            path.key("bytes"),
            "must be at least 1KiB",
        ));
    }
    PageSize {
        items: raw.items.unwrap_or(base.items),
        bytes: raw.bytes.map_or(base.bytes, |size| size.0),
    }
}
