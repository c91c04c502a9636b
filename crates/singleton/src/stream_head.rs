//! The headers of a stream: the upstream that it is about, and the epoch of its owner.

use http::{HeaderMap, HeaderName, HeaderValue};
use weir_core::names::UpstreamId;

const UPSTREAM_HEADER: HeaderName = HeaderName::from_static("weir-upstream");
const EPOCH_HEADER: HeaderName = HeaderName::from_static("weir-epoch");

/// The headers of a stream to the owner of an upstream.
pub(crate) fn stream_headers(upstream: &UpstreamId, epoch: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // An id is visible ASCII.
    if let Ok(id) = HeaderValue::try_from(upstream.as_str()) {
        headers.insert(UPSTREAM_HEADER, id);
    }
    headers.insert(EPOCH_HEADER, HeaderValue::from(epoch));
    headers
}

/// The upstream and the epoch that the headers of a stream name.
pub(crate) fn read_stream_headers(headers: &HeaderMap) -> Option<(UpstreamId, u64)> {
    let text = |name| headers.get(name)?.to_str().ok();
    let upstream = UpstreamId::new(text(UPSTREAM_HEADER)?).ok()?;
    Some((upstream, text(EPOCH_HEADER)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn headers_name_upstream_and_epoch() {
        let id = UpstreamId::new("memory").unwrap();
        let headers = stream_headers(&id, 7);
        assert_eq!(read_stream_headers(&headers), Some((id, 7)));
        assert_eq!(read_stream_headers(&HeaderMap::new()), None);
    }
}
