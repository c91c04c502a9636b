//! The lines of a text by byte offsets.

/// The offsets of line ends in a text.
pub(crate) struct LineIndex(Vec<usize>);

impl LineIndex {
    /// Reads a text.
    pub(crate) fn of(text: &str) -> Self {
        Self(
            text.bytes()
                .enumerate()
                .filter(|(_, byte)| *byte == b'\n')
                .map(|(at, _)| at)
                .collect(),
        )
    }

    /// Returns the line of the byte at `offset`, from 1.
    pub(crate) fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.0.partition_point(|end| *end < offset) + 1).unwrap_or(u32::MAX)
    }
}
