//! Streams of updates of a fake upstream: its subscriptions, and the updates it sends.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use weir_core::port::BoxFuture;
use weir_core::upstream::{DeliverUpdate, RefusedSubscriptions, ResourceUpdate, ResourceUpdates};
use weir_core::{Failure, FailureKind};

/// The script of all streams, and the record of requests.
pub(crate) struct UpdateStreams {
    /// URIs it does not consent to.
    pub(crate) refuses: Mutex<Vec<&'static str>>,
    /// Each set of wanted subscriptions, of all streams.
    pub(crate) asked: Mutex<Vec<Vec<String>>>,
    pub(crate) opened: Mutex<usize>,
    /// True while it answers no request.
    pub(crate) hangs: Mutex<bool>,
    /// The time that each set of subscriptions takes.
    pub(crate) consent_delay: Mutex<Duration>,
    told: broadcast::Sender<Option<Arc<str>>>,
}

impl Default for UpdateStreams {
    fn default() -> Self {
        Self {
            refuses: Mutex::default(),
            asked: Mutex::default(),
            opened: Mutex::default(),
            hangs: Mutex::default(),
            consent_delay: Mutex::default(),
            told: broadcast::Sender::new(64),
        }
    }
}

impl UpdateStreams {
    pub(crate) fn open(self: Arc<Self>) -> Box<dyn ResourceUpdates> {
        *self.opened.lock() += 1;
        let told = self.told.subscribe();
        Box::new(FakeUpdateStream { lines: self, told })
    }

    /// Sends an update, on every stream.
    pub(crate) fn update(&self, uri: &str) {
        let _nobody = self.told.send(Some(uri.into()));
    }

    /// Cuts every stream.
    pub(crate) fn cut(&self) {
        let _nobody = self.told.send(None);
    }

    /// The set that was wanted last.
    pub(crate) fn wanted(&self) -> Vec<String> {
        self.asked.lock().last().cloned().unwrap_or_default()
    }
}

struct FakeUpdateStream {
    lines: Arc<UpdateStreams>,
    told: broadcast::Receiver<Option<Arc<str>>>,
}

impl ResourceUpdates for FakeUpdateStream {
    fn set_subscriptions<'a>(
        &'a mut self,
        uris: &'a [Arc<str>],
        deliver: DeliverUpdate<'a>,
    ) -> BoxFuture<'a, Result<RefusedSubscriptions, Failure>> {
        self.lines
            .asked
            .lock()
            .push(uris.iter().map(ToString::to_string).collect());
        let refuses = self.lines.refuses.lock();
        let refused = uris.iter().filter(|uri| refuses.contains(&&***uri));
        let refused = refused
            .map(|uri| (uri.clone(), Failure::invalid_params("not this one")))
            .collect();
        drop(refuses);
        let delay = *self.lines.consent_delay.lock();
        if !*self.lines.hangs.lock() {
            return Box::pin(async move {
                tokio::time::sleep(delay).await;
                Ok(refused)
            });
        }
        Box::pin(async move {
            loop {
                let told = self.told.recv().await.unwrap();
                deliver(ResourceUpdate::Resource(told.unwrap()));
            }
        })
    }

    fn next_update(&mut self) -> BoxFuture<'_, Result<ResourceUpdate, Failure>> {
        Box::pin(async {
            let told = self.told.recv().await.unwrap();
            told.map(ResourceUpdate::Resource)
                .ok_or_else(|| Failure::new(FailureKind::Unavailable, "line lost"))
        })
    }
}
