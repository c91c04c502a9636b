//! A view of a `params` object and of its `_meta`: one pass over the members, nothing decoded until asked for.
//!
//! It knows names, not methods: whether a member is required, or allowed, is the caller's rule. A member of the wrong type is an error
//! that names it, raised by its accessor.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::scan::{self, Member};
use crate::{LogLevel, Revision, meta};

/// A member that is not what it must be (-32602).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{member}` must be {expected}")]
pub struct ParamsError {
    /// The member, with its path inside `params`.
    pub member: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

/// A member's place, if it is there.
type Slot = Option<Range<usize>>;

fn place<'a>(member: Member<'a>, table: &mut [(&str, &mut Slot)]) -> Result<(), Member<'a>> {
    match table.iter_mut().find(|(name, _)| member.key.eq_str(name)) {
        Some((_, slot)) => **slot = Some(member.value),
        None => return Err(member),
    }
    Ok(())
}

/// The members of `params` that weir reads.
#[derive(Clone, Debug)]
pub struct Params {
    raw: Bytes,
    name: Slot,
    uri: Slot,
    task_id: Slot,
    cursor: Slot,
    arguments: Slot,
    level: Slot,
    protocol_version: Slot,
    capabilities: Slot,
    client_info: Slot,
    notifications: Slot,
    request_id: Slot,
    progress_token: Slot,
    input_responses: Slot,
    request_state: Slot,
    meta: Slot,
}

impl Params {
    /// Views a checked JSON object. Absent `params` are the same as empty ones: pass `None`.
    ///
    /// # Errors
    /// When the value is not an object.
    pub fn parse(raw: Option<&Bytes>) -> Result<Self, ParamsError> {
        let raw = raw.cloned().unwrap_or_else(|| Bytes::from_static(b"{}"));
        if !scan::is_object(&raw) {
            return Err(ParamsError { member: "params", expected: "an object" });
        }
        let mut view = Self::empty(raw.clone());
        for member in scan::members(&raw) {
            // What is unknown stays in the raw bytes.
            let _unknown = place(member, &mut view.table());
        }
        Ok(view)
    }

    fn empty(raw: Bytes) -> Self {
        Self {
            raw,
            name: None,
            uri: None,
            task_id: None,
            cursor: None,
            arguments: None,
            level: None,
            protocol_version: None,
            capabilities: None,
            client_info: None,
            notifications: None,
            request_id: None,
            progress_token: None,
            input_responses: None,
            request_state: None,
            meta: None,
        }
    }

    fn table(&mut self) -> [(&'static str, &mut Slot); 15] {
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
            ("requestId", &mut self.request_id),
            ("progressToken", &mut self.progress_token),
            ("inputResponses", &mut self.input_responses),
            ("requestState", &mut self.request_state),
        ]
    }

    /// The whole object, as it came.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Where `name`'s value stands in [`Params::raw`].
    #[must_use]
    pub fn name_range(&self) -> Option<Range<usize>> {
        self.name.clone()
    }

    /// Where `uri`'s value stands in [`Params::raw`].
    #[must_use]
    pub fn uri_range(&self) -> Option<Range<usize>> {
        self.uri.clone()
    }

    /// Where `_meta`'s value stands in [`Params::raw`].
    #[must_use]
    pub fn meta_range(&self) -> Option<Range<usize>> {
        self.meta.clone()
    }

