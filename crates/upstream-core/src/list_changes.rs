//! A count of a server's `list_changed` notifications, by list.

use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use weir_core::telemetry::instruments;
use weir_core::upstream::{ListKind, ListKinds};

use crate::upstream_label::UpstreamLabel;

/// Notifications received so far, by list, and gaps in which some may have been lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListChangeCounts {
    /// By [`ListKind`].
    counts: [u64; 4],
    gaps: u64,
}

impl ListChangeCounts {
    /// Counts a notification about these lists. An empty set counts as a gap.
    pub fn record(&mut self, kinds: ListKinds) {
        if kinds.is_empty() {
            self.gaps = self.gaps.wrapping_add(1);
        }
        for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            let count = &mut self.counts[kind as usize];
            *count = count.wrapping_add(1);
        }
    }

    /// The lists with a notification since `before`.
    pub fn since(&self, before: &Self) -> ListKinds {
        ListKind::ALL
            .into_iter()
            .filter(|kind| self.counts[*kind as usize] != before.counts[*kind as usize])
            .collect()
    }
}

/// The changes of one upstream's lists.
#[derive(Debug)]
pub struct ListChanges {
    label: UpstreamLabel,
    counts: watch::Sender<ListChangeCounts>,
}

impl ListChanges {
    /// Makes the record of an upstream without changes yet.
    pub fn new(label: UpstreamLabel) -> Self {
        Self {
            label,
            counts: watch::Sender::default(),
        }
    }

    /// Counts a change notification.
    pub fn count(&self) {
        instruments()
            .list_changed_in
            .add(1, &[self.label.attribute()]);
    }

    /// Notes a change of these lists that was seen outside a watch's own stream. An empty set means
    /// that weir itself wants the lists to be read again.
    pub fn record(&self, kinds: ListKinds) {
        self.count();
        self.counts.send_modify(|counts| counts.record(kinds));
    }

    /// Returns a reader of changes from now on.
    pub fn reader(&self) -> ListChangeReader {
        ListChangeReader::new(self.counts.subscribe())
    }
}

/// A reader of notifications from one point in time on.
#[derive(Debug)]
pub struct ListChangeReader {
    counts: watch::Receiver<ListChangeCounts>,
    read: ListChangeCounts,
}

impl ListChangeReader {
    fn new(counts: watch::Receiver<ListChangeCounts>) -> Self {
        let read = *counts.borrow();
        Self { counts, read }
    }

    /// Waits for the next notification and returns its lists; several in between are one. Cancel
    /// safe.
    ///
    /// # Errors
    /// The upstream is gone, so that no notification will come.
    pub async fn changed(&mut self) -> Result<ListKinds, RecvError> {
        self.counts.changed().await?;
        let counts = *self.counts.borrow_and_update();
        Ok(counts.since(&std::mem::replace(&mut self.read, counts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_changed_list_is_reported_and_a_gap_names_no_list() {
        let (prompts, all) = (
            ListKinds::default().with(ListKind::Prompts),
            ListKind::ALL.into_iter().collect(),
        );
        let before = ListChangeCounts::default();
        let mut counts = before;
        counts.record(prompts);
        counts.record(prompts);
        assert_eq!(counts.since(&before), prompts);
        assert!(counts.since(&counts).is_empty());
        let then = counts;
        counts.record(ListKinds::default());
        assert!(counts != then && counts.since(&then).is_empty());
        counts.record(all);
        assert_eq!(counts.since(&then), all);
    }
}
