//! Validation of arguments and structured results by the tool's schemas, as the operator configured
//! it.

use std::sync::Arc;

use opentelemetry::KeyValue;
use weir_wire::scan;

use super::upstream_label;
use crate::call::Call;
use crate::catalog::{Item, Tool};
use crate::failure::{Failure, FailureKind};
use crate::reply::{End, Payload};
use crate::schema::{
    Check, Contract, Mismatch, Schema, TOO_COSTLY, Unusable, Verdict, cut, message, verdict,
    verdict_of_arguments,
};
use crate::telemetry::instruments;

/// A result longer than this is not validated, unless the operator enforces it.
const MOST_BUFFERED: usize = 4 << 20;

/// Checks the arguments of a call before it is sent. Absent ones are an empty object.
///
/// # Errors
///
/// `BadArguments` if they do not match and the operator enforces it; `InvalidParams` if they are no
/// object, or cannot be checked; `BadAnswer` if the schema cannot be used and the operator wrote
/// `enforce`.
pub(super) fn arguments(item: &Item, call: &Call) -> Result<(), Failure> {
    let given = call
        .params
        .arguments()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let mode = item.terms.validation.input;
    if let (Contract::Unchecked(why), Check::Enforce) =
        (&item.tool.output, item.terms.validation.output)
    {
        return Err(unusable(item, Side::Output, *why));
    }
    let schema = match (&item.tool.input, mode) {
        (Contract::Unchecked(why), Check::Enforce) => {
            return Err(unusable(item, Side::Input, *why));
        }
        (Contract::None | Contract::Unchecked(_), _) | (Contract::Checked(_), Check::Off) => {
            return Ok(());
        }
        (Contract::Checked(schema), Check::Warn | Check::EnforceUsable | Check::Enforce) => schema,
    };
    let unchecked = |place: &Mismatch| {
        let name = cut(&item.exposed, 128);
        Failure::invalid_params(format!(
            "The arguments of `{name}` cannot be checked against its input schema. {place}"
        ))
    };
    let refusal = match verdict_of_arguments(schema, given.as_deref().unwrap_or(b"{}")) {
        Verdict::Fits => return Ok(()),
        Verdict::Unreadable(place) if mode.refuses() => unchecked(&place),
        Verdict::Unknown if mode.refuses() => unchecked(&Mismatch::whole(TOO_COSTLY)),
        Verdict::Unreadable(_) | Verdict::Unknown => {
            count(&item.tool, "input", "unchecked");
            return Ok(());
        }
        Verdict::Fails(mismatches) if mode.refuses() => Failure::new(
            FailureKind::BadArguments,
            message(&item.exposed, &mismatches),
        ),
        Verdict::Fails(mismatches) => {
            warn(&item.tool, "input", &mismatches);
            return Ok(());
        }
    };
    count(&item.tool, "input", "refused");
    Err(refusal)
}

/// Refuses a call of a tool whose arguments or results have to be checked and cannot be, for any
/// values.
fn unusable(item: &Item, side: Side, why: Unusable) -> Failure {
    let (label, values) = match side {
        Side::Input => ("input", "arguments"),
        Side::Output => ("output", "results"),
    };
    count(&item.tool, label, "refused");
    let text = format!(
        "This tool did not run: its {values} have to be checked, and its {label} schema cannot be used: {why}"
    );
    Failure::new(FailureKind::BadAnswer, text).at(&item.tool.upstream)
}

/// The side of a tool with the schema.
#[derive(Clone, Copy)]
enum Side {
    Input,
    Output,
}

/// The check of a tool's results.
pub(super) struct Results {
    tool: Arc<Tool>,
    /// If it cannot be used, no result passes: the tool's calls are refused, but a task of one may
    /// be older than that.
    schema: Result<Arc<Schema>, Unusable>,
    enforce: bool,
}

