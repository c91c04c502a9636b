//! `audit:` as written in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config_secret::ConfigSecret;
use crate::raw::OrderedMap;
use crate::raw::RawKey;
use crate::raw::{Size, Time};

/// The audit log. Absent: refusals and failures are logged, and no audit records are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAudit {
    /// Writes records to a file, one JSON object per line.
    pub file: Option<RawAuditFile>,
    /// Writes records to standard output too.
    pub stdout: Option<bool>,
    /// Sends records to an OpenTelemetry collector too.
    pub otlp: Option<RawOtlp>,
    /// The handling of calls while records cannot be written. Default `open`.
    pub on_failure: Option<RawOnFailure>,
    /// The longest time before a record is synced to disk. Default `100ms`.
    #[schemars(extend("x-protection" = "none"))]
    pub sync: Option<Time>,
    /// The number of records that may wait to be written. Default 16384.
    #[schemars(extend("x-protection" = "none"))]
    pub queue: Option<usize>,
    /// The form of a call's arguments in records. Default `digest`.
    // Absent is `digest`, without any value in clear text.
    #[schemars(extend("x-protection" = "none"))]
    pub arguments: Option<RawArguments>,
    /// JSON pointers to arguments that records show in clear text. All other values become `***`.
    /// `*` stands for any member or item.
    // Absent is no value in clear text.
    #[schemars(extend("x-protection" = "none"))]
    pub show: Option<Vec<String>>,
    /// The key that signs the chain of records, so that only its holder can write one. The format
    /// is that of `weir keygen`.
    pub key: Option<RawKey>,
}

/// The file of the audit log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAuditFile {
    /// The path of the file. Its folder must exist.
    #[schemars(extend("x-protection" = "none"))]
    pub path: Option<String>,
    /// The rotation and retention of files.
    #[schemars(extend("x-protection" = "none below"))]
    pub rotate: Option<RawRotate>,
}

/// The rotation and retention of files.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawRotate {
    /// The size at which a file is rotated. Default `64MiB`.
    pub size: Option<Size>,
    /// The number of rotated files that are kept. Default 32.
    pub keep: Option<usize>,
    /// The time that rotated files are kept. Default: for ever.
    pub keep_for: Option<Time>,
}

/// An OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawOtlp {
    /// The URL of its OTLP over HTTP: `http://host:4318`, or the full URL of its logs endpoint.
    #[schemars(extend("x-protection" = "none"))]
    pub url: Option<String>,
    /// Headers on every request to the collector. Keep secrets out of the file: `Bearer ${TOKEN}`.
    #[schemars(extend("x-protection" = "none below"))]
    pub headers: Option<OrderedMap<ConfigSecret>>,
    /// A PEM file with further root certificates for the collector.
    #[schemars(extend("x-protection" = "none"))]
    pub ca_file: Option<String>,
}

/// The handling of calls while records cannot be written.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawOnFailure {
    /// Calls continue. Records that do not fit in the queue are counted and lost.
    Open,
    /// Calls are refused, so that no call goes without a record.
    Closed,
}

/// The form of a call's arguments in records.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawArguments {
    /// SHA-256 of their canonical JSON.
    Digest,
    /// Records leave out the arguments.
    None,
}
