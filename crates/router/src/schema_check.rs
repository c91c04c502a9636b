//! Validation of arguments and structured results by the tool's schemas, as the operator configured
//! it.

use std::sync::Arc;

use opentelemetry::KeyValue;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{Failure, FailureKind};
use weir_core::reply::{Payload, ReplyEnd};
use weir_core::server_item::ServerItem;
use weir_core::telemetry::instruments;
use weir_core::telemetry::meters::upstream_label;
use weir_schema::mismatch::cut;
use weir_schema::{
    CheckMode, CompiledSchema, Mismatch, SchemaVerdict, TOO_COSTLY_TEXT, ToolSchema,
    UnusableSchema, verdict, verdict_of_arguments,
};
use weir_wire::scan;

/// A result longer than this is not validated, unless the operator enforces it.
const MAX_BUFFERED: usize = 4 << 20;

/// Checks the arguments of a call before it is sent. Absent ones are an empty object.
///
/// # Errors
///
/// `BadArguments` if they do not match and the operator enforces it; `InvalidParams` if they are no
/// object, or cannot be checked; `BadAnswer` if the schema cannot be used and the operator wrote
/// `enforce`.
pub(super) fn check_arguments(item: &CatalogItem, call: &Call) -> Result<(), Failure> {
    let given = call
        .params
        .arguments()
        .map_err(|error| Failure::invalid_params(error.to_string()))?;
    let mode = item.terms.validation.input;
    if let (ToolSchema::Unchecked(why), CheckMode::Enforce) =
        (&item.tool.output, item.terms.validation.output)
    {
        return Err(unusable(item, SchemaSide::Output, *why));
    }
    let schema = match (&item.tool.input, mode) {
        (ToolSchema::Unchecked(why), CheckMode::Enforce) => {
            return Err(unusable(item, SchemaSide::Input, *why));
        }
        (ToolSchema::None | ToolSchema::Unchecked(_), _)
        | (ToolSchema::Checked(_), CheckMode::Off) => {
            return Ok(());
        }
        (
            ToolSchema::Checked(schema),
            CheckMode::Warn | CheckMode::EnforceUsable | CheckMode::Enforce,
        ) => schema,
    };
    let unchecked = |place: &Mismatch| {
        let name = cut(&item.exposed, 128);
        Failure::invalid_params(format!(
            "The arguments of `{name}` cannot be checked against its input schema. {place}"
        ))
    };
    let refusal = match verdict_of_arguments(schema, given.as_deref().unwrap_or(b"{}")) {
        SchemaVerdict::Fits => return Ok(()),
        SchemaVerdict::Unreadable(place) if mode.refuses() => unchecked(&place),
        SchemaVerdict::Unknown if mode.refuses() => unchecked(&Mismatch::whole(TOO_COSTLY_TEXT)),
        SchemaVerdict::Unreadable(_) | SchemaVerdict::Unknown => {
            count(&item.tool, "input", "unchecked");
            return Ok(());
        }
        SchemaVerdict::Fails(mismatches) if mode.refuses() => Failure::new(
            FailureKind::BadArguments,
            message(&item.exposed, &mismatches),
        ),
        SchemaVerdict::Fails(mismatches) => {
            warn(&item.tool, "input", &mismatches);
            return Ok(());
        }
    };
    count(&item.tool, "input", "refused");
    Err(refusal)
}

/// Refuses a call of a tool whose arguments or results have to be checked and cannot be, for any
/// values.
fn unusable(item: &CatalogItem, side: SchemaSide, why: UnusableSchema) -> Failure {
    let (label, values) = match side {
        SchemaSide::Input => ("input", "arguments"),
        SchemaSide::Output => ("output", "results"),
    };
    count(&item.tool, label, "refused");
    let text = format!(
        "This tool did not run: its {values} have to be checked, and its {label} schema cannot be used: {why}"
    );
    Failure::new(FailureKind::BadAnswer, text).with_upstream(&item.tool.upstream)
}

/// The side of a tool with the schema.
#[derive(Clone, Copy)]
enum SchemaSide {
    Input,
    Output,
}

/// The check of a tool's results.
pub(super) struct ResultCheck {
    tool: Arc<ServerItem>,
    /// If it cannot be used, no result passes: the tool's calls are refused, but a task of one may
    /// be older than that.
    schema: Result<Arc<CompiledSchema>, UnusableSchema>,
    enforce: bool,
}

