//! The changes to an end and to notes on the way back to the client, for every upstream.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_catalog::Catalog;
use weir_clean::DocumentKind;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::Endpoint;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::ContentChanges;
use weir_core::question::PendingQuestion;
use weir_core::reply::{NoteKind, Payload, ReplyEnd, ReplyEvent, ReplyNote};
use weir_wire::method::Method;
use weir_wire::{error_code, scan};

use crate::answer_search::AnswerSearch;
use crate::reply_cleaning::{self, RemovedCount, ReplyCleaning};
use crate::size_check::SizeCheck;
use crate::tasks::task_naming::TaskNaming;
use crate::uri_names::UriNames;
use crate::uri_renaming::UriRenaming;
use crate::{message_edits, schema_check};

/// The most values of one completion (specification, server/utilities/completion).
const MAX_VALUES: usize = 100;

/// The result if an upstream completes no arguments: others of the endpoint may, so the method
/// itself exists.
const NO_VALUES: &[u8] = br#"{"completion":{"values":[]}}"#;

/// The changes of an end.
#[derive(Debug, Default)]
pub(super) struct EndChanges {
    /// Hidden characters that were removed.
    pub(super) removed: RemovedCount,
    /// Secrets that were found.
    pub(super) secrets: u64,
    /// Bytes of text that were cut.
    pub(super) cut: u64,
}

impl EndChanges {
    /// All of it so far.
    pub(super) fn changes(&self) -> ContentChanges {
        ContentChanges {
            cleaned: self.removed.total(),
            secrets: self.secrets,
            cut: self.cut,
        }
    }
}

/// The steps that the events of one reply go through.
pub(super) struct ReplyTransform {
    cleaning: ReplyCleaning,
    secrets: Option<AnswerSearch>,
    size: Option<SizeCheck>,
    results: Option<schema_check::ResultCheck>,
    renaming: Option<UriRenaming>,
    message_edits: message_edits::MessageEdits,
    /// The URI that a read is of, as the client wrote it.
    read: Option<Arc<str>>,
    completion: bool,
    /// True if the endpoint has several servers: if one of them does not serve a method, the others
    /// may.
    is_shared: bool,
    /// True if such a call may end with questions.
    may_ask: bool,
    /// The naming of the task that it may become.
    task: Option<TaskNaming>,
}

impl ReplyTransform {
    pub(super) fn of(
        catalog: &Arc<Catalog>,
        endpoint: Option<&Endpoint>,
        item: &CatalogItem,
        call: &Call,
    ) -> Self {
        let uri_names = endpoint.and_then(|endpoint| UriNames::of(catalog, endpoint, item, call));
        Self {
            cleaning: ReplyCleaning::of(endpoint, item, call),
            secrets: AnswerSearch::of(item, call),
            size: SizeCheck::of(item, call),
            results: schema_check::ResultCheck::of(item),
            renaming: uri_names.map(UriRenaming::of),
            message_edits: message_edits::MessageEdits::of(endpoint, &item.tool.upstream),
            read: (call.method == Method::ResourcesRead).then(|| item.exposed.clone()),
            completion: call.method == Method::CompletionComplete,
            is_shared: endpoint.is_some_and(|endpoint| !endpoint.mode.is_transparent()),
            may_ask: matches!(
                call.method,
                Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead
            ),
            task: None,
        }
    }

    /// Sets the naming of the task that the call may become.
    pub(super) fn set_task_naming(&mut self, naming: TaskNaming) {
        self.task = Some(naming);
    }

    fn is_wanted(&self) -> bool {
        self.task.as_ref().is_some_and(TaskNaming::is_wanted)
    }

    /// True if a result can only be passed on when all of it has arrived.
    pub(super) fn wants_whole(&self) -> bool {
        self.results
            .as_ref()
            .is_some_and(schema_check::ResultCheck::is_enforced)
            || self.secrets.as_ref().is_some_and(AnswerSearch::wants_whole)
            || self.size.is_some()
    }

    /// Removes hidden characters from an end, masks or refuses secrets, and bounds its size. This
    /// comes before all other steps, and in this order: a hidden character in the midst of a secret
    /// does not hide it.
    pub(super) fn clean(&self, end: ReplyEnd) -> (ReplyEnd, EndChanges) {
        let (end, removed) = self.cleaning.end(end);
        let (end, secrets) = match &self.secrets {
            Some(search) => search.end(end),
            None => (end, 0),
        };
        let (end, cut) = match &self.size {
            Some(size) => size.end(end),
            None => (end, 0),
        };
        (
            end,
            EndChanges {
                removed,
                secrets,
                cut,
            },
        )
    }

