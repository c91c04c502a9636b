//! `-32042` of 2025-11-25: a server requires its caller to visit URLs first. Other revisions have
//! no such code.
//!
//! A modern client is asked to visit them, and the call is repeated unchanged. A client of
//! 2025-11-25 with URL elicitation gets the same error, under weir's names; any other client gets a
//! text.

use bytes::{Bytes, BytesMut};
use weir_core::failure::UpstreamError;
use weir_core::{CallResumption, CapabilityClass, Failure, FailureKind, Payload, SessionKey};
use weir_era::{render, server_questions};
use weir_wire::method::Method;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, error_code};

use super::response_context::{EncodedEnd, ResponseContext};
use crate::failure;
use crate::reply::client_questions;
use crate::request::outcome::RequestOutcome;

impl ResponseContext {
    /// Converts the failure if it is `-32042`; `None` for any other.
    pub(super) fn url_elicitation_required(&self, failure: &Failure) -> Option<EncodedEnd> {
        let FailureKind::Upstream(error) = failure.kind() else {
            return None;
        };
        if error.code != error_code::URL_ELICITATION_REQUIRED {
            return None;
        }
        let visits = error
            .data
            .as_deref()
            .map(server_questions::url_elicitations)
            .unwrap_or_default();
        if visits.is_empty()
            || self.revision.is_modern() && !server_questions::may_have_questions(self.method)
        {
            let text = "The server wants a URL visited first, and does not say which";
            return Some(self.encode_failure(&Failure::new(FailureKind::BadAnswer, text)));
        }
        Some(match self.url_elicitation_session {
            _ if self.revision.is_modern() => self.elicit_by_round(&visits),
            Some(session) => self.elicit_by_error(failure, error, session, &visits),
            None => self.elicit_by_text(&error.message, &visits),
        })
    }

    fn elicit_by_round(&self, visits: &[server_questions::UrlElicitation]) -> EncodedEnd {
        if !self.class.has(CapabilityClass::ELICITATION_URL) {
            let needed = Bytes::from_static(br#"{"elicitation":{"url":{}}}"#);
            let text = "The server wants a URL visited first: declare `elicitation.url`";
            return self
                .encode_failure(&Failure::new(FailureKind::MissingCapability(needed), text));
        }
        self.encode_input_required(
            Payload::Whole(server_questions::url_elicitation_result(visits)),
            Some(CallResumption::Again),
        )
    }

    /// The client gets the completion notification under these names later.
    fn elicit_by_error(
        &self,
        failure: &Failure,
        error: &UpstreamError,
        session: SessionKey,
        visits: &[server_questions::UrlElicitation],
    ) -> EncodedEnd {
        let data = server_questions::url_elicitations_data(visits, |visit| {
            let theirs = failure.upstream().zip(visit.id.as_deref());
            client_questions::elicitation_id(&self.shared, session, theirs)
        });
        let error = UpstreamError {
            code: error.code,
            message: error.message.clone(),
            data: Some(data),
        };
        self.encode_failure(&Failure::new(
            FailureKind::Upstream(error),
            failure.message().to_owned(),
        ))
    }

    fn elicit_by_text(
        &self,
        said: &str,
        visits: &[server_questions::UrlElicitation],
    ) -> EncodedEnd {
        let mut text = said.to_owned();
        for visit in visits {
            text.push_str(&format!("\n{}: {}", visit.message, visit.url));
        }
        text.push_str("\nOpen this in a browser, and then call again.");
        let message = if self.method == Method::ToolsCall {
            let mut out = BytesMut::with_capacity(text.len() + 96);
            let mut result = ObjectWriter::new(&mut out);
            render::tool_error(&mut result, &text);
            result.end();
            weir_wire::write::response(&self.id, &out)
        } else {
            let error = ErrorObject::new(error_code::INTERNAL_ERROR, text);
            weir_wire::write::error_response(Some(&self.id), false, &error)
        };
        EncodedEnd::Message(failure::ok_message(message, RequestOutcome::ToolError))
    }
}