impl ResultCheck {
    /// The check for an item; absent if its results are not checked.
    pub(super) fn of(item: &CatalogItem) -> Option<Self> {
        let mode = item.terms.validation.output;
        let schema = match (&item.tool.output, mode) {
            (ToolSchema::None, _) | (_, CheckMode::Off) => return None,
            (ToolSchema::Checked(schema), _) => Ok(schema.clone()),
            (ToolSchema::Unchecked(why), CheckMode::Enforce) => Err(*why),
            (ToolSchema::Unchecked(_), CheckMode::Warn | CheckMode::EnforceUsable) => return None,
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
    pub(super) fn check(&self, end: ReplyEnd) -> ReplyEnd {
        let bytes = match &end {
            ReplyEnd::Complete(Payload::Whole(bytes))
                if self.enforce || bytes.len() <= MAX_BUFFERED =>
            {
                bytes
            }
            // The upstream was asked for the whole result.
            ReplyEnd::Complete(Payload::Stream(_)) if self.enforce => {
                count(&self.tool, "output", "refused");
                let text = "The tool ran, but its result is too large to be checked against its output schema";
                return Failure::new(FailureKind::BadAnswer, text)
                    .with_upstream(&self.tool.upstream)
                    .into();
            }
            ReplyEnd::Complete(_) => {
                count(&self.tool, "output", "unchecked");
                return end;
            }
            ReplyEnd::InputRequired(_)
            | ReplyEnd::Parked { .. }
            | ReplyEnd::Task(_)
            | ReplyEnd::Failed(_) => {
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
            None => SchemaVerdict::Fails(vec![Mismatch::whole(
                "the result has no `structuredContent`",
            )]),
        };
        match verdict {
            SchemaVerdict::Fits => end,
            SchemaVerdict::Unknown if self.enforce => {
                self.refuse_unchecked("checking it would cost too much")
            }
            SchemaVerdict::Unreadable(place) if self.enforce => {
                self.refuse_unchecked(&place.to_string())
            }
            SchemaVerdict::Unknown | SchemaVerdict::Unreadable(_) => {
                count(&self.tool, "output", "unchecked");
                end
            }
            SchemaVerdict::Fails(mismatches) if self.enforce => self.refuse(&mismatches),
            SchemaVerdict::Fails(mismatches) => {
                warn(&self.tool, "output", &mismatches);
                end
            }
        }
    }

    fn refuse(&self, mismatches: &[Mismatch]) -> ReplyEnd {
        let places: Vec<String> = mismatches.iter().map(Mismatch::to_string).collect();
        self.refused(
            "The tool ran, but its result does not match its output schema",
            places.join("; "),
        )
    }

    fn refuse_unchecked(&self, why: &str) -> ReplyEnd {
        self.refused(
            "The tool ran, but its result cannot be checked against its output schema",
            why.to_owned(),
        )
    }

    fn refused(&self, text: &'static str, because: String) -> ReplyEnd {
        count(&self.tool, "output", "refused");
        Failure::new(FailureKind::BadAnswer, text)
            .with_upstream(&self.tool.upstream)
            .because(because)
            .into()
    }
}

/// True if a result reports that the tool failed.
pub(super) fn is_error(result: &[u8]) -> bool {
    scan::find(result, "isError").is_some_and(|at| scan::trim(&result[at]) == b"true")
}

fn warn(tool: &ServerItem, side: &'static str, mismatches: &[Mismatch]) {
    count(tool, side, "passed");
    let first = mismatches.first().map(Mismatch::to_string);
    let (upstream, tool) = (tool.upstream.as_str(), &*tool.native);
    tracing::warn!(upstream, tool, side, first, "schema validation failed");
}

fn count(tool: &ServerItem, side: &'static str, action: &'static str) {
    let labels = [
        upstream_label(&tool.upstream),
        KeyValue::new("side", side),
        KeyValue::new("action", action),
    ];
    instruments().validation_failures.add(1, &labels);
}

/// The text for the client about arguments that do not match.
fn message(tool: &str, mismatches: &[Mismatch]) -> String {
    let mut text = format!(
        "The arguments do not match the input schema of `{}`. Correct them and call again:",
        cut(tool, 128)
    );
    for mismatch in mismatches {
        text.push_str("\n- ");
        text.push_str(&mismatch.to_string());
    }
    text
}
