//! A count of a server's `list_changed` notifications, by list.

use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use weir_core::upstream::{ListKind, ListKinds};

/// Notifications received so far, by list, and gaps in which some may have been lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListNews {
    /// By [`ListKind`].
    said: [u64; 4],
    unknown: u64,
}

impl ListNews {
    /// Counts a notification about these lists. An empty set counts as a gap.
    pub(crate) fn tell(&mut self, kinds: ListKinds) {
        if kinds.is_empty() {
            self.unknown = self.unknown.wrapping_add(1);
        }
        for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            let said = &mut self.said[kind as usize];
            *said = said.wrapping_add(1);
        }
    }

    /// The lists with a notification since `before`.
    pub(crate) fn since(&self, before: &Self) -> ListKinds {
        ListKind::ALL
            .into_iter()
            .filter(|kind| self.said[*kind as usize] != before.said[*kind as usize])
            .collect()
    }
}

/// A reader of notifications from one point in time on.
#[derive(Debug)]
pub(crate) struct ListNewsReader {
    news: watch::Receiver<ListNews>,
    read: ListNews,
}

impl ListNewsReader {
    pub(crate) fn new(news: watch::Receiver<ListNews>) -> Self {
        let read = *news.borrow();
        Self { news, read }
    }

    /// Waits for the next notification and returns its lists; several in between are one. Cancel
    /// safe.
    ///
    /// # Errors
    /// The upstream is gone, so that no notification will come.
    pub(crate) async fn changed(&mut self) -> Result<ListKinds, RecvError> {
        self.news.changed().await?;
        let news = *self.news.borrow_and_update();
        Ok(news.since(&std::mem::replace(&mut self.read, news)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_is_news_once_and_what_is_unknown_is_news_of_none() {
        let (prompts, all) = (
            ListKinds::default().with(ListKind::Prompts),
            ListKind::ALL.into_iter().collect(),
        );
        let before = ListNews::default();
        let mut news = before;
        news.tell(prompts);
        news.tell(prompts);
        assert_eq!(news.since(&before), prompts);
        assert!(news.since(&news).is_empty());
        let then = news;
        news.tell(ListKinds::default());
        assert!(news != then && news.since(&then).is_empty());
        news.tell(all);
        assert_eq!(news.since(&then), all);
    }
}
