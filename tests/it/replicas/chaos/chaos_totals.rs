//! The ends of the calls of a chaos run, compared with the calls that the server ran.

use std::collections::HashMap;

use weir_testkit::MockServer;

/// The end of a call, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// It has its answer.
    Answered,
    /// weir refused it: it did not run.
    Refused,
    /// Its connection broke, or weir says that it may have run.
    Unknown,
    /// Its session is gone.
    SessionGone,
}

/// The numbers of calls by their ends.
#[derive(Debug, Default)]
pub(super) struct ChaosTotals {
    answered: Vec<u64>,
    refused: Vec<u64>,
    pub(super) unknown: usize,
    pub(super) sessions_gone: usize,
}

impl ChaosTotals {
    /// Counts the call of this number.
    pub(super) fn count(&mut self, number: u64, end: CallEnd) {
        match end {
            CallEnd::Answered => self.answered.push(number),
            CallEnd::Refused => self.refused.push(number),
            CallEnd::Unknown => self.unknown += 1,
            CallEnd::SessionGone => self.sessions_gone += 1,
        }
    }

    /// Adds the counts of another caller.
    pub(super) fn add(&mut self, other: Self) {
        self.answered.extend(other.answered);
        self.refused.extend(other.refused);
        self.unknown += other.unknown;
        self.sessions_gone += other.sessions_gone;
    }

    /// Compares the ends with the calls that the server ran: an answered call ran once, a refused
    /// one never, and no other call twice.
    pub(super) fn compare_with(&self, upstream: &MockServer) {
        let mut runs = HashMap::<u64, usize>::new();
        for request in upstream.requests_of("tools/call") {
            let number = &request.message["params"]["arguments"]["n"];
            *runs.entry(number.as_u64().unwrap()).or_default() += 1;
        }
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "calls that ran twice: {twice:?}");
        let lost: Vec<_> = self
            .answered
            .iter()
            .filter(|n| !runs.contains_key(n))
            .collect();
        assert!(lost.is_empty(), "answered calls that did not run: {lost:?}");
        let ran: Vec<_> = self
            .refused
            .iter()
            .filter(|n| runs.contains_key(n))
            .collect();
        assert!(ran.is_empty(), "refused calls that ran: {ran:?}");
    }
}

impl std::fmt::Display for ChaosTotals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} calls answered, {} refused, {} of unknown result, {} sessions gone",
            self.answered.len(),
            self.refused.len(),
            self.unknown,
            self.sessions_gone
        )
    }
}