    /// Of a tool or prompt.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn name(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.name, "name")
    }

    /// Of a resource.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn uri(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.uri, "uri")
    }

    /// Of a task.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn task_id(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.task_id, "taskId")
    }

    /// Where a list goes on. The empty string is a value.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn cursor(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.cursor, "cursor")
    }

    /// What `initialize` proposes.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn protocol_version(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.protocol_version, "protocolVersion")
    }

    /// What an `input_required` result gave to be sent back.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn request_state(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.request_state, "requestState")
    }

    /// Of `logging/setLevel`.
    ///
    /// # Errors
    /// When it is not the name of a level.
    pub fn level(&self) -> Result<Option<LogLevel>, ParamsError> {
        level(&self.raw, &self.level, "level")
    }

    /// Of a tool or prompt: the object, as it came.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn arguments(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.arguments, "arguments")
    }

    /// What the client of `initialize` can do: the object, as it came.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn capabilities(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.capabilities, "capabilities")
    }

    /// Who the client of `initialize` says it is: the object, as it came.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn client_info(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.client_info, "clientInfo")
    }

    /// The filter of `subscriptions/listen`: the object, as it came.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn notifications(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.notifications, "notifications")
    }

    /// Answers to an `input_required` result: the object, as it came.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn input_responses(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.input_responses, "inputResponses")
    }

    /// The request that `notifications/cancelled` names: a JSON string or integer.
    ///
    /// # Errors
    /// When it is neither.
    pub fn request_id(&self) -> Result<Option<Bytes>, ParamsError> {
        token(&self.raw, &self.request_id, "requestId")
    }

    /// The token that `notifications/progress` names: a JSON string or integer.
    ///
    /// # Errors
    /// When it is neither.
    pub fn progress_token(&self) -> Result<Option<Bytes>, ParamsError> {
        token(&self.raw, &self.progress_token, "progressToken")
    }

    /// The view of `_meta`, if it is there.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn meta(&self) -> Result<Option<Meta>, ParamsError> {
        Ok(object(&self.raw, &self.meta, "_meta")?.map(Meta::parse))
    }
}

/// The keys of a `_meta` object that weir reads.
#[derive(Clone, Debug)]
pub struct Meta {
    raw: Bytes,
    protocol_version: Slot,
    client_info: Slot,
    client_capabilities: Slot,
    log_level: Slot,
    server_info: Slot,
    subscription_id: Slot,
    related_task: Slot,
    progress_token: Slot,
    traceparent: Slot,
    tracestate: Slot,
    baggage: Slot,
}

impl Meta {
    /// Views a checked JSON object; anything else has no keys.
    #[must_use]
    pub fn parse(raw: Bytes) -> Self {
        let mut view = Self {
            raw: raw.clone(),
            protocol_version: None,
            client_info: None,
            client_capabilities: None,
            log_level: None,
            server_info: None,
            subscription_id: None,
            related_task: None,
            progress_token: None,
            traceparent: None,
            tracestate: None,
            baggage: None,
        };
        for member in scan::members(&raw) {
            // What is unknown stays in the raw bytes.
            let _unknown = place(member, &mut view.table());
        }
        view
    }

    fn table(&mut self) -> [(&'static str, &mut Slot); 11] {
        [
            (meta::PROTOCOL_VERSION, &mut self.protocol_version),
            (meta::CLIENT_INFO, &mut self.client_info),
            (meta::CLIENT_CAPABILITIES, &mut self.client_capabilities),
            (meta::LOG_LEVEL, &mut self.log_level),
            (meta::SERVER_INFO, &mut self.server_info),
            (meta::SUBSCRIPTION_ID, &mut self.subscription_id),
            (meta::RELATED_TASK, &mut self.related_task),
            (meta::PROGRESS_TOKEN, &mut self.progress_token),
            (meta::TRACEPARENT, &mut self.traceparent),
            (meta::TRACESTATE, &mut self.tracestate),
            (meta::BAGGAGE, &mut self.baggage),
        ]
    }

    /// The whole object, as it came.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Whether `io.modelcontextprotocol/protocolVersion` is there, of whatever type: the mark of a modern request.
    #[must_use]
    pub const fn has_protocol_version(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// The version this request speaks, as text.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn protocol_version(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        text(&self.raw, &self.protocol_version, "_meta.io.modelcontextprotocol/protocolVersion")
    }

    /// The revision this request speaks, if weir knows it.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn revision(&self) -> Result<Option<Revision>, ParamsError> {
        Ok(self.protocol_version()?.as_deref().and_then(Revision::parse))
    }

