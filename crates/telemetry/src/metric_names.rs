//! The names of instruments in Prometheus' formats (OpenTelemetry specification, compatibility,
//! Prometheus and OpenMetrics).

use weir_core::telemetry::InstrumentKind;

/// Returns the name of a metric family: of a counter with its `_total`, of a histogram without
/// `_bucket`.
pub fn exposed(name: &str, kind: InstrumentKind, unit: &str) -> String {
    let mut exposed = label(name);
    let unit = match unit {
        "s" => Some("seconds"),
        "By" => Some("bytes"),
        // Annotations such as `{panic}` are not units.
        _ => None,
    };
    if let Some(unit) = unit
        && !exposed.ends_with(unit)
    {
        exposed.push('_');
        exposed.push_str(unit);
    }
    if kind == InstrumentKind::Counter {
        exposed.push_str("_total");
    }
    exposed
}

/// Returns the name of an attribute as a label.
pub fn label(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_unit_and_counter_suffix() {
        for (name, kind, unit, expected) in [
            (
                "mcp.server.operation.duration",
                InstrumentKind::Histogram,
                "s",
                "mcp_server_operation_duration_seconds",
            ),
            (
                "weir.upstream.io",
                InstrumentKind::Counter,
                "By",
                "weir_upstream_io_bytes_total",
            ),
            (
                "weir.replay.bytes",
                InstrumentKind::UpDownCounter,
                "By",
                "weir_replay_bytes",
            ),
            (
                "weir.panics",
                InstrumentKind::Counter,
                "{panic}",
                "weir_panics_total",
            ),
            (
                "http.server.active_requests",
                InstrumentKind::UpDownCounter,
                "{request}",
                "http_server_active_requests",
            ),
        ] {
            assert_eq!(exposed(name, kind, unit), expected);
        }
        assert_eq!(label("mcp.method.name"), "mcp_method_name");
    }
}
