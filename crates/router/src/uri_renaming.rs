//! Renames URIs of an upstream in its results to the endpoint's: those that weir understands and a
//! client may request again.
//!
//! These are `contents[].uri` of a read, and resource links and embedded resources among the
//! content of tools and prompts. All other bytes stay as they are. A result that streams through
//! weir is rewritten as it passes; then a block whose `type` comes after its `uri` counts as one of
//! the kinds that have URIs.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::failure::{Failure, FailureKind};
use weir_core::reply::{Payload, PayloadSource, ReplyEnd};
use weir_wire::scan::WordSearch;
use weir_wire::splice::{PathStep, StringEdit, StringEditor};
use weir_wire::{scan, write};

use crate::uri_names::UriNames;

static URI: WordSearch = WordSearch::new("\"uri\"");

/// Renames the URIs of one upstream's results.
pub(super) struct UriRenaming(UriNames);

impl UriRenaming {
    /// The renaming to these names.
    pub(super) fn of(names: UriNames) -> Self {
        Self(names)
    }

    /// Passes an end on with its URIs renamed.
    pub(super) fn apply(&self, end: ReplyEnd) -> ReplyEnd {
        match end {
            ReplyEnd::Complete(Payload::Whole(result)) => {
                ReplyEnd::Complete(Payload::Whole(self.renamed(result)))
            }
            ReplyEnd::Complete(Payload::Stream(source)) => {
                let (passing, waiting) = (
                    UriRewriter {
                        names: self.0.clone(),
                        kind: None,
                    },
                    VecDeque::new(),
                );
                let texts = Some(StringEditor::new(DEEPEST));
                ReplyEnd::Complete(Payload::Stream(Box::new(RenamedStream {
                    source,
                    texts,
                    passing,
                    waiting,
                })))
            }
            other @ (ReplyEnd::Complete(_)
            | ReplyEnd::InputRequired(_)
            | ReplyEnd::Parked { .. }
            | ReplyEnd::Task(_)
            | ReplyEnd::Failed(_)) => other,
        }
    }

    fn renamed(&self, result: Bytes) -> Bytes {
        // Most results have no URI: one search settles it.
        if !URI.is_in(&result) {
            return result;
        }
        let mut places = Vec::new();
        for member in scan::members(&result) {
            let at = member.value;
            match &*member.key.decode() {
                "contents" => for_each_element(&result, at, &mut |content| {
                    uri_of(&result, content, &mut places)
                }),
                "content" => for_each_element(&result, at, &mut |block| {
                    self::block(&result, block, &mut places)
                }),
                "messages" => for_each_element(&result, at, &mut |message| {
                    if let Some(content) = within(&result, &message, "content") {
                        if result[content.clone()].starts_with(b"[") {
                            for_each_element(&result, content, &mut |block| {
                                self::block(&result, block, &mut places)
                            });
                        } else {
                            self::block(&result, content, &mut places);
                        }
                    }
                }),
                _ => {}
            }
        }
        self.spliced(&result, places)
    }

    fn spliced(&self, result: &Bytes, mut places: Vec<Range<usize>>) -> Bytes {
        places.sort_unstable_by_key(|place| place.start);
        let mut out = BytesMut::with_capacity(result.len() + places.len() * 32);
        let mut done = 0;
        for place in places {
            let Some(native) = scan::string(&result[place.clone()]) else {
                continue;
            };
            let Some(name) = self.0.name(&native) else {
                continue;
            };
            out.put_slice(&result[done..place.start]);
            write::string(&mut out, &name);
            done = place.end;
        }
        out.put_slice(&result[done..]);
        out.freeze()
    }
}

/// The deepest level of a URI: in a resource of a block of a list of content of a message.
const DEEPEST: u32 = 6;

/// A result that is renamed while it passes.
struct RenamedStream {
    source: Box<dyn PayloadSource>,
    /// Absent once the text turned out invalid.
    texts: Option<StringEditor>,
    passing: UriRewriter,
    waiting: VecDeque<Bytes>,
}

