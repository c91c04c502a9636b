//! A failure in the form that replicas send each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_core::failure::UpstreamError;
use weir_core::instant::millis;
use weir_core::names::UpstreamId;
use weir_core::{Failure, FailureKind};

/// A failure on its way to the replica that has the client.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FailureForm {
    /// The word of its kind ([`Failure::reason`]).
    reason: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default)]
    connection_lost: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    own_limit: bool,
    /// The cause for operators.
    #[serde(default)]
    cause: String,
    /// The code of a server's own error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i64>,
    /// The data of a server's own error, the URI of an unknown resource, or the missing
    /// capabilities: raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl FailureForm {
    /// The form of a failure.
    pub(crate) fn of(failure: &Failure) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (code, message, detail) = match failure.kind() {
            FailureKind::Upstream(error) => (
                Some(error.code),
                error.message.clone(),
                error.data.as_deref().map(text),
            ),
            FailureKind::UnknownResource(uri) => {
                (None, failure.message().to_owned(), Some(uri.clone()))
            }
            FailureKind::MissingCapability(all) => {
                (None, failure.message().to_owned(), Some(text(all)))
            }
            FailureKind::TimedOut
            | FailureKind::Unavailable
            | FailureKind::BadAnswer
            | FailureKind::ResultUnknown
            | FailureKind::Limit
            | FailureKind::Busy
            | FailureKind::MethodNotFound
            | FailureKind::InvalidParams
            | FailureKind::UnknownTask
            | FailureKind::BadArguments
            | FailureKind::Internal
            | FailureKind::Unauthenticated(_)
            | FailureKind::InsufficientScope(_)
            | FailureKind::Denied
            | FailureKind::Overloaded => (None, failure.message().to_owned(), None),
        };
        Self {
            reason: failure.reason().to_owned(),
            message,
            retry_after_ms: failure.retry_delay().map(millis),
            connection_lost: failure.is_connection_lost(),
            own_limit: failure.is_own_limit(),
            cause: failure.cause(),
            code,
            detail,
        }
    }

    /// The failure of this form, about an upstream.
    pub(crate) fn into_failure(self, upstream: &UpstreamId) -> Failure {
        let kind = self.kind();
        let mut failure = Failure::new(kind, self.message).with_upstream(upstream);
        if let Some(wait) = self.retry_after_ms {
            failure = failure.retry_after(Duration::from_millis(wait));
        }
        if self.connection_lost {
            failure = failure.connection_lost();
        }
        if self.own_limit {
            failure = failure.own_limit();
        }
        if self.cause.is_empty() {
            failure
        } else {
            failure.with_cause(self.cause)
        }
    }

    fn kind(&self) -> FailureKind {
        let detail = || self.detail.clone();
        match self.reason.as_str() {
            "timed_out" => FailureKind::TimedOut,
            "unavailable" => FailureKind::Unavailable,
            "bad_answer" => FailureKind::BadAnswer,
            "busy" => FailureKind::Busy,
            "method_not_found" => FailureKind::MethodNotFound,
            "invalid_params" => FailureKind::InvalidParams,
            "unknown_resource" => FailureKind::UnknownResource(detail().unwrap_or_default()),
            "bad_arguments" => FailureKind::BadArguments,
            "missing_capability" => {
                FailureKind::MissingCapability(detail().unwrap_or_default().into())
            }
            "upstream_error" => FailureKind::Upstream(UpstreamError {
                code: self.code.unwrap_or_default(),
                message: self.message.clone(),
                data: detail().map(Into::into),
            }),
            "overloaded" => FailureKind::Overloaded,
            "internal" => FailureKind::Internal,
            // No upstream fails in another way. A kind of a later version may have run.
            _ => FailureKind::ResultUnknown,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;

    use super::*;

    fn through_the_form(failure: &Failure) -> Failure {
        let text = serde_json::to_string(&FailureForm::of(failure)).unwrap();
        let form: FailureForm = serde_json::from_str(&text).unwrap();
        form.into_failure(&UpstreamId::new("memory").unwrap())
    }

    #[test]
    fn failures_of_upstreams_keep_kind_text_and_advice() {
        let error = UpstreamError {
            code: -7,
            message: "no".to_owned(),
            data: Some(Bytes::from_static(b"{\"a\":1}")),
        };
        for kind in [
            FailureKind::TimedOut,
            FailureKind::Unavailable,
            FailureKind::BadAnswer,
            FailureKind::ResultUnknown,
            FailureKind::Busy,
            FailureKind::MethodNotFound,
            FailureKind::InvalidParams,
            FailureKind::UnknownResource("file:///a".to_owned()),
            FailureKind::BadArguments,
            FailureKind::MissingCapability(Bytes::from_static(b"{}")),
            FailureKind::Upstream(error),
            FailureKind::Internal,
            FailureKind::Overloaded,
        ] {
            let failure = Failure::new(kind.clone(), "no")
                .retry_after(Duration::from_secs(3))
                .connection_lost()
                .own_limit()
                .because("a broken pipe");
            let back = through_the_form(&failure);
            assert_eq!(*back.kind(), kind);
            assert_eq!(back.message(), "no");
            assert_eq!(back.retry_delay(), Some(Duration::from_secs(3)));
            assert!(back.is_connection_lost() && back.is_own_limit());
            assert!(back.cause().contains("a broken pipe"), "{}", back.cause());
        }
    }

    #[test]
    fn unknown_kind_of_a_later_version_may_have_run() {
        let form = r#"{"reason":"something new","message":"no"}"#;
        let form: FailureForm = serde_json::from_str(form).unwrap();
        let failure = form.into_failure(&UpstreamId::new("memory").unwrap());
        assert_eq!(*failure.kind(), FailureKind::ResultUnknown);
    }
}
