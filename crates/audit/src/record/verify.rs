//! Verifies a chain: checks that every record is there, in order and unchanged, and reports the
//! first one that is not.
//!
//! It detects a changed, dropped, inserted or swapped record. It cannot detect that the end was cut
//! off between two records, nor, without a key, that the whole rest was written anew: against
//! these, keep a head elsewhere ([`ChainInspector::expect`]).
//!
//! If one process took over from another, the chain has a branch: the last records of the process
//! that drained. A record of the successor names the end of the branch, so that it cannot be cut
//! off.

use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::record::audit_key::AuditKey;
use crate::record::chain::{HASH, HASH_MEMBER_LEN, hash};
use crate::record::chain_head::ChainHead;

/// More unreadable bytes than a sudden end can leave.
const MAX_TORN: u64 = 64 << 20;

/// A line that has the form of a record.
#[derive(Clone, Debug)]
pub struct ChainLink {
    /// Its number and hash.
    pub head: ChainHead,
    /// The hash of the record before.
    pub prev: String,
    /// The kind of the event.
    pub kind: String,
    /// The key that signed it, if it is signed.
    pub key: Option<u8>,
    /// The chain it belongs to, unless it is the chain of the calls.
    pub chain: Option<String>,
    record: Vec<u8>,
    bytes: Option<u64>,
    sha256: Option<String>,
    events: Option<u64>,
    last: Option<String>,
}

#[derive(Deserialize)]
struct LinkMembers {
    seq: u64,
    kind: String,
    prev: String,
    key: Option<u8>,
    chain: Option<String>,
    bytes: Option<u64>,
    sha256: Option<String>,
    events: Option<u64>,
    last: Option<String>,
}

impl ChainLink {
    /// Reads a line without its end. Returns `None` if it does not have the form of a record.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        let (record, tail) = line.split_at_checked(line.len().checked_sub(HASH_MEMBER_LEN)?)?;
        let hash = tail.strip_prefix(HASH.as_bytes())?.strip_suffix(b"\"}")?;
        let is_hash = |text: &[u8]| text.len() == 64 && HEXLOWER.decode(text).is_ok();
        let mut record = record.to_vec();
        record.push(b'}');
        let members: LinkMembers = serde_json::from_slice(&record).ok()?;
        if !is_hash(hash) || !is_hash(members.prev.as_bytes()) {
            return None;
        }
        let LinkMembers {
            seq,
            kind,
            prev,
            key,
            chain,
            bytes,
            sha256,
            events,
            last,
        } = members;
        let hash = String::from_utf8_lossy(hash).into_owned();
        Some(Self {
            head: ChainHead { seq, hash },
            prev,
            kind,
            key,
            chain,
            record,
            bytes,
            sha256,
            events,
            last,
        })
    }

    /// True if its hash is right under the key that it names. `None`: that key is not given.
    #[must_use]
    pub fn has_valid_hash(&self, keys: &[AuditKey]) -> Option<bool> {
        let key = match self.key {
            None => None,
            Some(id) => Some(keys.iter().find(|key| key.id() == id)?),
        };
        Some(hash(key, &self.prev, &self.record) == self.head.hash)
    }
}

/// A fault in a chain, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainFault {
    /// The line of the file, from 1.
    pub line: u64,
    /// The fault, for people.
    pub why: String,
}

/// A gap in the records that a record accounts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainGap {
    /// weir ended suddenly and left bytes of unfinished records.
    Recovered {
        /// The record that reports it.
        seq: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Events were lost for lack of room.
    Lost {
        /// The record that reports it.
        seq: u64,
        /// The number of events.
        events: u64,
    },
    /// A process took over, and there is no report of the end of the one before. The last records
    /// of that one follow this record in its file. It may still be draining.
    Open {
        /// The record at the take-over.
        seq: u64,
    },
}

/// Walks along a chain, file by file in order, line by line.
#[derive(Debug, Default)]
pub struct ChainInspector {
    keys: Vec<AuditKey>,
    expected: Option<ChainHead>,
    met: bool,
    first: Option<u64>,
    head: Option<ChainHead>,
    records: u64,
    signed: u64,
    seams: Vec<ChainGap>,
    line: u64,
    /// True before the first line of this file.
    fresh: bool,
    torn: Option<TornLines>,
    /// The records that announce a successor. If no successor came, the same process went on.
    lefts: Vec<ChainHead>,
    branches: Vec<ChainBranch>,
}

