//! The ids of requests to clients. If replicas share the sessions, an id names the replica that
//! asks: the answer goes there, whichever replica owns the session by then.

use weir_core::port::ReplicaId;
use weir_wire::RequestId;

use crate::ports::FrontPorts;
use crate::state::FrontState;

const PREFIX: &str = "weir-";

/// A new id: unique among all requests of this process, so also in the session.
pub fn new_question_id(shared: &FrontState) -> RequestId {
    let name = shared.outer.request_name();
    let name = name.as_str();
    RequestId::from_text(&match &shared.ports.replicas {
        Some(_) => format!("{PREFIX}{}-{name}", shared.ports.replica),
        None => format!("{PREFIX}{name}"),
    })
}

/// The replica that asks under this id; `None` if the id names none.
pub fn asking_replica(id: &RequestId) -> Option<ReplicaId> {
    let text = std::str::from_utf8(id.as_json()).ok()?;
    let text = text.strip_prefix('"')?.strip_prefix(PREFIX)?;
    let (replica, _) = text.split_once('-')?;
    ReplicaId::from_text(replica)
}

/// The other replica that asks under this id, if it can be reached. One that is not known here is not
/// looked for: an id costs no trip.
pub fn reachable_asker(ports: &FrontPorts, id: &RequestId) -> Option<ReplicaId> {
    let asker = asking_replica(id).filter(|asker| *asker != ports.replica)?;
    let directory = &ports.replicas.as_ref()?.directory;
    directory.address(&asker).map(|_| asker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_with_a_replica_names_one() {
        let named = |text: &str| asking_replica(&RequestId::from_text(text));
        let replica = "00112233445566ff";
        let expected = ReplicaId::from_text(replica);
        assert!(expected.is_some());
        assert_eq!(named(&format!("weir-{replica}-0123")), expected);
        for text in [
            "weir-00112233445566ff",
            "weir-00112233445566FF-0123",
            "weir-0011-0123",
            "00112233445566ff-0123",
            "",
        ] {
            assert_eq!(named(text), None, "{text}");
        }
        assert_eq!(
            RequestId::from_json(b"7")
                .ok()
                .as_ref()
                .and_then(asking_replica),
            None
        );
    }
}
