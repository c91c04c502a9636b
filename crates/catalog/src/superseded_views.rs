//! Superseded views, kept for a while so that a cursor into one leads to the rest of the very list
//! it came from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::content_version::ContentVersion;

use crate::view::View;

/// The superseded views, bounded by number and by age. Views without a cursor from here go first:
/// another replica may have handed one out, but surely fewer.
#[derive(Debug, Default)]
pub(super) struct SupersededViews(VecDeque<(Instant, Arc<View>)>);

impl SupersededViews {
    /// Keeps a view that is superseded now, of at most `most` views up to `age` old.
    pub(super) fn put(&mut self, view: Arc<View>, now: Instant, most: usize, age: Duration) {
        self.drop_older(now, age);
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

    /// Drops views that are older than `age`.
    pub(super) fn drop_older(&mut self, now: Instant, age: Duration) {
        self.0
            .retain(|(since, _)| now.saturating_duration_since(*since) < age);
    }

    /// The versions of the views.
    pub(super) fn versions(&self) -> impl Iterator<Item = ContentVersion> {
        self.0.iter().map(|(_, view)| view.version)
    }

    pub(super) fn find(
        &self,
        version: ContentVersion,
        now: Instant,
        age: Duration,
    ) -> Option<Arc<View>> {
        let (_, view) = self.0.iter().find(|(since, view)| {
            view.version == version && now.saturating_duration_since(*since) < age
        })?;
        Some(view.clone())
    }
}
