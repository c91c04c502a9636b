//! One message of a response while it arrives. A small one is kept whole. A larger one is held
//! until its id and type are known to be those of the expected result, and is passed on from there.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use weir_core::hold::{HoldReservation, HoldShare};
use weir_core::port::BoxFuture;
use weir_era::upstream_messages::{ResultType, RevisionDialect};
use weir_upstream_core::result_expectation::ResultExpectation;
use weir_wire::RequestId;
use weir_wire::splitter::{ReplySplitter, SplitCaps, SplitError, SplitMessage};

use crate::held_blocks::HeldBlocks;
use crate::response_part::{HeldLargeResult, ResponsePart, ResponseReadError};

/// The largest message that is kept whole.
const MAX_WHOLE_BYTES: usize = 64 << 10;

/// The conditions under which the result of a large response may go on before its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseRule {
    /// The request that the response must answer.
    pub(crate) id: u64,
    /// The dialect by which its type is read.
    pub(crate) dialect: RevisionDialect,
    /// True for the response to the request's own POST: past the bound of held bytes it goes on
    /// before its id was read.
    pub(crate) is_own: bool,
    /// True if the whole result is to be inspected, so that it is held to its end.
    pub(crate) whole: bool,
    /// True if every message is kept whole, at any size.
    pub(crate) unsplit: bool,
}

impl ReleaseRule {
    /// The conditions for the response to the POST of the request `id`.
    pub(crate) fn of_own_post(expectation: &ResultExpectation, id: u64) -> Self {
        // An older server's answer to a call that is to be a task can only be told from the whole
        // result.
        let whole = expectation.needs_whole
            || expectation.task_owner.is_some() && !expectation.dialect.has_result_type();
        Self {
            id,
            dialect: expectation.dialect,
            is_own: true,
            whole,
            unsplit: expectation.is_unsplit,
        }
    }

    /// True if `id` is that of the request.
    pub(crate) fn is_of(&self, id: Option<&RequestId>) -> bool {
        id.and_then(RequestId::echoed_number) == Some(self.id)
    }

    /// True for the type of a complete result, which is passed on.
    pub(crate) fn is_plain(&self, result_type: Option<&[u8]>) -> bool {
        self.dialect.parse_result_type(result_type) == ResultType::Complete
    }
}

/// The bounds of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageBound {
    /// The most bytes of the message.
    pub(crate) most: usize,
    /// The most bytes of it that are held.
    pub(crate) hold: usize,
}

/// Collects one message after the other.
pub(crate) struct MessageCollector {
    first: Bytes,
    more: BytesMut,
    large: Option<Box<LargeMessage>>,
    bound: MessageBound,
    release: Option<ReleaseRule>,
}

struct LargeMessage {
    splitter: ReplySplitter,
    stage: LargeStage,
    blocks: HeldBlocks,
    reserving: Option<BoxFuture<'static, Option<HoldReservation>>>,
    reservation: Option<HoldReservation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LargeStage {
    /// Its result is held.
    Held,
    /// Its result goes on.
    Released,
    /// It answers another request, and is discarded.
    Foreign,
}

impl MessageCollector {
    pub(crate) fn new(bound: MessageBound) -> Self {
        Self {
            first: Bytes::new(),
            more: BytesMut::new(),
            large: None,
            bound,
            release: None,
        }
    }

    /// Lets large results of this request go on.
    pub(crate) fn release(&mut self, release: ReleaseRule) {
        self.release = Some(release);
    }

    /// True if only blanks came.
    pub(crate) fn is_blank(&self) -> bool {
        self.large.is_none()
            && [&self.first[..], &self.more[..]]
                .iter()
                .all(|held| held.iter().all(u8::is_ascii_whitespace))
    }

    /// Drops a message that is kept whole. Of a larger one a part may have gone on.
    pub(crate) fn discard_whole(&mut self) {
        if self.large.is_none() {
            self.take();
        }
    }

