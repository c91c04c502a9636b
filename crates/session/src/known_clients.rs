//! Client programs that have used weir: the name and version that each claims, unverified.
//!
//! A session's program is known from its `initialize`. A client of 2026-07-28 names it on every
//! request. Only the first request of a connection and then one in [`EXAMINED_EVERY`] is examined,
//! because examining each would cost calls too much.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use weir_core::instant::unix_millis;
use weir_core::{EndpointId, Principal, SessionKey};
use weir_wire::{Revision, scan};

/// Parts, to reduce contention between clients.
const CLIENT_PARTS: usize = 16;
/// The most programs in one part; the one unseen for longest is evicted.
const CLIENTS_PER_PART: usize = 256;
/// The most sessions in one part with a known program.
const SESSIONS_WITH_CLIENT_PER_PART: usize = 4096;
/// One in this many requests of a connection is examined.
const EXAMINED_EVERY: usize = 64;
/// The most characters of a name that are kept.
const MAX_NAME_CHARS: usize = 64;

/// A client program that has used weir.
#[derive(Clone, Debug)]
pub struct ClientSeen {
    /// The principal of its requests.
    pub principal: Principal,
    /// The name that it claims.
    pub name: String,
    /// The version that it claims.
    pub version: String,
    /// The revision that it speaks.
    pub revision: Revision,
    /// The endpoint of its last request.
    pub endpoint: EndpointId,
    /// The time of its first request.
    pub first: SystemTime,
    /// The time of its last request.
    pub last: SystemTime,
}

/// A request of a client, with the program that it claims.
#[derive(Debug)]
pub struct ClientRequest<'a> {
    /// The sender of the request.
    pub principal: &'a Principal,
    /// The endpoint of the request.
    pub endpoint: &'a EndpointId,
    /// The revision that the client speaks.
    pub revision: Revision,
    /// The client's `Implementation` object, if the request has one.
    pub info: Option<&'a Bytes>,
    /// The session that the request opened.
    pub session: Option<SessionKey>,
    /// The time of the request.
    pub time: SystemTime,
}

impl ClientRequest<'_> {
    fn info_bytes(&self) -> &[u8] {
        self.info.map(|info| &info[..]).unwrap_or_default()
    }
}

/// All known programs, bounded by principal and name: the ones unseen for longest are evicted.
#[derive(Default)]
pub struct KnownClients {
    parts: [Mutex<HashMap<u64, Arc<KnownClient>>>; CLIENT_PARTS],
    sessions: [Mutex<HashMap<SessionKey, Arc<KnownClient>>>; CLIENT_PARTS],
    hasher: RandomState,
}

impl std::fmt::Debug for KnownClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownClients").finish_non_exhaustive()
    }
}

struct KnownClient {
    pub principal: Principal,
    name: String,
    version: String,
    pub revision: Revision,
    pub endpoint: EndpointId,
    first: SystemTime,
    /// Milliseconds since 1970.
    last: AtomicU64,
}

impl KnownClient {
    fn new(request: &ClientRequest<'_>) -> Self {
        let info = request.info_bytes();
        let text = |member: &str| {
            let at = scan::is_object(info)
                .then(|| scan::find(info, member))
                .flatten();
            let text = at
                .and_then(|at| scan::string(&info[at]))
                .unwrap_or_default();
            text.chars().take(MAX_NAME_CHARS).collect::<String>()
        };
        Self {
            principal: request.principal.clone(),
            name: text("name"),
            version: text("version"),
            revision: request.revision,
            endpoint: request.endpoint.clone(),
            first: request.time,
            last: AtomicU64::new(0),
        }
    }

