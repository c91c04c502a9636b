//! The resource of OpenTelemetry: the attributes that tell this process from others.

use data_encoding::HEXLOWER;
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector as _};
use weir_core::port::Random;

const SERVICE_NAME: &str = "service.name";
const SERVICE_VERSION: &str = "service.version";
const INSTANCE_ID: &str = "service.instance.id";

/// Returns the resource of this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` in the
/// environment take precedence for the name and the instance.
pub(super) fn of_environment(random: &dyn Random) -> Resource {
    let environment = EnvResourceDetector::new().detect();
    let has = |name: &'static str| environment.get(&Key::from_static_str(name)).is_some();
    let mut resource = Resource::builder()
        .with_attributes([KeyValue::new(SERVICE_VERSION, env!("CARGO_PKG_VERSION"))]);
    if !has(SERVICE_NAME) && std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("weir");
    }
    if !has(INSTANCE_ID) {
        // Of the process, not of the replica: after a graceful restart the next process has the
        // same replica id, and its counters start at 0 while the old process still exports its own.
        resource = resource.with_attributes([KeyValue::new(INSTANCE_ID, random_uuid(random))]);
    }
    resource.build()
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
