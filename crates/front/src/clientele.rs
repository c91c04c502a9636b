//! The client programs that were here: what each says it is, which nobody has checked.
//!
//! A session's program is known from its `initialize`. A client of 2026-07-28 says it on every
//! request, of which the first of a connection is looked at, and then every few: to look at each
//! would cost calls more than it tells.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use weir_core::instant::unix_millis;
use weir_core::{EndpointId, Principal, SessionKey};
use weir_wire::{Revision, scan};

/// Parts, so that clients seldom wait for one another.
const PARTS: usize = 16;
/// Programs in one part; the one that was away longest makes room.
const MOST: usize = 256;
/// Sessions in one part whose program is remembered.
const MOST_SESSIONS: usize = 4096;
/// Of so many requests on a connection one is looked at.
const EVERY: usize = 64;
/// As much of a name as is kept.
const LONGEST: usize = 64;

/// A program that was here.
#[derive(Clone, Debug)]
pub struct ClientSeen {
    /// In whose name.
    pub principal: Principal,
    /// What it calls itself.
    pub name: String,
    /// Its version, by its own word.
    pub version: String,
    /// The revision that it speaks.
    pub revision: Revision,
    /// Where it was seen last.
    pub endpoint: EndpointId,
    /// When it was seen first.
    pub first: SystemTime,
    /// When it was seen last.
    pub last: SystemTime,
}

/// All of them. Bounded by principal and word: what is forgotten is what was away longest.
#[derive(Default)]
pub(crate) struct Clientele {
    parts: [Mutex<HashMap<u64, Arc<Client>>>; PARTS],
    sessions: [Mutex<HashMap<SessionKey, Arc<Client>>>; PARTS],
    hasher: RandomState,
}

struct Client {
    principal: Principal,
    name: String,
    version: String,
    revision: Revision,
    endpoint: EndpointId,
    first: SystemTime,
    /// Milliseconds since 1970.
    last: AtomicU64,
}

impl Client {
    fn new(
        (principal, endpoint): (&Principal, &EndpointId),
        (revision, info): (Revision, &[u8]),
        now: SystemTime,
    ) -> Self {
        let text = |member: &str| {
            let at = scan::is_object(info)
                .then(|| scan::find(info, member))
                .flatten();
            let text = at
                .and_then(|at| scan::string(&info[at]))
                .unwrap_or_default();
            text.chars().take(LONGEST).collect::<String>()
        };
        Self {
            principal: principal.clone(),
            name: text("name"),
            version: text("version"),
            revision,
            endpoint: endpoint.clone(),
            first: now,
            last: AtomicU64::new(0),
        }
    }

    /// The same program at another endpoint.
    fn moved(&self, endpoint: &EndpointId) -> Self {
        Self {
            principal: self.principal.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
            revision: self.revision,
            endpoint: endpoint.clone(),
            first: self.first,
            last: AtomicU64::new(0),
        }
    }
}

/// Of a part that is full the program goes that was away longest.
fn make_room(part: &mut HashMap<u64, Arc<Client>>) {
    if part.len() >= MOST {
        let oldest = part
            .iter()
            .min_by_key(|(_, client)| client.last.load(Ordering::Relaxed));
        let oldest = oldest.map(|(key, _)| *key);
        oldest.map(|oldest| part.remove(&oldest));
    }
}

impl Clientele {
    /// Whether a request is one to look at: `served` counts those of its connection.
    pub(crate) fn is_due(served: usize) -> bool {
        served % EVERY == 1
    }

    /// A client was here.
    pub(crate) fn seen(
        &self,
        (principal, endpoint): (&Principal, &EndpointId),
        (revision, info): (Revision, Option<&Bytes>),
        session: Option<SessionKey>,
        now: SystemTime,
    ) {
        let info = info.map(|info| &info[..]).unwrap_or_default();
        let key = self
            .hasher
            .hash_one((principal.digest(), revision.as_str(), info));
        let mut part = lock(&self.parts[key as usize % PARTS]);
        let client = match part.get(&key).cloned() {
            Some(client) if client.endpoint == *endpoint => client,
            known => {
                let client = Arc::new(match known {
                    Some(before) => before.moved(endpoint),
                    None => {
                        make_room(&mut part);
                        Client::new((principal, endpoint), (revision, info), now)
                    }
                });
                part.insert(key, client.clone());
                client
            }
        };
        drop(part);
        client.last.store(unix_millis(now), Ordering::Relaxed);
        if let Some(session) = session {
            let mut sessions = self.of(&session);
            if sessions.len() < MOST_SESSIONS || sessions.contains_key(&session) {
                sessions.insert(session, client);
            }
        }
    }

