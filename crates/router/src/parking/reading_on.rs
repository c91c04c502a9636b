//! Reads the reply of a parked call on while its client is away: the server gets answers to its
//! pings, its further questions are kept for the next round, and the end of the call is noticed.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use weir_core::parked::{ParkedReply, SharedParkedReply};
use weir_core::reply::{NoteKind, ReplyEvent, ReplyNote, ReplySource as _};

/// The most notes that are kept for the continuation of a call. The newest are kept.
const MAX_UNREAD_NOTES: usize = 32;
/// The most bytes of those notes.
const MAX_UNREAD_BYTES: usize = 32 << 10;

/// Begins to read a parked call on, until it is taken, dropped or over.
pub(super) fn read_on(parked: ParkedReply) -> SharedParkedReply {
    let shared = Arc::new(Mutex::new(Some(parked)));
    // The parking alone owns the call: its drop cancels it.
    let weak = Arc::downgrade(&shared);
    let reading = poll_fn(move |cx| match weak.upgrade() {
        Some(shared) => match &mut *shared.lock() {
            Some(parked) => poll_unread(parked, cx),
            None => Poll::Ready(()),
        },
        None => Poll::Ready(()),
    });
    if let Some(parked) = &mut *shared.lock() {
        parked.reading.spawn(reading);
    }
    shared
}

/// Takes a parked call, which is not read on any more.
pub(super) fn stop_reading(shared: &SharedParkedReply) -> Option<ParkedReply> {
    let mut parked = shared.lock().take()?;
    parked.reading = JoinSet::new();
    Some(parked)
}

/// Reads the events of a parked call. Ready once the call is over.
fn poll_unread(parked: &mut ParkedReply, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        parked.open.drop_withdrawn(cx);
        match ready!(parked.reply.poll_event(cx)) {
            ReplyEvent::Ask(ask) => parked.open.keep(*ask),
            ReplyEvent::Note(note) => keep_note(parked, &note),
            end @ ReplyEvent::End(_) => {
                parked.unread.push_back(end);
                return Poll::Ready(());
            }
        }
    }
}

/// Keeps a note for the continuation. Of progress, the last report supersedes the others.
fn keep_note(parked: &mut ParkedReply, note: &ReplyNote) {
    if note.kind == NoteKind::StillWorking || note.params.len() > MAX_UNREAD_BYTES {
        return;
    }
    let unread = &mut parked.unread;
    if note.kind == NoteKind::Progress {
        unread.retain(
            |event| !matches!(event, ReplyEvent::Note(note) if note.kind == NoteKind::Progress),
        );
    }
    // Copied without the rest of the chunk it was read with.
    let params = Bytes::copy_from_slice(&note.params);
    let kind = note.kind;
    unread.push_back(ReplyEvent::Note(ReplyNote { kind, params }));
    let mut bytes: usize = unread.iter().map(size).sum();
    while unread.len() > MAX_UNREAD_NOTES || bytes > MAX_UNREAD_BYTES {
        bytes -= unread.pop_front().as_ref().map_or(bytes, size);
    }
}

fn size(event: &ReplyEvent) -> usize {
    match event {
        ReplyEvent::Note(note) => note.params.len(),
        ReplyEvent::Ask(_) | ReplyEvent::End(_) => 0,
    }
}
