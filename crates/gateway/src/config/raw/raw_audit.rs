//! `audit:` as written in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Size, Time};
use crate::config::config_secret::ConfigSecret;
use crate::config::raw::ordered_map::OrderedMap;
use crate::config::raw::raw_key::RawKey;

/// The audit log. Absent: refusals and failures are logged, and no audit records are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAudit {
    /// Writes records to a file, one JSON object per line.
    pub(crate) file: Option<RawAuditFile>,
    /// Writes records to standard output too.
    pub(crate) stdout: Option<bool>,
    /// Sends records to an OpenTelemetry collector too.
    pub(crate) otlp: Option<RawOtlp>,
    /// The handling of calls while records cannot be written. Default `open`.
    pub(crate) on_failure: Option<RawOnFailure>,
    /// The longest time before a record is synced to disk. Default `100ms`.
    pub(crate) sync: Option<Time>,
    /// The number of records that may wait to be written. Default 16384.
    pub(crate) queue: Option<usize>,
    /// The form of a call's arguments in records. Default `digest`.
    pub(crate) arguments: Option<RawArguments>,
    /// JSON pointers to arguments that records show in clear text. All other values become `***`.
    /// `*` stands for any member or item.
    pub(crate) show: Option<Vec<String>>,
    /// The key that signs the chain of records, so that only its holder can write one. The format
    /// is that of `weir keygen`.
    pub(crate) key: Option<RawKey>,
}

/// The file of the audit log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAuditFile {
    /// The path of the file. Its folder must exist.
    pub(crate) path: Option<String>,
    /// The rotation and retention of files.
    pub(crate) rotate: Option<RawRotate>,
}

/// The rotation and retention of files.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRotate {
    /// The size at which a file is rotated. Default `64MiB`.
    pub(crate) size: Option<Size>,
    /// The number of rotated files that are kept. Default 32.
    pub(crate) keep: Option<usize>,
    /// The time that rotated files are kept. Default: for ever.
    pub(crate) keep_for: Option<Time>,
}

/// An OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawOtlp {
    /// The URL of its OTLP over HTTP: `http://host:4318`, or the full URL of its logs endpoint.
    pub(crate) url: Option<String>,
    /// Headers on every request to the collector. Keep secrets out of the file: `Bearer ${TOKEN}`.
    pub(crate) headers: Option<OrderedMap<ConfigSecret>>,
    /// A PEM file with further root certificates for the collector.
    pub(crate) ca_file: Option<String>,
}

/// The handling of calls while records cannot be written.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawOnFailure {
    /// Calls continue. Records that do not fit in the queue are counted and lost.
    Open,
    /// Calls are refused, so that no call goes without a record.
    Closed,
}

/// The form of a call's arguments in records.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawArguments {
    /// SHA-256 of their canonical JSON.
    Digest,
    /// Records leave out the arguments.
    None,
}
