//! Headers from texts.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Sets a header.
///
/// # Panics
/// Name or value is not valid in a header.
pub(super) fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    let (name, value) = header_pair(name, value);
    headers.insert(name, value);
}

/// Adds a header beside others of its name.
///
/// # Panics
/// Name or value is not valid in a header.
pub(super) fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    let (name, value) = header_pair(name, value);
    headers.append(name, value);
}

fn header_pair(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .ok()
        .zip(HeaderValue::from_bytes(value.as_bytes()).ok());
    parsed.unwrap_or_else(|| {
        panic!("not a header: {name}: {value:?}; use RawSocket for what HTTP forbids")
    })
}
