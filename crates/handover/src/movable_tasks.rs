//! The task book of a process, with the results of calls that ended before they became tasks. The
//! successor gets a copy, and every task that is kept here later.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::RwLock;
use weir_core::names::EndpointId;
use weir_core::port::{BoxFuture, KeptTask, TaskBook};
use weir_core::{Failure, HandoverArrival, Principal};
use weir_store::{MemoryTasks, MovedTask};

use crate::link::HandoverLink;
use crate::message::{
    HandoverMessage, RecordReply, RecordRequest, WireTask, WireTaskName, owner, owner_name,
};

/// The task book of this process.
#[derive(Debug)]
pub struct MovableTasks {
    own: MemoryTasks,
    arrival: HandoverArrival,
    predecessor: ArcSwapOption<HandoverLink>,
    successor: ArcSwapOption<HandoverLink>,
    /// Held for writing while the tasks are copied: no change comes in between.
    copying: RwLock<()>,
}

impl MovableTasks {
    /// Returns the tasks of this process. A search for a task that is not here waits until the
    /// predecessor's tasks have arrived.
    pub fn new(own: MemoryTasks, arrival: HandoverArrival) -> Self {
        Self {
            own,
            arrival,
            predecessor: ArcSwapOption::empty(),
            successor: ArcSwapOption::empty(),
            copying: RwLock::default(),
        }
    }

    /// Sets the link that the predecessor's tasks come over.
    pub(super) fn set_predecessor(&self, link: Option<Arc<HandoverLink>>) {
        self.predecessor.store(link);
    }

    /// Sends a copy of all tasks over the link, and every task that is kept from now on.
    pub(super) fn copy_to(&self, link: &Arc<HandoverLink>) {
        let _none_changes = self.copying.write();
        for task in self.own.copy_all() {
            link.send(HandoverMessage::Task(WireTask::of(task)));
        }
        self.successor.store(Some(link.clone()));
    }

    /// Keeps a task of the predecessor. A successor of this process gets it, too.
    pub(super) fn put(&self, task: WireTask) {
        let task = task.task();
        let _changes = self.copying.read();
        if let Some(link) = &*self.successor.load() {
            let size = task.task.state.len();
            let message = HandoverMessage::Task(WireTask::of(task.clone()));
            link.send_if_room(message, size);
        }
        self.own.put(task);
    }

    /// Answers the predecessor's search for a task.
    pub(super) async fn answer(&self, wanted: WireTaskName) -> RecordReply {
        let (principal, endpoint) = (
            owner(wanted.owner.as_ref()),
            EndpointId::new(&wanted.endpoint),
        );
        let own = self.own.copy(&principal, &endpoint, &wanted.name);
        if let Some(own) = own {
            return RecordReply::Task(Some(Box::new(WireTask::of(own))));
        }
        let found = self.find_moved(&principal, &endpoint, &wanted.name).await;
        // It is in a third process, or has just arrived: its reader needs its state alone.
        RecordReply::Task(found.map(|task| {
            Box::new(WireTask::of(MovedTask {
                principal,
                endpoint,
                task,
                position: 0,
                is_fetched: false,
                left: Duration::ZERO,
            }))
        }))
    }

    async fn find_in_successor(
        &self,
        link: &HandoverLink,
        principal: &Principal,
        endpoint: &EndpointId,
        name: &str,
    ) -> Option<KeptTask> {
        let wanted = WireTaskName {
            owner: owner_name(principal),
            endpoint: endpoint.as_str().to_owned(),
            name: name.to_owned(),
        };
        match link.request(RecordRequest::Task(wanted)).await {
            Ok(RecordReply::Task(found)) => found.map(|task| task.task().task),
            _ => None,
        }
    }
}

impl TaskBook for MovableTasks {
    fn enter(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        task: KeptTask,
        ttl: Option<Duration>,
    ) -> Result<(), Failure> {
        let _changes = self.copying.read();
        let name = task.name.clone();
        self.own.enter(principal, endpoint, task, ttl)?;
        if let Some(link) = &*self.successor.load()
            && let Some(kept) = self.own.copy(principal, endpoint, &name)
        {
            // The result of a call that ran on here. The successor has the list from now on.
            let size = kept.task.state.len();
            link.send_if_room(HandoverMessage::Task(WireTask::of(kept)), size);
        }
        Ok(())
    }

    fn find(&self, principal: &Principal, endpoint: &EndpointId, name: &str) -> Option<KeptTask> {
        self.own.find(principal, endpoint, name)
    }

