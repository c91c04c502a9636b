//! Watches and streams of other replicas, on the replica that runs the upstream.

use std::sync::Arc;

use futures_util::StreamExt as _;
use weir_core::upstream::{ListWatch, ResourceUpdate, ResourceUpdates, Upstream};
use weir_core::{CapabilityClass, Failure};
use weir_upstream_core::pending_updates::PendingUpdates;

use crate::call_form::{principal_of, read_call};
use crate::event_form::refusal_frame;
use crate::failure_form::FailureForm;
use crate::frame::{BadFrame, Frame, FrameKind};
use crate::owner_stream::{FrameWriter, OwnerStream, StreamGone};
use crate::remote_watch::{SubscribeForm, SubscribedForm, UpdateForm};
use crate::stream_form::ProgressForm;
use crate::watch_form::{
    ListForm, PageFailureForm, UpstreamFacts, WatchForm, change_frame, description_frame,
    page_frame, read_kind,
};

/// Opens a watch, and serves its pages and changes.
pub(crate) async fn serve_watch(
    local: Arc<dyn Upstream>,
    request: &Frame,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    let OwnerStream { mut reader, writer } = stream;
    let Ok(form) = request.facts::<WatchForm>() else {
        return writer.send(&refusal_frame("unknown form of a watch")).await;
    };
    let opened = local
        .clone()
        .watch(CapabilityClass::from_bits(form.class))
        .await;
    let mut watch = match opened {
        Ok(watch) => watch,
        Err(failure) => return writer.send(&failure_frame(&failure)).await,
    };
    let facts = facts_of(&*local);
    writer
        .send(&description_frame(watch.about(), facts))
        .await?;
    loop {
        tokio::select! {
            biased;
            frame = reader.next_frame() => {
                send_page(&mut *watch, list_form(&frame?)?, &writer).await?;
            }
            changed = watch.next_change() => match changed {
                Ok(kinds) => writer.send(&change_frame(kinds)).await?,
                Err(failure) => return writer.send(&failure_frame(&failure)).await,
            },
        }
    }
}

fn list_form(frame: &Frame) -> Result<ListForm, StreamGone> {
    if frame.kind != FrameKind::List {
        return Err(StreamGone);
    }
    frame.facts().map_err(|BadFrame| StreamGone)
}

async fn send_page(
    watch: &mut dyn ListWatch,
    form: ListForm,
    writer: &FrameWriter,
) -> Result<(), StreamGone> {
    let kind = read_kind(&form.kind).ok_or(StreamGone)?;
    let frame = match watch.list(kind, form.cursor).await {
        Ok(page) => page_frame(form.number, page),
        Err(failure) => {
            let form = PageFailureForm {
                number: form.number,
                failure: FailureForm::of(&failure),
            };
            Frame::new(FrameKind::PageFailed, &form)
        }
    };
    writer.send(&frame).await
}

/// The facts of the server that this replica knows.
fn facts_of(local: &dyn Upstream) -> UpstreamFacts {
    let health = local.health();
    UpstreamFacts {
        carries: local.carries().bits(),
        revision: health.revision.map(str::to_owned),
        second_revision: health.second_revision.map(str::to_owned),
    }
}

/// Opens a stream of updates, and serves its subscriptions.
pub(crate) async fn serve_updates(
    local: Arc<dyn Upstream>,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    let OwnerStream { mut reader, writer } = stream;
    let mut updates = match local.updates().await {
        Ok(updates) => updates,
        Err(failure) => return writer.send(&failure_frame(&failure)).await,
    };
    writer.send(&Frame::empty(FrameKind::Opened)).await?;
    loop {
        let frame = tokio::select! {
            biased;
            frame = reader.next_frame() => {
                match subscribe(&mut *updates, &frame?, &writer).await? {
                    Ok(frame) => frame,
                    Err(failure) => return writer.send(&failure_frame(&failure)).await,
                }
            }
            updated = updates.next_update() => match updated {
                Ok(update) => update_frame(&update),
                Err(failure) => return writer.send(&failure_frame(&failure)).await,
            },
        };
        writer.send(&frame).await?;
    }
}

async fn subscribe(
    updates: &mut dyn ResourceUpdates,
    frame: &Frame,
    writer: &FrameWriter,
) -> Result<Result<Frame, Failure>, StreamGone> {
    if frame.kind != FrameKind::Subscribe {
        return Err(StreamGone);
    }
    let form: SubscribeForm = frame.facts().map_err(|BadFrame| StreamGone)?;
    let uris: Vec<Arc<str>> = form.uris.into_iter().map(Into::into).collect();
    let pending = PendingUpdates::default();
    let deliver = |updated: ResourceUpdate| pending.push(&updated);
    let mut changing = updates.set_subscriptions(&uris, &deliver);
    let refused = loop {
        tokio::select! {
            biased;
            refused = &mut changing => break refused,
            updated = pending.next() => writer.send(&update_frame(&updated)).await?,
        }
    };
    while let Some(updated) = pending.take() {
        writer.send(&update_frame(&updated)).await?;
    }
    Ok(refused.map(|refused| {
        let refused = refused.iter();
        let form = SubscribedForm {
            number: form.number,
            refused: refused
                .map(|(uri, failure)| (uri.to_string(), FailureForm::of(failure)))
                .collect(),
        };
        Frame::new(FrameKind::Subscribed, &form)
    }))
}

fn update_frame(update: &ResourceUpdate) -> Frame {
    let uri = match update {
        ResourceUpdate::Resource(uri) => Some(uri.to_string()),
        ResourceUpdate::Any => None,
    };
    Frame::new(FrameKind::Updated, &UpdateForm { uri })
}

/// Sends an item for each status notification of a task.
pub(crate) async fn serve_task(
    local: Arc<dyn Upstream>,
    request: &Frame,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    let OwnerStream { mut reader, writer } = stream;
    let Ok(outbound) = read_call(request) else {
        return writer.send(&refusal_frame("unknown form of a task")).await;
    };
    let Some(mut notifications) = local.follow_task(outbound).await else {
        return Ok(());
    };
    writer.send(&Frame::empty(FrameKind::Opened)).await?;
    loop {
        tokio::select! {
            frame = reader.next_frame() => drop(frame?),
            item = notifications.next() => match item {
                Some(()) => writer.send(&Frame::empty(FrameKind::Item)).await?,
                None => return Ok(()),
            },
        }
    }
}

/// Sends the progress notifications of a task.
pub(crate) async fn serve_progress(
    local: Arc<dyn Upstream>,
    request: &Frame,
    stream: OwnerStream,
) -> Result<(), StreamGone> {
    let OwnerStream { mut reader, writer } = stream;
    let form: ProgressForm = request.facts().map_err(|BadFrame| StreamGone)?;
    let principal = principal_of(form.principal.as_ref());
    let Some(mut reports) = local.task_progress(&principal, &form.native) else {
        return writer.send(&Frame::empty(FrameKind::Ended)).await;
    };
    writer.send(&Frame::empty(FrameKind::Opened)).await?;
    loop {
        tokio::select! {
            frame = reader.next_frame() => drop(frame?),
            report = reports.next() => match report {
                Some(params) => {
                    writer.send(&Frame::empty(FrameKind::Item).with(params)).await?;
                }
                // The task is over, or another request for its result has the reports now.
                None => return writer.send(&Frame::empty(FrameKind::Ended)).await,
            },
        }
    }
}

fn failure_frame(failure: &Failure) -> Frame {
    Frame::new(FrameKind::Failed, &FailureForm::of(failure))
}