impl PayloadSource for RenamedStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if let Some(piece) = self.waiting.pop_front() {
                return Poll::Ready(Some(Ok(piece)));
            }
            let chunk = match ready!(self.source.poll_chunk(cx)) {
                Some(Ok(chunk)) => chunk,
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => return Poll::Ready(None),
            };
            let Some(texts) = &mut self.texts else {
                return Poll::Ready(Some(Ok(chunk)));
            };
            let mut pieces = Vec::new();
            if texts.feed(&chunk, &mut self.passing, &mut pieces).is_err() {
                let text = "The upstream's result is not valid JSON";
                let failure = Failure::new(FailureKind::BadAnswer, text)
                    .with_upstream(&self.passing.names.upstream);
                self.texts = None;
                return Poll::Ready(Some(Err(failure)));
            }
            self.waiting.extend(pieces);
        }
    }

    fn removed(&self) -> u64 {
        self.source.removed()
    }
}

/// The state of a result that passes.
struct UriRewriter {
    names: UriNames,
    /// The block whose `type` was read, and true if that is a kind that has URIs.
    kind: Option<(Vec<PathStep>, bool)>,
}

impl UriRewriter {
    /// The content block at the beginning of a path, and the rest of the path.
    fn block(path: &[PathStep]) -> Option<(&[PathStep], &[PathStep])> {
        let length = match path {
            [PathStep::Key(name), PathStep::At(_), ..] if name == b"content" => 2,
            [
                PathStep::Key(name),
                PathStep::At(_),
                PathStep::Key(inner),
                PathStep::At(_),
                ..,
            ] if name == b"messages" && inner == b"content" => 4,
            [
                PathStep::Key(name),
                PathStep::At(_),
                PathStep::Key(inner),
                PathStep::Key(_),
                ..,
            ] if name == b"messages" && inner == b"content" => 3,
            _ => return None,
        };
        Some(path.split_at(length))
    }
}

impl StringEdit for UriRewriter {
    fn reads(&mut self, path: &[PathStep]) -> bool {
        if let [PathStep::Key(name), PathStep::At(_), PathStep::Key(uri)] = path
            && name == b"contents"
        {
            return uri == b"uri";
        }
        let Some((block, rest)) = Self::block(path) else {
            return false;
        };
        let known = self
            .kind
            .as_ref()
            .filter(|(of, _)| of == block)
            .map(|(_, has)| *has);
        match rest {
            [PathStep::Key(name)] if name == b"type" => true,
            [PathStep::Key(name)] => name == b"uri" && known.unwrap_or(true),
            [PathStep::Key(inner), PathStep::Key(name)] => {
                inner == b"resource" && name == b"uri" && known.unwrap_or(true)
            }
            _ => false,
        }
    }

    fn text(&mut self, path: &[PathStep], text: &str) -> Option<String> {
        if let Some((block, [PathStep::Key(name)])) = Self::block(path)
            && name == b"type"
        {
            self.kind = Some((block.to_vec(), matches!(text, "resource_link" | "resource")));
            return None;
        }
        self.names.name(text)
    }
}

/// A content block: a link has a URI, an embedded resource has one inside.
fn block(result: &[u8], block: Range<usize>, places: &mut Vec<Range<usize>>) {
    let Some(kind) = within(result, &block, "type") else {
        return;
    };
    match scan::string(&result[kind]).as_deref() {
        Some("resource_link") => uri_of(result, block, places),
        Some("resource") => {
            if let Some(resource) = within(result, &block, "resource") {
                uri_of(result, resource, places);
            }
        }
        _ => {}
    }
}

fn uri_of(result: &[u8], object: Range<usize>, places: &mut Vec<Range<usize>>) {
    places.extend(within(result, &object, "uri"));
}

