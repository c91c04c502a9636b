//! A modern server over HTTP: every request is self-contained.
//!
//! Dropping a request cancels it: the connection closes or the stream is reset, and the server sees
//! that.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use weir_core::call::LogMessages;
use weir_core::reply::Reply;
use weir_core::upstream::{DeclaredExtension, OutboundCall, ServerDescription};
use weir_core::{CapabilityClass, FailureKind};
use weir_era::lower;
use weir_era::server_questions;
use weir_era::upstream_messages::{ClientDeclaration, RevisionDialect};
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::list_page::PageCursor;
use weir_upstream_core::own_requests;
use weir_upstream_core::result_expectation::ResultExpectation;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::method::{Method, NameSource};
use weir_wire::{Revision, error_code};

use crate::http_call;
use crate::http_post::{self, ClassifiedResponse, METHOD, NAME, PROTOCOL_VERSION, USUAL_HEADERS};
use crate::message_collector::ReleaseRule;
use crate::pending_request::PendingRequest;

/// The client of one modern server.
#[derive(Clone, Debug)]
pub(crate) struct ModernServer {
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) http: AuthorizedHttpClient,
    pub(crate) dialect: RevisionDialect,
    /// The extensions that the server declares.
    extensions: Arc<[DeclaredExtension]>,
    /// True if the server declares the `logging` capability.
    declares_logging: bool,
}

impl ModernServer {
    pub(crate) fn new(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        revision: Revision,
    ) -> Self {
        Self {
            context,
            http,
            dialect: RevisionDialect::new(revision),
            extensions: Arc::new([]),
            declares_logging: false,
        }
    }

    /// Sets the server's extensions and capabilities.
    pub(crate) fn with_description(self, about: &ServerDescription) -> Self {
        Self {
            extensions: about.extensions.as_slice().into(),
            declares_logging: about.declares_logging(),
            ..self
        }
    }

    /// Returns the same with another HTTP client.
    pub(crate) fn with_client(&self, http: AuthorizedHttpClient) -> Self {
        Self {
            http,
            ..self.clone()
        }
    }