    fn find_moved<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        name: &'a str,
    ) -> BoxFuture<'a, Option<KeptTask>> {
        Box::pin(async move {
            if let Some(link) = self.successor.load_full() {
                return self
                    .find_in_successor(&link, principal, endpoint, name)
                    .await;
            }
            if self.arrival.is_complete() {
                return None;
            }
            self.arrival.wait().await;
            self.own.find(principal, endpoint, name)
        })
    }

    fn note_fetched(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        self.own.note_fetched(principal, endpoint, name);
    }

    fn forget(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        self.own.forget(principal, endpoint, name);
    }

    fn page(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        after: u64,
        most: usize,
    ) -> Vec<(u64, KeptTask)> {
        self.own.page(principal, endpoint, after, most)
    }

    fn page_of_all<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, KeptTask)>, Failure>> {
        Box::pin(async move {
            self.arrival.wait().await;
            if let Some(link) = self.predecessor.load_full() {
                link.take_messages_so_far().await;
            }
            Ok(self.own.page(principal, endpoint, after, most))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;
    use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
    use tokio::net::UnixStream;
    use tokio::net::unix::OwnedReadHalf;
    use weir_store::TaskCaps;
    use weir_testkit::FakeClock;

    use super::super::link::next_message;
    use super::*;

    fn tasks(arrival: HandoverArrival) -> Arc<MovableTasks> {
        let own = MemoryTasks::new(Arc::new(FakeClock::new()), TaskCaps::default());
        Arc::new(MovableTasks::new(own, arrival))
    }

    fn result(name: &str) -> KeptTask {
        KeptTask {
            name: name.into(),
            state: Bytes::from_static(br#"{"status":"completed","result":{}}"#),
            settled: true,
        }
    }

    fn ann() -> Principal {
        Principal::owner(Some(("idp", "ann")))
    }

    fn here() -> EndpointId {
        EndpointId::new("/mcp")
    }

    /// The next task that comes over a link.
    async fn next_task(lines: &mut Lines<BufReader<OwnedReadHalf>>) -> WireTask {
        let message = next_message(lines).await.unwrap().unwrap();
        let HandoverMessage::Task(task) = message else {
            panic!("{message:?}");
        };
        task
    }

    #[tokio::test]
    async fn successor_gets_the_tasks_of_before_and_those_kept_later() {
        let (before, after) = (
            tasks(HandoverArrival::default()),
            tasks(HandoverArrival::awaited()),
        );
        before
            .enter(&ann(), &here(), result("first"), None)
            .unwrap();
        let (own, other) = UnixStream::pair().unwrap();
        let (link, (from, _to)) = (HandoverLink::start(own.into_split().1), other.into_split());
        let mut lines = BufReader::new(from).lines();
        before.copy_to(&link);
        before
            .enter(&ann(), &here(), result("second"), None)
            .unwrap();
        // A search waits for the tasks on their way.
        let early = tokio::spawn({
            let after = after.clone();
            async move { after.find_moved(&ann(), &here(), "second").await }
        });
        for name in ["first", "second"] {
            after.put(next_task(&mut lines).await);
            assert_eq!(after.find(&ann(), &here(), name), Some(result(name)));
        }
        assert!(!early.is_finished());
        after.arrival.complete();
        assert_eq!(early.await.unwrap(), Some(result("second")));
        assert_eq!(after.find_moved(&ann(), &here(), "third").await, None);
        let other = Principal::owner(Some(("idp", "bob")));
        assert_eq!(after.find(&other, &here(), "first"), None);
    }

    #[tokio::test]
    async fn process_before_finds_the_tasks_of_its_successor() {
        let (before, after) = (
            tasks(HandoverArrival::default()),
            tasks(HandoverArrival::default()),
        );
        let (own, other) = UnixStream::pair().unwrap();
        let (link, (from, _to)) = (HandoverLink::start(own.into_split().1), other.into_split());
        let mut lines = BufReader::new(from).lines();
        before.copy_to(&link);
        after.enter(&ann(), &here(), result("new"), None).unwrap();
        let answering = async {
            for _ in 0..2 {
                let message = next_message(&mut lines).await.unwrap().unwrap();
                let HandoverMessage::Request {
                    number,
                    request: RecordRequest::Task(wanted),
                } = message
                else {
                    panic!("{message:?}");
                };
                link.complete_request(number, after.answer(wanted).await);
            }
        };
        let asking = async {
            let found = before.find_moved(&ann(), &here(), "new").await;
            assert_eq!(found, Some(result("new")));
            assert_eq!(before.find_moved(&ann(), &here(), "none").await, None);
        };
        tokio::join!(answering, asking);
    }
}
