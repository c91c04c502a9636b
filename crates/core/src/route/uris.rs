//! URIs of an upstream in its results, as the endpoint shows them: what weir understands and a client may ask for again.
//!
//! Looked at are `contents[].uri` of a read, and resource links and embedded resources among the content of tools and prompts.
//! All other bytes stay as they are. Only whole results are rewritten; one that streams past weir is not held for it.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use weir_wire::{scan, write};

use crate::catalog::Item;
use crate::endpoint::{Endpoint, Mode, Prefix};
use crate::names::{UpstreamId, uri};
use crate::reply::{End, Payload};

/// Renames the URIs of one upstream's results.
#[derive(Debug)]
pub(super) struct Renaming(UpstreamId);

impl Renaming {
    /// `None` where the endpoint renames no URIs.
    pub(super) fn of(endpoint: &Endpoint, item: &Item) -> Option<Self> {
        match &endpoint.mode {
            Mode::Aggregate { prefix: Prefix::Always, .. } => Some(Self(item.tool.upstream.clone())),
            // Bare URIs are understood on the way back: by the lists, by templates.
            Mode::Aggregate { prefix: Prefix::None, .. } | Mode::Transparent(_) => None,
        }
    }

    /// Passes an end on with its URIs renamed.
    pub(super) fn apply(&self, end: End) -> End {
        match end {
            End::Complete(Payload::Whole(result)) => End::Complete(Payload::Whole(self.renamed(result))),
            other => other,
        }
    }

    fn renamed(&self, result: Bytes) -> Bytes {
        // Most results have none: one search settles it.
        if !has(&result, b"\"uri\"") {
            return result;
        }
        let mut places = Vec::new();
        for member in scan::members(&result) {
            let at = member.value;
            match &*member.key.decode() {
                "contents" => each(&result, at, &mut |content| uri_of(&result, content, &mut places)),
                "content" => each(&result, at, &mut |block| self::block(&result, block, &mut places)),
                "messages" => each(&result, at, &mut |message| {
                    if let Some(content) = within(&result, &message, "content") {
                        if result[content.clone()].starts_with(b"[") {
                            each(&result, content, &mut |block| self::block(&result, block, &mut places));
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
            let Some(native) = scan::string(&result[place.clone()]) else { continue };
            out.put_slice(&result[done..place.start]);
            write::string(&mut out, &uri::expose(&self.0, &native));
            done = place.end;
        }
        out.put_slice(&result[done..]);
        out.freeze()
    }
}

/// A content block: a link has a URI, an embedded resource has one inside.
fn block(result: &[u8], block: Range<usize>, places: &mut Vec<Range<usize>>) {
    let Some(kind) = within(result, &block, "type") else { return };
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

/// Where a member of the object at `at` has its value.
fn within(result: &[u8], at: &Range<usize>, name: &str) -> Option<Range<usize>> {
    let object = &result[at.clone()];
    let found = scan::find(object, name).filter(|_| scan::is_object(object))?;
    Some(at.start + found.start..at.start + found.end)
}

/// Every element of the array at `at`.
fn each(result: &[u8], at: Range<usize>, act: &mut dyn FnMut(Range<usize>)) {
    let array = &result[at.clone()];
    if array.starts_with(b"[") {
        scan::elements(array).for_each(|one| act(at.start + one.start..at.start + one.end));
    }
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn renamed(text: &str) -> String {
        let renaming = Renaming(UpstreamId::new("u").unwrap());
        String::from_utf8(renaming.renamed(Bytes::copy_from_slice(text.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn r134_uris_of_reads_links_and_embedded_resources_are_renamed_and_nothing_else() {
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
        }
        for same in [
            r#"{"content":[{"type":"text","text":"\"uri\""}],"uri":"a:b"}"#,
            r#"{"structuredContent":{"uri":"a:b"},"content":[{"type":"text","uri":"a:b"}]}"#,
            r#"{"contents":{"uri":"a:b"},"content":5,"messages":[3,{"content":"uri"}]}"#,
            r#"{"contents":[{"uri":5}]}"#,
        ] {
            assert_eq!(renamed(same), same);
        }
    }
}
