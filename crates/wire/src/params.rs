//! A view of a `params` object and of its `_meta`: one pass over the members, each decoded only on
//! demand.
//!
//! It knows names, not methods: the caller decides if a member is required or allowed. A member of
//! the wrong type is an error that names it, raised by its accessor.

mod member_slot;
mod meta_view;
pub(crate) mod params_error;

use std::borrow::Cow;

use bytes::Bytes;

use crate::log_level::LogLevel;
use crate::method::{Method, MethodName, NameSource};
use crate::{scan, write};
use member_slot::{MemberSlot, read_level, read_object, read_text, read_token, record_position};

pub use meta_view::Meta;
pub use params_error::ParamsError;

/// Members that `params` of a client's requests and notifications have in any revision.
pub const NAMES: [&str; 23] = [
    "name",
    "arguments",
    "_meta",
    "uri",
    "taskId",
    "cursor",
    "level",
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "notifications",
    "requestId",
    "progressToken",
    "inputResponses",
    "requestState",
    "ref",
    "argument",
    "context",
    "task",
    "reason",
    "progress",
    "total",
    "message",
];

/// Members of `params.ref` in any revision.
pub const REF_NAMES: [&str; 4] = ["type", "name", "uri", "title"];

/// The members of `params` that weir reads.
#[derive(Clone, Debug)]
pub struct Params {
    raw: Bytes,
    name: MemberSlot,
    uri: MemberSlot,
    task_id: MemberSlot,
    cursor: MemberSlot,
    arguments: MemberSlot,
    task: MemberSlot,
    level: MemberSlot,
    protocol_version: MemberSlot,
    capabilities: MemberSlot,
    client_info: MemberSlot,
    notifications: MemberSlot,
    progress_token: MemberSlot,
    input_responses: MemberSlot,
    request_state: MemberSlot,
    meta: MemberSlot,
    /// The view of `_meta`, if it is an object: parsed once, because many callers use it.
    view: Option<Box<Meta>>,
}

impl Params {
    /// Views a checked JSON object. Absent `params` are the same as empty ones: pass `None`.
    ///
    /// # Errors
    /// The value is not an object, or a name in it or in its `_meta` differs from a known one in
    /// case alone.
    pub fn parse(raw: Option<&Bytes>) -> Result<Self, ParamsError> {
        Self::checked(raw, &NAMES)
    }

    /// Views the `params` of a message with this method. Those of an extension's method have no
    /// known names except in `_meta`; those of a completion have some more in `ref`.
    ///
    /// # Errors
    /// As [`Params::parse`].
    pub fn of(method: &MethodName, raw: Option<&Bytes>) -> Result<Self, ParamsError> {
        let params = Self::checked(
            raw,
            if method.known().is_some() {
                &NAMES
            } else {
                &[]
            },
        )?;
        if method.known() == Some(Method::CompletionComplete)
            && let Some(range) = scan::find(&params.raw, "ref")
            && let Some(name) = scan::members(&params.raw[range])
                .find_map(|member| member.key.case_variant_of(&REF_NAMES))
        {
            return Err(ParamsError::case_variant(name));
        }
        Ok(params)
    }