    /// Passes the state of a task on, without its result.
    pub(super) fn task_state(&self, state: Bytes) -> Bytes {
        let state = self.cleaning.task_state(state);
        self.message_edits
            .questions(&self.masked(DocumentKind::TaskState, state))
    }

    fn masked(&self, document: DocumentKind, text: Bytes) -> Bytes {
        match &self.secrets {
            Some(search) => search.masked(document, text).0,
            None => text,
        }
    }

    /// Passes a note on.
    pub(super) fn note(&self, mut note: ReplyNote) -> ReplyNote {
        note.params = self.masked(
            DocumentKind::Notification,
            self.cleaning.notification(note.params),
        );
        if let NoteKind::Log(_) = note.kind {
            note.params = self.message_edits.log(&note.params);
        }
        note
    }

    /// Passes a question on.
    pub(super) fn ask(&self, mut ask: Box<PendingQuestion>) -> ReplyEvent {
        let question = &mut ask.question;
        let cleaned = self.cleaning.question(question.params.clone());
        let masked = self.masked(DocumentKind::Question, cleaned);
        question.params = self.message_edits.question(question.method, &masked);
        ReplyEvent::Ask(ask)
    }

    /// Passes an end on. `removed` is the number of hidden characters that were removed from it, if
    /// it is whole.
    pub(super) fn apply(&self, end: ReplyEnd, removed: u64) -> ReplyEnd {
        let end = match &self.results {
            Some(results) => results.check(end),
            None => end,
        };
        let end = match &self.renaming {
            Some(renaming) => renaming.apply(end),
            None => end,
        };
        match (end, &self.read) {
            (ReplyEnd::InputRequired(_), _) if !self.may_ask => Failure::new(
                FailureKind::BadAnswer,
                "The server asks for input where it must not",
            )
            .into(),
            (ReplyEnd::InputRequired(Payload::Whole(result)), _) => {
                ReplyEnd::InputRequired(Payload::Whole(self.message_edits.questions(&result)))
            }
            (ReplyEnd::Parked { id, result }, _) => ReplyEnd::Parked {
                id,
                result: self.message_edits.questions(&result),
            },
            (ReplyEnd::Task(created), _) => {
                match self.task.as_ref().map(|naming| naming.name_task(&created)) {
                    Some(Ok(created)) => ReplyEnd::Task(created),
                    Some(Err(failure)) => failure.into(),
                    None => Failure::new(
                        FailureKind::BadAnswer,
                        "The server makes a task of what must be none",
                    )
                    .into(),
                }
            }
            (ReplyEnd::Complete(Payload::Whole(result)), _) if self.is_wanted() => {
                match self.task.as_ref().map(|naming| {
                    reply_cleaning::strip_hop_members(&result, removed)
                        .and_then(|result| naming.completed_task(&result))
                }) {
                    Some(Ok(created)) => ReplyEnd::Task(created),
                    Some(Err(failure)) => failure.into(),
                    None => ReplyEnd::Complete(Payload::Whole(result)),
                }
            }
            (ReplyEnd::Failed(failure), _)
                if self.completion && self.is_shared && failure.is_unknown_method() =>
            {
                ReplyEnd::Complete(Payload::Whole(Bytes::from_static(NO_VALUES)))
            }
            (ReplyEnd::Failed(failure), Some(uri)) if is_not_found(&failure) => {
                Failure::unknown_resource(uri).into()
            }
            (ReplyEnd::Failed(failure), _) => self.name_visits(*failure).into(),
            (ReplyEnd::Complete(Payload::Whole(result)), _) if self.completion => {
                ReplyEnd::Complete(Payload::Whole(cut_completion(result)))
            }
            (end, _) => end,
        }
    }

    /// Names the server in the visits of URLs that its error requires.
    fn name_visits(&self, failure: Failure) -> Failure {
        failure.with_upstream_error(|error| {
            if error.code == error_code::URL_ELICITATION_REQUIRED {
                let visits = error.data.as_ref();
                error.data = visits.map(|data| self.message_edits.required_visits(data));
            }
        })
    }
}

/// Servers report it in two ways: with a code of its own until 2025-11-25, and with `-32602` and
/// the URI from then on.
fn is_not_found(failure: &Failure) -> bool {
    let FailureKind::Upstream(error) = failure.kind() else {
        return false;
    };
    let names_uri = || {
        error
            .data
            .as_ref()
            .is_some_and(|data| scan::find(data, "uri").is_some())
    };
    error.code == error_code::RESOURCE_NOT_FOUND
        || (error.code == error_code::INVALID_PARAMS && names_uri())
}

