//! Superseded views, kept for a while so that a cursor into one leads to the rest of the very list
//! it came from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::content_version::ContentVersion;

use crate::view::View;

/// The time that a superseded view stays: a client that takes longer between two pages starts
/// again.
const SUPERSEDED_TIME: Duration = Duration::from_secs(600);

/// The superseded views, bounded by number and by age. Views without a cursor from here go first:
/// another replica may have handed one out, but surely fewer.
#[derive(Debug, Default)]
pub(super) struct SupersededViews(VecDeque<(Instant, Arc<View>)>);

impl SupersededViews {
    /// Keeps a view that is superseded now, of at most `most` views.
    pub(super) fn put(&mut self, view: Arc<View>, now: Instant, most: usize) {
        self.drop_older(now);
        self.0.retain(|(_, kept)| kept.version != view.version);
        self.0.push_back((now, view));
        while self.0.len() > most {
            let at = self
                .0
                .iter()
                .position(|(_, view)| !view.is_promised())
                .unwrap_or(0);
            self.0.remove(at);
        }
    }

    /// Drops views whose time is over.
    pub(super) fn drop_older(&mut self, now: Instant) {
        self.0.retain(|(since, _)| is_kept(*since, now));
    }

    /// The versions of the views.
    pub(super) fn versions(&self) -> impl Iterator<Item = ContentVersion> {
        self.0.iter().map(|(_, view)| view.version)
    }

    pub(super) fn find(&self, version: ContentVersion, now: Instant) -> Option<Arc<View>> {
        let mut kept = self.0.iter().filter(|(since, _)| is_kept(*since, now));
        let (_, view) = kept.find(|(_, view)| view.version == version)?;
        Some(view.clone())
    }
}

fn is_kept(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < SUPERSEDED_TIME
}
