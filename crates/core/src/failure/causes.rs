//! The causes behind an error, as texts for operators.

use std::error::Error;
use std::io;

use weir_clean::mask_credentials;

use crate::failure::Failure;
use crate::log_text::sanitize_text;

/// Bytes of the text of a cause.
const MAX_PER_CAUSE: usize = 1024;

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
fn with_sources(mut text: String, error: &(dyn Error + 'static)) -> String {
    for source in std::iter::successors(error.source(), |&cause| cause.source()) {
        let said = text_of(source);
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
    }
    text
}

impl Failure {
    /// The cause for operators: the message, then the errors behind it, as one line of at most 1
    /// KiB without control characters and credentials. It may name programs, paths and addresses,
    /// so it is for the log, the admin API and the status page, never for a client.
    #[must_use]
    pub fn cause(&self) -> String {
        let text = match &self.0.cause {
            Some(cause) => cause.to_string(),
            None => with_sources(self.0.message.to_string(), self),
        };
        let text = mask_credentials(text.trim_end());
        let mut line = sanitize_text(&text, MAX_PER_CAUSE);
        while line.len() > MAX_PER_CAUSE {
            line.pop();
        }
        line
    }

    /// Adds a further cause for operators to the one that is known, if there is one.
    #[must_use]
    pub fn and_because(self, further: impl Into<String>) -> Self {
        let further = further.into();
        let both = match self.source() {
            Some(source) => format!("{}; {further}", with_sources(text_of(source), source)),
            None => further,
        };
        self.because(both)
    }
}

/// The text of a cause. The upstream of a failure is known from the failure around it.
fn text_of(cause: &(dyn Error + 'static)) -> String {
    match cause.downcast_ref::<Failure>() {
        Some(failure) => failure.message().to_owned(),
        None => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn further_cause_follows_the_known_one() {
        let failure = || Failure::new(FailureKind::Unavailable, "not started");
        assert_eq!(failure().and_because("b").cause(), "not started: b");
        let refused = Failure::new(FailureKind::Internal, "refused").because("a");
        let both = failure().because(refused).and_because("b");
        assert_eq!(both.cause(), "not started: refused: a; b");
    }

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

    #[test]
    fn cause_has_every_error_once_in_one_line_without_credentials() {
        let inner = std::io::Error::other("no\nroute, Authorization: Bearer abc1def2ghi3");
        let failure =
            Failure::new(FailureKind::Unavailable, "The upstream cannot be reached").because(inner);
        assert_eq!(
            failure.cause(),
            "The upstream cannot be reached: no\u{fffd}route, Authorization: Bearer ***"
        );
        let outer = Failure::new(FailureKind::Unavailable, "No session").because(failure);
        assert!(
            outer
                .cause()
                .starts_with("No session: The upstream cannot be reached: no\u{fffd}route")
        );
        assert!(
            !outer.to_string().contains("route"),
            "clients hear the message alone"
        );
    }

    #[test]
    fn a_cause_is_at_most_a_kibibyte() {
        let failure =
            Failure::new(FailureKind::Unavailable, "It ended").because("\u{20ac}".repeat(2000));
        assert!(
            failure.cause().len() <= MAX_PER_CAUSE && failure.cause().len() > MAX_PER_CAUSE - 4
        );
    }

    #[test]
    fn failure_cause_is_kept_apart_from_the_callers_message() {
        let failure = Failure::new(FailureKind::Unavailable, "Try again shortly")
            .with_cause("exit status: 3");
        assert_eq!(
            (failure.cause().as_str(), failure.message()),
            ("exit status: 3", "Try again shortly")
        );
    }
}
