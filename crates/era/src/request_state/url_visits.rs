//! The URLs that a client was asked to visit before its call is made again, as a state holds them:
//! by digests, since a URL can be long.

use bytes::{BufMut, BytesMut};
use sha2::{Digest as _, Sha256};
use weir_core::Failure;
use weir_wire::answer_shape::is_answer_shape;
use weir_wire::method::Method;
use weir_wire::scan;

use crate::server_questions::{self, UrlElicitation};

/// Bytes of a digest.
const DIGEST: usize = 16;
/// The most accepted visits that a state holds; the newest are kept.
const MAX_ACCEPTED: usize = 64;

type VisitDigest = [u8; DIGEST];

/// A URL that a client was asked to visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitedUrl {
    url: VisitDigest,
    /// Of the server's own name for the visit; zeros without one.
    name: VisitDigest,
}

impl VisitedUrl {
    /// The visit that a server requires.
    #[must_use]
    pub fn of(visit: &UrlElicitation) -> Self {
        Self {
            url: digest(&visit.url),
            name: visit.id.as_deref().map(digest).unwrap_or_default(),
        }
    }

    /// True if both are one visit: the URL is the same, or the server's name for it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.url == other.url || self.has_name() && self.name == other.name
    }

    /// True if the server calls the visit by this name.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        self.name == digest(name)
    }

    fn has_name(&self) -> bool {
        self.name != VisitDigest::default()
    }
}

/// A client's answers to the questions about visits.
#[derive(Debug, PartialEq, Eq)]
pub enum VisitAnswers {
    /// The user agreed to these visits, now or before.
    Accepted(Vec<VisitedUrl>),
    /// The user declined one.
    Declined,
}

/// The visits of a call that is made again after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlVisits {
    /// Those of earlier rounds, to which the user agreed.
    pub accepted: Vec<VisitedUrl>,
    /// Those of the last round, in the order of the questions.
    pub asked: Vec<VisitedUrl>,
}

impl UrlVisits {
    /// Reads the answers of a client, by the keys of the questions. Others go to the server that
    /// asked: it alone knows the keys, and ignores unknown ones.
    ///
    /// # Errors
    ///
    /// `InvalidParams`: an answer does not have the shape of an elicitation's result.
    pub fn read_answers(self, answers: Option<&[u8]>) -> Result<VisitAnswers, Failure> {
        let Self {
            mut accepted,
            asked,
        } = self;
        let mut is_declined = false;
        for (index, visit) in asked.into_iter().enumerate() {
            let key = server_questions::visit_key(index);
            let answer = answers.and_then(|answers| Some(&answers[scan::find(answers, &key)?]));
            let Some(answer) = answer else { continue };
            if !is_answer_shape(Method::ElicitationCreate, answer) {
                return Err(server_questions::bad_answer_failure(&key));
            }
            if server_questions::is_accepted(answer) {
                accepted.push(visit);
            } else {
                is_declined = true;
            }
        }
        Ok(match is_declined {
            true => VisitAnswers::Declined,
            false => VisitAnswers::Accepted(accepted),
        })
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        let accepted = &self.accepted[self.accepted.len().saturating_sub(MAX_ACCEPTED)..];
        for visits in [accepted, &self.asked] {
            let count = visits.len().min(usize::from(u8::MAX));
            out.put_u8(count as u8);
            for visit in &visits[..count] {
                out.put_slice(&visit.url);
                out.put_slice(&visit.name);
            }
        }
    }

    /// Reads the rest of a state.
    pub(super) fn read(mut rest: &[u8]) -> Option<Self> {
        let [accepted, asked] = [read_list(&mut rest)?, read_list(&mut rest)?];
        rest.is_empty().then_some(Self { accepted, asked })
    }
}

fn read_list(rest: &mut &[u8]) -> Option<Vec<VisitedUrl>> {
    let count = rest.split_off_first()?;
    (0..*count)
        .map(|_| {
            let [url, name] = [read_digest(rest)?, read_digest(rest)?];
            Some(VisitedUrl { url, name })
        })
        .collect()
}

fn read_digest(rest: &mut &[u8]) -> Option<VisitDigest> {
    rest.split_off(..DIGEST)?.try_into().ok()
}

fn digest(text: &str) -> VisitDigest {
    let mut digest = VisitDigest::default();
    digest.copy_from_slice(&Sha256::digest(text)[..DIGEST]);
    digest
}
