//! The search for secrets in the arguments of one call, and in its server's responses.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry::KeyValue;
use weir_clean::DocumentKind;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::clean::{error_text, take_error_text};
use weir_core::failure::{Failure, FailureKind};
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::secrets::{SecretAction, SecretSearch};
use weir_core::server_item::ServerItem;
use weir_core::telemetry::instruments;
use weir_core::telemetry::meters::upstream_label;
use weir_schema::mismatch::cut;

use crate::reply_cleaning::document;

/// Refuses a call with a secret in its arguments, if the operator configured that.
///
/// # Errors
///
/// `BadArguments`: it names the pattern and the position, and no part of the secret.
pub(super) fn search_arguments(item: &CatalogItem, call: &Call) -> Result<(), Failure> {
    let Some(secrets) = &item.terms.secrets else {
        return Ok(());
    };
    let given = call
        .params
        .arguments()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let Some(found) = given.and_then(|given| secrets.in_arguments(&given)) else {
        return Ok(());
    };
    count(&item.tool, "arguments", "refused", 1);
    tracing::warn!(tool = ?item.tool, pattern = found.pattern, "call refused: secret in arguments");
    let text = format!(
        "The arguments of `{}` have {found}, and no secrets are passed on to this server. Call again without it",
        cut(&item.exposed, 128),
    );
    Err(Failure::new(FailureKind::BadArguments, text))
}

/// The search for secrets in the answers to one call.
#[derive(Debug)]
pub(super) struct AnswerSearch {
    tool: Arc<ServerItem>,
    secrets: Arc<SecretSearch>,
    action: SecretAction,
    /// The kind of the call's result; absent for data: it is not searched.
    result: Option<DocumentKind>,
}

impl AnswerSearch {
    /// The search for one call; absent if responses are not searched.
    pub(super) fn of(item: &CatalogItem, call: &Call) -> Option<Self> {
        Some(Self {
            result: document(call.method),
            ..Self::of_messages(item)?
        })
    }

    /// The search for messages without a result; absent if responses are not searched.
    pub(super) fn of_messages(item: &CatalogItem) -> Option<Self> {
        let secrets = item.terms.secrets.as_ref()?;
        let action = secrets.answers?;
        Some(Self {
            tool: item.tool.clone(),
            secrets: secrets.clone(),
            action,
            result: None,
        })
    }

    /// True if a result can only be passed on whole: a secret may stand anywhere in a string of any
    /// length.
    pub(super) const fn wants_whole(&self) -> bool {
        self.result.is_some()
    }

    /// The end without secrets, and the number of those found.
    pub(super) fn end(&self, end: ReplyEnd) -> (ReplyEnd, u64) {
        match (end, self.result) {
            (ReplyEnd::Complete(Payload::Whole(result)), Some(document)) => {
                self.search_text(document, result, |result| {
                    ReplyEnd::Complete(Payload::Whole(result))
                })
            }
            // The upstream was asked for the whole result.
            (ReplyEnd::Complete(Payload::Stream(_)), Some(_)) => {
                let text = "The tool ran, but its result is too large to be searched for secrets";
                (
                    Failure::new(FailureKind::BadAnswer, text)
                        .with_upstream(&self.tool.upstream)
                        .into(),
                    0,
                )
            }
            (ReplyEnd::InputRequired(Payload::Whole(result)), _) => {
                self.search_text(DocumentKind::ToolResult, result, |result| {
                    ReplyEnd::InputRequired(Payload::Whole(result))
                })
            }
            (ReplyEnd::Parked { id, result }, _) => {
                self.search_text(DocumentKind::ToolResult, result, |result| {
                    ReplyEnd::Parked { id, result }
                })
            }
            (ReplyEnd::Task(created), _) => {
                self.search_text(DocumentKind::TaskState, created, ReplyEnd::Task)
            }
            (ReplyEnd::Failed(failure), _) => self.failed(*failure),
            (end, _) => (end, 0),
        }
    }

    fn search_text(
        &self,
        document: DocumentKind,
        text: Bytes,
        end: impl FnOnce(Bytes) -> ReplyEnd,
    ) -> (ReplyEnd, u64) {
        match self.action {
            SecretAction::Mask => {
                let (text, masked) = self.masked(document, text);
                (end(text), masked)
            }
            SecretAction::Refuse => match self.secrets.patterns.find(document, &text) {
                Some(found) => (self.refused("result", found.name), 1),
                None => (end(text), 0),
            },
        }
    }

    fn failed(&self, failure: Failure) -> (ReplyEnd, u64) {
        let (mut found, mut refused) = (0, None);
        let failure = failure.with_upstream_error(|error| {
            let text = error_text(error);
            match self.action {
                SecretAction::Mask => {
                    let (masked, count) = self.masked(DocumentKind::Error, text);
                    found = count;
                    if count > 0 {
                        take_error_text(error, &masked);
                    }
                }
                SecretAction::Refuse => {
                    refused = self
                        .secrets
                        .patterns
                        .find(DocumentKind::Error, &text)
                        .map(|found| found.name);
                }
            }
        });
        match refused {
            Some(pattern) => (self.refused("error", pattern), 1),
            None => (ReplyEnd::Failed(Box::new(failure)), found),
        }
    }

    fn refused(&self, what: &'static str, pattern: &str) -> ReplyEnd {
        count(&self.tool, "answers", "refused", 1);
        tracing::warn!(tool = ?self.tool, what, pattern, "response refused: secret found");
        let text = format!(
            "The tool ran, but its {what} has a secret (pattern `{pattern}`) and is not passed on"
        );
        Failure::new(FailureKind::BadAnswer, text)
            .with_upstream(&self.tool.upstream)
            .into()
    }

    /// A text with its secrets masked, and their number.
    pub(super) fn masked(&self, document: DocumentKind, text: Bytes) -> (Bytes, u64) {
        let Some(masked) = self.secrets.patterns.mask(document, &text) else {
            return (text, 0);
        };
        let found = masked.found.values().sum();
        count(&self.tool, "answers", "masked", found);
        (masked.bytes.into(), found)
    }
}

fn count(tool: &ServerItem, side: &'static str, action: &'static str, found: u64) {
    let labels = [
        upstream_label(&tool.upstream),
        KeyValue::new("side", side),
        KeyValue::new("action", action),
    ];
    instruments().secrets_found.add(found, &labels);
}