    /// Makes a call. `newer` is the tool's newest definition, after the catalog's was refused.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        newer: Option<&Bytes>,
    ) -> Result<Reply, FailedAttempt> {
        let call = &outbound.call;
        let id = self.context.request_ids.next_id();
        let class = call
            .capabilities
            .class
            .cut(self.context.permissions.carries(self.dialect));
        let logs = self
            .dialect
            .requested_logs(call.log_messages, self.declares_logging);
        let body = self.dialect.call(
            id,
            call,
            &outbound.native,
            ClientDeclaration {
                class,
                client_info: &self.context.client_info,
                extensions: &self.extensions,
                log_messages: logs,
            },
        );
        let mut headers = if call.method == Method::Extension {
            self.headers_of(header_value(&outbound.native, &self.context.label)?)
        } else {
            self.headers(call.method)
        };
        headers.extend(http_post::trace_headers(&call.trace));
        if call.method.name_header() != NameSource::None {
            headers.push((
                NAME,
                header_value(
                    &weir_wire::header::encode(&outbound.native),
                    &self.context.label,
                )?,
            ));
        }
        if call.method == Method::ToolsCall {
            let known = outbound
                .tool
                .as_deref()
                .filter(|tool| tool.has_header_arguments)
                .map(|tool| &tool.raw);
            self.add_mirrored_headers(newer.or(known), outbound, &mut headers)?;
        }
        outbound.carried_revision.note(self.dialect.revision());
        let expectation = ResultExpectation {
            dialect: self.dialect,
            filter: self.dialect.message_filter(id, call.wants_progress, logs),
            class: if server_questions::may_have_questions(call.method) {
                class
            } else {
                CapabilityClass::BASE
            },
            task_owner: ResultExpectation::task_owner(self.dialect, outbound, class),
            tracked: None,
            needs_whole: outbound.whole,
            is_about_task: call.method.is_about_task(),
            is_unsplit: false,
        };
        self.post(headers, body, expectation, id).await
    }

    /// Makes a request of weir's own and returns its whole result.
    pub(crate) async fn request(
        &self,
        class: CapabilityClass,
        method: Method,
        members: &[(&str, &[u8])],
    ) -> Result<Bytes, FailedAttempt> {
        let limit = if method == Method::Discover {
            self.context.own_requests.deadlines.probe
        } else {
            self.context.own_requests.deadlines.list
        };
        let request = own_requests::request_with_repeat(&self.context.own_requests, method, || {
            self.request_once(class, method, members)
        });
        own_requests::within(&self.context.own_requests, limit, request).await
    }

    async fn request_once(
        &self,
        class: CapabilityClass,
        method: Method,
        members: &[(&str, &[u8])],
    ) -> Result<Bytes, FailedAttempt> {
        let id = self.context.request_ids.next_id();
        let body = self
            .dialect
            .request(id, method, members, self.context.own_declaration(class));
        let filter = self.dialect.message_filter(id, false, LogMessages::None);
        let expectation = ResultExpectation::for_own_request(self.dialect, filter, class);
        let reply = self
            .post(self.headers(method), body, expectation, id)
            .await?;
        Ok(own_requests::read_result(&self.context.own_requests, reply).await?)
    }

    /// Fetches the newest definition of a tool from the server's own list, for a call with headers
    /// that did not fit the schema.
    pub(crate) async fn definition(
        &self,
        class: CapabilityClass,
        native: &str,
    ) -> Result<Option<Bytes>, FailedAttempt> {
        const PAGES: usize = 200;
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let members = PageCursor::new(cursor.as_deref());
            let members = members.members();
            let result = self.request(class, Method::ToolsList, &members).await?;
            let page = self
                .dialect
                .page(&result, "tools")
                .map_err(|failure| failure.with_upstream(&self.context.label.id))?;
            if let Some(found) = page.items.into_iter().find(|item| is_named(item, native)) {
                return Ok(Some(found));
            }
            if page.next_cursor.is_none() || page.next_cursor == cursor {
                break;
            }
            cursor = page.next_cursor;
        }
        Ok(None)
    }

    /// Returns the headers of every request of this method.
    pub(crate) fn headers(&self, method: Method) -> Vec<(HeaderName, HeaderValue)> {
        self.headers_of(HeaderValue::from_static(method.as_str()))
    }

    fn headers_of(&self, method: HeaderValue) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::with_capacity(USUAL_HEADERS);
        headers.extend([
            (
                PROTOCOL_VERSION,
                HeaderValue::from_static(self.dialect.revision().as_str()),
            ),
            (METHOD, method),
        ]);
        headers
    }

    async fn post(
        &self,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
        expectation: ResultExpectation,
        id: u64,
    ) -> Result<Reply, FailedAttempt> {
        // The head is dropped before the wait for the reply: values that live across an await make
        // the future larger.
        let reply = match http_post::post(&self.context, &self.http, headers, body, id).await? {
            ClassifiedResponse::Answer(mut answer) => {
                if expectation.is_unsplit {
                    // Before the first message is read: it is kept whole at any size.
                    let release = ReleaseRule::of_own_post(&expectation, id);
                    answer = answer.with_release(release);
                    Box::pin(http_post::check_is_answer(&self.context, &mut answer)).await?;
                }
                http_call::reply(
                    self.context.clone(),
                    answer,
                    expectation,
                    PendingRequest::new(None, id),
                )
            }
            ClassifiedResponse::Accepted => {
                let text = "The upstream took a request and gave no answer";
                return Err(self.context.label.fail(FailureKind::BadAnswer, text).into());
            }
            ClassifiedResponse::Refused(refused) => {
                let refusal = refused.into_refusal(&self.context);
                return Err(if is_unexpected_error(&refusal) {
                    refusal.mark_era_in_doubt()
                } else {
                    refusal
                });
            }
        };
        Ok(reply.await)
    }

    fn add_mirrored_headers(
        &self,
        tool: Option<&Bytes>,
        outbound: &OutboundCall,
        headers: &mut Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), FailedAttempt> {
        let Some(tool) = tool else { return Ok(()) };
        let Ok(mirrors) = lower::annotated_headers(tool) else {
            return Ok(());
        };
        let arguments = outbound.call.params.arguments().ok().flatten();
        if let Some(variant) = lower::case_variant(tool, &mirrors, arguments.as_deref()) {
            let variant: String = variant.chars().take(64).collect();
            let text = format!(
                "The argument `{variant}` differs in case alone from one that is repeated as a header"
            );
            return Err(self
                .context
                .label
                .fail(FailureKind::InvalidParams, text)
                .into());
        }
        for (name, value) in lower::header_values(&mirrors, arguments.as_deref()) {
            // A token is always a valid header name.
            if let Ok(name) = HeaderName::try_from(format!("mcp-param-{name}")) {
                headers.push((name, header_value(&value, &self.context.label)?));
            }
        }
        Ok(())
    }
}

/// True for an error that a server of this era has no reason for: another one may have taken its
/// place.
fn is_unexpected_error(refusal: &FailedAttempt) -> bool {
    let FailureKind::Upstream(error) = refusal.failure.kind() else {
        return false;
    };
    !matches!(
        error.code,
        error_code::METHOD_NOT_FOUND
            | error_code::INVALID_PARAMS
            | error_code::INTERNAL_ERROR
            | error_code::HEADER_MISMATCH
            | error_code::MISSING_REQUIRED_CLIENT_CAPABILITY
    )
}

fn header_value(text: &str, label: &UpstreamLabel) -> Result<HeaderValue, FailedAttempt> {
    HeaderValue::from_str(text).map_err(|_| {
        label
            .fail(
                FailureKind::InvalidParams,
                "A value cannot be sent as a header",
            )
            .into()
    })
}

fn is_named(tool: &[u8], native: &str) -> bool {
    weir_wire::scan::find(tool, "name")
        .and_then(|range| weir_wire::scan::string(&tool[range]))
        .is_some_and(|name| name == native)
}