    /// True if the message does not answer the request, as far as its id was read, and no part of it
    /// has gone on.
    pub(crate) fn may_be_skipped(&self) -> bool {
        self.large.as_ref().is_none_or(|large| {
            let id = large.splitter.id();
            let is_answer = |release: ReleaseRule| id.is_some_and(|id| release.is_of(id));
            large.stage != LargeStage::Released && !self.release.is_some_and(is_answer)
        })
    }

    /// Drops a message that cannot be read.
    pub(crate) fn discard(&mut self) {
        self.large = None;
        self.take();
    }

    /// Waits until more may be read: a large result that is held needs memory.
    pub(crate) fn poll_room(&mut self, share: &HoldShare, cx: &mut Context<'_>) -> Poll<()> {
        let Some(large) = &mut self.large else {
            return Poll::Ready(());
        };
        if large.stage != LargeStage::Held || large.reservation.is_some() {
            return Poll::Ready(());
        }
        let most = self.bound.hold;
        let reserving = large.reserving.get_or_insert_with(|| share.reserve(most));
        large.reservation = ready!(reserving.as_mut().poll(cx));
        large.reserving = None;
        Poll::Ready(())
    }

    /// Notes that all parts were taken.
    pub(crate) fn drained(&mut self) {
        if let Some(large) = &mut self.large
            && large.stage == LargeStage::Released
        {
            large.reservation = None;
        }
    }

    pub(crate) fn feed(
        &mut self,
        chunk: &Bytes,
        parts: &mut VecDeque<ResponsePart>,
    ) -> Result<(), ResponseReadError> {
        if self.large.is_none() {
            if self.first.len() + self.more.len() + chunk.len() <= self.most_whole() {
                self.hold(chunk);
                return Ok(());
            }
            self.large = Some(Box::new(LargeMessage::new(self.bound)));
            let held = self.take();
            self.split(&held, parts)?;
        }
        self.split(chunk, parts)
    }

    /// Returns the largest size of a message that is kept whole.
    fn most_whole(&self) -> usize {
        if self.release.is_some_and(|release| release.unsplit) {
            self.bound.most
        } else {
            MAX_WHOLE_BYTES
        }
    }

    fn split(
        &mut self,
        chunk: &Bytes,
        parts: &mut VecDeque<ResponsePart>,
    ) -> Result<(), ResponseReadError> {
        let Some(large) = &mut self.large else {
            return Ok(());
        };
        let mut pieces = Vec::new();
        let fed = large
            .splitter
            .feed(chunk, &mut pieces)
            .map_err(|error| split_error(&error, self.bound));
        match large.stage {
            LargeStage::Foreign => {}
            LargeStage::Held => {
                pieces.iter().for_each(|piece| large.blocks.push(piece));
                large.release_if_due(self.release.as_ref(), self.bound, parts)?;
            }
            LargeStage::Released => {
                parts.extend(pieces.into_iter().map(ResponsePart::Result));
                let is_foreign = |release: &ReleaseRule| {
                    large.splitter.id().is_some_and(|id| !release.is_of(id))
                };
                if self.release.as_ref().is_some_and(is_foreign) {
                    return Err(ResponseReadError::Foreign);
                }
            }
        }
        fed
    }

    /// Handles the message's end.
    pub(crate) fn finish(
        &mut self,
        parts: &mut VecDeque<ResponsePart>,
    ) -> Result<(), ResponseReadError> {
        let Some(large) = self.large.take() else {
            parts.push_back(ResponsePart::Message(self.take()));
            return Ok(());
        };
        let LargeMessage {
            splitter,
            stage,
            blocks,
            reservation,
            ..
        } = *large;
        parts.push_back(
            match (
                splitter
                    .finish()
                    .map_err(|error| split_error(&error, self.bound))?,
                stage,
            ) {
                (SplitMessage::Whole(message), _) => ResponsePart::Message(message),
                (SplitMessage::Response(_), LargeStage::Foreign) => ResponsePart::Foreign,
                (SplitMessage::Response(end), LargeStage::Released) => ResponsePart::LargeEnd(end),
                (SplitMessage::Response(end), LargeStage::Held) => {
                    ResponsePart::Held(Box::new(HeldLargeResult {
                        blocks,
                        end,
                        reservation,
                    }))
                }
            },
        );
        Ok(())
    }

