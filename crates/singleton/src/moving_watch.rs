//! A watch of the lists of an upstream that runs at another replica. Once that replica ends, or a
//! graceful restart replaces its process, the watch goes on where the upstream does.

use std::sync::Arc;

use weir_core::port::BoxFuture;
use weir_core::upstream::{ListKind, ListKinds, ListPage, ListWatch, ServerDescription, Upstream};
use weir_core::{CapabilityClass, Failure, FailureKind};

use crate::frame::{Frame, FrameKind};
use crate::owner_search::OwnerAccess;
use crate::remote_watch::RemoteWatch;
use crate::watch_form::{WatchForm, read_description};

/// A watch that is opened again where the upstream goes on.
pub(crate) struct MovingWatch {
    local: Arc<dyn Upstream>,
    access: Arc<OwnerAccess>,
    class: CapabilityClass,
    current: CurrentWatch,
    /// True if the lists may have changed while there was no watch.
    missed_changes: bool,
}

/// The watch in the process that has the upstream.
enum CurrentWatch {
    /// In this process.
    Local(Box<dyn ListWatch>),
    /// In another one.
    Remote(Box<RemoteWatch>),
}

impl CurrentWatch {
    async fn open(
        local: &Arc<dyn Upstream>,
        access: &OwnerAccess,
        class: CapabilityClass,
    ) -> Result<Self, Failure> {
        let form = WatchForm {
            class: class.bits(),
        };
        let request = Frame::new(FrameKind::Watch, &form);
        let search = access.patient_search();
        let Some((stream, first)) = access.open(&request, search).await? else {
            return local.clone().watch(class).await.map(Self::Local);
        };
        let Ok((about, facts)) = read_description(&first) else {
            let text = "The replica that runs the upstream sent an invalid message";
            return Err(Failure::new(FailureKind::BadAnswer, text).with_upstream(local.id()));
        };
        access.record.note_facts(facts);
        let watch = RemoteWatch::new(local.id().clone(), stream, about);
        Ok(Self::Remote(Box::new(watch)))
    }

    fn watch(&mut self) -> &mut dyn ListWatch {
        match self {
            Self::Local(watch) => &mut **watch,
            Self::Remote(watch) => &mut **watch,
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Local(_) => false,
            Self::Remote(watch) => watch.has_ended(),
        }
    }
}

impl MovingWatch {
    /// Opens a watch of the lists of `local`, at the replica that runs it.
    pub(crate) async fn open(
        local: Arc<dyn Upstream>,
        access: Arc<OwnerAccess>,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, Failure> {
        let current = match CurrentWatch::open(&local, &access, class).await? {
            CurrentWatch::Local(watch) => return Ok(watch),
            remote @ CurrentWatch::Remote(_) => remote,
        };
        Ok(Box::new(Self {
            local,
            access,
            class,
            current,
            missed_changes: false,
        }))
    }

    async fn open_again(&mut self) -> Result<(), Failure> {
        self.current = CurrentWatch::open(&self.local, &self.access, self.class).await?;
        self.missed_changes = true;
        Ok(())
    }
}

impl ListWatch for MovingWatch {
    fn about(&self) -> &ServerDescription {
        match &self.current {
            CurrentWatch::Local(watch) => watch.about(),
            CurrentWatch::Remote(watch) => watch.about(),
        }
    }

    fn list(
        &mut self,
        kind: ListKind,
        cursor: Option<String>,
    ) -> BoxFuture<'_, Result<ListPage, Failure>> {
        Box::pin(async move {
            let page = self.current.watch().list(kind, cursor.clone()).await;
            if page.is_ok() || !self.current.has_ended() {
                return page;
            }
            self.open_again().await?;
            self.current.watch().list(kind, cursor).await
        })
    }

    /// Any list may have changed while there was no watch.
    fn next_change(&mut self) -> BoxFuture<'_, Result<ListKinds, Failure>> {
        Box::pin(async move {
            if !self.missed_changes {
                let changed = self.current.watch().next_change().await;
                if changed.is_ok() || !self.current.has_ended() {
                    return changed;
                }
                self.open_again().await?;
            }
            self.missed_changes = false;
            Ok(ListKinds::default())
        })
    }
}
