//! Tasks: calls with a result that is fetched later, by a name.
//!
//! The name that a client knows is sealed. It has the task's upstream and id there, so that any
//! replica can ask the upstream and none has to keep a table, and it opens for its owner on its
//! endpoint alone. The upstream runs the task; [`crate`] has the requests about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use weir_core::call::SessionKey;
use weir_core::capability::CapabilityClass;
use weir_core::instant::rfc3339;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Clock, KeptTask, Random, ReplicaId, TaskBook, random_id};
use weir_core::principal::Principal;
use weir_seal::Sealer;

/// Layout of the sealed bytes; another one is another number.
const LAYOUT: u8 = 3;
/// The longest id of an upstream that is taken. The sealed one has to fit a header.
const MAX_NATIVE: usize = 1024;
/// No name of weir's is longer; a longer one is not opened.
const MAX_NAME_BYTES: usize = 4096;
/// The most tasks of an owner that are searched for one of an upstream, from the newest on.
const MAX_SEARCHED: usize = 1024;
/// The most names that are remembered by the upstream's id. Each takes 1 KiB or less.
const MAX_REMEMBERED: usize = 10_000;
/// The time until an id without a task is searched for again. A search may open a thousand names.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);

/// A task by the id that its upstream gave it.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamTask<'a> {
    /// The upstream.
    pub upstream: &'a UpstreamId,
    /// The upstream's own id.
    pub native: &'a str,
}

/// The upstream, id and origin of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLocation {
    /// The upstream that has it.
    pub upstream: UpstreamId,
    /// The upstream's own id of it.
    pub native: String,
    /// The tool it is of, as the client names it.
    pub tool: String,
    /// The requests that the client accepted when the task began: upstream sessions are keyed by
    /// it.
    pub class: CapabilityClass,
    /// The client's session in which it began.
    pub session: Option<SessionKey>,
    /// True for a task of weir's own: a call that was over before it became a task.
    pub is_own: bool,
    /// The replica whose call it was, if replicas share the endpoint: it keeps the task, and has
    /// the session at the upstream.
    pub replica: Option<ReplicaId>,
    /// The number of the upstream in that replica's process: a reload with other settings makes
    /// another upstream of the same id.
    pub incarnation: u32,
}

/// A task by its upstream's id, for the client's session that began it. Names differ between
/// endpoints, and a session may have streams at several.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SessionTask {
    endpoint: EndpointId,
    session: SessionKey,
    upstream: UpstreamId,
    native: Arc<str>,
}

#[cfg(test)]
impl TaskLocation {
    /// A task of a legacy server, in the session of a client.
    pub(crate) fn in_session(upstream: &UpstreamId, native: &str, session: SessionKey) -> Self {
        Self {
            upstream: upstream.clone(),
            native: native.into(),
            tool: "shop__slow".into(),
            class: CapabilityClass::TASKS,
            session: Some(session),
            is_own: false,
            replica: None,
            incarnation: 0,
        }
    }
}

/// The outcome of a search for the name of a task.
#[derive(Clone)]
enum FoundName {
    Known(Arc<str>),
    /// No task had the id. Another process may bring one, so it is searched for again at this time.
    UnknownUntil(Duration),
}

/// Makes and opens the names of tasks, and keeps the tasks.
#[derive(Clone)]
pub struct TaskNames {
    sealer: Sealer,
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    pub(crate) task_book: Arc<dyn TaskBook>,
    /// This replica, if there are others.
    pub(crate) replica: Option<ReplicaId>,
    /// The names that were searched for by the upstream's id: a task may have many messages.
    found_names: Arc<Cache<SessionTask, FoundName>>,
}

impl TaskNames {
    /// Names that open with these keys, of tasks that `task_book` keeps.
    #[must_use]
    pub fn new(
        sealer: Sealer,
        random: Arc<dyn Random>,
        clock: Arc<dyn Clock>,
        task_book: Arc<dyn TaskBook>,
    ) -> Self {
        Self {
            sealer,
            random,
            clock,
            task_book,
            replica: None,
            found_names: Arc::new(Cache::new(MAX_REMEMBERED)),
        }
    }

    /// The same, with this replica in each name: others send requests about its tasks here.
    #[must_use]
    pub fn of_replica(self, replica: Option<ReplicaId>) -> Self {
        Self { replica, ..self }
    }

