//! `audit`: the content, destination and retention of audit records.

use std::time::Duration;

use http::Uri;
use weir_audit::{ArgumentPointer, ArgumentRecording, AuditKey};
use weir_audit::{AuditFilePlan, AuditPlan};
use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::raw::{
    RawArguments, RawAudit, RawAuditFile, RawKey, RawOnFailure, RawOtlp, RawRotate, RawUpstream,
    Size, Time,
};
use weir_upstream::HttpUpstreamSettings;

use crate::check::{sealing_keys_check, upstreams_check};

/// The default of `sync`: the most recent records that a power failure may lose.
const DEFAULT_SYNC: Duration = Duration::from_millis(100);
/// The default of `queue`: more than the requests that are answered at the same time by default, so
/// that each has room for its record.
const DEFAULT_QUEUE: usize = 16_384;
/// The default of `rotate.size`: about 100,000 calls.
const DEFAULT_SIZE: u64 = 64 << 20;
/// The default of `rotate.keep`: 2 GiB with files of the default size.
const DEFAULT_KEEP: usize = 32;
/// The path at which collectors receive logs (OTLP, "OTLP/HTTP Request").
const LOGS_PATH: &str = "/v1/logs";

pub(super) fn check(
    raw: Option<RawAudit>,
    folder: &std::path::Path,
    report: &mut ConfigReport,
) -> Option<AuditPlan> {
    let raw = raw?;
    let at = ConfigPath::at("audit");
    let stdout = raw.stdout.unwrap_or(false);
    let closed = matches!(raw.on_failure, Some(RawOnFailure::Closed));
    if raw.file.is_none() && !stdout {
        if raw.otlp.is_none() && !report.has_error_under(&at) {
            let problem = ConfigProblem::error(at.clone(), "names no destination for records");
            report.add(problem.hint("write audit: { file: { path: /var/log/weir/audit.jsonl } }"));
        } else if closed {
            let problem = ConfigProblem::error(
                at.key("on_failure"),
                "is `closed`, but a collector does not confirm that a record is kept",
            );
            report.add(problem.hint("add `file` or `stdout`"));
        }
    }
    if raw
        .sync
        .is_some_and(|Time(time)| time.is_zero() || time > Duration::from_secs(60))
    {
        report.add(ConfigProblem::error(
            at.key("sync"),
            "must be from 1ms to 60s",
        ));
    }
    if raw
        .queue
        .is_some_and(|queue| !(64..=1 << 20).contains(&queue))
    {
        report.add(ConfigProblem::error(
            at.key("queue"),
            "must be from 64 to 1048576",
        ));
    }
    Some(AuditPlan {
        file: raw
            .file
            .and_then(|raw| file(raw, folder, &at.key("file"), report)),
        stdout,
        otlp: raw
            .otlp
            .and_then(|raw| otlp(raw, folder, &at.key("otlp"), report)),
        closed,
        sync: raw.sync.map_or(DEFAULT_SYNC, |Time(time)| time),
        queue: raw.queue.unwrap_or(DEFAULT_QUEUE),
        shape: shape(raw.arguments, raw.show.as_deref(), &at, report),
        key: raw.key.and_then(|raw| key(&raw, &at.key("key"), report)),
    })
}

fn file(
    raw: RawAuditFile,
    folder: &std::path::Path,
    at: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<AuditFilePlan> {
    let RawRotate {
        size,
        keep,
        keep_for,
    } = raw.rotate.unwrap_or_default();
    let rotate = at.key("rotate");
    if size.is_some_and(|Size(size)| size < 64 << 10) {
        report.add(ConfigProblem::error(
            rotate.key("size"),
            "must be at least 64KiB",
        ));
    }
    if keep == Some(0) {
        let problem = ConfigProblem::error(rotate.key("keep"), "must be at least 1");
        report.add(problem.hint("with 0, records would be deleted as soon as a file is full"));
    }
    if keep_for.is_some_and(|Time(time)| time.is_zero()) {
        report.add(ConfigProblem::error(
            rotate.key("keep_for"),
            "must not be zero",
        ));
    }
    let Some(path) = raw.path.filter(|path| !path.is_empty()) else {
        if !report.has_error_under(at) {
            report.add(ConfigProblem::error(at.key("path"), "is missing"));
        }
        return None;
    };
    let path = folder.join(path);
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        let message = format!(
            "is in the folder {}, which does not exist",
            parent.display()
        );
        let problem = ConfigProblem::error(at.key("path"), message);
        report.add(problem.hint("create it, writable for weir's user only"));
    }
    if path.is_dir() {
        let problem = ConfigProblem::error(at.key("path"), "is a folder");
        report.add(problem.hint("name a file in it"));
    }
    Some(AuditFilePlan {
        path,
        size: size.map_or(DEFAULT_SIZE, |Size(size)| size as u64),
        keep: keep.unwrap_or(DEFAULT_KEEP),
        keep_for: keep_for.map(|Time(time)| time),
    })
}

fn otlp(
    raw: RawOtlp,
    folder: &std::path::Path,
    at: &ConfigPath,
    report: &mut ConfigReport,
) -> Option<HttpUpstreamSettings> {
    let RawOtlp {
        url,
        headers,
        ca_file,
    } = raw;
    if url.is_none() {
        if !report.has_error_under(at) {
            report.add(
                ConfigProblem::error(at.key("url"), "is missing")
                    .hint("write http://127.0.0.1:4318"),
            );
        }
        return None;
    }
    let place = RawUpstream {
        url,
        headers,
        ca_file,
        ..RawUpstream::default()
    };
    let mut settings = upstreams_check::http(place, folder, at, report)?;
    if settings.url.path() == "/" {
        let mut parts = settings.url.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static(LOGS_PATH));
        settings.url = Uri::from_parts(parts).unwrap_or(settings.url);
    }
    Some(settings)
}

fn shape(
    arguments: Option<RawArguments>,
    show: Option<&[String]>,
    at: &ConfigPath,
    report: &mut ConfigReport,
) -> ArgumentRecording {
    let digest = !matches!(arguments, Some(RawArguments::None));
    let mut pointers = Vec::new();
    for (n, text) in show.unwrap_or_default().iter().enumerate() {
        match ArgumentPointer::parse(text) {
            Some(pointer) => pointers.push(pointer),
            None => {
                let problem = ConfigProblem::error(
                    at.key("show").key(n),
                    "is not a JSON pointer to an argument",
                );
                report.add(problem.hint("write /name, or /list/*/id"));
            }
        }
    }
    ArgumentRecording {
        digest,
        show: pointers,
    }
}

fn key(raw: &RawKey, at: &ConfigPath, report: &mut ConfigReport) -> Option<AuditKey> {
    match sealing_keys_check::key(raw) {
        Ok(key) => Some(AuditKey::new(key.id, key.secret)),
        Err((part, message)) => {
            sealing_keys_check::report_bad_key(at.key(part), message, report);
            None
        }
    }
}
