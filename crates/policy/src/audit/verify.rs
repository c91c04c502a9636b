//! Reads a chain back: is every record there, in order, as it was written? Says the first one that
//! is not.
//!
//! It sees that something was changed, dropped, inserted or swapped. It cannot see that the end was
//! cut off between two records, nor, without a key, that somebody wrote the whole rest anew:
//! against these one keeps a head elsewhere ([`Inspector::expect`]).
//!
//! Where one process took over from another, the chain has a branch: the last records of the one
//! that drained. Its end is named by a record of the other one, so that it cannot be cut off.

use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::chain::{HASH, Head, TAIL, hash};
use super::key::Key;

/// More unreadable bytes than a sudden end can leave.
const MOST_TORN: u64 = 64 << 20;

/// A line that has the form of a record.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its number and hash.
    pub head: Head,
    /// The hash of the record before.
    pub prev: String,
    /// What kind of event it is.
    pub kind: String,
    /// The key that signed it, if one did.
    pub key: Option<u8>,
    /// The chain it belongs to, where that is not the one of the calls.
    pub chain: Option<String>,
    record: Vec<u8>,
    bytes: Option<u64>,
    sha256: Option<String>,
    events: Option<u64>,
    last: Option<String>,
}

#[derive(Deserialize)]
struct Members {
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

impl Link {
    /// Reads a line without its end. `None`: it has not the form of a record.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        let (record, tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
        let hash = tail.strip_prefix(HASH.as_bytes())?.strip_suffix(b"\"}")?;
        let is_hash = |text: &[u8]| text.len() == 64 && HEXLOWER.decode(text).is_ok();
        let mut record = record.to_vec();
        record.push(b'}');
        let members: Members = serde_json::from_slice(&record).ok()?;
        if !is_hash(hash) || !is_hash(members.prev.as_bytes()) {
            return None;
        }
        let Members {
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
            head: Head { seq, hash },
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

    /// Whether its hash is its own, under the key that it names. `None`: there is no such key here.
    #[must_use]
    pub fn holds(&self, keys: &[Key]) -> Option<bool> {
        let key = match self.key {
            None => None,
            Some(id) => Some(keys.iter().find(|key| key.id() == id)?),
        };
        Some(hash(key, &self.prev, &self.record) == self.head.hash)
    }
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The line of the file, from 1.
    pub line: u64,
    /// What is wrong with it, for people.
    pub why: String,
}

/// A place where records are missing, and a record that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seam {
    /// weir ended suddenly and left bytes of records under way.
    Recovered {
        /// The record that says so.
        seq: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Events were lost for lack of room.
    Lost {
        /// The record that says so.
        seq: u64,
        /// How many.
        events: u64,
    },
    /// A process took over, and the one before, whose last records follow this one in its file, has
    /// not said how it ended. It may still be draining.
    Open {
        /// The record at which it was left.
        seq: u64,
    },
}

/// Walks along a chain, file by file in order, line by line.
#[derive(Debug, Default)]
pub struct Inspector {
    keys: Vec<Key>,
    expected: Option<Head>,
    met: bool,
    first: Option<u64>,
    head: Option<Head>,
    records: u64,
    signed: u64,
    seams: Vec<Seam>,
    line: u64,
    /// No line of this file was taken yet.
    fresh: bool,
    torn: Option<Torn>,
    /// The records that say that another process goes on after them. Where nothing came of that,
    /// the same one went on.
    lefts: Vec<Head>,
    branches: Vec<Branch>,
}

/// What a process wrote after another one had taken over.
#[derive(Debug)]
struct Branch {
    /// The record after which the other one goes on.
    left: u64,
    /// Its last record.
    head: Option<Head>,
    /// Whether its successor says that this is the last one.
    closed: bool,
}

/// Lines that are no records where records should be: good only if a record follows that says what
/// they are.
#[derive(Debug)]
struct Torn {
    trouble: Trouble,
    lines: u64,
    bytes: u64,
    hash: Sha256,
}

impl Inspector {
    /// Knows these keys. With any, the chain has to be signed from some record on to its end:
    /// whoever has no key could have written the others, but not so that the first signed one hangs
    /// on them.
    #[must_use]
    pub fn new(keys: Vec<Key>) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    /// Wants to meet this record on the way.
    #[must_use]
    pub fn expect(mut self, head: Head) -> Self {
        self.expected = Some(head);
        self
    }

    /// Goes on with the first line of a further file.
    pub fn begin_file(&mut self) {
        (self.line, self.fresh) = (0, true);
    }

    /// Passes over a line of another chain.
    pub fn skip_line(&mut self) {
        self.line += 1;
    }