    fn checked(raw: Option<&Bytes>, names: &[&'static str]) -> Result<Self, ParamsError> {
        let raw = raw.cloned().unwrap_or_else(|| Bytes::from_static(b"{}"));
        if !scan::is_object(&raw) {
            return Err(ParamsError {
                member: "params",
                expected: "an object",
            });
        }
        let (view, variant) = Self::view(&raw, names);
        match variant.or_else(|| view.view.as_ref()?.variant()) {
            Some(name) => Err(ParamsError::case_variant(name)),
            None => Ok(view),
        }
    }

    /// The `params` of a request about a task: the task's name alone.
    #[must_use]
    pub fn of_task(name: &str) -> Self {
        Self::view(&write::task_params(name), &[]).0
    }

    /// Returns the view, and the first of `names` that a member's name differs from in case alone.
    /// Only members that are not in the table are compared without regard to case: an ordinary
    /// request has no such member.
    fn view(raw: &Bytes, names: &[&'static str]) -> (Self, Option<&'static str>) {
        let (mut view, mut variant) = (Self::empty(raw.clone()), None);
        for member in scan::members(raw) {
            if !record_position(&member, &mut view.table()) {
                variant = variant.or_else(|| member.key.case_variant_of(names));
            }
        }
        let meta = read_object(raw, view.meta, "_meta").ok().flatten();
        view.view = meta.map(|meta| Box::new(Meta::parse(&meta)));
        (view, variant)
    }

    fn empty(raw: Bytes) -> Self {
        Self {
            raw,
            name: MemberSlot::default(),
            uri: MemberSlot::default(),
            task_id: MemberSlot::default(),
            cursor: MemberSlot::default(),
            arguments: MemberSlot::default(),
            task: MemberSlot::default(),
            level: MemberSlot::default(),
            protocol_version: MemberSlot::default(),
            capabilities: MemberSlot::default(),
            client_info: MemberSlot::default(),
            notifications: MemberSlot::default(),
            progress_token: MemberSlot::default(),
            input_responses: MemberSlot::default(),
            request_state: MemberSlot::default(),
            meta: MemberSlot::default(),
            view: None,
        }
    }

    fn table(&mut self) -> [(&'static str, &mut MemberSlot); 15] {
        [
            ("name", &mut self.name),
            ("arguments", &mut self.arguments),
            ("_meta", &mut self.meta),
            ("uri", &mut self.uri),
            ("taskId", &mut self.task_id),
            ("cursor", &mut self.cursor),
            ("level", &mut self.level),
            ("protocolVersion", &mut self.protocol_version),
            ("capabilities", &mut self.capabilities),
            ("clientInfo", &mut self.client_info),
            ("notifications", &mut self.notifications),
            ("progressToken", &mut self.progress_token),
            ("inputResponses", &mut self.input_responses),
            ("requestState", &mut self.request_state),
            ("task", &mut self.task),
        ]
    }

    /// The whole object, as it came.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Reports if `_meta` has `io.modelcontextprotocol/protocolVersion` of any type: the mark of a
    /// modern request.
    ///
    /// # Errors
    /// `_meta` is not an object.
    pub fn has_meta_protocol_version(&self) -> Result<bool, ParamsError> {
        Ok(self.meta()?.is_some_and(Meta::has_protocol_version))
    }

    /// Reports if the member that `Mcp-Name` mirrors is this text. Equal bytes are compared without
    /// being decoded.
    #[must_use]
    pub fn is_named(&self, source: NameSource, text: &str) -> bool {
        let slot = match source {
            NameSource::Name => self.name,
            NameSource::Uri => self.uri,
            NameSource::TaskId => self.task_id,
            NameSource::None => return false,
        };
        let value = slot.range().map(|range| &self.raw[range]);
        value.is_some_and(|value| scan::is_string(value, text))
    }

    /// The name of a tool or prompt.
    ///
    /// # Errors
    /// It is not a string.
    pub fn name(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(&self.raw, self.name, "name")
    }

    /// The URI of a resource.
    ///
    /// # Errors
    /// It is not a string.
    pub fn uri(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(&self.raw, self.uri, "uri")
    }

    /// The id of a task.
    ///
    /// # Errors
    /// It is not a string.
    pub fn task_id(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(&self.raw, self.task_id, "taskId")
    }

    /// The cursor of the next page of a list. The empty string is a value.
    ///
    /// # Errors
    /// It is not a string.
    pub fn cursor(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(&self.raw, self.cursor, "cursor")
    }

    /// The version that `initialize` proposes.
    ///
    /// # Errors
    /// It is not a string.
    pub fn protocol_version(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(&self.raw, self.protocol_version, "protocolVersion")
    }

    /// The state that an `input_required` result gave to be sent back.
    ///
    /// # Errors
    /// It is not a string.
    pub fn request_state(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(&self.raw, self.request_state, "requestState")
    }

    /// The level of `logging/setLevel`.
    ///
    /// # Errors
    /// It is not the name of a level.
    pub fn level(&self) -> Result<Option<LogLevel>, ParamsError> {
        read_level(&self.raw, self.level, "level")
    }

    /// The arguments of a tool or prompt: the object, as it came.
    ///
    /// # Errors
    /// It is not an object.
    pub fn arguments(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(&self.raw, self.arguments, "arguments")
    }

    /// The request of a client of 2025-11-25 for a task: the object, as it came.
    ///
    /// # Errors
    /// It is not an object.
    pub fn task(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(&self.raw, self.task, "task")
    }

    /// The client's capabilities in `initialize`: the object, as it came.
    ///
    /// # Errors
    /// It is not an object.
    pub fn capabilities(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(&self.raw, self.capabilities, "capabilities")
    }

    /// The client's self-reported name and version in `initialize`: the object, as it came.
    ///
    /// # Errors
    /// It is not an object.
    pub fn client_info(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(&self.raw, self.client_info, "clientInfo")
    }

    /// The filter of `subscriptions/listen`: the object, as it came.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn notifications(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(&self.raw, self.notifications, "notifications")
    }

    /// The responses to an `input_required` result: the object, as it came.
    ///
    /// # Errors
    /// It is not an object.
    pub fn input_responses(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(&self.raw, self.input_responses, "inputResponses")
    }

    /// The token that `notifications/progress` names: a JSON string or integer.
    ///
    /// # Errors
    /// When it is neither.
    pub fn progress_token(&self) -> Result<Option<Bytes>, ParamsError> {
        read_token(&self.raw, self.progress_token, "progressToken")
    }

    /// The view of `_meta`, if it is there.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn meta(&self) -> Result<Option<&Meta>, ParamsError> {
        if self.meta.is_present() && self.view.is_none() {
            return Err(ParamsError {
                member: "_meta",
                expected: "an object",
            });
        }
        Ok(self.view.as_deref())
    }
}

#[cfg(test)]
mod tests;
