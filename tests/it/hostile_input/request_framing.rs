//! Requests whose end two readers could place differently, and the bytes that hide behind them
//! (A07).

use super::WeirWithUpstream;
use super::raw_connection::{
    RawReply, good_request, head, modern_request_parts, send_and_read_all,
};

/// Returns the header lines of a good call of `tool` without its length, and its body.
pub fn call_without_length(tool: &str) -> (String, String) {
    let (lines, body) = modern_request_parts("tools/call", Some(tool), "outer");
    (lines.join("\r\n"), body)
}

/// Returns a request with these header lines, followed by a smuggled one that a laxer reader would
/// find.
fn with_tail(stage: &WeirWithUpstream, lines: &[&str], body: &str) -> Vec<u8> {
    let tail = good_request(stage, "tools/call", Some("smuggled"), true);
    (head(stage, "POST /mcp HTTP/1.1", lines) + body + &tail).into_bytes()
}

/// Asserts one 400, then the end of the connection.
fn refused_and_closed(name: &str, replies: &[RawReply]) {
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [400], "{name}: {replies:?}");
    assert!(
        !replies[0].body.contains("\"result\""),
        "{name}: {replies:?}"
    );
}

/// Header lines that make the length of a body doubtful, or that are not header lines.
const DOUBTFUL: [&str; 54] = [
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 5,5",
    "Content-Length: 5, 6",
    "Content-Length: 5 5",
    "Content-Length: 0x5",
    "Content-Length: 5;a=b",
    "Content-Length: 5.0",
    "Content-Length: 5e0",
    "Content-Length: \"5\"",
    "Content-Length: five",
    "Content-Length:",
    "Content-Length: 18446744073709551616",
    "Content-Length: 99999999999999999999999999",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 6\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 5\r\nContent-Length: 50",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunkedx",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked;a=b",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding:",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "Transfer-Encoding: \u{b}chunked",
    "Transfer-Encoding: chunked\u{0}",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    "Content-Length : 5",
    "Content-Length\u{0}: 5",
    "Content Length: 5",
    " Content-Length: 5",
    "\tContent-Length: 5",
    "X-Folded: a\r\n b",
    "X-Folded: a\r\n\tContent-Length: 5",
    "X-Nul: a\u{0}b",
    "X-Return: a\rb",
    "X-Return: a\r\r\nContent-Length: 5",
    "X-Bell: a\u{7}b",
    "X-Delete: a\u{7f}b",
    "No-Colon",
    ": no name",
    "X(Comment): a",
    "X@At: a",
    "X[Bracket]: a",
    "X\"Quote\": a",
    "X/Slash: a",
    "X,Comma: a",
    "X;Semicolon: a",
    "X=Equals: a",
    "\u{1}X: a",
];

// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn doubtful_header_lines_are_400_and_nothing_behind_them_is_read() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = call_without_length("echo");
    let length = format!("Content-Length: {}", body.len());
    for line in DOUBTFUL {
        // Before, between and after good lines: the position of a bad one must not matter.
        let framed = line.contains("ontent-Length") || line.contains("ransfer-Encoding");
        let orders: &[&[&str]] = if framed {
            &[&[line, &lines], &[&lines, line]]
        } else {
            &[&[line, &lines, &length], &[&lines, &length, line]]
        };
        for order in orders {
            refused_and_closed(
                &format!("{order:?}"),
                &send_and_read_all(&stage, &with_tail(&stage, order, &body)).await,
            );
        }
        stage.assert_still_serving(line).await;
    }
}

// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn bad_request_lines_are_refused_and_nothing_behind_them_is_read() {
    let mut stage = WeirWithUpstream::new().await;
    let (_, body) = call_without_length("echo");
    for first in [
        "POST /mcp HTTP/1.2",
        "POST /mcp HTTP/2.0",
        "POST /mcp HTTP/0.9",
        "POST /mcp HTTP/1.1x",
        "POST /mcp http/1.1",
        "POST /mcp",
        "POST  /mcp HTTP/1.1",
        "POST /mcp  HTTP/1.1",
        "POST\t/mcp\tHTTP/1.1",
        "POST /mcp HTTP/1.1 ",
        "POST /m cp HTTP/1.1",
        "POST /mcp\u{0} HTTP/1.1",
        "PO ST /mcp HTTP/1.1",
        "PO\u{0}ST /mcp HTTP/1.1",
        "P@ST /mcp HTTP/1.1",
        " POST /mcp HTTP/1.1",
        "POST /mcp\u{7f} HTTP/1.1",
        "{\"jsonrpc\":\"2.0\"}",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}",
    ] {
        let length = format!("Content-Length: {}", body.len());
        let mut bytes = head(&stage, first, &[&length]).into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        bytes.extend_from_slice(
            good_request(&stage, "tools/call", Some("smuggled"), true).as_bytes(),
        );
        let replies = send_and_read_all(&stage, &bytes).await;
        // Some are so far from HTTP that weir closes without an answer.
        assert!(replies.len() <= 1, "{first:?}: {replies:?}");
        assert!(
            replies
                .iter()
                .all(|reply| [400, 404, 505].contains(&reply.status)),
            "{first:?}: {replies:?}"
        );
        stage.assert_still_serving(first).await;
    }
}

// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_no_sense_are_400_and_nothing_behind_them_is_read() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = call_without_length("echo");
    let size = format!("{:x}", body.len());
    for (name, chunks) in [
        (
            "a size beyond 64 bits",
            format!("1{:016x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        ),
        ("a size with 0x", format!("0x{size}\r\n{body}\r\n0\r\n\r\n")),
        ("a negative size", format!("-{size}\r\n{body}\r\n0\r\n\r\n")),
        ("a signed size", format!("+{size}\r\n{body}\r\n0\r\n\r\n")),
        ("no size", format!("\r\n{body}\r\n0\r\n\r\n")),
        (
            "a size that is no number",
            format!("xyz\r\n{body}\r\n0\r\n\r\n"),
        ),
        ("a size too small", format!("5\r\n{body}\r\n0\r\n\r\n")),
        (
            "a chunk without its end",
            format!("{size}\r\n{body}0\r\n\r\n"),
        ),
        (
            "a size with a decimal point",
            format!("{size}.0\r\n{body}\r\n0\r\n\r\n"),
        ),
        ("a size ended by LF", format!("{size}\n{body}\r\n0\r\n\r\n")),
        (
            "an extension with a bare LF",
            format!("{size};a=\nb\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a NUL in the size",
            format!("{size}\0\r\n{body}\r\n0\r\n\r\n"),
        ),
    ] {
        let bytes = with_tail(&stage, &[&lines, "Transfer-Encoding: chunked"], &chunks);
        refused_and_closed(name, &send_and_read_all(&stage, &bytes).await);
        stage.assert_still_serving(name).await;
    }
}

// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_not_for_http_1_0() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = call_without_length("echo");
    let mut bytes = head(
        &stage,
        "POST /mcp HTTP/1.0",
        &[&lines, "Transfer-Encoding: chunked"],
    );
    bytes.push_str(&format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    bytes.push_str(&good_request(&stage, "tools/call", Some("smuggled"), true));
    refused_and_closed(
        "HTTP/1.0 in chunks",
        &send_and_read_all(&stage, bytes.as_bytes()).await,
    );
    stage.assert_still_serving("HTTP/1.0 in chunks").await;
}

/// RFC 9112, section 6.3, allows a server to drop the length. A proxy in front of weir may drop the
/// chunks instead.
// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn conflicting_body_lengths_are_400_and_the_rest_is_not_read() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = call_without_length("echo");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (length, chunks) = (
        format!("Content-Length: {}", body.len()),
        "Transfer-Encoding: chunked",
    );
    for other in [
        "Content-Length: 5",
        "Content-Length: 0",
        "Content-Length: 100000",
        &length,
        chunks,
    ] {
        for order in [[lines.as_str(), other, chunks], [&lines, chunks, other]] {
            refused_and_closed(
                &format!("{order:?}"),
                &send_and_read_all(&stage, &with_tail(&stage, &order, &chunked)).await,
            );
            stage.assert_still_serving(other).await;
        }
    }
    for other in [
        &length,
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
    ] {
        let order = [lines.as_str(), other, &length];
        refused_and_closed(
            &format!("{order:?}"),
            &send_and_read_all(&stage, &with_tail(&stage, &order, &body)).await,
        );
        stage.assert_still_serving(other).await;
    }
}

// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn a_bare_line_feed_in_a_request_that_does_not_wait_is_refused() {
    let mut stage = WeirWithUpstream::new().await;
    let first = good_request(&stage, "tools/call", Some("echo"), false);
    let second = good_request(&stage, "tools/call", Some("smuggled"), true).replacen(
        "\r\nMcp-Method",
        "\nMcp-Method",
        1,
    );
    let replies = send_and_read_all(&stage, (first + &second).as_bytes()).await;
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 400], "{replies:?}");
    let ran: Vec<_> = stage
        .take_client_requests()
        .into_iter()
        .map(|call| call.tool().map(str::to_owned))
        .collect();
    assert_eq!(ran, [Some("echo".to_owned())]);
    stage.assert_still_serving("a bare line feed").await;
}

// Proves A07.
#[tokio::test(flavor = "multi_thread")]
async fn bare_line_feeds_are_refused_and_nothing_behind_them_is_read() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = call_without_length("echo");
    let length = format!("Content-Length: {}", body.len());
    let crlf = head(&stage, "POST /mcp HTTP/1.1", &[&lines, &length]);
    let whole = crlf.replace("\r\n", "\n");
    let one_line = crlf.replacen("\r\nMcp-Method", "\nMcp-Method", 1);
    let the_end = crlf.strip_suffix("\r\n\r\n").unwrap().to_owned() + "\n\n";
    let mixed_end = crlf.strip_suffix("\r\n\r\n").unwrap().to_owned() + "\r\n\n";
    for (name, head) in [
        ("all", whole),
        ("one line", one_line),
        ("the end", the_end),
        ("half the end", mixed_end),
    ] {
        let bytes = head + &body + &good_request(&stage, "tools/call", Some("smuggled"), true);
        refused_and_closed(name, &send_and_read_all(&stage, bytes.as_bytes()).await);
        stage.assert_still_serving(name).await;
    }
}
