//! Inputs: a good request of some client, spoilt.

use http::HeaderMap;
use serde_json::{Map, Value, json};
use weir_testkit::RawClient;
use weir_testkit::h2_client::{CANCEL, DATA, END_STREAM, RST_STREAM, frame, head, literal};

use crate::harness::SplitMixRandom;

/// The input of a number.
pub struct MalformedInput {
    pub number: u64,
    pub bytes: Vec<u8>,
    pub way: SendMode,
}

/// The way in which an input is sent.
pub enum SendMode {
    /// Its framing is good: it shares a connection with others, and gets an answer.
    Kept,
    /// Its framing may be spoilt, or its answer without end.
    Alone,
    /// Over HTTP/2.
    Frames(Http2Input),
}

/// A request over HTTP/2, without its stream.
pub struct Http2Input {
    block: Vec<u8>,
    body: Vec<u8>,
    /// Bytes that are spoilt: position from the beginning, and new value.
    spoilt: Vec<(usize, u8)>,
    /// Frames before it.
    before: Vec<u8>,
    /// True if it is complete.
    pub is_whole: bool,
}

impl Http2Input {
    pub fn bytes(&self, stream: u32) -> Vec<u8> {
        let mut out = self.before.clone();
        out.extend(head(stream, 0, &self.block));
        let parts: Vec<&[u8]> = self.body.chunks(16 << 10).collect();
        for (number, part) in parts.iter().enumerate() {
            let last = self.is_whole && number + 1 == parts.len();
            out.extend(frame(DATA, if last { END_STREAM } else { 0 }, stream, part));
        }
        if self.is_whole && parts.is_empty() {
            out.extend(frame(DATA, END_STREAM, stream, b""));
        }
        if !self.is_whole {
            out.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }
        for (at, by) in &self.spoilt {
            let at = at % out.len();
            out[at] ^= by;
        }
        out
    }
}

/// The maker of inputs.
pub struct InputMaker {
    /// Clients with their sessions.
    clients: Vec<RawClient>,
    authority: String,
}

const METHODS: [&str; 22] = [
    "server/discover",
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "tools/call",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/cancel",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/roots/list_changed",
    "sampling/createMessage",
    "no/such",
];

const HEADERS: [&str; 16] = [
    "accept",
    "content-type",
    "mcp-protocol-version",
    "mcp-session-id",
    "mcp-method",
    "mcp-name",
    "mcp-param-n",
    "last-event-id",
    "origin",
    "authorization",
    "cookie",
    "x-forwarded-for",
    "expect",
    "content-encoding",
    "traceparent",
    "x",
];

const ODD_TEXTS: [&str; 24] = [
    "",
    " ",
    "null",
    "\u{0}",
    "\u{7f}",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{feff}",
    "\u{1f600}",
    "../../etc/passwd",
    "a/b",
    "*",
    "*/*",
    "2.0",
    "2026-07-28",
    "2025-11-25",
    "2024-11-05",
    "9999-99-99",
    "=?base64?gA==?=",
    "application/json",
    "text/event-stream",
    "{\"a\":1}",
    "%00",
    "' or 1=1 --",
];

const ODD_JSON: [&str; 20] = [
    "1e999",
    "-0",
    "1.0",
    "18446744073709551616",
    "-9223372036854775809",
    "0.1e-400",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "\"\\u0000\"",
    "01",
    "NaN",
    "tru",
    "'a'",
    "\"\\x\"",
    "{}{}",
    "[",
    "{\"a\":1,\"a\":2}",
    "//",
    ",",
    "\u{feff}",
];

impl InputMaker {
    pub fn new(clients: &[RawClient], authority: &str) -> Self {
        Self {
            clients: clients.to_vec(),
            authority: authority.to_owned(),
        }
    }

    /// Returns the input of this number.
    pub fn input(&self, seed: u64, number: u64) -> MalformedInput {
        let mut dice = SplitMixRandom::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let way = dice.below(100);
        let is_framed = way >= 92;
        let is_alone = (84..92).contains(&way);
        let (mut headers, message) = self.message(&mut dice, number, is_alone);
        let body = text(&mut dice, &message);
        for _ in 0..dice.below(3) {
            self.header(&mut dice, &mut headers);
        }
        if is_framed {
            return self.framed(&mut dice, number, &headers, body);
        }
        let verb = if is_alone {
            *dice.pick(&["POST", "POST", "GET", "DELETE", "PUT", "OPTIONS"])
        } else {
            "POST"
        };
        if verb != "POST" {
            // Later inputs need the session, so no input ends it; a listening GET would have an
            // answer without end.
            headers
                .iter_mut()
                .filter(|(name, _)| name == "mcp-session-id")
                .for_each(|(_, id)| id.push(b'0'));
        }
        let mut bytes = self.head(&mut dice, verb, &headers);
        if is_alone && dice.once_in(2) {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            chunks(&mut dice, &mut bytes, &body);
        } else {
            bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
            bytes.extend_from_slice(&body);
        }
        if is_alone {
            for _ in 0..=dice.below(3) {
                spoil(&mut dice, &mut bytes);
            }
        }
        MalformedInput {
            number,
            bytes,
            way: if is_alone {
                SendMode::Alone
            } else {
                SendMode::Kept
            },
        }
    }