/// The records of a process after another one took over.
#[derive(Debug)]
struct ChainBranch {
    /// The last record that the successor continues from.
    left: u64,
    /// Its last record.
    head: Option<ChainHead>,
    /// True if the successor reports that this is the last one.
    closed: bool,
}

/// Lines in place of records that are not records: valid only if a record follows that accounts for
/// them.
#[derive(Debug)]
struct TornLines {
    trouble: ChainFault,
    lines: u64,
    bytes: u64,
    hash: Sha256,
}

impl ChainInspector {
    /// An inspector with these keys. With any key, the chain must be signed from some record on to
    /// its end. Earlier records could have been written without the key, but the first signed
    /// record links to them.
    #[must_use]
    pub fn new(keys: Vec<AuditKey>) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    /// Demands that this record is in the chain.
    #[must_use]
    pub fn expect(mut self, head: ChainHead) -> Self {
        self.expected = Some(head);
        self
    }

    /// Continues with the first line of a further file.
    pub fn begin_file(&mut self) {
        (self.line, self.fresh) = (0, true);
    }

    /// Skips a line of another chain.
    pub fn skip_line(&mut self) {
        self.line += 1;
    }

    /// Takes the next line, without its end. `whole`: it has one.
    ///
    /// # Errors
    /// The first fault found. It may lie before this line.
    pub fn line(&mut self, line: &[u8], whole: bool) -> Result<(), ChainFault> {
        self.line += 1;
        let link = ChainLink::read(line).filter(|_| whole);
        if let Some(link) = link.as_ref().filter(|_| self.fresh) {
            self.begin_branch(link);
        }
        self.fresh = false;
        if let (Some(torn), Some(link)) = (&self.torn, &link)
            && self.accounts_for(torn, link)
        {
            let bytes = torn.bytes;
            self.torn = None;
            self.seams.push(ChainGap::Recovered {
                seq: link.head.seq,
                bytes,
            });
            return self.accept(link);
        }
        if let Some(torn) = &mut self.torn {
            return torn.add(line);
        }
        let why = match &link {
            None if whole => "this is not a record".to_owned(),
            None => {
                "the last line is incomplete: weir was killed here, or is writing it now".to_owned()
            }
            Some(link) => match self.check_next(link) {
                Ok(()) => return self.accept(link),
                Err(why) => why,
            },
        };
        let trouble = ChainFault {
            line: self.line,
            why,
        };
        let mut torn = TornLines {
            trouble,
            lines: 0,
            bytes: 0,
            hash: Sha256::new(),
        };
        torn.add(line)?;
        self.torn = Some(torn);
        Ok(())
    }

    /// Ends a file.
    ///
    /// # Errors
    /// Lines that no record accounts for.
    pub fn end_file(&mut self) -> Result<(), ChainFault> {
        match self.torn.take() {
            Some(torn) => Err(torn.trouble),
            None => Ok(()),
        }
    }

    /// Ends the verification.
    ///
    /// # Errors
    /// The expected record was not found.
    pub fn finish(self) -> Result<ChainSummary, ChainFault> {
        if let Some(ChainHead { seq, .. }) = self.expected.filter(|_| !self.met) {
            let why = match self.branches.is_empty() {
                true => {
                    format!("expected record {seq} is missing: the end was cut off, or the start")
                }
                false => {
                    format!("expected record {seq} is missing, or was replaced")
                }
            };
            return Err(ChainFault {
                line: self.line,
                why,
            });
        }
        if !self.keys.is_empty() && self.records > 0 && self.signed == 0 {
            let why =
                "no record is signed, although a key was given: the records are not authenticated"
                    .to_owned();
            return Err(ChainFault {
                line: self.line,
                why,
            });
        }
        let Self {
            first,
            head,
            records,
            signed,
            mut seams,
            branches,
            ..
        } = self;
        let open = branches.iter().filter(|branch| !branch.closed);
        seams.extend(open.map(|branch| ChainGap::Open { seq: branch.left }));
        Ok(ChainSummary {
            first,
            head,
            records,
            signed,
            gaps: seams,
        })
    }

    /// Begins a branch if a file's first record continues at the one that announced a successor.
    fn begin_branch(&mut self, link: &ChainLink) {
        let goes_on = |left: &ChainHead| link.head.seq == left.seq + 1 && link.prev == left.hash;
        if let Some(at) = self.lefts.iter().position(goes_on) {
            let left = self.lefts.remove(at);
            self.branches.push(ChainBranch {
                left: left.seq,
                head: self.head.clone(),
                closed: false,
            });
            self.head = Some(left);
        }
    }