    /// A kept task: of this process, of the one before or after it in a graceful restart, or of
    /// another replica that has ended.
    pub(crate) async fn find_kept(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        name: &str,
        home: &TaskLocation,
    ) -> Option<KeptTask> {
        let mut found = self.task_book.find(principal, endpoint, name);
        if found.is_none() {
            found = self.task_book.find_moved(principal, endpoint, name).await;
        }
        if found.is_some() || home.replica.is_none() || home.replica == self.replica {
            return found;
        }
        self.task_book.recover(principal, endpoint, name).await
    }

    /// A name for a task of weir's own, as its `native` one.
    pub(crate) fn own_name(&self) -> String {
        let id = random_id(&*self.random);
        format!("{:032x}", u128::from_be_bytes(id))
    }

    /// The present time, in the form of task states.
    pub(crate) fn now(&self) -> String {
        rfc3339(self.clock.wall())
    }

    /// The text of a position in a list of tasks, for its owner alone.
    pub(crate) fn cursor(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        after: u64,
    ) -> String {
        self.sealer.seal(
            &*self.random,
            &purpose(b"weir tasks ", principal, endpoint),
            &after.to_be_bytes(),
        )
    }

    /// The opposite of [`Self::cursor`].
    pub(crate) fn position(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        cursor: &str,
    ) -> Option<u64> {
        if cursor.len() > MAX_NAME_BYTES {
            return None;
        }
        let plain = self
            .sealer
            .open(&purpose(b"weir tasks ", principal, endpoint), cursor)
            .ok()?;
        plain.try_into().ok().map(u64::from_be_bytes)
    }

    /// The name of a task for its owner; no value if the upstream's id of it is empty or too long.
    #[must_use]
    pub fn name(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        home: &TaskLocation,
    ) -> Option<String> {
        if home.native.is_empty() || home.native.len() > MAX_NATIVE {
            return None;
        }
        let mut plain = vec![LAYOUT];
        plain.extend_from_slice(&home.class.bits().to_be_bytes());
        plain.push(u8::from(home.session.is_some()) | u8::from(home.is_own) << 1);
        plain.extend_from_slice(&home.replica.as_ref().map_or([0; 8], |replica| replica.0));
        plain.extend_from_slice(&home.incarnation.to_be_bytes());
        plain.extend_from_slice(&home.session.map_or([0; 16], |session| session.0));
        for part in [home.upstream.as_str(), &home.tool] {
            plain.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
            plain.extend_from_slice(part.as_bytes());
        }
        plain.extend_from_slice(home.native.as_bytes());
        Some(self.sealer.seal(
            &*self.random,
            &purpose(b"weir task ", principal, endpoint),
            &plain,
        ))
    }

