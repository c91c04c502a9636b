//! `-32042` of 2025-11-25: a server requires its caller to visit URLs first. Other revisions have
//! no such code.
//!
//! A modern client is asked to visit them, and the call is repeated unchanged once its user agreed
//! (see [`crate::reply::url_visits`]). A client of
//! 2025-11-25 with URL elicitation gets the same error, under weir's names; any other client gets a
//! text.

use bytes::{Bytes, BytesMut};
use weir_core::failure::UpstreamError;
use weir_core::{CallResumption, CapabilityClass, Failure, FailureKind, Payload, SessionKey};
use weir_era::request_state::{SealedResume, UrlVisits, VisitedUrl};
use weir_era::{render, server_questions};
use weir_layers::failure;
use weir_layers::request::outcome::RequestOutcome;
use weir_wire::method::Method;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, error_code};

use crate::reply::client_questions;
use crate::reply::encode::response_context::{EncodedEnd, ResponseContext, UrlElicitationForm};

impl ResponseContext {
    /// Converts the failure if it is `-32042`; `None` for any other.
    pub(super) fn url_elicitation_required(&self, failure: &Failure) -> Option<EncodedEnd> {
        let (error, visits) = server_questions::required_visits(failure)?;
        let form = if visits.is_empty() {
            UrlElicitationForm::Unsupported
        } else {
            self.url_elicitation
        };
        Some(match form {
            UrlElicitationForm::Questions(class) => self.elicit_by_round(class, &visits),
            UrlElicitationForm::Error(session) => {
                self.elicit_by_error(failure, error, session, &visits)
            }
            UrlElicitationForm::Text => self.elicit_by_text(&error.message, &visits),
            UrlElicitationForm::Unsupported => {
                let text = server_questions::no_visit_text(error);
                self.encode_failure(&Failure::new(FailureKind::BadAnswer, text))
            }
        })
    }

    fn elicit_by_round(
        &self,
        class: CapabilityClass,
        visits: &[server_questions::UrlElicitation],
    ) -> EncodedEnd {
        if !class.has(CapabilityClass::ELICITATION_URL) {
            let needed = Bytes::from_static(br#"{"elicitation":{"url":{}}}"#);
            let text = "The server wants a URL visited first: declare `elicitation.url`";
            return self
                .encode_failure(&Failure::new(FailureKind::MissingCapability(needed), text));
        }
        let accepted = &self.accepted_visits;
        let is_new = |visit: &&server_questions::UrlElicitation| {
            let visit = VisitedUrl::of(visit);
            !accepted.iter().any(|known| known.is_same(&visit))
        };
        let asked: Vec<_> = visits.iter().filter(is_new).cloned().collect();
        let origin = SealedResume {
            visits: UrlVisits {
                accepted: accepted.clone(),
                asked: asked.iter().map(VisitedUrl::of).collect(),
            },
            ..SealedResume::of(CallResumption::Again)
        };
        self.encode_input_required(
            Payload::Whole(server_questions::url_elicitation_result(&asked)),
            Some(origin),
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
            client_questions::elicitation_id(&self.route.shared, session, theirs)
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
        reason: &str,
        visits: &[server_questions::UrlElicitation],
    ) -> EncodedEnd {
        let text = server_questions::visits_as_text(reason, visits);
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