    /// The same program at another endpoint.
    fn at_endpoint(&self, endpoint: &EndpointId) -> Self {
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

/// Evicts the program unseen for longest from a full part.
fn make_room(part: &mut HashMap<u64, Arc<KnownClient>>) {
    if part.len() >= CLIENTS_PER_PART {
        let oldest = part
            .iter()
            .min_by_key(|(_, client)| client.last.load(Ordering::Relaxed));
        let oldest = oldest.map(|(key, _)| *key);
        oldest.map(|oldest| part.remove(&oldest));
    }
}

impl KnownClients {
    /// Returns true if a request is to be examined: `served` counts those of its connection.
    pub fn is_to_examine(served: usize) -> bool {
        served % EXAMINED_EVERY == 1
    }

    /// Records a request of a client.
    pub fn record(&self, request: &ClientRequest<'_>) {
        let endpoint = request.endpoint;
        let key = self.hasher.hash_one((
            request.principal.digest(),
            request.revision.as_str(),
            request.info_bytes(),
        ));
        let mut part = self.parts[key as usize % CLIENT_PARTS].lock();
        let client = match part.get(&key).cloned() {
            Some(client) if client.endpoint == *endpoint => client,
            known => {
                let client = Arc::new(match known {
                    Some(before) => before.at_endpoint(endpoint),
                    None => {
                        make_room(&mut part);
                        KnownClient::new(request)
                    }
                });
                part.insert(key, client.clone());
                client
            }
        };
        drop(part);
        client
            .last
            .store(unix_millis(request.time), Ordering::Relaxed);
        if let Some(session) = request.session {
            let mut sessions = self.of(&session);
            if sessions.len() < SESSIONS_WITH_CLIENT_PER_PART || sessions.contains_key(&session) {
                sessions.insert(session, client);
            }
        }
    }

    /// The claimed name and version of a session's client.
    pub fn of_session(&self, session: &SessionKey) -> Option<(String, String)> {
        self.of(session)
            .get(session)
            .map(|client| (client.name.clone(), client.version.clone()))
    }

    /// Forgets a session that ended.
    pub(crate) fn forget(&self, session: &SessionKey) {
        let gone = self.of(session).remove(session);
        drop(gone);
    }

    /// The known programs, in no order.
    pub fn all(&self) -> Vec<ClientSeen> {
        let seen = |client: &Arc<KnownClient>| ClientSeen {
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
            .flat_map(|part| part.lock().values().map(seen).collect::<Vec<_>>())
            .collect()
    }

    fn of(&self, session: &SessionKey) -> MutexGuard<'_, HashMap<SessionKey, Arc<KnownClient>>> {
        self.sessions[usize::from(session.0[0]) % CLIENT_PARTS].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    fn info(name: &str) -> Bytes {
        format!("{{\"name\":\"{name}\",\"version\":\"1\"}}").into()
    }

    fn see(clientele: &KnownClients, principal: &Principal, path: &str, name: &str, second: u64) {
        let (endpoint, info) = (EndpointId::new(path), info(name));
        clientele.record(&ClientRequest {
            principal,
            endpoint: &endpoint,
            revision: Revision::MODERN,
            info: Some(&info),
            session: None,
            time: at(second),
        });
    }

    #[tokio::test]
    async fn program_has_its_last_endpoint_and_first_and_last_times() {
        let (clientele, who) = (KnownClients::default(), Principal::owner(None));
        see(&clientele, &who, "/mcp", "one", 1);
        see(&clientele, &who, "/mcp/files", "one", 2);
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

    // Proves F16.
    #[tokio::test]
    async fn made_up_programs_evict_each_other_and_not_an_active_one() {
        let (clientele, who) = (KnownClients::default(), Principal::owner(None));
        for second in 1..=20_000 {
            see(
                &clientele,
                &who,
                "/mcp",
                &format!("made-up-{second}"),
                second,
            );
            see(&clientele, &who, "/mcp", "here", second);
        }
        let all = clientele.all();
        assert!(
            all.len() <= CLIENT_PARTS * CLIENTS_PER_PART,
            "{}",
            all.len()
        );
        assert!(
            all.iter()
                .any(|client| client.name == "here" && client.first == at(1))
        );
    }
}
