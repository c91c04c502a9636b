//! Parked calls: calls that wait for an answer while their client is away. The client received the
//! questions as the end of its call, and will make the call again with the answers.
//!
//! The call at the upstream runs on in the meantime, and its reply is read on: a [`ParkedReply`]
//! holds it, and dropping it cancels the call. [`crate::port::CallParking`] keeps parked calls, and
//! bounds their number and time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

pub use crate::call::ParkedId;
pub use crate::open_questions::{KeyedQuestion, OpenQuestions};

use crate::names::request_name::RequestName;
use crate::names::{EndpointId, UpstreamId};
use crate::principal::Principal;
use crate::reply::{Reply, ReplyEvent};

/// A call that waits. Dropping it cancels the call at the upstream.
#[derive(Debug)]
pub struct ParkedReply {
    /// The reply of the call.
    pub reply: Reply,
    /// The events that were read while the call waited.
    pub unread: VecDeque<ReplyEvent>,
    /// The task that reads the reply on.
    pub reading: JoinSet<()>,
    /// The questions without an answer.
    pub open: OpenQuestions,
}

/// A parked call, which a task reads on; absent once it was taken.
pub type SharedParkedReply = Arc<Mutex<Option<ParkedReply>>>;

/// The description of a parked call for operators: its owner, its item and its questions.
#[derive(Clone, Debug)]
pub struct ParkedCallDetails {
    /// The principal that made it.
    pub principal: Principal,
    /// The request that ended with its questions.
    pub request: RequestName,
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// The upstream that it waits at.
    pub upstream: UpstreamId,
    /// The call's own method.
    pub method: &'static str,
    /// The name that the client uses.
    pub exposed: Arc<str>,
    /// The methods of the open questions, in the order of asking.
    pub questions: Vec<&'static str>,
}

/// A call that waits, as operators see it.
#[derive(Clone, Debug)]
pub struct ParkedCall {
    /// Its number among the parked calls of this process; it gives no access to the call.
    pub number: u64,
    /// Its description.
    pub details: ParkedCallDetails,
    /// The time waited so far.
    pub age: Duration,
    /// The time left to wait.
    pub left: Duration,
}

impl ParkedReply {
    /// A call without open questions.
    #[must_use]
    pub fn new(reply: Reply) -> Self {
        Self {
            reply,
            unread: VecDeque::new(),
            reading: JoinSet::new(),
            open: OpenQuestions::new("input".to_owned()),
        }
    }
}
