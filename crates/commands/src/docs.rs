//! Pages of the documentation that are generated from the code.

use std::fmt::Write;

use weir_core::telemetry::{InstrumentRow, rows};
use weir_telemetry::metric_names::exposed;

const HEAD: &str = "# Errors

This page is generated from the code (`weir docs errors`); a test keeps it current.

## Before a message is read

These refusals are plain text, so a probing client cannot take them for the answer of a server that is not weir. The reason is the label of the
metric `weir_refusals_total`. Every response has `X-Request-Id`, by which its log lines are found: at the level `debug` each request has
one, `request completed`, with `reason`, `path` and `peer`; at `info` only a sender or a call that is refused, or fails, has one.

| status | reason | headers | text |
|---|---|---|---|
{refusals}
A POST of HTTP+SSE gets 202 before its message is carried out. A later refusal of a request is a JSON-RPC error on the stream, with the same text, `reason`
and, in `retryAfterMs`, the time of `Retry-After`. Its code is 1005 in place of 429, 1006 of 503, 1004 of 502, and -32600 of others.

## Before a message is carried out

These are JSON-RPC errors. Their data has `reason` and `requestId`.

| reason | status | code | meaning and remedy |
|---|---|---|---|
{messages}
## Failures of requests

All later errors are in this table. If the cell has `isError` result, the model gets a result with `isError: true` and a text with the problem and
the advice. Its `_meta` has the data under `dev.weir/error`, with the error code as `code`. Otherwise the client gets a JSON-RPC error.

The members of the data are:

- `reason`: the first column. `unknown_resource` and `missing_capability` have the member in their row beside it and `requestId`; `upstream_error` has
  the upstream's data alone.
- `requestId`: also in the log, and in the header `X-Request-Id`.
- `upstream` and `retryAfterMs`, if they are known.
- `limit`, if a limit of weir refused the request: the limit's name (`policy`), its size (`limit`) in `windowSeconds` (absent for a limit of
  concurrency), and `quota`, which is true for a daily quota.

| reason | meaning and remedy | `tools/call`, 2026-07-28 | other methods, 2026-07-28 | `tools/call`, 2025-11-25 | `tools/call`, older |
|---|---|---|---|---|---|
";

/// Returns `docs/errors.md`.
pub fn errors() -> String {
    let mut page = HEAD
        .replace("{refusals}", &refusal_rows())
        .replace("{messages}", &message_rows());
    for row in weir_front::error_table() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} |",
            row.reason,
            row.meaning,
            row.modern_call,
            row.modern_other,
            row.legacy_call,
            row.older_call
        );
    }
    page
}

fn refusal_rows() -> String {
    let mut rows = String::new();
    for row in weir_front::refusal_table() {
        let reason = row
            .reason
            .map(|reason| format!("`{reason}`"))
            .unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            rows,
            "| {} | {reason} | {} | {} |",
            row.status, row.headers, row.text
        );
    }
    rows
}

fn message_rows() -> String {
    let mut rows = String::new();
    for row in weir_front::message_error_table() {
        let _ = writeln!(
            rows,
            "| `{}` | {} | {} | {} |",
            row.reason, row.status, row.code, row.meaning
        );
    }
    rows
}

const METRICS: &str = "# Metrics

This page is generated from the code (`weir docs metrics`); a test keeps it current. [telemetry.md](telemetry.md) describes their setup and use.

Names and attributes follow the OpenTelemetry semantic conventions for MCP and HTTP; names without a convention begin with `weir.`. Prometheus
names have underscores instead of dots, also in labels: `mcp.method.name` is the label `mcp_method_name`. Histograms have `_bucket`, `_sum` and
`_count`. An attribute without a value is absent, such as `error.type` of a success.

| OpenTelemetry | Prometheus | kind | unit | attributes | description |
|---|---|---|---|---|---|
";

/// Returns `docs/metrics.md`.
pub fn metrics() -> String {
    let mut page = METRICS.to_owned();
    for InstrumentRow {
        name,
        kind,
        unit,
        attributes,
        about,
    } in rows()
    {
        let attributes: Vec<String> = attributes
            .iter()
            .map(|attribute| format!("`{attribute}`"))
            .collect();
        let (attributes, prometheus) = (attributes.join(", "), exposed(name, *kind, unit));
        let kind = format!("{kind:?}").to_lowercase();
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| `{name}` | `{prometheus}` | {kind} | {unit} | {attributes} | {about} |"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    fn kept(name: &str, made: &str) {
        let file = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, made).expect("docs/ can be written");
        }
        let checked_in = std::fs::read_to_string(&file).expect("the page is there");
        assert_eq!(
            checked_in, made,
            "run this test with UPDATE=1 and review the difference"
        );
    }

    /// Run with `UPDATE=1` to write the file anew.
    #[test]
    fn the_checked_in_table_of_metrics_is_current() {
        kept("metrics.md", &super::metrics());
    }

    /// Run with `UPDATE=1` to write the file anew.
    #[test]
    fn the_checked_in_error_table_is_current() {
        kept("errors.md", &super::errors());
    }
}
