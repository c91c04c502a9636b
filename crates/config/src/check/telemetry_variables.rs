//! The environment variables that replace absent keys of `telemetry` (OpenTelemetry specification).

use std::time::Duration;

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_config_file::config_secret::ConfigSecret;
use weir_config_file::env::Environment;
use weir_config_file::raw::{OrderedMap, RawPush, RawPushProtocol, Time};

/// The name of the environment in the place of a file's, in problems of its variables.
pub(super) const ENVIRONMENT: &str = "environment";

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Variables that other programs read, with the reason why weir ignores them.
const IGNORED: [(&str, &str); 3] = [
    (
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "is ignored, as all variables of a single signal",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "is ignored, as all variables of a single signal",
    ),
    (
        "OTEL_EXPORTER_OTLP_COMPRESSION",
        "is ignored: weir sends without compression",
    ),
];

/// The variables of an environment. A wrong value of most is ignored with a warning, as the
/// specification wants it. No message repeats a value, which may be a secret.
pub(super) struct TelemetryVariables<'a>(pub(super) Environment<'a>);

impl TelemetryVariables<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let text = (self.0)(name)?.trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns the collector. Variables of single signals are ignored.
    pub(super) fn collector(&self, report: &mut ConfigReport) -> Option<RawPush> {
        match self.text(SDK_DISABLED) {
            Some(text) if text.eq_ignore_ascii_case("true") => return None,
            Some(text) if !text.eq_ignore_ascii_case("false") => {
                warn(SDK_DISABLED, "is neither `true` nor `false`", report);
            }
            _ => {}
        }
        for (name, why) in IGNORED {
            if self.text(name).is_some_and(|text| text != "none") {
                warn(name, why, report);
            }
        }
        let endpoint = self.text(ENDPOINT)?;
        Some(RawPush {
            endpoint: Some(endpoint),
            protocol: self.protocol(report),
            headers: self.headers(report),
            ca_file: self.text(CERTIFICATE),
            interval: self.millis(INTERVAL, report),
            timeout: self.millis(TIMEOUT, report),
        })
    }

    /// Returns the protocol; `http/protobuf` is the default of the specification.
    fn protocol(&self, report: &mut ConfigReport) -> Option<RawPushProtocol> {
        match self.text(PROTOCOL)?.as_str() {
            "grpc" => return Some(RawPushProtocol::Grpc),
            "http/protobuf" => {}
            _ => {
                let text =
                    "is neither `grpc` nor `http/protobuf`: HTTP with Protocol Buffers is used";
                warn(PROTOCOL, text, report);
            }
        }
        None
    }

    fn headers(&self, report: &mut ConfigReport) -> Option<OrderedMap<ConfigSecret>> {
        let text = self.text(HEADERS)?;
        let header = |(name, value): (&str, &str)| {
            (
                name.trim().to_owned(),
                ConfigSecret::from(decoded(value.trim())),
            )
        };
        let headers = pairs(HEADERS, &text, report).into_iter().map(header);
        Some(OrderedMap(headers.collect()))
    }

    /// Warns of the entries of the resource that [`weir_telemetry`] ignores.
    pub(super) fn check_resource(&self, report: &mut ConfigReport) {
        if let Some(text) = self.text(RESOURCE) {
            pairs(RESOURCE, &text, report);
        }
    }

    fn millis(&self, name: &'static str, report: &mut ConfigReport) -> Option<Time> {
        match self.text(name)?.parse() {
            Ok(millis) if millis > 0 => Some(Time(Duration::from_millis(millis))),
            _ => {
                let text = "is not a number of milliseconds above 0, so the default is used";
                warn(name, text, report);
                None
            }
        }
    }

    /// Returns the share of sampled requests.
    pub(super) fn sampled_share(&self, report: &mut ConfigReport) -> Option<f64> {
        match self.text(SAMPLER)?.as_str() {
            "always_on" | "parentbased_always_on" => Some(1.0),
            "always_off" | "parentbased_always_off" => Some(0.0),
            "traceidratio" | "parentbased_traceidratio" => {
                let share = self.text(SAMPLER_ARG)?.parse::<f64>().ok();
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                if share.is_none() {
                    let text = "is not a number from 0 to 1, so the default is used";
                    warn(SAMPLER_ARG, text, report);
                }
                share
            }
            _ => {
                let problem = ConfigProblem::warning(
                    ConfigPath::root().key(SAMPLER),
                    "is not a sampler of weir, so the default is used",
                );
                report.add(problem.hint(
                    "write always_on, always_off or traceidratio, each also after parentbased_",
                ));
                None
            }
        }
    }
}

/// Returns the pairs of a list, without the entries that are none.
fn pairs<'t>(name: &str, text: &'t str, report: &mut ConfigReport) -> Vec<(&'t str, &'t str)> {
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
    let (pairs, others): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.split_once('='))
        .partition(Option::is_some);
    if !others.is_empty() {
        warn(name, "has an entry without `=`, which is ignored", report);
    }
    pairs.into_iter().flatten().collect()
}

fn warn(name: &str, text: &str, report: &mut ConfigReport) {
    report.add(ConfigProblem::warning(ConfigPath::root().key(name), text));
}

/// Adds the problems of a collector from the variables, each under the name of its variable.
pub(super) fn name_variables(found: &ConfigReport, report: &mut ConfigReport) {
    for problem in found.problems() {
        let name = match problem.path.segments().next() {
            Some("headers") => HEADERS,
            Some("ca_file") => CERTIFICATE,
            Some("interval") => INTERVAL,
            Some("timeout") => TIMEOUT,
            _ => ENDPOINT,
        };
        let hint = match name {
            ENDPOINT => Some(format!(
                "write http://127.0.0.1:4318, and credentials in {HEADERS}"
            )),
            _ => problem.hint.clone(),
        };
        report.add(ConfigProblem {
            path: ConfigPath::root().key(name),
            hint,
            ..problem.clone()
        });
    }
}

/// Decodes a value of the variable of headers, in which a byte may be written as `%20`. Other text
/// stays as it is.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .filter(|_| first == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn header_values_of_the_environment_are_decoded() {
        for (given, expected) in [
            ("Basic%20YTpi", "Basic YTpi"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("a%2Cb", "a,b"),
        ] {
            assert_eq!(decoded(given), expected);
        }
    }
}