    /// Compares a successor's report of the end of its predecessor with that one's branch.
    fn close_branch(&mut self, link: &ChainLink) -> Result<(), String> {
        let Some(last) = link.last.as_deref().and_then(ChainHead::read) else {
            return Ok(());
        };
        let mut all = self.branches.iter_mut();
        if let Some(branch) = all.find(|branch| branch.head.as_ref() == Some(&last)) {
            branch.closed = true;
            return Ok(());
        }
        // Without the files of the predecessor there is no branch to compare with. A branch that is
        // closed is that of another process.
        let Some(branch) = self.branches.iter().rfind(|branch| !branch.closed) else {
            return Ok(());
        };
        let seq = branch.head.as_ref().map_or(0, |head| head.seq);
        Err(format!(
            "the previous process ended with record {}, but its file ends with record {seq}: its end was cut off, or changed",
            last.seq
        ))
    }

    /// True if `link` is the record that accounts for the torn bytes.
    fn accounts_for(&self, torn: &TornLines, link: &ChainLink) -> bool {
        let digest = HEXLOWER.encode(&torn.hash.clone().finalize());
        link.kind == "recovered"
            && link.bytes == Some(torn.bytes)
            && link.sha256.as_deref() == Some(&digest)
            && self.check_next(link).is_ok()
    }

    /// Checks that `link` is the next record.
    fn check_next(&self, link: &ChainLink) -> Result<(), String> {
        if link.key.is_none() && self.signed > 0 {
            return Err("it is not signed, but the records before it are".to_owned());
        }
        match (link.has_valid_hash(&self.keys), link.key) {
            (Some(true), _) => {}
            (None, Some(id)) => {
                return Err(format!(
                    "it is signed with the key {id}, which was not given: set WEIR_AUDIT_KEYS to {id}:SECRET"
                ));
            }
            _ => return Err("its hash does not match: it was changed".to_owned()),
        }
        let seq = link.head.seq;
        let Some(head) = &self.head else {
            let first = seq != 1 || link.prev == ChainHead::genesis().hash;
            return if first {
                Ok(())
            } else {
                Err("it is the first record, but refers to a previous one".to_owned())
            };
        };
        let next = head.seq + 1;
        if seq != next {
            return Err(match seq > next {
                true => format!(
                    "it is record {seq}: records {next} to {} are missing",
                    seq - 1
                ),
                false => format!("it is record {seq}, expected {next}"),
            });
        }
        if link.prev != head.hash {
            return Err("it does not follow the record before it, which was replaced".to_owned());
        }
        Ok(())
    }

    fn accept(&mut self, link: &ChainLink) -> Result<(), ChainFault> {
        if let Some(expected) = &self.expected
            && expected.seq == link.head.seq
        {
            let same = expected.hash == link.head.hash;
            // A branch has the same numbers as the records of the successor.
            if !same && self.lefts.is_empty() && self.branches.is_empty() {
                let why =
                    "it is not the expected record: all records from some point on were rewritten"
                        .to_owned();
                return Err(ChainFault {
                    line: self.line,
                    why,
                });
            }
            self.met |= same;
        }
        if let (Some(events), "lost") = (link.events, &*link.kind) {
            self.seams.push(ChainGap::Lost {
                seq: link.head.seq,
                events,
            });
        }
        match &*link.kind {
            "left" => self.lefts.push(link.head.clone()),
            "predecessor" => {
                let line = self.line;
                self.close_branch(link)
                    .map_err(|why| ChainFault { line, why })?;
            }
            _ => {}
        }
        self.first.get_or_insert(link.head.seq);
        self.head = Some(link.head.clone());
        self.records += 1;
        self.signed += u64::from(link.key.is_some());
        Ok(())
    }
}

impl TornLines {
    fn add(&mut self, line: &[u8]) -> Result<(), ChainFault> {
        if self.lines > 0 {
            self.hash.update(b"\n");
            self.bytes += 1;
        }
        self.lines += 1;
        self.hash.update(line);
        self.bytes += line.len() as u64;
        if self.bytes > MAX_TORN {
            Err(self.trouble.clone())
        } else {
            Ok(())
        }
    }
}

/// The result for a whole chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainSummary {
    /// The number of its first record: 1, unless older files are gone.
    pub first: Option<u64>,
    /// Its end.
    pub head: Option<ChainHead>,
    /// The number of records.
    pub records: u64,
    /// The number of signed ones: the last.
    pub signed: u64,
    /// The gaps that records account for.
    pub gaps: Vec<ChainGap>,
}

#[cfg(test)]
mod tests;
