//! Watches of an upstream that runs at another replica: its lists, and updates of its resources.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_core::names::UpstreamId;
use weir_core::port::BoxFuture;
use weir_core::upstream::{
    DeliverUpdate, ListKind, ListKinds, ListPage, ListWatch, RefusedSubscriptions, ResourceUpdate,
    ResourceUpdates, ServerDescription,
};
use weir_core::{Failure, FailureKind};

use crate::failure_form::FailureForm;
use crate::forwarded_reply::read_failure;
use crate::frame::{BadFrame, Frame, FrameKind};
use crate::frame_stream::{FrameStream, StreamLost};
use crate::watch_form::{ListForm, PageFailureForm, read_change, read_page};

/// A watch of the lists. Changes that come while a page is asked for are kept, as one.
pub(crate) struct RemoteWatch {
    upstream: UpstreamId,
    stream: FrameStream,
    about: ServerDescription,
    /// The changes that were not taken yet; `None` if there are none.
    changed: Option<ListKinds>,
    /// The number of the last request for a page.
    pages: u64,
}

impl RemoteWatch {
    pub(crate) fn new(upstream: UpstreamId, stream: FrameStream, about: ServerDescription) -> Self {
        Self {
            upstream,
            stream,
            about,
            changed: None,
            pages: 0,
        }
    }

    /// True once the replica has ended the watch in order: another process or replica goes on with
    /// the upstream.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    fn note_change(&mut self, kinds: ListKinds) {
        self.changed = Some(match self.changed {
            // The empty set is any change.
            Some(before) if before.is_empty() || kinds.is_empty() => ListKinds::default(),
            Some(before) => before.or(kinds),
            None => kinds,
        });
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of many kinds of frames a watch has few"
    )]
    async fn page(&mut self, kind: ListKind, cursor: Option<String>) -> Result<ListPage, Failure> {
        self.pages += 1;
        let form = ListForm {
            number: self.pages,
            kind: kind.word().to_owned(),
            cursor,
        };
        self.stream.send(&Frame::new(FrameKind::List, &form));
        let upstream = self.upstream.clone();
        let bad = |bad| bad_message(&upstream, bad);
        loop {
            let frame = next_frame(&mut self.stream, &upstream).await?;
            match frame.kind {
                FrameKind::Page => {
                    let (number, page) = read_page(&frame).map_err(bad)?;
                    // Another one is of a request that was given up.
                    if number == self.pages {
                        return Ok(page);
                    }
                }
                FrameKind::PageFailed => {
                    let form: PageFailureForm = frame.facts().map_err(bad)?;
                    if form.number == self.pages {
                        return Err(form.failure.into_failure(&upstream));
                    }
                }
                FrameKind::Changed => {
                    let kinds = read_change(&frame);
                    self.note_change(kinds.unwrap_or_default());
                }
                _ => return Err(read_failure(&frame, &upstream)),
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of many kinds of frames a watch has few"
    )]
    async fn change(&mut self) -> Result<ListKinds, Failure> {
        loop {
            if let Some(kinds) = self.changed.take() {
                return Ok(kinds);
            }
            let frame = next_frame(&mut self.stream, &self.upstream).await?;
            match frame.kind {
                FrameKind::Changed => {
                    let kinds = read_change(&frame);
                    self.note_change(kinds.unwrap_or_default());
                }
                // The page of a walk that was given up.
                FrameKind::Page | FrameKind::PageFailed => {}
                _ => return Err(read_failure(&frame, &self.upstream)),
            }
        }
    }
}

impl ListWatch for RemoteWatch {
    fn about(&self) -> &ServerDescription {
        &self.about
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(self.page(kind, cursor))
    }

    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(self.change())
    }
}

/// The resources of a subscription.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SubscribeForm {
    /// The number of the request in its stream.
    pub(crate) number: u64,
    pub(crate) uris: Vec<String>,
}

/// The refused resources of a subscription.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SubscribedForm {
    /// The number of the request.
    pub(crate) number: u64,
    pub(crate) refused: Vec<(String, FailureForm)>,
}

/// An updated resource; absent if any may be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UpdateForm {
    pub(crate) uri: Option<String>,
}

/// A stream of updates of single resources.
pub(crate) struct RemoteUpdates {
    upstream: UpstreamId,
    stream: FrameStream,
    /// The number of the last subscription.
    subscriptions: u64,
}

impl RemoteUpdates {
    pub(crate) fn new(upstream: UpstreamId, stream: FrameStream) -> Self {
        Self {
            upstream,
            stream,
            subscriptions: 0,
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of many kinds of frames a subscription has few"
    )]
    async fn subscribe(
        &mut self,
        uris: &[Arc<str>],
        deliver: DeliverUpdate<'_>,
    ) -> Result<RefusedSubscriptions, Failure> {
        let uris = uris.iter().map(|uri| uri.to_string()).collect();
        self.subscriptions += 1;
        let number = self.subscriptions;
        let form = SubscribeForm { number, uris };
        self.stream.send(&Frame::new(FrameKind::Subscribe, &form));
        loop {
            let frame = next_frame(&mut self.stream, &self.upstream).await?;
            match frame.kind {
                FrameKind::Subscribed => {
                    let form = frame.facts::<SubscribedForm>();
                    let form = form.map_err(|bad| bad_message(&self.upstream, bad))?;
                    // Another one is of a request that was given up.
                    if form.number != number {
                        continue;
                    }
                    let refused = form.refused.into_iter();
                    return Ok(refused
                        .map(|(uri, failure)| (uri.into(), failure.into_failure(&self.upstream)))
                        .collect());
                }
                FrameKind::Updated => deliver(read_update(&frame)),
                _ => return Err(read_failure(&frame, &self.upstream)),
            }
        }
    }

    async fn update(&mut self) -> Result<ResourceUpdate, Failure> {
        let frame = next_frame(&mut self.stream, &self.upstream).await?;
        if frame.kind == FrameKind::Updated {
            return Ok(read_update(&frame));
        }
        // The answer to a request that was given up.
        if frame.kind == FrameKind::Subscribed {
            return Ok(ResourceUpdate::Any);
        }
        Err(read_failure(&frame, &self.upstream))
    }
}

impl ResourceUpdates for RemoteUpdates {
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
        deliver: DeliverUpdate<'a>,
    ) -> BoxFuture<'a, Result<RefusedSubscriptions, Failure>> {
        Box::pin(self.subscribe(uris, deliver))
    }

    fn next_update(&mut self) -> BoxFuture<'_, Result<ResourceUpdate, Failure>> {
        Box::pin(self.update())
    }
}

/// The update in a frame: of any resource, if the frame cannot be read.
fn read_update(frame: &Frame) -> ResourceUpdate {
    let uri = frame.facts::<UpdateForm>().ok().and_then(|form| form.uri);
    uri.map_or(ResourceUpdate::Any, |uri| {
        ResourceUpdate::Resource(uri.into())
    })
}

async fn next_frame(stream: &mut FrameStream, upstream: &UpstreamId) -> Result<Frame, Failure> {
    let frame = stream.next_frame().await;
    frame.map_err(|StreamLost(cause)| {
        let text = "The replica that runs the upstream was lost";
        Failure::new(FailureKind::Unavailable, text)
            .with_upstream(upstream)
            .because(cause)
    })
}

fn bad_message(upstream: &UpstreamId, _: BadFrame) -> Failure {
    let text = "The replica that runs the upstream sent an invalid message";
    Failure::new(FailureKind::BadAnswer, text).with_upstream(upstream)
}
