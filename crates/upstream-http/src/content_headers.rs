//! The media type and the coding of a response's body.

use std::borrow::Cow;

use http::{HeaderMap, header};
use weir_core::log_text::sanitize_text;

/// The most characters of a content coding in a failure.
const MAX_CODING: usize = 80;

/// Returns the media type in lower case, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let media = value.split(';').next()?.trim();
    Some(if media.bytes().any(|byte| byte.is_ascii_uppercase()) {
        media.to_ascii_lowercase().into()
    } else {
        media.into()
    })
}

/// Returns the content coding of a body that is not sent as it is.
pub(crate) fn content_coding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_ENCODING)?;
    let coding = String::from_utf8_lossy(value.as_bytes());
    let coding = coding.trim();
    let is_none = coding.is_empty() || coding.eq_ignore_ascii_case("identity");
    (!is_none).then(|| sanitize_text(coding, MAX_CODING))
}
