//! The view of a `_meta` object.

use std::borrow::Cow;

use bytes::Bytes;

use crate::log_level::LogLevel;
use crate::meta;
use crate::params::member_slot::{
    MemberSlot, read_level, read_object, read_text, read_token, record_position,
};
use crate::params::params_error::ParamsError;
use crate::revision::Revision;
use crate::scan;
use crate::scan::json_members::JsonMember;

/// The keys of a `_meta` object that weir reads.
#[derive(Clone, Debug)]
pub struct Meta {
    raw: Bytes,
    protocol_version: MemberSlot,
    client_info: MemberSlot,
    client_capabilities: MemberSlot,
    log_level: MemberSlot,
    server_info: MemberSlot,
    progress_token: MemberSlot,
    traceparent: MemberSlot,
    tracestate: MemberSlot,
    baggage: MemberSlot,
    /// True if there are keys that belong to the peers.
    others: bool,
    /// The known key, or the prefix of such keys, that another key differs from in case alone.
    variant: Option<&'static str>,
}

impl Meta {
    /// Views a checked JSON object; any other value has no keys.
    #[must_use]
    pub fn parse(raw: &Bytes) -> Self {
        let mut view = Self {
            raw: raw.clone(),
            protocol_version: MemberSlot::default(),
            client_info: MemberSlot::default(),
            client_capabilities: MemberSlot::default(),
            log_level: MemberSlot::default(),
            server_info: MemberSlot::default(),
            progress_token: MemberSlot::default(),
            traceparent: MemberSlot::default(),
            tracestate: MemberSlot::default(),
            baggage: MemberSlot::default(),
            others: false,
            variant: None,
        };
        for member in scan::members(raw) {
            // The keys in the table are all weir's own.
            if !record_position(&member, &mut view.table()) {
                let key = member.key.decode();
                view.others |= !meta::is_owned_by_weir(&key);
                view.variant = view.variant.or_else(|| meta::case_variant_of_owned(&key));
            }
        }
        view
    }

    fn table(&mut self) -> [(&'static str, &mut MemberSlot); 9] {
        [
            (meta::PROTOCOL_VERSION, &mut self.protocol_version),
            (meta::CLIENT_INFO, &mut self.client_info),
            (meta::CLIENT_CAPABILITIES, &mut self.client_capabilities),
            (meta::LOG_LEVEL, &mut self.log_level),
            (meta::SERVER_INFO, &mut self.server_info),
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

    /// The known key, or the prefix of such keys, that a key here differs from in case alone.
    pub(super) const fn variant(&self) -> Option<&'static str> {
        self.variant
    }

    /// Reports if `io.modelcontextprotocol/protocolVersion` is present with any type: the mark of a
    /// modern request.
    #[must_use]
    pub const fn has_protocol_version(&self) -> bool {
        self.protocol_version.is_present()
    }

    /// The version this request speaks, as text.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn protocol_version(&self) -> Result<Option<Cow<'_, str>>, ParamsError> {
        read_text(
            &self.raw,
            self.protocol_version,
            "_meta.io.modelcontextprotocol/protocolVersion",
        )
    }

    /// The revision this request speaks, if weir knows it.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn revision(&self) -> Result<Option<Revision>, ParamsError> {
        Ok(self
            .protocol_version()?
            .as_deref()
            .and_then(Revision::parse))
    }

    /// The client's self-reported name and version.
    ///
    /// # Errors
    /// It is not an object.
    pub fn client_info(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(
            &self.raw,
            self.client_info,
            "_meta.io.modelcontextprotocol/clientInfo",
        )
    }

    /// The client's capabilities for this request.
    ///
    /// # Errors
    /// It is not an object.
    pub fn client_capabilities(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(
            &self.raw,
            self.client_capabilities,
            "_meta.io.modelcontextprotocol/clientCapabilities",
        )
    }

    /// The least severe log message the client wants.
    ///
    /// # Errors
    /// When it is not the name of a level.
    pub fn log_level(&self) -> Result<Option<LogLevel>, ParamsError> {
        read_level(
            &self.raw,
            self.log_level,
            "_meta.io.modelcontextprotocol/logLevel",
        )
    }

    /// The server's self-reported name and version.
    ///
    /// # Errors
    /// It is not an object.
    pub fn server_info(&self) -> Result<Option<Bytes>, ParamsError> {
        read_object(
            &self.raw,
            self.server_info,
            "_meta.io.modelcontextprotocol/serverInfo",
        )
    }

    /// The token under which the sender wants progress: a JSON string or integer.
    ///
    /// # Errors
    /// When it is neither.
    pub fn progress_token(&self) -> Result<Option<Bytes>, ParamsError> {
        read_token(&self.raw, self.progress_token, "_meta.progressToken")
    }

    /// W3C trace context. Text of the wrong type counts as absent: tracing must not fail a call.
    #[must_use]
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        scan::string(&self.raw[self.traceparent.range()?])
    }

    /// W3C trace state; as [`Meta::traceparent`].
    #[must_use]
    pub fn tracestate(&self) -> Option<Cow<'_, str>> {
        scan::string(&self.raw[self.tracestate.range()?])
    }

    /// W3C baggage; as [`Meta::traceparent`].
    #[must_use]
    pub fn baggage(&self) -> Option<Cow<'_, str>> {
        scan::string(&self.raw[self.baggage.range()?])
    }

    /// The members that belong to the peers and not to one hop ([`meta::is_owned_by_weir`]), in
    /// order; values index [`Meta::raw`].
    pub fn unknown(&self) -> impl Iterator<Item = JsonMember<'_>> {
        let raw = if self.others { &self.raw[..] } else { b"{}" };
        scan::members(raw).filter(|member| !is_own(member))
    }
}

fn is_own(member: &JsonMember<'_>) -> bool {
    meta::is_owned_by_weir(&member.key.decode())
}