    /// Returns a message of some client, with spoilt members.
    fn message(
        &self,
        dice: &mut SplitMixRandom,
        number: u64,
        is_alone: bool,
    ) -> (Vec<(String, Vec<u8>)>, Value) {
        let client = dice.pick(&self.clients);
        let method = if is_alone && dice.once_in(8) {
            "subscriptions/listen"
        } else {
            *dice.pick(&METHODS)
        };
        let params = match method {
            "tools/call" => {
                json!({ "name": "echo", "arguments": { "n": number, "deep": [[{ "a": null }]] } })
            }
            "initialize" => {
                json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } })
            }
            "resources/read" | "resources/subscribe" => json!({ "uri": "memo:1" }),
            "completion/complete" => {
                json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": "b" } })
            }
            "logging/setLevel" => json!({ "level": "info" }),
            "prompts/get" => json!({ "name": "p" }),
            "subscriptions/listen" => json!({ "notifications": { "toolsListChanged": true } }),
            _ => json!({}),
        };
        let (map, mut message) = client.envelope(method, params);
        message["id"] = json!(number);
        if method.starts_with("notifications/") && dice.once_in(2) {
            message.as_object_mut().map(|members| members.remove("id"));
        }
        for _ in 0..dice.below(4) {
            member(dice, &mut message, 0);
        }
        if dice.once_in(12) {
            let more = json!({ "jsonrpc": "2.0", "id": number + 1, "method": *dice.pick(&METHODS), "params": {} });
            let mut items = vec![message, more];
            items.truncate(dice.below(3));
            if dice.once_in(6) {
                items = vec![json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }); 60];
            }
            message = Value::Array(items);
        }
        (pairs(&map), message)
    }

    /// Spoils a header: another value, no header, or one more.
    fn header(&self, dice: &mut SplitMixRandom, headers: &mut Vec<(String, Vec<u8>)>) {
        let name = *dice.pick(&HEADERS);
        let at = headers.iter().position(|(own, _)| own == name);
        let mut value = match dice.below(4) {
            0 => dice.pick(&ODD_TEXTS).as_bytes().to_vec(),
            1 => dice.bytes(12),
            2 => vec![b'a'; 10 << dice.below(10)],
            _ => b"100-continue".to_vec(),
        };
        // A line break would split the header's line into two.
        value.retain(|byte| *byte >= b' ' && *byte != 0x7f);
        match (dice.below(3), at) {
            (0, Some(at)) => drop(headers.remove(at)),
            (1, Some(at)) => headers[at].1 = value,
            _ => headers.push((name.to_owned(), value)),
        }
    }

    fn head(
        &self,
        dice: &mut SplitMixRandom,
        verb: &str,
        headers: &[(String, Vec<u8>)],
    ) -> Vec<u8> {
        let path = if dice.once_in(30) {
            *dice.pick(&["/", "/mcp/", "/mcp?a=b", "/MCP", "/%6dcp", "/mcp/../mcp"])
        } else {
            "/mcp"
        };
        let mut bytes =
            format!("{verb} {path} HTTP/1.1\r\nhost: {}\r\n", self.authority).into_bytes();
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    fn framed(
        &self,
        dice: &mut SplitMixRandom,
        number: u64,
        headers: &[(String, Vec<u8>)],
        body: Vec<u8>,
    ) -> MalformedInput {
        let mut block = Vec::new();
        let pseudo = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/mcp"),
            (":authority", &self.authority),
        ];
        let mut fields: Vec<(String, String)> = pseudo
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let own = headers.iter().filter_map(|(name, value)| {
            Some((name.clone(), String::from_utf8(value.clone()).ok()?))
        });
        fields.extend(own);
        if dice.once_in(6) {
            let at = dice.below(fields.len());
            match dice.below(3) {
                0 => drop(fields.remove(at)),
                1 => fields[at].1 = (*dice.pick(&ODD_TEXTS)).to_owned(),
                _ => fields.push(fields[at].clone()),
            }
        }
        for (name, value) in &fields {
            literal(&mut block, name, value);
        }
        let is_spoilt = dice.once_in(3);
        let spoilt = if is_spoilt {
            (0..=dice.below(3))
                .map(|_| (dice.below(4000), 1 << dice.below(8)))
                .collect()
        } else {
            Vec::new()
        };
        let before = if dice.once_in(4) {
            let (kind, flags, stream) = (
                dice.below(12) as u8,
                dice.below(256) as u8,
                dice.below(3) as u32,
            );
            let size = dice.below(20);
            frame(kind, flags, stream, &dice.bytes(size))
        } else {
            Vec::new()
        };
        // One with odd frames may end the connection, and a spoilt one may wait for ever.
        let is_whole = !is_spoilt && before.is_empty();
        let framed = Http2Input {
            block,
            body,
            spoilt,
            before,
            is_whole,
        };
        MalformedInput {
            number,
            bytes: framed.bytes(1),
            way: SendMode::Frames(framed),
        }
    }
}

