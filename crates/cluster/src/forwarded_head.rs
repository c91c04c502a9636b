//! The heads of forwarded requests and of their answers, in the form of HTTP/2.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use weir_listen::{
    FORWARDED_HEADER, ForwardedRequest, ForwardedSender, KEPT_TASK_HEADER, OPERATOR_HEADER,
    OPERATOR_REQUESTS, remove_internal_headers,
};

/// The headers about one connection of HTTP/1.1 (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("proxy-connection"),
];

/// The head that goes to the other replica. `None` if the client's connection cannot be described.
pub(crate) fn forwarded_head(request: &ForwardedRequest) -> Option<Request<()>> {
    let (head, client) = (&request.head, &request.client);
    let mut forwarded = Request::new(());
    *forwarded.method_mut() = head.method.clone();
    let headers = forwarded.headers_mut();
    headers.clone_from(&head.headers);
    remove_hop_by_hop(headers);
    // The client must not speak for its replica, nor pass for an operator or a replica.
    remove_internal_headers(headers);
    headers.insert(FORWARDED_HEADER, client.to_header()?);
    match request.sender {
        ForwardedSender::Client => {}
        ForwardedSender::Operator => drop(headers.insert(OPERATOR_HEADER, OPERATOR_REQUESTS)),
        ForwardedSender::KeptTask(part) => drop(headers.insert(KEPT_TASK_HEADER, part.to_header())),
    }
    headers.remove(header::CONTENT_LENGTH);
    let bytes = request.body.len();
    if bytes > 0 || [Method::POST, Method::PUT, Method::PATCH].contains(&head.method) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    let scheme = if client.secure {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    };
    match absolute_uri(&head.uri, headers, scheme) {
        Some(uri) => {
            *forwarded.version_mut() = Version::HTTP_2;
            *forwarded.uri_mut() = uri;
        }
        // A request of HTTP/1.1 may have no authority in HTTP/2 (RFC 9113, section 8.3.1).
        None => {
            *forwarded.version_mut() = Version::HTTP_11;
            *forwarded.uri_mut() = head.uri.clone();
        }
    }
    Some(forwarded)
}

/// The URI with the host that the client named. `None` if it named none, or several, or an invalid
/// one: the other replica sees the headers as they came, and refuses them.
fn absolute_uri(uri: &Uri, headers: &HeaderMap, scheme: Scheme) -> Option<Uri> {
    let authority = match uri.authority() {
        Some(authority) => authority.clone(),
        None => {
            let mut hosts = headers.get_all(header::HOST).iter();
            let host = hosts.next()?;
            if hosts.next().is_some() {
                return None;
            }
            Authority::try_from(host.as_bytes()).ok()?
        }
    };
    let path = uri
        .path_and_query()
        .cloned()
        .unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::builder()
        .scheme(uri.scheme().cloned().unwrap_or(scheme))
        .authority(authority)
        .path_and_query(path)
        .build()
        .ok()
}

/// Removes the headers about the connection alone, and those that `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;
    use weir_core::call::RequestName;
    use weir_core::port::ReplicaId;
    use weir_listen::{ForwardedClient, KeptTaskPart};

    use super::*;

    fn forwarded(request: http::request::Builder, body: &'static str) -> Request<()> {
        forwarded_of(ForwardedSender::Client, request, body)
    }

    fn forwarded_of(
        sender: ForwardedSender,
        request: http::request::Builder,
        body: &'static str,
    ) -> Request<()> {
        let (head, ()) = request.body(()).unwrap().into_parts();
        let client = ForwardedClient {
            forwarded_by: ReplicaId([1; 8]),
            request: RequestName::from_bits(7),
            address: "192.0.2.1".parse().unwrap(),
            secure: true,
            certificate: None,
        };
        forwarded_head(&ForwardedRequest {
            sender,
            head,
            body: Bytes::from_static(body.as_bytes()),
            client,
        })
        .unwrap()
    }

    #[test]
    fn headers_of_the_connection_stay_behind() {
        let request = Request::post("/mcp?a=1")
            .header("host", "Weir.example:8443")
            .header("connection", "close, X-Hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("te", "trailers")
            .header("content-length", "99")
            .header("authorization", "Bearer a")
            .header("weir-forwarded", "forged");
        let sent = forwarded(request, "body");
        assert_eq!(sent.uri(), "https://Weir.example:8443/mcp?a=1");
        assert_eq!(sent.version(), Version::HTTP_2);
        let headers = sent.headers();
        assert_eq!(headers["host"], "Weir.example:8443");
        assert_eq!(headers["authorization"], "Bearer a");
        assert_eq!(headers["content-length"], "4");
        assert_eq!(headers.get_all(FORWARDED_HEADER).iter().count(), 1);
        assert_ne!(headers[FORWARDED_HEADER], "forged");
        for gone in ["connection", "x-hop", "transfer-encoding", "te"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn client_cannot_pass_for_its_replica() {
        let forged = || Request::post("/mcp").header("weir-kept-task", "whole");
        let of_client = forwarded(forged(), "");
        assert!(!of_client.headers().contains_key(KEPT_TASK_HEADER));
        for part in [KeptTaskPart::Status, KeptTaskPart::Whole] {
            let of_replica = forwarded_of(ForwardedSender::KeptTask(part), forged(), "");
            let headers = of_replica.headers().get_all(KEPT_TASK_HEADER).iter();
            let parts: Vec<_> = headers.map(KeptTaskPart::from_header).collect();
            assert_eq!(parts, [Some(part)]);
        }
        let forged = [
            "weir-replica-stream",
            "weir-upstream",
            "weir-epoch",
            "weir-list-version",
            "Weir-Answered-By",
            "weir-not-owner",
            "weir-later",
        ];
        let request = Request::post("/mcp/messages?sessionId=1").header("x-weir", "kept");
        let request = forged.iter().fold(request, |request, name| {
            request.header(*name, "1").header(*name, "2")
        });
        let sent = forwarded(request, "");
        let names = sent.headers().keys().map(HeaderName::as_str);
        let internal: Vec<_> = names.filter(|name| name.starts_with("weir-")).collect();
        assert_eq!(internal, ["weir-forwarded"]);
        assert_eq!(sent.headers()["x-weir"], "kept");
    }

    #[test]
    fn client_cannot_pass_for_an_operator() {
        let forged = || Request::get("/admin/config").header("weir-operator", "1");
        let of_client = forwarded(forged(), "");
        assert!(!of_client.headers().contains_key(OPERATOR_HEADER));
        let of_operator = forwarded_of(ForwardedSender::Operator, forged(), "");
        assert_eq!(
            of_operator
                .headers()
                .get_all(OPERATOR_HEADER)
                .iter()
                .count(),
            1
        );
    }

    #[test]
    fn hosts_that_are_no_authority_stay_headers() {
        for hosts in [&[][..], &["a b"][..], &["a", "b"][..]] {
            let request = hosts.iter().fold(Request::get("/mcp"), |request, host| {
                request.header("host", *host)
            });
            let sent = forwarded(request, "");
            assert_eq!(sent.uri(), "/mcp");
            assert_eq!(sent.headers().get_all("host").iter().count(), hosts.len());
            assert!(!sent.headers().contains_key("content-length"));
        }
    }

    #[test]
    fn requests_of_http2_keep_their_uri() {
        let request = Request::get("http://weir.example/mcp");
        let sent = forwarded(request, "");
        assert_eq!(sent.uri(), "http://weir.example/mcp");
        assert!(!sent.headers().contains_key("host"));
    }
}
