//! The name of a request.

use std::fmt;

/// weir's own id of a request: 16 hexadecimal characters. It is kept in place, so a name costs no
/// allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestName([u8; 16]);

impl RequestName {
    /// Makes a name from 64 random bits.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 16];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        Self(text)
    }

    /// The bits it was made from.
    #[must_use]
    pub fn bits(&self) -> u64 {
        u64::from_str_radix(self.as_str(), 16).unwrap_or_default()
    }

    /// The name as errors and logs show it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Hexadecimal digits are UTF-8, so the default is never used.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_name_is_the_hexadecimal_of_all_its_bits() {
        for (bits, text) in [
            (0, "0000000000000000"),
            (0x0123_4567_89ab_cdef, "0123456789abcdef"),
            (u64::MAX, "ffffffffffffffff"),
        ] {
            let name = RequestName::from_bits(bits);
            assert_eq!((name.as_str(), name.bits()), (text, bits));
        }
    }
}
