//! How clients are known: the verifier, and the task that keeps its issuers' keys fresh.

use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use weir_core::port::{Clock, DocumentFetcher, Random};
use weir_core::supervision::run_supervised;
use weir_policy::settings::VerifierSettings;
use weir_policy::{CredentialVerifier, VerifierPorts};

/// The verifier at work. Dropping it ends its task; [`Clients::shutdown`] waits for that.
#[derive(Debug)]
pub(crate) struct Clients {
    credentials: Arc<CredentialVerifier>,
    stop: DropGuard,
    tasks: TaskTracker,
}

impl Clients {
    /// Starts with these settings. Must be called inside a tokio runtime.
    pub(crate) fn start(
        settings: VerifierSettings,
        fetch: Arc<dyn DocumentFetcher>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        let ports = VerifierPorts {
            fetch,
            clock,
            random,
        };
        let credentials = CredentialVerifier::new(settings, ports);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let own = credentials.clone();
        let keeping = run_supervised("keys of issuers", move || own.clone().run());
        tasks.spawn(stop.clone().run_until_cancelled_owned(keeping));
        Self {
            credentials,
            stop: stop.drop_guard(),
            tasks,
        }
    }

    pub(crate) fn verifier(&self) -> Arc<CredentialVerifier> {
        self.credentials.clone()
    }

    /// Takes other settings, for requests from now on.
    pub(crate) fn replace(&self, settings: VerifierSettings) {
        self.credentials.replace(settings);
    }

    pub(crate) async fn shutdown(self) {
        let Self { stop, tasks, .. } = self;
        drop(stop);
        tasks.close();
        tasks.wait().await;
    }
}
