//! Messages of the host as HTTP requests to the client side.

use bytes::Bytes;
use http::{HeaderValue, Method as HttpMethod, Request, Uri, header};
use weir_wire::header::{EVENTS, JSON, JSON_OR_EVENTS};
use weir_wire::message::Request as HostRequest;
use weir_wire::method::NameSource;
use weir_wire::params::Params;
use weir_wire::{Method, Revision};

/// The era of a request.
#[derive(Clone, Debug)]
pub(super) enum RequestEra {
    /// The request carries its revision in `_meta`.
    Modern(Params),
    /// The request belongs to the session, or begins one.
    Legacy,
}

impl RequestEra {
    /// Detects the era. A malformed request counts as a legacy one: the client side answers it with
    /// the error.
    pub(crate) fn of(request: &HostRequest) -> Self {
        match Params::of(&request.method, request.params.as_ref()) {
            Ok(params) if params.has_meta_protocol_version().unwrap_or(false) => {
                Self::Modern(params)
            }
            _ => Self::Legacy,
        }
    }
}

/// The session that the host began with `initialize`.
#[derive(Clone, Debug)]
pub(super) struct HostSession {
    pub id: HeaderValue,
    pub(super) revision: Revision,
}

/// The factory of HTTP requests, with the endpoint and the credential.
#[derive(Debug)]
pub(super) struct RequestMaker {
    pub endpoint: Uri,
    /// The whole `Authorization` header. Sensitive.
    pub authorization: Option<HeaderValue>,
}

impl RequestMaker {
    /// Returns the request for a message, with or without a session.
    pub(super) fn post(&self, session: Option<&HostSession>, message: Bytes) -> Request<Bytes> {
        let mut request = self.request(HttpMethod::POST, session, message);
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(JSON_OR_EVENTS));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        request
    }

    /// Returns a modern request with the headers that repeat its body. A value that no header can
    /// hold is left out, and the client side refuses the request.
    pub(super) fn post_modern(&self, request: &HostRequest, params: &Params) -> Request<Bytes> {
        let mut post = self.post(None, request.raw.clone());
        let version = params
            .meta()
            .ok()
            .flatten()
            .and_then(|meta| meta.protocol_version().ok().flatten());
        let name = match request.method.known().map(Method::name_header) {
            Some(NameSource::Name) => params.name(),
            Some(NameSource::Uri) => params.uri(),
            Some(NameSource::TaskId) => params.task_id(),
            Some(NameSource::None) | None => Ok(None),
        };
        let name = name
            .ok()
            .flatten()
            .map(|name| weir_wire::header::encode(&name).into_owned());
        let method = Some(request.method.as_str().to_owned());
        let version = version.map(std::borrow::Cow::into_owned);
        let named = [
            ("mcp-protocol-version", version),
            ("mcp-method", method),
            ("mcp-name", name),
        ];
        for (header, value) in named {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                post.headers_mut().insert(header, value);
            }
        }
        post
    }

    /// Returns the request for the session's standing stream, for messages outside of requests.
    pub(super) fn get(&self, session: &HostSession) -> Request<Bytes> {
        let mut request = self.request(HttpMethod::GET, Some(session), Bytes::new());
        request
            .headers_mut()
            .insert(header::ACCEPT, HeaderValue::from_static(EVENTS));
        request
    }

    /// Returns the request that ends the session.
    pub(super) fn delete(&self, session: &HostSession) -> Request<Bytes> {
        self.request(HttpMethod::DELETE, Some(session), Bytes::new())
    }

    fn request(
        &self,
        method: HttpMethod,
        session: Option<&HostSession>,
        body: Bytes,
    ) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.clone();
        let headers = request.headers_mut();
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(session) = session {
            headers.insert("mcp-session-id", session.id.clone());
            if session.revision.has_version_header() {
                headers.insert(
                    "mcp-protocol-version",
                    HeaderValue::from_static(session.revision.as_str()),
                );
            }
        }
        request
    }
}
