//! Deadlines, validation, naming and pages: what can be said for all and again for one.

use std::path::PathBuf;
use std::time::Duration;

use weir_core::catalog::CatalogSettings;
use weir_core::endpoint::{Mode, Oversized, PageSize, Prefix, ResultLimit};
use weir_core::hold::HoldLimits;
use weir_core::names::{Alphabet, Naming, UpstreamId};
use weir_core::schema::{Check, Validation};
use weir_core::upstream::Deadlines;
use weir_upstream::OwnDeadlines;

use super::super::raw::{
    Raw, RawAlphabet, RawCheck, RawDeadlines, RawNaming, RawOversized, RawPage, RawPrefix,
    RawResults, RawUpstreamDeadlines, RawValidation, Size,
};
use super::super::report::{Path, Problem, Report};

/// Room for the note of a result that is cut, and for what stands around its text.
const LEAST_RESULT: usize = 1 << 10;

/// What holds where an endpoint, upstream or tool says nothing of its own.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    /// Where relative paths start.
    pub(crate) folder: PathBuf,
    /// Whether callers are asked who they are.
    pub(crate) auth: bool,
    /// Whether all callers are one host.
    pub(crate) one_host: bool,
    pub(crate) deadlines: Deadlines,
    /// Those of what weir asks upstreams for itself.
    pub(crate) own_deadlines: OwnDeadlines,
    pub(crate) validation: Validation,
    pub(crate) naming: Naming,
    /// The same as written, for endpoints that change a part of it.
    pub(crate) raw_naming: RawNaming,
    pub(crate) prefix: Prefix,
    pub(crate) page: PageSize,
    /// The largest result that is held whole.
    pub(crate) largest_held: usize,
}

impl Defaults {
    pub(super) fn check(raw: &Raw, folder: &std::path::Path, report: &mut Report) -> Self {
        let (naming, prefix) = naming(raw.naming.as_ref(), None, &Path::at("naming"), report)
            .unwrap_or((super::fallback_naming(), Prefix::Always));
        let of_calls = raw.deadlines.map(RawUpstreamDeadlines::of_calls);
        Self {
            folder: folder.to_owned(),
            one_host: false,
            auth: raw
                .auth
                .as_ref()
                .and_then(|auth| auth.mode.as_deref())
                .is_some_and(|mode| mode != "none"),
            deadlines: deadlines(
                of_calls.as_ref(),
                Deadlines::CALL,
                &Path::at("deadlines"),
                report,
            ),
            own_deadlines: own_deadlines(
                raw.deadlines,
                OwnDeadlines::default(),
                &Path::at("deadlines"),
                report,
            ),
            validation: validation(raw.validation.as_ref(), Validation::default()),
            naming,
            raw_naming: raw.naming.clone().unwrap_or_default(),
            prefix,
            page: page(
                raw.page.as_ref(),
                PageSize::default(),
                &Path::at("page"),
                report,
            ),
            largest_held: raw
                .limits
                .as_ref()
                .and_then(|limits| limits.hold_per_call)
                .map_or(HoldLimits::default().per_call, |size| size.0),
        }
    }

    /// An endpoint over these upstreams that says nothing of its own.
    pub(super) fn everything(&self, upstreams: Vec<UpstreamId>) -> Mode {
        Mode::Aggregate {
            upstreams,
            naming: self.naming.clone(),
            prefix: self.prefix,
        }
    }
}

/// Deadlines; what is not said comes from `base`.
pub(super) fn deadlines(
    raw: Option<&RawDeadlines>,
    base: Deadlines,
    path: &Path,
    report: &mut Report,
) -> Deadlines {
    let Some(raw) = raw else { return base };
    let mut time = |time: Option<super::Time>, default, key: &str| {
        if time.is_some_and(|time| time.0.is_zero()) {
            report.add(Problem::error(path.key(key), "must not be zero"));
        }
        time.map_or(default, |time| time.0)
    };
    let found = Deadlines {
        connect: time(raw.connect, base.connect, "connect"),
        idle: time(raw.idle, base.idle, "idle"),
        hard: time(raw.hard, base.hard, "hard"),
    };
    if raw.idle.is_some() && found.idle > found.hard {
        report.add(Problem::warning(
            path.key("idle"),
            "is longer than `hard`, which ends the call first",
        ));
    }
    found
}

