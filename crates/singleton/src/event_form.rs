//! The events of a running call in the form that replicas send each other.

use serde::{Deserialize, Serialize};
use weir_core::reply::{NoteKind, ReplyNote};
use weir_wire::LogLevel;
use weir_wire::method::Method;

use crate::failure_form::FailureForm;
use crate::frame::{BadFrame, Frame, FrameKind};

/// The facts of a note. Its `params` are the first part.
#[derive(Debug, Serialize, Deserialize)]
struct NoteForm {
    kind: String,
    /// The level of a log message, or the method of another notification.
    #[serde(default)]
    detail: String,
}

/// The frame of a note.
pub(crate) fn note_frame(note: ReplyNote) -> Frame {
    let (kind, detail) = match note.kind {
        NoteKind::Progress => ("progress", ""),
        NoteKind::Log(level) => ("log", level.as_str()),
        NoteKind::Other(method) => ("other", method.as_str()),
        NoteKind::StillWorking => ("still_working", ""),
    };
    let form = NoteForm {
        kind: kind.to_owned(),
        detail: detail.to_owned(),
    };
    Frame::new(FrameKind::Note, &form).with(note.params)
}

/// The note of a frame.
pub(crate) fn read_note(frame: &Frame) -> Result<ReplyNote, BadFrame> {
    let form: NoteForm = frame.facts()?;
    let kind = match form.kind.as_str() {
        "progress" => NoteKind::Progress,
        "log" => NoteKind::Log(LogLevel::parse(&form.detail).ok_or(BadFrame)?),
        "other" => NoteKind::Other(Method::parse(&form.detail).ok_or(BadFrame)?),
        // Any other shows life.
        _ => NoteKind::StillWorking,
    };
    Ok(ReplyNote {
        kind,
        params: frame.part(0),
    })
}

/// The facts of a question. Its `params` are the first part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QuestionForm {
    /// Its number in the call.
    pub(crate) number: u64,
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) wants_progress: bool,
    #[serde(default)]
    pub(crate) elicitation: Option<String>,
}

/// The facts of an answer, a progress report or the end of a question. Its bytes are the first part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AnswerForm {
    /// The number of the question.
    pub(crate) number: u64,
    /// True if the bytes of an answer are a result and no error.
    #[serde(default)]
    pub(crate) is_result: bool,
}

/// The facts of the end of a call. The result is the first part, or comes in chunks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct EndForm {
    pub(crate) kind: EndKind,
    /// The revision that the call was carried in to the server.
    #[serde(default)]
    pub(crate) carried: Option<String>,
    #[serde(default)]
    pub(crate) failure: Option<FailureForm>,
}

/// The kind of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndKind {
    Complete,
    InputRequired,
    Task,
    #[default]
    Failed,
}

/// The reason that a request did not run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RefusalForm {
    /// For the log.
    #[serde(default)]
    pub(crate) reason: String,
}

/// The frame that refuses a request.
pub(crate) fn refusal_frame(reason: &str) -> Frame {
    let reason = reason.to_owned();
    Frame::new(FrameKind::Refused, &RefusalForm { reason })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;

    use super::*;

    #[test]
    fn notes_survive_their_frames() {
        for kind in [
            NoteKind::Progress,
            NoteKind::Log(LogLevel::Error),
            NoteKind::Other(Method::Tasks),
            NoteKind::StillWorking,
        ] {
            let note = ReplyNote {
                kind,
                params: Bytes::from_static(b"{\"progress\":1}"),
            };
            let back = read_note(&note_frame(note.clone())).unwrap();
            assert_eq!((back.kind, back.params), (note.kind, note.params));
        }
    }
}
