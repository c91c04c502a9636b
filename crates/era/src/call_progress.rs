//! The progress of one call of a client, which may be several calls at the server, one after the
//! other. The values of each of them begin anew, and those of the client must increase (Progress,
//! "Progress Flow").

use bytes::Bytes;
use weir_wire::scan;
use weir_wire::splice::ObjectEdits;

/// The progress that a client knows.
#[derive(Debug)]
pub struct CallProgress {
    /// The server's last value.
    last: f64,
    /// The last value that the client got.
    last_sent: f64,
    /// The amount that is added to the values of the present call at the server.
    base: f64,
}

impl Default for CallProgress {
    fn default() -> Self {
        Self {
            last: f64::NEG_INFINITY,
            last_sent: f64::NEG_INFINITY,
            base: 0.0,
        }
    }
}

impl CallProgress {
    /// Returns the `params` of a progress notification with the value for the client; no value if
    /// they have no usable `progress`.
    ///
    /// The values of one call at the server increase, so that a value that does not is the first one
    /// of the next call.
    pub fn advance(&mut self, params: &Bytes) -> Option<Bytes> {
        let value = number(params, "progress")?;
        if value <= self.last {
            // A first value of zero is progress as well.
            let step = if value > 0.0 { 0.0 } else { 1.0 - value };
            self.base = self.last_sent + step;
        }
        self.last = value;
        let sent = self.base + value;
        if !sent.is_finite() || sent <= self.last_sent {
            return None;
        }
        self.last_sent = sent;
        if self.base == 0.0 {
            return Some(params.clone());
        }
        let mut edits = ObjectEdits::new().set("progress", sent.to_string());
        if let Some(total) = number(params, "total") {
            edits = edits.set("total", (self.base + total).to_string());
        }
        Some(edits.apply(params).ok()?.0)
    }
}

/// The finite number in a member of `params`.
fn number(params: &[u8], member: &str) -> Option<f64> {
    let range = scan::find(params, member)?;
    let number: f64 = std::str::from_utf8(&params[range])
        .ok()?
        .trim()
        .parse()
        .ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::{Value, json};

    use super::*;

    fn advanced(progress: &mut CallProgress, params: &Value) -> Option<Value> {
        let sent = progress.advance(&Bytes::from(params.to_string()))?;
        Some(serde_json::from_slice(&sent).unwrap())
    }

    #[test]
    fn values_increase_over_several_calls_at_the_server() {
        let mut progress = CallProgress::default();
        let cases = [
            (json!({"progress": -3}), Some(json!({"progress": -3}))),
            (json!({"progress": 1.5}), Some(json!({"progress": 1.5}))),
            (
                json!({"progress": 20, "total": 20, "message": "one"}),
                Some(json!({"progress": 20, "total": 20, "message": "one"})),
            ),
            // The second call.
            (
                json!({"progress": 0, "total": 10}),
                Some(json!({"progress": 21.0, "total": 31.0})),
            ),
            (
                json!({"progress": 2, "total": 10}),
                Some(json!({"progress": 23.0, "total": 31.0})),
            ),
            // The third call.
            (
                json!({"progress": 0.5, "message": "three"}),
                Some(json!({"progress": 23.5, "message": "three"})),
            ),
            (json!({"progress": "1"}), None),
            (json!({"message": "none"}), None),
            (json!({"progress": 1}), Some(json!({"progress": 24.0}))),
        ];
        for (params, expected) in cases {
            let sent = advanced(&mut progress, &params);
            let value = |of: &Option<Value>, member: &str| of.as_ref()?[member].as_f64();
            assert_eq!(
                value(&sent, "progress"),
                value(&expected, "progress"),
                "{params}"
            );
            assert_eq!(value(&sent, "total"), value(&expected, "total"), "{params}");
            let message = |of: &Option<Value>| of.as_ref().map(|of| of["message"].clone());
            assert_eq!(message(&sent), message(&expected), "{params}");
        }
    }

    #[test]
    fn values_that_cannot_increase_are_dropped() {
        let mut progress = CallProgress::default();
        assert!(advanced(&mut progress, &json!({"progress": 1e300})).is_some());
        assert_eq!(advanced(&mut progress, &json!({"progress": 1})), None);
        let huge = Bytes::from_static(br#"{"progress":1e999}"#);
        assert_eq!(progress.advance(&huge), None);
        assert!(advanced(&mut progress, &json!({"progress": 2e300})).is_some());
    }
}