impl Results {
    /// The check for an item; absent if its results are not checked.
    pub(super) fn of(item: &Item) -> Option<Self> {
        let mode = item.terms.validation.output;
        let schema = match (&item.tool.output, mode) {
            (Contract::None, _) | (_, Check::Off) => return None,
            (Contract::Checked(schema), _) => Ok(schema.clone()),
            (Contract::Unchecked(why), Check::Enforce) => Err(*why),
            (Contract::Unchecked(_), Check::Warn | Check::EnforceUsable) => return None,
        };
        Some(Self {
            tool: item.tool.clone(),
            schema,
            enforce: mode.refuses(),
        })
    }

    /// True if no result passes unchecked.
    pub(super) fn is_enforced(&self) -> bool {
        self.enforce
    }

    /// Passes the end on, or refuses it.
    pub(super) fn check(&self, end: End) -> End {
        let bytes = match &end {
            End::Complete(Payload::Whole(bytes))
                if self.enforce || bytes.len() <= MOST_BUFFERED =>
            {
                bytes
            }
            // The upstream was asked for the whole result.
            End::Complete(Payload::Stream(_)) if self.enforce => {
                count(&self.tool, "output", "refused");
                let text = "The tool ran, but its result is too large to be checked against its output schema";
                return Failure::new(FailureKind::BadAnswer, text)
                    .at(&self.tool.upstream)
                    .into();
            }
            End::Complete(_) => {
                count(&self.tool, "output", "unchecked");
                return end;
            }
            End::InputRequired(_) | End::Parked { .. } | End::Task(_) | End::Failed(_) => {
                return end;
            }
        };
        if is_error(bytes) {
            return end;
        }
        let schema = match &self.schema {
            Ok(schema) => schema,
            Err(why) => return self.refuse_unchecked(&why.to_string()),
        };
        let verdict = match scan::find(bytes, "structuredContent") {
            Some(at) => verdict(schema, &bytes[at]),
            None => Verdict::Fails(vec![Mismatch::whole(
                "the result has no `structuredContent`",
            )]),
        };
        match verdict {
            Verdict::Fits => end,
            Verdict::Unknown if self.enforce => {
                self.refuse_unchecked("checking it would cost too much")
            }
            Verdict::Unreadable(place) if self.enforce => self.refuse_unchecked(&place.to_string()),
            Verdict::Unknown | Verdict::Unreadable(_) => {
                count(&self.tool, "output", "unchecked");
                end
            }
            Verdict::Fails(mismatches) if self.enforce => self.refuse(&mismatches),
            Verdict::Fails(mismatches) => {
                warn(&self.tool, "output", &mismatches);
                end
            }
        }
    }

    fn refuse(&self, mismatches: &[Mismatch]) -> End {
        let places: Vec<String> = mismatches.iter().map(Mismatch::to_string).collect();
        self.refused(
            "The tool ran, but its result does not match its output schema",
            places.join("; "),
        )
    }

    fn refuse_unchecked(&self, why: &str) -> End {
        self.refused(
            "The tool ran, but its result cannot be checked against its output schema",
            why.to_owned(),
        )
    }

    fn refused(&self, text: &'static str, because: String) -> End {
        count(&self.tool, "output", "refused");
        Failure::new(FailureKind::BadAnswer, text)
            .at(&self.tool.upstream)
            .because(because)
            .into()
    }
}

/// True if a result reports that the tool failed.
pub(super) fn is_error(result: &[u8]) -> bool {
    scan::find(result, "isError").is_some_and(|at| scan::trim(&result[at]) == b"true")
}

fn warn(tool: &Tool, side: &'static str, mismatches: &[Mismatch]) {
    count(tool, side, "passed");
    let first = mismatches.first().map(Mismatch::to_string);
    tracing::warn!(
        ?tool,
        side,
        first,
        "a value does not match the tool's schema"
    );
}

fn count(tool: &Tool, side: &'static str, action: &'static str) {
    let labels = [
        upstream_label(tool),
        KeyValue::new("side", side),
        KeyValue::new("action", action),
    ];
    instruments().validation_failures.add(1, &labels);
}
