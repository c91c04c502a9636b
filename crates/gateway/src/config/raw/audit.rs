//! `audit:` as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Size, Time};
use super::{Ordered, RawKey};
use crate::config::Secret;

/// The record of who did what. Absent: refusals and failures stand in the log, and nothing is kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAudit {
    /// Keep records in a file, a JSON object a line.
    pub(crate) file: Option<RawAuditFile>,
    /// Write records to standard output too.
    pub(crate) stdout: Option<bool>,
    /// Send records to an OpenTelemetry collector too.
    pub(crate) otlp: Option<RawOtlp>,
    /// What happens while records cannot be kept. Default `open`.
    pub(crate) on_failure: Option<RawOnFailure>,
    /// How long a record may wait until the disk has it for good. Default `100ms`.
    pub(crate) sync: Option<Time>,
    /// How many records may wait to be written. Default 16384.
    pub(crate) queue: Option<usize>,
    /// What records say of a call's arguments. Default `digest`.
    pub(crate) arguments: Option<RawArguments>,
    /// JSON pointers to arguments that records show in the clear; everything else becomes `***`.
    /// `*` stands for any member or item.
    pub(crate) show: Option<Vec<String>>,
    /// Signs the chain, so that only this key's holder can write one. In the form that
    /// `weir keygen` prints.
    pub(crate) key: Option<RawKey>,
}

/// Where records are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAuditFile {
    /// The file; its folder must be there.
    pub(crate) path: Option<String>,
    /// When a new file is begun, and how long old ones stay.
    pub(crate) rotate: Option<RawRotate>,
}

/// When a new file is begun, and how long old ones stay.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRotate {
    /// A file of this size is put aside and a new one begun. Default `64MiB`.
    pub(crate) size: Option<Size>,
    /// How many files that were put aside stay. Default 32.
    pub(crate) keep: Option<usize>,
    /// How long they stay. Default: for ever.
    pub(crate) keep_for: Option<Time>,
}

/// An OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawOtlp {
    /// Where it takes OTLP over HTTP: `http://host:4318`, or the whole URL of its logs.
    pub(crate) url: Option<String>,
    /// Headers on every request to it. Keep secrets out of the file: `Bearer ${TOKEN}`.
    pub(crate) headers: Option<Ordered<Secret>>,
    /// A PEM file with further root certificates for it.
    pub(crate) ca_file: Option<String>,
}

/// What happens while records cannot be kept.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawOnFailure {
    /// Calls go on; records that find no room are counted and lost.
    Open,
    /// Calls are refused: none without a record.
    Closed,
}

/// What records say of a call's arguments.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawArguments {
    /// SHA-256 over their canonical JSON.
    Digest,
    /// Nothing.
    None,
}
