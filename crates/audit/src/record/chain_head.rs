//! The end of a hash chain.

/// The end of a chain. The next record links to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the last record. The first has 1.
    pub seq: u64,
    /// Its hash: 64 hexadecimal characters.
    pub hash: String,
}

impl ChainHead {
    /// The head before the first record.
    #[must_use]
    pub fn genesis() -> Self {
        Self {
            seq: 0,
            hash: "0".repeat(64),
        }
    }

    /// Reads the output of [`std::fmt::Display`]: the number, a colon and the hash.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (seq, hash) = text.split_once(':')?;
        let is_hash =
            hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        Some(Self {
            seq: seq.parse().ok()?,
            hash: hash.to_owned(),
        })
        .filter(|_| is_hash)
    }
}

impl std::fmt::Display for ChainHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}