    /// Keeps a first chunk as it is: most messages arrive in one.
    fn hold(&mut self, chunk: &Bytes) {
        if self.first.is_empty() && self.more.is_empty() {
            self.first = chunk.clone();
            return;
        }
        if self.more.is_empty() {
            self.more
                .extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.more.extend_from_slice(chunk);
    }

    fn take(&mut self) -> Bytes {
        if self.more.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            self.more.split().freeze()
        }
    }
}

impl LargeMessage {
    fn new(bound: MessageBound) -> Self {
        let caps = SplitCaps {
            max_held: bound.hold,
            max_total: bound.most as u64,
            ..SplitCaps::default()
        };
        Self {
            splitter: ReplySplitter::new(caps),
            stage: LargeStage::Held,
            blocks: HeldBlocks::default(),
            reserving: None,
            reservation: None,
        }
    }

    /// Releases the held bytes if the conditions are met.
    fn release_if_due(
        &mut self,
        release: Option<&ReleaseRule>,
        bound: MessageBound,
        parts: &mut VecDeque<ResponsePart>,
    ) -> Result<(), ResponseReadError> {
        let (id, result_type) = (self.splitter.id(), self.splitter.result_type());
        let is_full = self.blocks.len() + self.splitter.held() > bound.hold;
        let Some(release) = release else {
            return if is_full {
                Err(ResponseReadError::TooLarge(bound.hold))
            } else {
                Ok(())
            };
        };
        if id.is_some_and(|id| !release.is_of(id)) {
            self.stage = LargeStage::Foreign;
            (self.blocks, self.reservation, self.reserving) = (HeldBlocks::default(), None, None);
            return Ok(());
        }
        // A result with a known type other than complete goes on whole or not at all.
        let may_be_plain =
            !release.whole && (result_type.is_none() || release.is_plain(result_type));
        let is_typed = result_type.is_some() || !release.dialect.has_result_type();
        let is_known = id.is_some() && is_typed;
        let is_due = is_known || is_full && (id.is_some() || release.is_own);
        if may_be_plain && is_due && self.blocks.len() > 0 {
            self.stage = LargeStage::Released;
            self.reserving = None;
            parts.push_back(ResponsePart::Large);
            while let Some(block) = self.blocks.pop() {
                parts.push_back(ResponsePart::Result(block));
            }
            return Ok(());
        }
        if is_full {
            Err(ResponseReadError::TooLarge(bound.hold))
        } else {
            Ok(())
        }
    }
}

fn split_error(error: &SplitError, bound: MessageBound) -> ResponseReadError {
    match error {
        SplitError::TooLong => ResponseReadError::TooLarge(bound.most),
        SplitError::Scan(_) | SplitError::Message(_) | SplitError::NotAResponse => {
            ResponseReadError::Malformed(error.to_string())
        }
    }
}

impl std::fmt::Debug for MessageCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = self.large.as_ref().map(|large| large.stage);
        f.debug_struct("MessageCollector")
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_wire::Revision;

    use super::*;

    const BOUND: MessageBound = MessageBound {
        most: 8 << 20,
        hold: 256 << 10,
    };

    fn release(revision: Revision, is_own: bool) -> ReleaseRule {
        ReleaseRule {
            id: 7,
            dialect: RevisionDialect::new(revision),
            is_own,
            whole: false,
            unsplit: false,
        }
    }