/// Cuts a completion to the most values that clients expect.
fn cut_completion(result: Bytes) -> Bytes {
    let values = scan::find(&result, "completion").and_then(|at| {
        let completion = &result[at];
        scan::find(completion, "values").map(|at| scan::elements(&completion[at]).count())
    });
    if values.is_none_or(|count| count <= MAX_VALUES) {
        return result;
    }
    let Ok(mut parsed) = serde_json::from_slice::<Value>(&result) else {
        return result;
    };
    if let Some(values) = parsed["completion"]["values"].as_array_mut() {
        values.truncate(MAX_VALUES);
    }
    parsed["completion"]["hasMore"] = Value::Bool(true);
    Bytes::from(parsed.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;
    use weir_core::names::UpstreamId;

    use super::*;

    impl ReplyTransform {
        /// The steps of a call with nothing to change.
        fn plain() -> Self {
            Self {
                cleaning: ReplyCleaning::plain(UpstreamId::new("up").unwrap()),
                secrets: None,
                size: None,
                results: None,
                renaming: None,
                message_edits: message_edits::MessageEdits::default(),
                read: None,
                completion: false,
                is_shared: false,
                may_ask: false,
                task: None,
            }
        }
    }

    // Proves R135.
    #[test]
    fn a_completion_has_at_most_100_values() {
        let of = |count: usize| {
            Bytes::from(json!({ "completion": { "values": vec!["x"; count] }, "y": 1 }).to_string())
        };
        assert_eq!(cut_completion(of(100)), of(100));
        let short: Value = serde_json::from_slice(&cut_completion(of(500))).unwrap_or_default();
        assert_eq!(
            short["completion"]["values"].as_array().map(Vec::len),
            Some(100)
        );
        assert_eq!(
            (&short["completion"]["hasMore"], &short["y"]),
            (&json!(true), &json!(1))
        );
        for odd in [
            "{}",
            r#"{"completion":5}"#,
            r#"{"completion":{"values":5}}"#,
        ] {
            assert_eq!(cut_completion(Bytes::from_static(odd.as_bytes())), odd);
        }
    }

    // Proves R138.
    #[test]
    fn unknown_completion_is_empty_and_other_errors_pass() {
        let failed = |code| {
            let error = weir_core::failure::UpstreamError {
                code,
                message: "m".into(),
                data: None,
            };
            ReplyEnd::from(Failure::new(FailureKind::Upstream(error), "m"))
        };
        let of = |completion, is_shared, code| match (ReplyTransform {
            completion,
            is_shared,
            ..ReplyTransform::plain()
        })
        .apply(failed(code), 0)
        {
            ReplyEnd::Complete(Payload::Whole(result)) => Some(result),
            ReplyEnd::Complete(_)
            | ReplyEnd::InputRequired(_)
            | ReplyEnd::Parked { .. }
            | ReplyEnd::Task(_)
            | ReplyEnd::Failed(_) => None,
        };
        assert_eq!(
            of(true, true, error_code::METHOD_NOT_FOUND).as_deref(),
            Some(NO_VALUES)
        );
        assert_eq!(
            of(true, false, error_code::METHOD_NOT_FOUND),
            None,
            "the only server of an endpoint says so itself"
        );
        assert_eq!(of(true, true, error_code::INVALID_PARAMS), None);
        assert_eq!(of(false, true, error_code::METHOD_NOT_FOUND), None);
    }

    // Proves R166.
    #[test]
    fn only_calls_that_may_have_questions_end_with_them() {
        let asks = || {
            ReplyEnd::InputRequired(Payload::Whole(Bytes::from_static(
                b"{\"requestState\":\"s\"}",
            )))
        };
        let of = |rounds| ReplyTransform {
            may_ask: rounds,
            ..ReplyTransform::plain()
        };
        assert!(matches!(
            of(true).apply(asks(), 0),
            ReplyEnd::InputRequired(_)
        ));
        let ReplyEnd::Failed(failure) = of(false).apply(asks(), 0) else {
            panic!("it was passed on")
        };
        assert_eq!(*failure.kind(), FailureKind::BadAnswer);
    }

    // Proves R127.
    #[test]
    fn both_errors_for_an_unknown_resource_are_understood() {
        let said = |code, data: Option<&'static str>| {
            let data = data.map(|data| Bytes::from_static(data.as_bytes()));
            let error = weir_core::failure::UpstreamError {
                code,
                message: "m".into(),
                data,
            };
            is_not_found(&Failure::new(FailureKind::Upstream(error), "m"))
        };
        assert!(said(-32002, None) && said(-32602, Some(r#"{"uri":"x:y"}"#)));
        assert!(!said(-32602, None) && !said(-32603, Some(r#"{"uri":"x:y"}"#)));
    }
}
