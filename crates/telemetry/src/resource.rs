//! The resource of OpenTelemetry: the attributes that tell this process from others.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use percent_encoding::percent_decode_str;
use weir_core::port::Random;

const SERVICE_NAME: &str = "service.name";
const SERVICE_VERSION: &str = "service.version";
const INSTANCE_ID: &str = "service.instance.id";

/// Returns the resource of this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` in the
/// environment take precedence, and the first over the second.
pub(super) fn of_environment(random: &dyn Random) -> Resource {
    let read = |name| std::env::var(name).unwrap_or_default();
    let attributes = attributes(
        &read("OTEL_SERVICE_NAME"),
        &read("OTEL_RESOURCE_ATTRIBUTES"),
        // Of the process, not of the replica: after a graceful restart the next process has the
        // same replica id, and its counters start at 0 while the old process still exports its own.
        random_uuid(random),
    );
    let attributes = attributes
        .into_iter()
        .map(|(key, value)| KeyValue::new(key, value));
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(attributes)
        .build()
}

/// Returns the attributes for these values of the two variables. An empty value is as good as
/// none.
fn attributes(service_name: &str, listed: &str, instance: String) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::from([
        (SERVICE_NAME.to_owned(), "weir".to_owned()),
        (
            SERVICE_VERSION.to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
        (INSTANCE_ID.to_owned(), instance),
    ]);
    let listed = listed.split(',').filter_map(|entry| entry.split_once('='));
    for (key, value) in listed {
        let (key, value) = (key.trim(), decoded(value.trim()));
        let keeps_default = value.is_empty() && attributes.contains_key(key);
        if !key.is_empty() && !keeps_default {
            attributes.insert(key.to_owned(), value);
        }
    }
    if !service_name.is_empty() {
        attributes.insert(SERVICE_NAME.to_owned(), service_name.to_owned());
    }
    attributes
}

/// Decodes the percent-encoded characters of a value, as the list's own `,` and `=` need it. A
/// value that is not UTF-8 then stays as it is.
fn decoded(value: &str) -> String {
    percent_decode_str(value)
        .decode_utf8()
        .map_or_else(|_| value.to_owned(), std::borrow::Cow::into_owned)
}

/// Returns a random UUID (RFC 9562, version 4).
fn random_uuid(random: &dyn Random) -> String {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = HEXLOWER.encode(&bytes);
    [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use weir_system::SystemRandom;

    use super::*;

    #[test]
    fn variables_of_the_environment_take_precedence_unless_they_are_empty() {
        for (name, listed, expected) in [
            ("", "", ["weir", "id", ""]),
            ("a", "", ["a", "id", ""]),
            ("", "service.name=b", ["b", "id", ""]),
            ("a", "service.name=b", ["a", "id", ""]),
            (
                "",
                "service.name=,service.instance.id= ",
                ["weir", "id", ""],
            ),
            (
                "",
                "service.instance.id=7, team = a%2Cb%3Dc%20d ,x",
                ["weir", "7", "a,b=c d"],
            ),
            ("", "team=100%,=y", ["weir", "id", "100%"]),
            ("", "team=%ff", ["weir", "id", "%ff"]),
        ] {
            let seen = attributes(name, listed, "id".to_owned());
            let of = |key: &str| seen.get(key).map_or("", String::as_str);
            assert_eq!(
                [of(SERVICE_NAME), of(INSTANCE_ID), of("team")],
                expected,
                "{name:?} {listed:?}"
            );
            assert!(!seen[SERVICE_VERSION].is_empty());
        }
    }

    #[test]
    fn instance_id_is_a_uuid_of_version_4() {
        let random = SystemRandom;
        for _ in 0..64 {
            let id = random_uuid(&random);
            let parts: Vec<&str> = id.split('-').collect();
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
            assert!(parts[2].starts_with('4'), "{id}");
            assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{id}");
            assert_ne!(id, random_uuid(&random));
        }
    }
}