    /// Opens the name of a task; no value for every text that is no name of the principal's on this
    /// endpoint.
    #[must_use]
    pub fn locate(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        name: &str,
    ) -> Option<TaskLocation> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let plain = self
            .sealer
            .open(&purpose(b"weir task ", principal, endpoint), name)
            .ok()?;
        let (&[LAYOUT, class_high, class_low, flags], rest) = plain.split_first_chunk()? else {
            return None;
        };
        let (&replica, rest) = rest.split_first_chunk::<8>()?;
        let (incarnation, rest) = rest.split_first_chunk::<4>()?;
        let (session, rest) = rest.split_first_chunk::<16>()?;
        let (upstream, rest) = part(rest)?;
        let (tool, native) = part(rest)?;
        Some(TaskLocation {
            upstream: UpstreamId::new(upstream).ok()?,
            native: String::from_utf8(native.to_vec()).ok()?,
            tool: tool.to_owned(),
            class: CapabilityClass::from_bits(u16::from_be_bytes([class_high, class_low])),
            session: (flags & 1 != 0).then_some(SessionKey(*session)),
            is_own: flags & 2 != 0,
            replica: (replica != [0; 8]).then_some(ReplicaId(replica)),
            incarnation: u32::from_be_bytes(*incarnation),
        })
    }

    /// The opposite of [`Self::locate`], for a task that this client session began. The names of a
    /// task differ each time that they are made, so the one that the client got is looked up.
    pub(crate) fn find_name(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        session: SessionKey,
        task: UpstreamTask<'_>,
    ) -> Option<Arc<str>> {
        let UpstreamTask { upstream, native } = task;
        let key = SessionTask {
            endpoint: endpoint.clone(),
            session,
            upstream: upstream.clone(),
            native: native.into(),
        };
        let now = self.clock.monotonic();
        match self.found_names.get(&key) {
            Some(FoundName::Known(name)) => return Some(name),
            Some(FoundName::UnknownUntil(until)) if now < until => return None,
            Some(FoundName::UnknownUntil(_)) | None => {}
        }
        let all = self.task_book.page(principal, endpoint, 0, usize::MAX);
        let mut found: Option<(usize, Arc<str>)> = None;
        for (_, task) in all.into_iter().rev().take(MAX_SEARCHED) {
            let Some(home) = self.locate(principal, endpoint, &task.name) else {
                continue;
            };
            let is_of_session = home.session == Some(session) && home.upstream == *upstream;
            // The id at a server of several URLs has the name of the URL and a colon in front.
            let Some(front) = home.native.strip_suffix(native).filter(|_| is_of_session) else {
                continue;
            };
            let is_same = front.is_empty() || front.ends_with(':');
            let is_nearer = |(shortest, _): &(usize, Arc<str>)| front.len() < *shortest;
            if is_same && found.as_ref().is_none_or(is_nearer) {
                found = Some((front.len(), task.name));
            }
            if is_same && front.is_empty() {
                break;
            }
        }
        let name = found.map(|(_, name)| name);
        let outcome = match &name {
            Some(name) => FoundName::Known(name.clone()),
            None => FoundName::UnknownUntil(now + UNKNOWN_FOR),
        };
        self.found_names.insert(key, outcome);
        name
    }

    /// Has the next message of a task that is kept now search for its name. A server may give a new
    /// task the id of an earlier one, such as after a restart.
    pub(crate) fn note_kept(&self, endpoint: &EndpointId, home: &TaskLocation) {
        let Some(session) = home.session else {
            return;
        };
        // Messages may have the id without the name of a URL in front.
        let ends = home.native.match_indices(':').map(|(at, _)| at + 1);
        for start in std::iter::once(0).chain(ends) {
            self.found_names.remove(&SessionTask {
                endpoint: endpoint.clone(),
                session,
                upstream: home.upstream.clone(),
                native: home.native[start..].into(),
            });
        }
    }
}