    /// Takes the next line, without its end. `whole`: it has one.
    ///
    /// # Errors
    /// The first trouble there is, which may lie before this line.
    pub fn line(&mut self, line: &[u8], whole: bool) -> Result<(), Trouble> {
        self.line += 1;
        let link = Link::read(line).filter(|_| whole);
        if let Some(link) = link.as_ref().filter(|_| self.fresh) {
            self.turn(link);
        }
        self.fresh = false;
        if let (Some(torn), Some(link)) = (&self.torn, &link)
            && self.seals(torn, link)
        {
            let bytes = torn.bytes;
            self.torn = None;
            self.seams.push(Seam::Recovered {
                seq: link.head.seq,
                bytes,
            });
            return self.accept(link);
        }
        if let Some(torn) = &mut self.torn {
            return torn.add(line);
        }
        let why = match &link {
            None if whole => "this is no record".to_owned(),
            None => {
                "the last line is not whole: weir was ended here, or is writing just now".to_owned()
            }
            Some(link) => match self.judge(link) {
                Ok(()) => return self.accept(link),
                Err(why) => why,
            },
        };
        let trouble = Trouble {
            line: self.line,
            why,
        };
        let mut torn = Torn {
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
    /// Lines that nothing explains.
    pub fn end_file(&mut self) -> Result<(), Trouble> {
        match self.torn.take() {
            Some(torn) => Err(torn.trouble),
            None => Ok(()),
        }
    }

    /// Ends the walk.
    ///
    /// # Errors
    /// The record that was expected was not met.
    pub fn finish(self) -> Result<Summary, Trouble> {
        if let Some(Head { seq, .. }) = self.expected.filter(|_| !self.met) {
            let why = match self.branches.is_empty() {
                true => format!(
                    "record {seq} was expected and is not there: the end was cut off, or the start"
                ),
                false => {
                    format!("record {seq} was expected and is not there, or it is another one")
                }
            };
            return Err(Trouble {
                line: self.line,
                why,
            });
        }
        if !self.keys.is_empty() && self.records > 0 && self.signed == 0 {
            let why = "no record is signed, and a key was given: anybody could have written them"
                .to_owned();
            return Err(Trouble {
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
        seams.extend(open.map(|branch| Seam::Open { seq: branch.left }));
        Ok(Summary {
            first,
            head,
            records,
            signed,
            seams,
        })
    }

    /// Leaves a branch where a file's first record goes on at the one that was left.
    fn turn(&mut self, link: &Link) {
        let goes_on = |left: &Head| link.head.seq == left.seq + 1 && link.prev == left.hash;
        if let Some(at) = self.lefts.iter().position(goes_on) {
            let left = self.lefts.remove(at);
            self.branches.push(Branch {
                left: left.seq,
                head: self.head.clone(),
                closed: false,
            });
            self.head = Some(left);
        }
    }

    /// Holds what a successor says of the end of the process before it against that one's branch.
    fn close(&mut self, link: &Link) -> Result<(), String> {
        // Where the files of that one are not here, there is nothing to hold it against.
        let Some(branch) = self.branches.last_mut() else {
            return Ok(());
        };
        let Some(last) = link.last.as_deref().and_then(Head::read) else {
            return Ok(());
        };
        if branch.head.as_ref() == Some(&last) {
            branch.closed = true;
            return Ok(());
        }
        let seq = branch.head.as_ref().map_or(0, |head| head.seq);
        Err(format!(
            "it says that the process before ended with record {}, and that one's file ends with record {seq}: its end was cut off, or changed",
            last.seq
        ))
    }

    /// Whether `link` is the record that says what the torn bytes are.
    fn seals(&self, torn: &Torn, link: &Link) -> bool {
        let digest = HEXLOWER.encode(&torn.hash.clone().finalize());
        link.kind == "recovered"
            && link.bytes == Some(torn.bytes)
            && link.sha256.as_deref() == Some(&digest)
            && self.judge(link).is_ok()
    }

    /// Whether `link` is the next record.
    fn judge(&self, link: &Link) -> Result<(), String> {
        if link.key.is_none() && self.signed > 0 {
            return Err("it is not signed, and those before it are".to_owned());
        }
        match (link.holds(&self.keys), link.key) {
            (Some(true), _) => {}
            (None, Some(id)) => {
                return Err(format!(
                    "it is signed with the key {id}, which was not given"
                ));
            }
            _ => return Err("its hash does not match: it was changed".to_owned()),
        }
        let seq = link.head.seq;
        let Some(head) = &self.head else {
            let first = seq != 1 || link.prev == Head::genesis().hash;
            return if first {
                Ok(())
            } else {
                Err("it is the first record and hangs on another".to_owned())
            };
        };
        let next = head.seq + 1;
        if seq != next {
            return Err(match seq > next {
                true => format!(
                    "it is record {seq}: records {next} to {} are missing",
                    seq - 1
                ),
                false => format!("it is record {seq} where {next} belongs"),
            });
        }
        if link.prev != head.hash {
            return Err(
                "it does not hang on the record before it: that one was exchanged".to_owned(),
            );
        }
        Ok(())
    }

    fn accept(&mut self, link: &Link) -> Result<(), Trouble> {
        if let Some(expected) = &self.expected
            && expected.seq == link.head.seq
        {
            let same = expected.hash == link.head.hash;
            // A branch has the same numbers as what follows it.
            if !same && self.lefts.is_empty() && self.branches.is_empty() {
                let why = "it is not the record that was expected: all from some record on was written anew".to_owned();
                return Err(Trouble {
                    line: self.line,
                    why,
                });
            }
            self.met |= same;
        }
        if let (Some(events), "lost") = (link.events, &*link.kind) {
            self.seams.push(Seam::Lost {
                seq: link.head.seq,
                events,
            });
        }
        match &*link.kind {
            "left" => self.lefts.push(link.head.clone()),
            "predecessor" => {
                let line = self.line;
                self.close(link).map_err(|why| Trouble { line, why })?;
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

impl Torn {
    fn add(&mut self, line: &[u8]) -> Result<(), Trouble> {
        if self.lines > 0 {
            self.hash.update(b"\n");
            self.bytes += 1;
        }
        self.lines += 1;
        self.hash.update(line);
        self.bytes += line.len() as u64;
        if self.bytes > MOST_TORN {
            Err(self.trouble.clone())
        } else {
            Ok(())
        }
    }
}

/// What a whole chain holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The number of its first record: 1, unless older files are gone.
    pub first: Option<u64>,
    /// Its end.
    pub head: Option<Head>,
    /// How many records.
    pub records: u64,
    /// How many of them are signed: the last ones.
    pub signed: u64,
    /// Where records say that others are missing.
    pub seams: Vec<Seam>,
}

#[cfg(test)]
mod tests;
