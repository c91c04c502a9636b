//! A watch of the lists of an upstream that runs at another replica. Once that replica ends, or a
//! graceful restart replaces its process, the watch goes on where the upstream does.

use std::sync::Arc;

use weir_core::port::Fut;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription};
use weir_core::{CapabilityClass, Failure};

use crate::remote_watch::RemoteWatch;

/// An upstream that may go on in another process.
pub(crate) trait MovingUpstream: Send + Sync {
    /// Opens a watch of its lists where the upstream runs now.
    fn find_lists(&self, class: CapabilityClass) -> Fut<'_, Result<WatchPlace, Failure>>;
}

/// The watch, and the upstream that opens it again.
pub(crate) struct MovingWatch {
    upstream: Arc<dyn MovingUpstream>,
    class: CapabilityClass,
    place: WatchPlace,
    /// True if the lists may have changed while there was no watch.
    missed_changes: bool,
}

/// The process that has the upstream.
pub(crate) enum WatchPlace {
    /// This one.
    Here(Box<dyn ListWatch>),
    /// Another one.
    There(Box<RemoteWatch>),
}

impl WatchPlace {
    fn watch(&mut self) -> &mut dyn ListWatch {
        match self {
            Self::Here(watch) => &mut **watch,
            Self::There(watch) => &mut **watch,
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::There(watch) => watch.has_ended(),
        }
    }
}

impl MovingWatch {
    pub(crate) fn new(
        upstream: Arc<dyn MovingUpstream>,
        class: CapabilityClass,
        place: WatchPlace,
    ) -> Self {
        Self {
            upstream,
            class,
            place,
            missed_changes: false,
        }
    }

    async fn open_again(&mut self) -> Result<(), Failure> {
        self.place = self.upstream.find_lists(self.class).await?;
        self.missed_changes = true;
        Ok(())
    }
}

impl ListWatch for MovingWatch {
    fn about(&self) -> &ServerDescription {
        match &self.place {
            WatchPlace::Here(watch) => watch.about(),
            WatchPlace::There(watch) => watch.about(),
        }
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> Fut<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let page = self.place.watch().list(kind, cursor.clone()).await;
            if page.is_ok() || !self.place.has_ended() {
                return page;
            }
            self.open_again().await?;
            self.place.watch().list(kind, cursor).await
        })
    }

    /// Any list may have changed while there was no watch.
    fn next_change(&mut self) -> Fut<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            if !self.missed_changes {
                let changed = self.place.watch().next_change().await;
                if changed.is_ok() || !self.place.has_ended() {
                    return changed;
                }
                self.open_again().await?;
            }
            self.missed_changes = false;
            Ok(ListKinds::default())
        })
    }
}