fn part(plain: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = plain.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn purpose(what: &[u8], principal: &Principal, endpoint: &EndpointId) -> Vec<u8> {
    let mut purpose = what.to_vec();
    purpose.extend_from_slice(principal.digest());
    purpose.extend_from_slice(endpoint.as_str().as_bytes());
    purpose
}

impl fmt::Debug for TaskNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskNames").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use weir_testkit::{FakeClock, FixedRandom};

    /// A book with these tasks, of every owner, that changes with no request, and the number of
    /// times it was read.
    #[derive(Debug)]
    struct FixedBook(Vec<KeptTask>, AtomicUsize);

    impl FixedBook {
        fn new(tasks: Vec<KeptTask>) -> Arc<Self> {
            Arc::new(Self(tasks, AtomicUsize::new(0)))
        }
    }

    impl TaskBook for FixedBook {
        fn note_fetched(&self, _: &Principal, _: &EndpointId, _: &str) {}

        fn enter(
            &self,
            _: &Principal,
            _: &EndpointId,
            _: weir_core::port::KeptTask,
            _: Option<std::time::Duration>,
        ) -> Result<(), weir_core::Failure> {
            Ok(())
        }
        fn find(
            &self,
            _: &Principal,
            _: &EndpointId,
            _: &str,
        ) -> Option<weir_core::port::KeptTask> {
            None
        }
        fn forget(&self, _: &Principal, _: &EndpointId, _: &str) {}
        fn page(
            &self,
            _: &Principal,
            _: &EndpointId,
            _: u64,
            _: usize,
        ) -> Vec<(u64, weir_core::port::KeptTask)> {
            self.1.fetch_add(1, Ordering::Relaxed);
            (1..).zip(self.0.clone()).collect()
        }
    }

    // Proves R225, R231, R276, B20.
    #[test]
    fn sealed_task_id_opens_only_for_its_owner_and_endpoint() {
        let names = TaskNames::new(
            Sealer::ephemeral(&FixedRandom(7)),
            Arc::new(FixedRandom(7)),
            Arc::new(FakeClock::new()),
            FixedBook::new(Vec::new()),
        );
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::owner(Some(("idp", name))));
        let nobody = Principal::owner(None);
        let (here, there) = (EndpointId::new("/mcp"), EndpointId::new("/other"));
        let home = TaskLocation {
            upstream: UpstreamId::new("shop").unwrap(),
            native: "786512e2-9e0d \u{1F980}".into(),
            tool: "shop__slow".into(),
            class: CapabilityClass::TASKS.with(CapabilityClass::ROOTS),
            session: Some(SessionKey([9; 16])),
            is_own: false,
            replica: Some(ReplicaId(*b"replica1")),
            incarnation: 7,
        };
        let name = names.name(&ann, &here, &home).unwrap();
        assert_eq!(names.locate(&ann, &here, &name), Some(home.clone()));
        for (who, at) in [(&bob, &here), (&nobody, &here), (&ann, &there)] {
            assert_eq!(names.locate(who, at, &name), None);
        }
        for bad in [
            "",
            "786512e2-9e0d",
            &name[1..],
            &name.to_lowercase(),
            &"A".repeat(100_000),
        ] {
            assert_eq!(names.locate(&ann, &here, bad), None, "{bad:.40}");
        }
        let cursor = names.cursor(&ann, &here, 7);
        assert_eq!(names.position(&ann, &here, &cursor), Some(7));
        assert_eq!(
            (
                names.position(&bob, &here, &cursor),
                names.position(&ann, &here, &name)
            ),
            (None, None)
        );
        let alone = TaskLocation {
            session: None,
            native: "1".into(),
            is_own: true,
            replica: None,
            ..home.clone()
        };
        let name = names.name(&nobody, &here, &alone).unwrap();
        assert_eq!(names.locate(&nobody, &here, &name), Some(alone));
        for native in [String::new(), "x".repeat(MAX_NATIVE + 1)] {
            assert_eq!(
                names.name(
                    &ann,
                    &here,
                    &TaskLocation {
                        native,
                        ..home.clone()
                    }
                ),
                None
            );
        }
    }

    // Proves R232.
    #[test]
    fn name_of_a_task_is_found_by_the_servers_id_for_the_session_that_began_it() {
        let clock = Arc::new(FakeClock::new());
        let names = |book| {
            TaskNames::new(
                Sealer::ephemeral(&FixedRandom(7)),
                Arc::new(FixedRandom(7)),
                clock.clone(),
                book,
            )
        };
        let (ann, here) = (
            Principal::owner(Some(("idp", "ann"))),
            EndpointId::new("/mcp"),
        );
        let [shop, other] = ["shop", "other"].map(|id| UpstreamId::new(id).unwrap());
        let [own, foreign] = [9, 8].map(|byte| SessionKey([byte; 16]));
        let kept = |native: &str, session| {
            let home = TaskLocation::in_session(&shop, native, session);
            let name = names(FixedBook::new(Vec::new()))
                .name(&ann, &here, &home)
                .unwrap();
            KeptTask {
                name: name.into(),
                state: bytes::Bytes::from_static(b"{}"),
                settled: false,
            }
        };
        let mut tasks = vec![
            kept("1", foreign),
            kept("x1", own),
            kept("1", own),
            kept("weir-url-0011223344556677:2", own),
        ];
        let [_, _, first, second] = [0, 1, 2, 3].map(|nth: usize| Some(tasks[nth].name.clone()));
        // Older tasks of the same owner, beyond the bound of a search.
        tasks.splice(0..0, vec![kept("old", foreign); MAX_SEARCHED]);
        let book = FixedBook::new(tasks);
        let names = names(book.clone());
        let find = |session, upstream, native| {
            names.find_name(&ann, &here, session, UpstreamTask { upstream, native })
        };
        assert_eq!(find(own, &shop, "1"), first);
        assert_eq!(find(own, &shop, "2"), second, "at one of several URLs");
        let before = book.1.load(Ordering::Relaxed);
        assert_eq!(find(own, &shop, "1"), first);
        assert_eq!(find(own, &shop, "2"), second);
        let after = book.1.load(Ordering::Relaxed);
        assert_eq!(after, before, "further messages of a task need no search");
        assert_eq!(find(own, &shop, "3"), None);
        assert_eq!(find(own, &other, "1"), None);
        assert_eq!(find(foreign, &shop, "2"), None);
        let searches = || book.1.load(Ordering::Relaxed) - after;
        assert_eq!((find(own, &shop, "3"), searches()), (None, 3), "unknown");
        clock.advance(UNKNOWN_FOR);
        assert_eq!((find(own, &shop, "3"), searches()), (None, 4), "searched");
    }
}
