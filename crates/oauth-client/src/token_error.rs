//! The reason for a missing token.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use weir_core::{Failure, FailureKind};

use crate::token_context::TokenContext;

/// The reason for a missing token. All calls that waited for the token share it.
#[derive(Clone, Debug)]
pub(crate) struct TokenError {
    pub(super) text: Cow<'static, str>,
    cause: Option<Arc<str>>,
    /// True if the authorization server refused the scopes by an OAuth error code. It would refuse
    /// the same request again; other errors may pass.
    pub(super) is_scope_refusal: bool,
}

impl TokenError {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            cause: None,
            is_scope_refusal: false,
        }
    }

    /// Keeps the cause for operators; it has no text of another party's response.
    pub(crate) fn because(self, failure: &Failure) -> Self {
        self.caused_by(&failure.cause())
    }

    /// Keeps a cause for operators.
    pub(crate) fn caused_by(mut self, cause: &str) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Returns the failure of a call.
    pub(crate) fn failure(&self, context: &TokenContext) -> Failure {
        let failure = context
            .label
            .fail(FailureKind::Unavailable, self.text.clone());
        match &self.cause {
            Some(cause) => failure.because(cause.to_string()),
            None => failure,
        }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.text),
            None => f.write_str(&self.text),
        }
    }
}