/// The range of a member's value in the object at `at`.
fn within(result: &[u8], at: &Range<usize>, name: &str) -> Option<Range<usize>> {
    let object = &result[at.clone()];
    let found = scan::find(object, name).filter(|_| scan::is_object(object))?;
    Some(at.start + found.start..at.start + found.end)
}

/// Every element of the array at `at`.
fn for_each_element(result: &[u8], at: Range<usize>, act: &mut dyn FnMut(Range<usize>)) {
    let array = &result[at.clone()];
    if array.starts_with(b"[") {
        scan::elements(array).for_each(|one| act(at.start + one.start..at.start + one.end));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use weir_core::names::UpstreamId;

    fn prefixed() -> UriRenaming {
        UriRenaming::of(UriNames::prefixed(UpstreamId::new("u").unwrap()))
    }

    fn renamed(text: &str) -> String {
        let renaming = prefixed();
        String::from_utf8(
            renaming
                .renamed(Bytes::copy_from_slice(text.as_bytes()))
                .to_vec(),
        )
        .unwrap()
    }

    /// The same result, streamed in pieces.
    fn streamed(text: &str, size: usize) -> String {
        struct PieceSource(VecDeque<Bytes>);
        impl PayloadSource for PieceSource {
            fn poll_chunk(
                &mut self,
                _cx: &mut Context<'_>,
            ) -> Poll<Option<Result<Bytes, Failure>>> {
                Poll::Ready(self.0.pop_front().map(Ok))
            }
        }
        let pieces = text
            .as_bytes()
            .chunks(size)
            .map(Bytes::copy_from_slice)
            .collect();
        let end = ReplyEnd::Complete(Payload::Stream(Box::new(PieceSource(pieces))));
        let ReplyEnd::Complete(Payload::Stream(mut source)) = prefixed().apply(end) else {
            panic!("a stream stays one")
        };
        let (mut out, mut cx) = (Vec::new(), Context::from_waker(std::task::Waker::noop()));
        while let Poll::Ready(Some(piece)) = source.poll_chunk(&mut cx) {
            out.extend_from_slice(&piece.unwrap());
        }
        String::from_utf8(out).unwrap()
    }

    // Proves R134.
    #[test]
    fn uris_of_reads_links_and_embedded_resources_are_renamed_and_nothing_else() {
        for (given, expected) in [
            (
                r#"{"contents":[{"uri":"a:b","text":"x:y"},{"uri" : "ui://p/q"}]}"#,
                r#"{"contents":[{"uri":"u+a:b","text":"x:y"},{"uri" : "ui://u/p/q"}]}"#,
            ),
            (
                r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"}]}"#,
                r#"{"content":[{"type":"resource_link","uri":"u+a:b","name":"n"}]}"#,
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"uri":"a:b"}}]}"#,
                r#"{"content":[{"type":"resource","resource":{"uri":"u+a:b"}}]}"#,
            ),
            (
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"text":"","uri":"a:b"}}}]}"#,
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"text":"","uri":"u+a:b"}}}]}"#,
            ),
        ] {
            assert_eq!(renamed(given), expected);
            assert_eq!(
                (streamed(given, 1), streamed(given, 1000)),
                (expected.to_owned(), expected.to_owned())
            );
        }
        for same in [
            r#"{"content":[{"type":"text","text":"\"uri\""}],"uri":"a:b"}"#,
            r#"{"structuredContent":{"uri":"a:b"},"content":[{"type":"text","uri":"a:b"}]}"#,
            r#"{"contents":{"uri":"a:b"},"content":5,"messages":[3,{"content":"uri"}]}"#,
            r#"{"contents":[{"uri":5}]}"#,
        ] {
            assert_eq!(renamed(same), same);
            assert_eq!(
                (streamed(same, 1), streamed(same, 1000)),
                (same.to_owned(), same.to_owned())
            );
        }
    }
}