    /// Who the client says it is.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn client_info(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.client_info, "_meta.io.modelcontextprotocol/clientInfo")
    }

    /// What the client can do for this request.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn client_capabilities(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.client_capabilities, "_meta.io.modelcontextprotocol/clientCapabilities")
    }

    /// The least severe log message the client wants.
    ///
    /// # Errors
    /// When it is not the name of a level.
    pub fn log_level(&self) -> Result<Option<LogLevel>, ParamsError> {
        level(&self.raw, &self.log_level, "_meta.io.modelcontextprotocol/logLevel")
    }

    /// Who the server says it is.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn server_info(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.server_info, "_meta.io.modelcontextprotocol/serverInfo")
    }

    /// The `subscriptions/listen` this belongs to: a JSON string or integer.
    ///
    /// # Errors
    /// When it is neither.
    pub fn subscription_id(&self) -> Result<Option<Bytes>, ParamsError> {
        token(&self.raw, &self.subscription_id, "_meta.io.modelcontextprotocol/subscriptionId")
    }

    /// The task this belongs to (2025-11-25).
    ///
    /// # Errors
    /// When it is not an object.
    pub fn related_task(&self) -> Result<Option<Bytes>, ParamsError> {
        object(&self.raw, &self.related_task, "_meta.io.modelcontextprotocol/related-task")
    }

    /// The token under which the sender wants progress: a JSON string or integer.
    ///
    /// # Errors
    /// When it is neither.
    pub fn progress_token(&self) -> Result<Option<Bytes>, ParamsError> {
        token(&self.raw, &self.progress_token, "_meta.progressToken")
    }

    /// W3C trace context. Text of the wrong type counts as absent: tracing must not fail a call.
    #[must_use]
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        scan::string(&self.raw[self.traceparent.clone()?])
    }

    /// W3C trace state; as [`Meta::traceparent`].
    #[must_use]
    pub fn tracestate(&self) -> Option<Cow<'_, str>> {
        scan::string(&self.raw[self.tracestate.clone()?])
    }

    /// W3C baggage; as [`Meta::traceparent`].
    #[must_use]
    pub fn baggage(&self) -> Option<Cow<'_, str>> {
        scan::string(&self.raw[self.baggage.clone()?])
    }

    /// The members that belong to the peers and not to one hop ([`meta::is_owned_by_weir`]), in order; values index [`Meta::raw`].
    pub fn unknown(&self) -> impl Iterator<Item = Member<'_>> {
        scan::members(&self.raw).filter(|member| !meta::is_owned_by_weir(&member.key.decode()))
    }
}

fn text<'a>(raw: &'a Bytes, slot: &Slot, member: &'static str) -> Result<Option<Cow<'a, str>>, ParamsError> {
    let Some(range) = slot.clone() else { return Ok(None) };
    scan::string(&raw[range]).map(Some).ok_or(ParamsError { member, expected: "a string" })
}

fn object(raw: &Bytes, slot: &Slot, member: &'static str) -> Result<Option<Bytes>, ParamsError> {
    let Some(range) = slot.clone() else { return Ok(None) };
    if !scan::is_object(&raw[range.clone()]) {
        return Err(ParamsError { member, expected: "an object" });
    }
    Ok(Some(raw.slice(range)))
}

fn token(raw: &Bytes, slot: &Slot, member: &'static str) -> Result<Option<Bytes>, ParamsError> {
    let Some(range) = slot.clone() else { return Ok(None) };
    if crate::RequestId::from_json(&raw[range.clone()]).is_err() {
        return Err(ParamsError { member, expected: "a string or an integer of at most 256 bytes" });
    }
    Ok(Some(raw.slice(range)))
}

fn level(raw: &Bytes, slot: &Slot, member: &'static str) -> Result<Option<LogLevel>, ParamsError> {
    let Some(name) = text(raw, slot, member)? else { return Ok(None) };
    let expected = "one of debug, info, notice, warning, error, critical, alert, emergency";
    LogLevel::parse(&name).map(Some).ok_or(ParamsError { member, expected })
}

#[cfg(test)]
mod tests;
