//! Changes a server's questions and log messages on their way to a client.
//!
//! The client sees one server, weir. So a question for a person, and a log message, name the server
//! behind it, if there are several. A sampling request may not have other servers' contexts added:
//! to the client, "this server" is all of them.

use bytes::{BufMut as _, Bytes, BytesMut};
use opentelemetry::KeyValue;
use weir_core::endpoint::{Endpoint, EndpointMode};
use weir_core::names::UpstreamId;
use weir_core::telemetry::instruments;
use weir_wire::method::Method;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;
use weir_wire::write::{ObjectWriter, string};

/// The changes to the questions and log messages of one call.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageEdits {
    /// The upstream to name, if the endpoint has several.
    asker: Option<UpstreamId>,
}

impl MessageEdits {
    pub(super) fn of(endpoint: Option<&Endpoint>, upstream: &UpstreamId) -> Self {
        let several = endpoint
            .is_some_and(|endpoint| matches!(endpoint.mode, EndpointMode::Aggregate { .. }));
        Self {
            asker: several.then(|| upstream.clone()),
        }
    }

    /// The `params` of one question. Malformed ones pass: the client rejects them.
    pub(super) fn question(&self, method: Method, params: &Bytes) -> Bytes {
        note_deprecated(method, params);
        let edits = match (method, &self.asker) {
            (Method::SamplingCreateMessage, _) => {
                ObjectEdits::new().replace("includeContext", &b"\"none\""[..])
            }
            (Method::ElicitationCreate, Some(asker)) => {
                let message =
                    scan::find(params, "message").and_then(|range| scan::string(&params[range]));
                let Some(message) = message else {
                    return params.clone();
                };
                let mut text = BytesMut::with_capacity(message.len() + asker.as_str().len() + 8);
                string(&mut text, &format!("[{asker}] {message}"));
                ObjectEdits::new().replace("message", text.freeze())
            }
            _ => return params.clone(),
        };
        edits.apply_or_keep(params)
    }

    /// The `params` of a log message: its logger is one of this server's. Malformed ones pass.
    pub(super) fn log(&self, params: &Bytes) -> Bytes {
        let Some(asker) = &self.asker else {
            return params.clone();
        };
        let logger = scan::find(params, "logger").and_then(|range| scan::string(&params[range]));
        let mut text = BytesMut::with_capacity(asker.as_str().len() + 24);
        match logger.filter(|logger| !logger.is_empty()) {
            Some(logger) => string(&mut text, &format!("{asker}/{logger}")),
            None => string(&mut text, asker.as_str()),
        }
        let edits = ObjectEdits::new().set("logger", text.freeze());
        edits.apply_or_keep(params)
    }

    /// An `input_required` result, with its questions.
    pub(super) fn questions(&self, result: &Bytes) -> Bytes {
        let Some(range) =
            scan::find(result, "inputRequests").filter(|at| scan::is_object(&result[at.clone()]))
        else {
            return result.clone();
        };
        let requests = result.slice(range);
        let mut out = BytesMut::with_capacity(requests.len() + 64);
        let mut object = ObjectWriter::new(&mut out);
        for member in scan::members(&requests) {
            let request = requests.slice(member.value);
            object.raw_member(member.key.raw(), &self.request(request));
        }
        object.end();
        let edits = ObjectEdits::new().replace("inputRequests", out.freeze());
        edits.apply_or_keep(result)
    }

    /// The `data` of the error of a server that requires visits of URLs first (`-32042`). Malformed
    /// ones pass.
    pub(super) fn required_visits(&self, data: &Bytes) -> Bytes {
        let list = scan::find(data, "elicitations").filter(|at| data[at.clone()].starts_with(b"["));
        let Some(list) = list.map(|at| data.slice(at)) else {
            return data.clone();
        };
        let mut out = BytesMut::with_capacity(list.len() + 64);
        for element in scan::elements(&list) {
            out.put_u8(if out.is_empty() { b'[' } else { b',' });
            out.put_slice(&self.question(Method::ElicitationCreate, &list.slice(element)));
        }
        if out.is_empty() {
            return data.clone();
        }
        out.put_u8(b']');
        let edits = ObjectEdits::new().replace("elicitations", out.freeze());
        edits.apply_or_keep(data)
    }

