//! The resources of one session's inherited subscriptions, and the renewal of them that runs.

/// The resources of the inherited subscriptions of one session.
pub(super) struct InheritedUris {
    uris: Vec<String>,
    /// The registration of the renewal that runs.
    renewal: Option<u64>,
}

impl InheritedUris {
    pub(super) fn new(uris: Vec<String>) -> Self {
        Self {
            uris,
            renewal: None,
        }
    }

    pub(super) fn uris(&self) -> &[String] {
        &self.uris
    }

    /// Registers a renewal; absent if one runs.
    pub(super) fn begin_renewal(&mut self, register: impl FnOnce() -> u64) -> Option<u64> {
        if self.renewal.is_some() {
            return None;
        }
        self.renewal = Some(register());
        self.renewal
    }

    /// The first resource, for the renewal that runs.
    pub(super) fn next_uri(&self, renewal: u64) -> Option<&String> {
        self.uris.first().filter(|_| self.renewal == Some(renewal))
    }

    /// Removes a resource; with a renewal, only for the one that runs. Returns true if it was there.
    pub(super) fn remove(&mut self, uri: &str, renewal: Option<u64>) -> bool {
        if renewal.is_some() && renewal != self.renewal {
            return false;
        }
        let before = self.uris.len();
        self.uris.retain(|known| known != uri);
        self.uris.len() < before
    }

    /// Lets another renewal begin, if this one runs.
    pub(super) fn end_renewal(&mut self, renewal: u64) {
        self.renewal.take_if(|running| *running == renewal);
    }
}