fn pairs(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    map.iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// Spoils one member somewhere in a message.
fn member(dice: &mut SplitMixRandom, value: &mut Value, depth: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let at = dice.below(members.len());
            let Some(name) = members.keys().nth(at).cloned() else {
                return;
            };
            if depth < 4
                && dice.once_in(2)
                && let Some(inner @ (Value::Object(_) | Value::Array(_))) = members.get_mut(&name)
            {
                return member(dice, inner, depth + 1);
            }
            object(dice, members, name);
        }
        Value::Array(items) if !items.is_empty() => {
            let at = dice.below(items.len());
            member(dice, &mut items[at], depth + 1);
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => *value = odd(dice),
    }
}

fn object(dice: &mut SplitMixRandom, members: &mut Map<String, Value>, name: String) {
    match dice.below(6) {
        0 => drop(members.remove(&name)),
        1 => {
            let value = members.remove(&name).unwrap_or_default();
            let mut other = name.to_uppercase();
            let end: &&str = dice.pick(&["", " ", "\u{17f}", "2"]);
            other.push_str(end);
            members.insert(other, value);
        }
        2 => drop(members.insert((*dice.pick(&ODD_TEXTS)).to_owned(), odd(dice))),
        _ => drop(members.insert(name, odd(dice))),
    }
}

fn odd(dice: &mut SplitMixRandom) -> Value {
    match dice.below(12) {
        0 => Value::Null,
        1 => json!(dice.once_in(2)),
        2 => json!(dice.next()),
        3 => json!(-(dice.below(1 << 40) as i64)),
        4 => json!(dice.next() as f64 / 3.0),
        5 => json!([]),
        6 => json!({}),
        7 => json!("x".repeat(1 << dice.below(14))),
        8 => (0..dice.below(80)).fold(json!(1), |inner, _| json!([inner])),
        9 => json!([{ "name": "echo" }, 1, null]),
        _ => json!(dice.pick(&ODD_TEXTS)),
    }
}

/// Returns the text of a message, with spoilt bytes now and then.
fn text(dice: &mut SplitMixRandom, message: &Value) -> Vec<u8> {
    let mut text = message.to_string().into_bytes();
    if !dice.once_in(3) {
        return text;
    }
    for _ in 0..=dice.below(2) {
        let at = dice.below(text.len() + 1);
        match dice.below(3) {
            0 => drop(text.splice(at..at, dice.pick(&ODD_JSON).bytes())),
            1 => {
                // In place of a value.
                let odd = dice.pick(&ODD_JSON);
                if let Some(colon) = text.iter().skip(at).position(|byte| *byte == b':') {
                    let begin = at + colon + 1;
                    let end = text[begin..]
                        .iter()
                        .position(|byte| b",}]".contains(byte))
                        .map_or(text.len(), |end| begin + end);
                    text.splice(begin..end, odd.bytes());
                }
            }
            _ => spoil(dice, &mut text),
        }
    }
    text
}

/// Spoils bytes: changes, removes, repeats or adds some, or cuts the rest off.
fn spoil(dice: &mut SplitMixRandom, bytes: &mut Vec<u8>) {
    let at = dice.below(bytes.len());
    let end = (at + 1 + dice.below(16)).min(bytes.len());
    if bytes.is_empty() {
        return;
    }
    match dice.below(7) {
        0 => bytes[at] ^= 1 << dice.below(8),
        1 => bytes[at] = dice.next() as u8,
        2 => drop(bytes.drain(at..end)),
        3 => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        4 => {
            let size = dice.below(8);
            let more = dice.bytes(size);
            bytes.splice(at..at, more);
        }
        5 => drop(
            bytes.splice(
                at..at,
                dice.pick(&["\r\n", "\n", "\0", " ", "\t", ":", "\r\n\r\n", "\u{feff}"])
                    .bytes(),
            ),
        ),
        _ => bytes.truncate(at),
    }
}

/// Writes a body in chunks, some with a false length.
fn chunks(dice: &mut SplitMixRandom, bytes: &mut Vec<u8>, body: &[u8]) {
    for part in body.chunks(1 + dice.below(200)) {
        let size = if dice.once_in(20) {
            part.len() + dice.below(3)
        } else {
            part.len()
        };
        let line = match dice.below(12) {
            0 => format!("{size:X};a=b\r\n"),
            1 => format!("0{size:x}\r\n"),
            2 => format!("{size:x}\n"),
            _ => format!("{size:x}\r\n"),
        };
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(
        dice.pick(&[
            "0\r\n\r\n",
            "0\r\n\r\n",
            "0\r\n\r\n",
            "0\r\nx: y\r\n\r\n",
            "00000000000000000\r\n\r\n",
            "",
        ])
        .as_bytes(),
    );
}