    fn request(&self, request: Bytes) -> Bytes {
        let method = scan::find(&request, "method").and_then(|range| scan::string(&request[range]));
        let method = method.and_then(|method| Method::parse(&method));
        let (Some(method), Some(range)) = (method, scan::find(&request, "params")) else {
            return request;
        };
        let params = self.question(method, &request.slice(range));
        ObjectEdits::new()
            .replace("params", params)
            .apply_or_keep(&request)
    }
}

/// Counts requests that 2026-07-28 has deprecated (R286).
fn note_deprecated(method: Method, params: &Bytes) {
    let count = |feature| {
        instruments()
            .deprecated
            .add(1, &[KeyValue::new("feature", feature)])
    };
    if method == Method::RootsList {
        count("roots");
    }
    if method == Method::SamplingCreateMessage {
        count("sampling");
        let asked = scan::find(params, "includeContext").and_then(|at| scan::string(&params[at]));
        if asked.is_some_and(|context| context != "none") {
            count("include_context");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn edits_of(asker: Option<&str>) -> MessageEdits {
        MessageEdits {
            asker: asker.map(|id| UpstreamId::new(id).unwrap()),
        }
    }

    // Proves R190.
    #[test]
    fn contexts_are_withheld_and_askers_named_on_aggregating_endpoints() {
        let result = Bytes::from_static(
            br#"{"inputRequests":{"a":{"method":"sampling/createMessage","params":{"includeContext":"allServers","maxTokens":1}},
"b":{"method":"elicitation/create","params":{"message":"Who?","x":1.50}},"c":{"method":"roots/list"}},"requestState":"s"}"#,
        );
        let shown = edits_of(Some("shop")).questions(&result);
        let text = String::from_utf8_lossy(&shown);
        assert!(
            text.contains(r#""includeContext":"none","maxTokens":1"#),
            "{text}"
        );
        assert!(
            text.contains(r#""message":"[shop] Who?","x":1.50"#)
                && text.contains(r#""c":{"method":"roots/list"}"#)
        );
        assert!(text.ends_with(r#""requestState":"s"}"#), "{text}");
        let alone = edits_of(None).questions(&result);
        assert!(String::from_utf8_lossy(&alone).contains(r#""message":"Who?""#));
        let odd = Bytes::from_static(br#"{"inputRequests":5}"#);
        assert_eq!(edits_of(Some("shop")).questions(&odd), odd);
    }

    // Proves R190.
    #[test]
    fn required_visits_name_their_server_on_aggregating_endpoints() {
        let data = Bytes::from_static(
            br#"{"elicitations":[{"mode":"url","message":"Sign in","url":"https://a.example/"},{"message":"Pay"},5],"x":1.50}"#,
        );
        assert_eq!(
            edits_of(Some("shop")).required_visits(&data),
            r#"{"elicitations":[{"mode":"url","message":"[shop] Sign in","url":"https://a.example/"},{"message":"[shop] Pay"},5],"x":1.50}"#
        );
        assert_eq!(edits_of(None).required_visits(&data), data);
        for odd in ["{}", r#"{"elicitations":5}"#, r#"{"elicitations":[]}"#, "5"] {
            let odd = Bytes::from_static(odd.as_bytes());
            assert_eq!(edits_of(Some("shop")).required_visits(&odd), odd);
        }
    }

    // Proves R218.
    #[test]
    fn logger_has_the_upstreams_name_on_aggregating_endpoints() {
        let of = |asker, params: &'static str| {
            let told = edits_of(asker).log(&Bytes::from_static(params.as_bytes()));
            let data = scan::find(&told, "data").map(|at| &told[at]);
            assert_eq!(data, Some(&b"1.50"[..]), "{told:?}");
            scan::find(&told, "logger").and_then(|at| scan::string(&told[at]).map(String::from))
        };
        assert_eq!(
            of(Some("shop"), r#"{"level":"info","data":1.50}"#).as_deref(),
            Some("shop")
        );
        assert_eq!(
            of(Some("shop"), r#"{"logger":"db","data":1.50}"#).as_deref(),
            Some("shop/db")
        );
        assert_eq!(
            of(None, r#"{"logger":"db","data":1.50}"#).as_deref(),
            Some("db")
        );
        assert_eq!(of(None, r#"{"data":1.50}"#), None);
    }
}
