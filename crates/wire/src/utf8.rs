//! UTF-8 checked across chunk borders: the lexer looks at bytes only.

use crate::scan::scan_error::{ScanError, ScanErrorKind};

/// Checks UTF-8 across chunk borders.
#[derive(Debug, Default)]
pub(crate) struct Utf8Checker {
    carry: [u8; 4],
    len: usize,
    offset: u64,
}

impl Utf8Checker {
    /// Checks the next chunk; a character cut off at its end is carried over.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ScanError> {
        while self.len > 0 && !bytes.is_empty() {
            self.carry[self.len] = bytes[0];
            self.len += 1;
            bytes = &bytes[1..];
            self.offset += 1;
            match std::str::from_utf8(&self.carry[..self.len]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(self.error()),
            }
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => self.offset += bytes.len() as u64,
            Err(error) => {
                self.offset += error.valid_up_to() as u64;
                let cut = &bytes[error.valid_up_to()..];
                if error.error_len().is_some() {
                    return Err(self.error());
                }
                self.carry[..cut.len()].copy_from_slice(cut);
                self.len = cut.len();
                self.offset += cut.len() as u64;
            }
        }
        Ok(())
    }

    /// Fails if a character is incomplete.
    pub(crate) fn finish(&self) -> Result<(), ScanError> {
        if self.len == 0 {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    fn error(&self) -> ScanError {
        ScanError {
            kind: ScanErrorKind::NotUtf8,
            offset: self.offset,
        }
    }
}
