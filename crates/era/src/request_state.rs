//! The `requestState` that weir gives to a modern client: the point to resume its call at, sealed
//! and bound to the call. It holds the upstream's own state, or the id of a call that is parked on
//! a replica, or the order to make the same call again.
//!
//! Source: 2026-07-28, basic/patterns/mrtr: a state is attacker-controlled, so it is authenticated,
//! and bound to the principal, the method, the arguments and an expiry. The seal is opened first,
//! without the arguments. Only for a state that weir made are the arguments read and compared with
//! the digest in it.

mod digest;
mod url_visits;

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::port::{Random, ReplicaId};
use weir_core::{CallResumption, EndpointId, ParkedId, Principal};
use weir_seal::Sealer;

pub use url_visits::{UrlVisits, VisitAnswers, VisitedUrl};

const VERSION: u8 = 2;
/// An upstream's own state.
const UPSTREAM: u8 = b'U';
/// A parked call: its replica and its name there.
const PARKED: u8 = b'P';
/// The call is made again, as it was.
const AGAIN: u8 = b'A';

/// The content of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedResume {
    /// The point to resume the call at.
    pub resume: CallResumption,
    /// The replica that holds the parked call, if it is parked.
    pub owner: Option<ReplicaId>,
    /// The URLs that the client was asked to visit, if the call is made again after that.
    pub visits: UrlVisits,
}

impl SealedResume {
    /// A state without a replica.
    #[must_use]
    pub fn of(resume: CallResumption) -> Self {
        Self {
            resume,
            owner: None,
            visits: UrlVisits::default(),
        }
    }
}

/// The call that a state is bound to.
#[derive(Debug)]
pub struct RequestStateBinding<'a> {
    /// The caller.
    pub principal: &'a Principal,
    /// The endpoint of the call.
    pub endpoint: &'a EndpointId,
    /// The method.
    pub method: &'a str,
    /// The tool, as the client names it.
    pub name: Cow<'a, str>,
    /// The arguments as the client wrote them; they count by value, not by spelling.
    pub arguments: Option<Bytes>,
}

/// The error for a state that does not open here, or has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this `requestState` is not valid for this call: make the call again without it")]
pub struct InvalidRequestState;

impl RequestStateBinding<'_> {
    fn purpose(&self) -> Vec<u8> {
        let mut purpose = b"requestState\0".to_vec();
        purpose.extend_from_slice(self.principal.digest());
        for part in [self.endpoint.as_str(), self.method, &*self.name] {
            purpose.extend_from_slice(&(part.len() as u64).to_be_bytes());
            purpose.extend_from_slice(part.as_bytes());
        }
        purpose
    }

    /// A digest of the value of the arguments. Absent ones are an empty object.
    fn digest(&self) -> [u8; digest::LENGTH] {
        digest::of(self.arguments.as_deref().unwrap_or(b"{}"))
    }
}

/// Seals a state until `expires`.
#[must_use]
pub fn seal(
    sealer: &Sealer,
    random: &dyn Random,
    binding: &RequestStateBinding<'_>,
    origin: &SealedResume,
    expires: SystemTime,
) -> String {
    let mut plain = BytesMut::with_capacity(96);
    plain.put_u8(VERSION);
    plain.put_u8(match origin.resume {
        CallResumption::Upstream(_) => UPSTREAM,
        CallResumption::Parked(_) => PARKED,
        CallResumption::Again => AGAIN,
    });
    plain.put_u64(
        expires
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    );
    plain.put_slice(&binding.digest());
    match &origin.resume {
        CallResumption::Upstream(state) => plain.put_slice(state.as_bytes()),
        CallResumption::Parked(id) => {
            plain.put_slice(&id.0);
            plain.put_slice(&origin.owner.as_ref().map_or([0; 8], |owner| owner.0));
        }
        CallResumption::Again => origin.visits.write(&mut plain),
    }
    sealer.seal(random, &binding.purpose(), &plain)
}

/// Opens a sealed state for the same call.
///
/// # Errors
/// [`InvalidRequestState`], for every reason.
pub fn open(
    sealer: &Sealer,
    binding: &RequestStateBinding<'_>,
    text: &str,
    now: SystemTime,
) -> Result<SealedResume, InvalidRequestState> {
    let plain = sealer
        .open(&binding.purpose(), text)
        .map_err(|_| InvalidRequestState)?;
    let [VERSION, kind, rest @ ..] = plain.as_slice() else {
        return Err(InvalidRequestState);
    };
    let (expires, state) = rest.split_first_chunk::<8>().ok_or(InvalidRequestState)?;
    let expires = UNIX_EPOCH
        .checked_add(Duration::from_secs(u64::from_be_bytes(*expires)))
        .ok_or(InvalidRequestState)?;
    let (arguments, state) = state
        .split_first_chunk::<{ digest::LENGTH }>()
        .ok_or(InvalidRequestState)?;
    if now >= expires || *arguments != binding.digest() {
        return Err(InvalidRequestState);
    }
    match *kind {
        UPSTREAM => {
            let state = String::from_utf8(state.to_vec()).map_err(|_| InvalidRequestState)?;
            Ok(SealedResume::of(CallResumption::Upstream(state)))
        }
        PARKED => {
            let (id, owner) = state.split_first_chunk::<16>().ok_or(InvalidRequestState)?;
            let owner = owner.try_into().map_err(|_| InvalidRequestState)?;
            Ok(SealedResume {
                owner: Some(ReplicaId(owner)),
                ..SealedResume::of(CallResumption::Parked(ParkedId(*id)))
            })
        }
        AGAIN => Ok(SealedResume {
            visits: UrlVisits::read(state).ok_or(InvalidRequestState)?,
            ..SealedResume::of(CallResumption::Again)
        }),
        _ => Err(InvalidRequestState),
    }
}

#[cfg(test)]
mod tests;
