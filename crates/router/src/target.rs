//! The target of a call: a name or a URI, by its method.

use std::borrow::Cow;

use weir_core::call::Call;
use weir_core::failure::{Failure, FailureKind};
use weir_core::upstream::ListKind;
use weir_wire::method::Method;
use weir_wire::scan;

/// The target of a call.
pub(super) struct CallTarget<'a> {
    /// The kind of the list that has the target.
    pub(super) kind: ListKind,
    /// Its exposed name, or its URI.
    pub(super) name: Cow<'a, str>,
}

/// Reads the target of a call.
///
/// # Errors
///
/// `MethodNotFound` for a method without a target in a list; `InvalidParams` if the name is
/// missing.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "six of the 38 methods have a target"
)]
pub(super) fn of(call: &Call) -> Result<CallTarget<'_>, Failure> {
    let wrong = |error: weir_wire::params::ParamsError| Failure::invalid_params(error.to_string());
    let (kind, name) = match call.method {
        Method::ToolsCall => (ListKind::Tools, call.params.name().map_err(wrong)?),
        Method::PromptsGet => (ListKind::Prompts, call.params.name().map_err(wrong)?),
        Method::ResourcesRead | Method::ResourcesSubscribe => {
            (ListKind::Resources, call.params.uri().map_err(wrong)?)
        }
        Method::CompletionComplete => return completion_target(call),
        _ => {
            return Err(Failure::new(
                FailureKind::MethodNotFound,
                "This method is not served",
            ));
        }
    };
    let missing = match kind {
        ListKind::Tools => "`name` is missing: say which tool to call",
        ListKind::Prompts => "`name` is missing: say which prompt to get",
        ListKind::Resources | ListKind::Templates => "`uri` is missing: say which resource",
    };
    let name = name.ok_or_else(|| Failure::invalid_params(missing))?;
    Ok(CallTarget { kind, name })
}

/// `ref` of a completion: a prompt by its name, or a template by its own text (specification,
/// server/utilities/completion).
fn completion_target(call: &Call) -> Result<CallTarget<'_>, Failure> {
    let bad = |text: &'static str| Failure::invalid_params(text);
    let raw = call.params.raw();
    let given = scan::find(raw, "ref")
        .map(|range| &raw[range])
        .filter(|value| scan::is_object(value));
    let given = given.ok_or_else(|| bad("`ref` is missing: say what to complete for"))?;
    let text = |name: &str| scan::find(given, name).and_then(|range| scan::string(&given[range]));
    match text("type").as_deref() {
        Some("ref/prompt") => {
            let name =
                text("name").ok_or_else(|| bad("`ref.name` is missing: say which prompt"))?;
            let kind = ListKind::Prompts;
            Ok(CallTarget { kind, name })
        }
        Some("ref/resource") => {
            let name = text("uri")
                .ok_or_else(|| bad("`ref.uri` is missing: say which resource template"))?;
            let kind = ListKind::Templates;
            Ok(CallTarget { kind, name })
        }
        _ => Err(bad("`ref.type` must be `ref/prompt` or `ref/resource`")),
    }
}

/// The one answer to an unknown name, or to the name of an item that the sender may not see: a
/// client cannot distinguish them.
pub(super) fn unknown(target: &CallTarget<'_>) -> Failure {
    Failure::unknown_item(target.kind, &target.name)
}