/// Deadlines of what weir asks an upstream for itself; what is not said comes from `base`.
pub(super) fn own_deadlines(
    raw: Option<RawUpstreamDeadlines>,
    base: OwnDeadlines,
    path: &Path,
    report: &mut Report,
) -> OwnDeadlines {
    let Some(raw) = raw else { return base };
    let mut time = |time: Option<super::Time>, default, (key, most): (&str, Duration)| {
        match time {
            Some(time) if time.0.is_zero() => {
                report.add(Problem::error(path.key(key), "must not be zero"))
            }
            Some(time) if time.0 > most => {
                let text = format!(
                    "must be at most {}s: what it is a part of ends then",
                    most.as_secs()
                );
                report.add(Problem::error(path.key(key), text));
            }
            Some(_) | None => {}
        }
        time.map_or(default, |time| time.0)
    };
    let usual = CatalogSettings::default();
    OwnDeadlines {
        list: time(raw.list, base.list, ("list", usual.walk_time)),
        probe: time(raw.probe, base.probe, ("probe", usual.open_time)),
    }
}

/// Validation; what is not said comes from `base`.
pub(super) fn validation(raw: Option<&RawValidation>, base: Validation) -> Validation {
    let Some(raw) = raw else { return base };
    let check = |check: Option<RawCheck>, default| match check {
        None => default,
        Some(RawCheck::Off) => Check::Off,
        Some(RawCheck::Warn) => Check::Warn,
        Some(RawCheck::Enforce) => Check::Enforce,
    };
    Validation {
        input: check(raw.input, base.input),
        output: check(raw.output, base.output),
    }
}

/// The bound of an upstream's results; `None` where it cannot be used.
pub(super) fn results(
    raw: RawResults,
    defaults: &Defaults,
    path: &Path,
    report: &mut Report,
) -> Option<ResultLimit> {
    let Some(Size(bytes)) = raw.max else {
        if !report.blames(path) {
            report.add(
                Problem::error(path.clone(), "says no `max`")
                    .hint("write max: 1MiB, or remove the section"),
            );
        }
        return None;
    };
    let path = path.key("max");
    if bytes < LEAST_RESULT {
        report.add(Problem::error(path, "must be at least 1KiB"));
        return None;
    }
    if bytes > defaults.largest_held {
        let text = format!(
            "is more than the {} bytes of a result that can be held",
            defaults.largest_held
        );
        report.add(
            Problem::error(path, text)
                .hint("write a larger limits.hold_per_call, or a smaller one here"),
        );
        return None;
    }
    let over = match raw.over {
        None | Some(RawOversized::Refuse) => Oversized::Refuse,
        Some(RawOversized::Cut) => Oversized::Cut,
    };
    Some(ResultLimit { bytes, over })
}

/// How names are made; what is not said comes from `base`. `None` where the rule cannot be used.
pub(super) fn naming(
    raw: Option<&RawNaming>,
    base: Option<&RawNaming>,
    path: &Path,
    report: &mut Report,
) -> Option<(Naming, Prefix)> {
    let none = RawNaming::default();
    let (raw, base) = (raw.unwrap_or(&none), base.unwrap_or(&none));
    let separator = raw
        .separator
        .as_deref()
        .or(base.separator.as_deref())
        .unwrap_or("__");
    let maximum = raw.maximum.or(base.maximum).unwrap_or(64);
    let alphabet = match raw.alphabet.or(base.alphabet) {
        None | Some(RawAlphabet::Strict) => Alphabet::Strict,
        Some(RawAlphabet::Dotted) => Alphabet::Dotted,
    };
    let prefix = match raw.prefix.or(base.prefix) {
        None | Some(RawPrefix::Always) => Prefix::Always,
        Some(RawPrefix::None) => Prefix::None,
    };
    match Naming::new(separator, maximum, alphabet) {
        Ok(naming) => Some((naming, prefix)),
        Err(error) => {
            report.add(Problem::error(path.clone(), error.to_string()));
            None
        }
    }
}

/// Pages; what is not said comes from `base`.
pub(super) fn page(
    raw: Option<&RawPage>,
    base: PageSize,
    path: &Path,
    report: &mut Report,
) -> PageSize {
    let Some(raw) = raw else { return base };
    if raw.items == Some(0) {
        report.add(Problem::error(
            path.key("items"),
            "a page holds at least one item",
        ));
    }
    if raw.bytes.is_some_and(|size| size.0 < 1024) {
        report.add(Problem::error(path.key("bytes"), "must be at least 1KiB"));
    }
    PageSize {
        items: raw.items.unwrap_or(base.items),
        bytes: raw.bytes.map_or(base.bytes, |size| size.0),
    }
}
