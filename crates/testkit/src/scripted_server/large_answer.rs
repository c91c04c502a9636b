//! Answers of many bytes, with their members in any order.

use serde_json::{Value, json};

use crate::scripted_server::{ScriptedRequest, ServerAct};

/// The layout of a large answer. Absent parts are left out.
#[derive(Clone, Debug)]
pub struct LargeAnswer {
    /// True for an event, false for JSON.
    pub events: bool,
    /// Bytes of its text.
    pub size: usize,
    /// The id, if it is not the request's.
    pub id: Option<Value>,
    /// True if the id precedes the result.
    pub id_first: bool,
    /// Members of the result beside its content.
    pub members: Vec<(&'static str, Value)>,
    /// True if they precede the content.
    pub members_first: bool,
}

impl LargeAnswer {
    /// A complete result of one text, with all other members before it.
    #[must_use]
    pub fn new(events: bool, size: usize) -> Self {
        Self {
            events,
            size,
            id: None,
            id_first: true,
            members: vec![("resultType", json!("complete"))],
            members_first: true,
        }
    }

    /// Moves all other members behind the text.
    #[must_use]
    pub fn last(mut self) -> Self {
        (self.id_first, self.members_first) = (false, false);
        self
    }

    /// Answers the request of this id.
    #[must_use]
    pub fn of(mut self, id: Value) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets these members.
    #[must_use]
    pub fn members(mut self, members: &[(&'static str, Value)]) -> Self {
        self.members = members.to_vec();
        self
    }

    /// The message that answers `request`.
    pub fn acts(&self, request: &ScriptedRequest) -> Vec<ServerAct> {
        let id = format!(r#""id":{}"#, self.id.as_ref().unwrap_or(request.id()));
        let members: Vec<String> = self
            .members
            .iter()
            .map(|(name, value)| format!(r#""{name}":{value}"#))
            .collect();
        let members = members.join(",");
        let comma = if members.is_empty() { "" } else { "," };
        let (before, after) = match self.members_first {
            true => (format!("{members}{comma}"), String::new()),
            false => (String::new(), format!("{comma}{members}")),
        };
        let head = match self.id_first {
            true => format!(
                r#"{{"jsonrpc":"2.0",{id},"result":{{{before}"content":[{{"type":"text","text":""#
            ),
            false => format!(r#"{{"result":{{{before}"content":[{{"type":"text","text":""#),
        };
        let tail = match self.id_first {
            true => format!(r#""}}]{after}}}}}"#),
            false => format!(r#""}}]{after}}},{id},"jsonrpc":"2.0"}}"#),
        };
        let (kind, begin, end) = if self.events {
            ("text/event-stream", "data: ", "\n\n")
        } else {
            ("application/json", "", "")
        };
        let length = begin.len() + head.len() + self.size + tail.len() + end.len();
        let http =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        vec![
            ServerAct::Write((http + begin + &head).into()),
            ServerAct::Fill(b'x', self.size),
            ServerAct::Write((tail + end).into()),
        ]
    }
}
