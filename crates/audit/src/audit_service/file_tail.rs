//! The end of a file of records, as the previous process left it: the head of its chain, and bytes
//! torn by a crash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::record::{AuditKey, AuditLifecycle, ChainHead, ChainLink};

/// The bytes read from the end: more than are ever on their way to the disk.
const WINDOW: u64 = 16 << 20;

/// The beginning of the first record.
const FIRST: &[u8] = br#"{"seq":1,"#;

/// The state of the end of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuditFileTail {
    /// The last record; the genesis head in a new file.
    pub(super) head: ChainHead,
    /// The key that signed it.
    pub(super) key: Option<u8>,
    /// True if the file ends with the record of an orderly stop, or is empty.
    pub(super) clean: bool,
    /// The bytes to write before the next record, so that it begins a line of its own.
    pub(super) separator: Option<&'static [u8]>,
    /// The bytes after the last record that are no record.
    pub(super) torn: Option<AuditLifecycle>,
}

impl AuditFileTail {
    /// Returns the end of an empty file.
    pub(super) fn empty() -> Self {
        Self {
            head: ChainHead::genesis(),
            key: None,
            clean: true,
            separator: None,
            torn: None,
        }
    }

    /// Reads the end of a file of `length` bytes. A signature by a key that is not in `keys` is
    /// trusted.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no file of records.
    pub(super) fn read(file: &File, length: u64, keys: &[AuditKey]) -> io::Result<Self> {
        if length == 0 {
            return Ok(Self::empty());
        }
        let from = length.saturating_sub(WINDOW);
        let mut bytes = vec![0; usize::try_from(length - from).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, from)?;
        let mut end = bytes.len();
        if bytes.last() == Some(&b'\n') {
            end -= 1;
        }
        let whole = end < bytes.len();
        // Line by line from the end, until one is a record.
        let mut line_end = end;
        loop {
            let start = bytes[..line_end]
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            let link = ChainLink::read(&bytes[start..line_end])
                .filter(|link| link.has_valid_hash(keys) != Some(false));
            if let Some(link) = link {
                return Ok(Self::after(&link, &bytes[line_end..end], whole));
            }
            if start == 0 {
                break;
            }
            line_end = start - 1;
        }
        let begun = bytes
            .iter()
            .zip(FIRST)
            .all(|(byte, first)| byte == first || *byte == 0);
        if from == 0 && begun {
            // The very first record was torn.
            let seal = if whole { None } else { Some(&b"\n"[..]) };
            return Ok(Self {
                clean: false,
                separator: seal,
                torn: Some(AuditLifecycle::recovered(&bytes[..end])),
                ..Self::empty()
            });
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it does not end with a record of weir's: move it away, and keep it",
        ))
    }

    /// Returns the end after `link`. `rest` begins with the end of the record's line, if there is
    /// one.
    fn after(link: &ChainLink, rest: &[u8], whole: bool) -> Self {
        let seal = if whole { None } else { Some(&b"\n"[..]) };
        let torn = rest.strip_prefix(b"\n").map(AuditLifecycle::recovered);
        let clean = torn.is_none() && link.kind == "stopped";
        Self {
            head: link.head.clone(),
            key: link.key,
            clean,
            separator: seal,
            torn,
        }
    }
}