    /// What the client of a session calls itself: name and version.
    pub(crate) fn of_session(&self, session: &SessionKey) -> Option<(String, String)> {
        self.of(session)
            .get(session)
            .map(|client| (client.name.clone(), client.version.clone()))
    }

    /// A session is over.
    pub(crate) fn forget(&self, session: &SessionKey) {
        let gone = self.of(session).remove(session);
        drop(gone);
    }

    pub(crate) fn all(&self) -> Vec<ClientSeen> {
        let seen = |client: &Arc<Client>| ClientSeen {
            principal: client.principal.clone(),
            name: client.name.clone(),
            version: client.version.clone(),
            revision: client.revision,
            endpoint: client.endpoint.clone(),
            first: client.first,
            last: UNIX_EPOCH + Duration::from_millis(client.last.load(Ordering::Relaxed)),
        };
        self.parts
            .iter()
            .flat_map(|part| lock(part).values().map(seen).collect::<Vec<_>>())
            .collect()
    }

    fn of(&self, session: &SessionKey) -> MutexGuard<'_, HashMap<SessionKey, Arc<Client>>> {
        lock(&self.sessions[usize::from(session.0[0]) % PARTS])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weir_core::Failure;
    use weir_core::port::{Evidence, Fut, Verifier};
    use weir_core::principal::Identity;

    use super::*;

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    fn info(name: &str) -> Bytes {
        format!("{{\"name\":\"{name}\",\"version\":\"1\"}}").into()
    }

    struct Open;

    impl Verifier for Open {
        fn verify<'a>(&'a self, _: &'a Evidence<'a>) -> Fut<'a, Result<Identity, Failure>> {
            Box::pin(async { Ok(Identity::Anonymous) })
        }
    }

    async fn somebody() -> Principal {
        let endpoint = EndpointId::new("/mcp");
        let evidence = Evidence::none([127, 0, 0, 1].into(), &endpoint);
        weir_core::authenticate(&Open, &evidence, ())
            .await
            .expect("it lets everybody in")
            .into_parts()
            .0
    }

    fn see(clientele: &Clientele, (who, path): (&Principal, &str), name: &str, second: u64) {
        let (endpoint, info) = (EndpointId::new(path), info(name));
        clientele.seen(
            (who, &endpoint),
            (Revision::MODERN, Some(&info)),
            None,
            at(second),
        );
    }

    #[tokio::test]
    async fn a_program_is_shown_where_it_was_last_and_since_when_it_comes() {
        let (clientele, who) = (Clientele::default(), somebody().await);
        see(&clientele, (&who, "/mcp"), "one", 1);
        see(&clientele, (&who, "/mcp/files"), "one", 2);
        let all = clientele.all();
        let [one] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(
            (one.endpoint.as_str(), one.first, one.last),
            ("/mcp/files", at(1), at(2))
        );
        assert_eq!((one.name.as_str(), one.version.as_str()), ("one", "1"));
    }

    #[tokio::test]
    async fn f16_made_up_programs_push_out_each_other_and_not_who_still_comes() {
        let (clientele, who) = (Clientele::default(), somebody().await);
        for second in 1..=20_000 {
            see(
                &clientele,
                (&who, "/mcp"),
                &format!("made-up-{second}"),
                second,
            );
            see(&clientele, (&who, "/mcp"), "here", second);
        }
        let all = clientele.all();
        assert!(all.len() <= PARTS * MOST, "{}", all.len());
        assert!(
            all.iter()
                .any(|client| client.name == "here" && client.first == at(1))
        );
    }
}
