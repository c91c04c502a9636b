//! A list that changes while faults happen, and clients that read it, each page from another replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use weir_testkit::owned_task::OwnedTask;
use weir_testkit::{MockServer, RawClient};

use super::super::call_load::caller_group::{CallerGroup, CallerSignals};
use super::super::changing_list::{expect_whole, is_invalid_cursor, read_pages, tools};
use crate::harness::{Replicas, Weir, wait_until_async, within_test_timeout};

/// The endpoint with the list.
pub(super) const ENDPOINT: &str = "/changing";

/// The pause after a change, and after a client has read the list.
const CHANGE_PAUSE: Duration = Duration::from_millis(700);
const READ_PAUSE: Duration = Duration::from_millis(100);

/// The counts of the readings of a list.
#[derive(Clone, Copy, Debug, Default)]
struct ReadTotals {
    whole: usize,
    /// The list had changed.
    invalid_cursors: usize,
    /// A page was refused or lost.
    interrupted: usize,
}

/// The change of the list, and a client that reads it.
pub(super) struct ChaosLists {
    server: Arc<MockServer>,
    changes: Arc<AtomicUsize>,
    changing: OwnedTask,
    readers: CallerGroup<ReadTotals>,
}

impl ChaosLists {
    /// Changes the list of `server`, and reads it at this URL.
    pub(super) fn start(server: Arc<MockServer>, url: &str) -> Self {
        let changes = Arc::<AtomicUsize>::default();
        let changing = OwnedTask::spawn(change(Arc::clone(&server), Arc::clone(&changes)));
        let mut readers = CallerGroup::new();
        let client = RawClient::new(url).modern();
        readers.spawn(|signals| read_until_stopped(client, signals));
        Self {
            server,
            changes,
            changing,
            readers,
        }
    }

    /// Ends the changes and the readings. After that every replica has the last list.
    pub(super) async fn stop(self, replicas: &Replicas) {
        for totals in self.readers.stop().await {
            println!("readings of a changing list: {totals:?}");
        }
        drop(self.changing);
        let last = self.changes.fetch_add(1, Ordering::Relaxed);
        set_list(&self.server, last);
        let wanted = tools(last).len();
        for weir in replicas.running() {
            wait_until_async("the last list", async || {
                let names = read(&client_of(weir)).await.ok()?;
                (names.len() == wanted).then_some(())
            })
            .await;
        }
    }
}

fn client_of(weir: &Weir) -> RawClient {
    RawClient::new(&weir.url(ENDPOINT)).modern()
}

fn set_list(server: &MockServer, change: usize) {
    server.set_tools(tools(change));
    server.notify_list_changed();
}

async fn change(server: Arc<MockServer>, changes: Arc<AtomicUsize>) {
    loop {
        sleep(CHANGE_PAUSE).await;
        set_list(&server, changes.fetch_add(1, Ordering::Relaxed));
    }
}

async fn read_until_stopped(client: RawClient, signals: CallerSignals) -> ReadTotals {
    let mut totals = ReadTotals::default();
    while !signals.is_stopped() {
        match within_test_timeout("the pages of a list", read(&client)).await {
            Ok(names) => {
                expect_whole(&names);
                totals.whole += 1;
            }
            Err(message) if is_invalid_cursor(&message) => totals.invalid_cursors += 1,
            Err(_) => totals.interrupted += 1,
        }
        sleep(READ_PAUSE).await;
    }
    totals
}

/// Reads all pages, or returns the message that ended that; null for an answer that was lost.
async fn read(client: &RawClient) -> Result<Vec<String>, Value> {
    read_pages(|params| async {
        let answer = client.ask("tools/list", params).await;
        let message = answer
            .ok()
            .and_then(|answer| answer.messages.last().cloned());
        message.unwrap_or_default()
    })
    .await
}