    /// Returns the kinds of the parts of a message that is fed in pieces of 16 KiB, in order, or
    /// the error.
    fn collected(release: Option<ReleaseRule>, message: &str) -> Result<String, ResponseReadError> {
        let (mut collector, mut parts) = (MessageCollector::new(BOUND), VecDeque::new());
        if let Some(release) = release {
            collector.release(release);
        }
        for piece in message.as_bytes().chunks(16 << 10) {
            collector.feed(&Bytes::copy_from_slice(piece), &mut parts)?;
        }
        collector.finish(&mut parts)?;
        let mut kinds: Vec<&str> = parts
            .iter()
            .map(|part| match part {
                ResponsePart::Message(_) => "message",
                ResponsePart::Large => "large",
                ResponsePart::Result(_) => "result",
                ResponsePart::LargeEnd(_) => "end",
                ResponsePart::Held(_) => "held",
                ResponsePart::Foreign => "foreign",
                ResponsePart::Unreadable => "unreadable",
                ResponsePart::Mark { .. } => "mark",
            })
            .collect();
        kinds.dedup();
        Ok(kinds.join(" "))
    }

    fn message(id: u64, id_first: bool, size: usize) -> String {
        let result = format!(
            r#""result":{{"text":"{}","resultType":"complete"}}"#,
            "x".repeat(size)
        );
        if id_first {
            format!(r#"{{"jsonrpc":"2.0","id":{id},{result}}}"#)
        } else {
            format!(r#"{{"jsonrpc":"2.0",{result},"id":{id}}}"#)
        }
    }

    #[test]
    fn result_streams_before_its_id_only_on_the_response_to_its_own_post() {
        const LEGACY: Revision = Revision::NEWEST_LEGACY;
        const STREAMED: &str = "large result end";
        let (some, much) = (128 << 10, 1 << 20);
        for (revision, is_own, id_first, size, expected) in [
            (LEGACY, true, true, some, Some(STREAMED)),
            (LEGACY, false, true, some, Some(STREAMED)),
            (LEGACY, true, false, some, Some(STREAMED)),
            (LEGACY, false, false, some, Some(STREAMED)),
            (LEGACY, true, false, much, Some(STREAMED)),
            (LEGACY, false, false, much, None),
            (LEGACY, false, true, much, Some(STREAMED)),
            (Revision::MODERN, true, true, some, Some(STREAMED)),
            (Revision::MODERN, true, true, much, Some(STREAMED)),
            (Revision::MODERN, false, true, much, Some(STREAMED)),
            (Revision::MODERN, false, false, much, None),
        ] {
            let seen = collected(Some(release(revision, is_own)), &message(7, id_first, size));
            let case = format!("{revision:?} {is_own} {id_first} {size}");
            match seen {
                Ok(seen) => assert_eq!(Some(&*seen), expected, "{case}"),
                Err(ResponseReadError::TooLarge(most)) => {
                    assert_eq!((most, expected), (BOUND.hold, None), "{case}")
                }
                Err(error) => panic!("{case}: {error}"),
            }
        }
    }

    #[test]
    fn the_answer_to_a_request_of_weirs_own_is_one_message_up_to_the_bound() {
        let own = ReleaseRule {
            unsplit: true,
            ..release(Revision::MODERN, true)
        };
        assert_eq!(
            collected(Some(own), &message(7, true, 1 << 20)).unwrap(),
            "message"
        );
        let too_large = collected(Some(own), &message(7, true, BOUND.most));
        assert!(
            matches!(too_large, Err(ResponseReadError::TooLarge(_))),
            "{too_large:?}"
        );
    }

    #[test]
    fn large_response_to_another_request_is_skipped_or_ends_the_reply() {
        let own = release(Revision::MODERN, true);
        assert_eq!(
            collected(Some(own), &message(8, true, 1 << 20)).unwrap(),
            "foreign"
        );
        let late = collected(Some(own), &message(8, false, 1 << 20));
        assert!(matches!(late, Err(ResponseReadError::Foreign)), "{late:?}");
        let nobodys = collected(None, &message(8, true, 1 << 20));
        assert!(
            matches!(nobodys, Err(ResponseReadError::TooLarge(_))),
            "{nobodys:?}"
        );
    }
}
