//! The bound of an upstream's results: larger ones are refused, or lose text.

use std::sync::Arc;

use opentelemetry::KeyValue;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::{OversizedAction, ResultLimit};
use weir_core::failure::{Failure, FailureKind};
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::server_item::ServerItem;
use weir_core::telemetry::instruments;
use weir_core::telemetry::meters::upstream_label;
use weir_wire::method::Method;

use crate::reply_cleaning::document;

/// The bound of one call's result.
#[derive(Debug)]
pub(super) struct SizeCheck {
    tool: Arc<ServerItem>,
    limit: ResultLimit,
}

impl SizeCheck {
    /// The bound of one call; absent if its result may have any size.
    pub(super) fn of(item: &CatalogItem, call: &Call) -> Option<Self> {
        let is_bounded = call.method == Method::ResourcesRead || document(call.method).is_some();
        let limit = item.terms.results.filter(|_| is_bounded)?;
        Some(Self {
            tool: item.tool.clone(),
            limit,
        })
    }

    /// The end within the bound, and the bytes of text that were cut.
    pub(super) fn end(&self, end: ReplyEnd) -> (ReplyEnd, u64) {
        let result = match end {
            ReplyEnd::Complete(Payload::Whole(result)) if result.len() > self.limit.bytes => result,
            // The upstream was asked for the whole result.
            ReplyEnd::Complete(Payload::Stream(_)) => {
                return (self.refused("more bytes than can be held"), 0);
            }
            end @ (ReplyEnd::Complete(_)
            | ReplyEnd::InputRequired(_)
            | ReplyEnd::Parked { .. }
            | ReplyEnd::Task(_)
            | ReplyEnd::Failed(_)) => return (end, 0),
        };
        if self.limit.action == OversizedAction::Cut {
            let most = self.limit.bytes;
            let note = |removed| {
                format!(
                    "[{removed} bytes of text were left out here: a result may have at most {most} bytes. Ask for less]"
                )
            };
            if let Ok(Some(cut)) = weir_clean::cut(&result, most, note) {
                self.count("cut");
                return (
                    ReplyEnd::Complete(Payload::Whole(cut.bytes.into())),
                    cut.removed as u64,
                );
            }
        }
        (self.refused(&format!("{} bytes", result.len())), 0)
    }

    fn refused(&self, has: &str) -> ReplyEnd {
        self.count("refused");
        let most = self.limit.bytes;
        let text = match self.limit.action {
            OversizedAction::Refuse => {
                format!("The result has {has}, and at most {most} are passed on. Ask for less")
            }
            OversizedAction::Cut => {
                format!(
                    "The result has {has}, at most {most} are passed on, and only its text can be cut. Ask for less"
                )
            }
        };
        Failure::new(FailureKind::BadAnswer, text)
            .with_upstream(&self.tool.upstream)
            .into()
    }

    fn count(&self, action: &'static str) {
        instruments().results_oversized.add(
            1,
            &[
                upstream_label(&self.tool.upstream),
                KeyValue::new("action", action),
            ],
        );
    }
}
