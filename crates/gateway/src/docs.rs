//! Pages of the documentation that are generated from the code.

mod configuration;

use std::fmt::Write;

use weir_core::telemetry::{InstrumentRow, rows};

use crate::telemetry::exposed;

const HEAD: &str = "# Errors

This page is made from the code (`weir docs errors`); a test keeps it current.

What goes wrong before a request is read as JSON-RPC is plain HTTP: 401 (credentials), 403 (Host, Origin, scopes), 404 (no such path),
405, 406, 413, 415, 429 (too often: `Retry-After` says when to come again, `RateLimit` and `RateLimit-Policy` which limit it was), 431,
503, each with a short text. From there on it is a failure of this table. Failures of a tool call reach the model as a result with
`isError: true` whose text says what happened and what to do; the same object stands in `_meta` under `dev.weir/error`. On other
methods they are JSON-RPC errors. Every failure has `data.reason` (the first column), `data.requestId` (also in the log, and in the
header `X-Request-Id`), and `upstream` and `retryAfterMs` where they are known. Where a limit of weir's refused, `limit` has its name
(`policy`), how much it allows (`limit`) in `windowSeconds` (none: at the same time), and whether it is a `quota` of the day.

| reason | what it means, and what to do | `tools/call`, 2026-07-28 | other methods, 2026-07-28 | `tools/call`, 2025-11-25 | `tools/call`, older |
|---|---|---|---|---|---|
";

/// Returns `docs/configuration.md`.
pub(crate) fn configuration() -> String {
    configuration::configuration(&crate::config::schema())
}

/// Returns `docs/errors.md`.
pub(crate) fn errors() -> String {
    let mut page = HEAD.to_owned();
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

const METRICS: &str = "# Metrics

This page is made from the code (`weir docs metrics`); a test keeps it current. What is done with them, and how they are had, is in
[telemetry.md](telemetry.md).

Names and attributes are those of the OpenTelemetry semantic conventions for MCP and HTTP where these have one; what begins with
`weir.` is weir's own. Prometheus sees dots as underscores, in attributes too: `mcp.method.name` is the label `mcp_method_name`. Histograms
have `_bucket`, `_sum` and `_count`. An attribute that says nothing about a series (`error.type` of what went well) is not there.

| OpenTelemetry | Prometheus | kind | unit | attributes | what it tells |
|---|---|---|---|---|---|
";

/// Returns `docs/metrics.md`.
pub(crate) fn metrics() -> String {
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
    fn the_checked_in_configuration_reference_is_current_and_names_every_key() {
        let page = super::configuration();
        kept("configuration.md", &page);
        let schema: serde_json::Value =
            serde_json::from_str(&crate::config::schema()).expect("it is JSON");
        let definitions = schema["$defs"].as_object().expect("it has definitions");
        for section in std::iter::once(&schema).chain(definitions.values()) {
            for key in section["properties"]
                .as_object()
                .into_iter()
                .flat_map(|keys| keys.keys())
            {
                assert!(page.contains(&format!("| `{key}` |")), "{key} is missing");
            }
        }
    }

    /// Run with `UPDATE=1` to write the file anew.
    #[test]
    fn the_checked_in_error_table_is_current() {
        kept("errors.md", &super::errors());
    }
}
