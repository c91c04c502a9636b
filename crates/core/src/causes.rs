//! The causes behind an error.

use std::error::Error;
use std::io;

use crate::failure::Failure;

/// The error, then each cause behind it. An error that an IO error wraps is one of them; `source`
/// skips it.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| {
        match cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => cause.source(),
        }
    })
}

/// The error and its sources as one line, without repetition: many errors have their source in
/// their own text.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    with_sources(error.to_string(), error)
}

/// The text, then the sources of the error that it does not have yet.
pub(crate) fn with_sources(mut text: String, error: &(dyn Error + 'static)) -> String {
    for source in std::iter::successors(error.source(), |&cause| cause.source()) {
        let said = match source.downcast_ref::<Failure>() {
            // Its upstream is known from the failure around it.
            Some(failure) => failure.message().to_owned(),
            None => source.to_string(),
        };
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_within_an_io_error_is_a_cause_and_no_text_stands_twice() {
        let inner = io::Error::from(io::ErrorKind::ConnectionRefused);
        let kind = inner.kind();
        let outer = io::Error::other(io::Error::other(inner));
        let found = causes(&outer)
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .map(io::Error::kind);
        assert_eq!(found.last(), Some(kind));
        assert_eq!(chain(&outer), "connection refused");
    }
}
