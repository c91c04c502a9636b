//! Runs of plain characters in a JSON string: bytes that neither end it nor need an escape.
//!
//! The search takes sixteen bytes at once, which is the whole of most strings. Vectors of this size
//! belong to the baseline of x86-64 and AArch64; elsewhere `wide` computes the same without them.

use wide::u8x16;

/// Returns the length of the prefix of `bytes` without `"`, `\` and control characters.
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    run::<true>(bytes)
}

/// Returns the length of the prefix of `bytes` without `"` and `\`. A string of checked JSON has no
/// control characters.
pub(crate) fn unescaped_len(bytes: &[u8]) -> usize {
    run::<false>(bytes)
}

fn run<const CONTROLS: bool>(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(block) = bytes[at..].first_chunk::<16>() {
        let specials = specials::<CONTROLS>(u8x16::new(*block));
        if specials != 0 {
            return at + specials.trailing_zeros() as usize;
        }
        at += 16;
    }
    let is_special = |&byte: &u8| byte == b'"' || byte == b'\\' || CONTROLS && byte < 0x20;
    let plain = bytes[at..].iter().position(is_special);
    plain.map_or(bytes.len(), |plain| at + plain)
}

/// Returns a mask with a bit for each special byte, the first byte's lowest.
fn specials<const CONTROLS: bool>(block: u8x16) -> u32 {
    let ends = block.simd_eq(u8x16::splat(b'"')) | block.simd_eq(u8x16::splat(b'\\'));
    let specials = if CONTROLS {
        // The comparison of vectors is signed, and so is no use for the upper half of bytes.
        ends | block.simd_eq(block.min(u8x16::splat(0x1f)))
    } else {
        ends
    };
    specials.to_bitmask()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same search, byte by byte.
    fn first_special<const CONTROLS: bool>(bytes: &[u8]) -> usize {
        let is_special = |&byte: &u8| matches!(byte, b'"' | b'\\') || CONTROLS && byte < 0x20;
        bytes.iter().position(is_special).unwrap_or(bytes.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn plain_run_ends_at_the_first_special_byte(bytes in prop::collection::vec(any::<u8>(), 0..200), plain_until in 0..200_usize) {
            let mut bytes = bytes;
            for byte in bytes.iter_mut().take(plain_until) {
                *byte = if matches!(*byte, b'"' | b'\\' | 0..0x20) { b'!' } else { *byte };
            }
            prop_assert_eq!(plain_len(&bytes), first_special::<true>(&bytes));
            prop_assert_eq!(unescaped_len(&bytes), first_special::<false>(&bytes));
        }
    }

    #[test]
    fn special_bytes_are_found_at_every_offset() {
        for byte in 0..=255_u8 {
            for place in 0..40 {
                for around in [b'!', 0x7f, 0x80, 0xff, 0x21, 0x23, 0x5b, 0x5d] {
                    let mut bytes = [around; 40];
                    bytes[place] = byte;
                    assert_eq!(
                        plain_len(&bytes),
                        first_special::<true>(&bytes),
                        "{byte} at {place} among {around}"
                    );
                    assert_eq!(
                        unescaped_len(&bytes),
                        first_special::<false>(&bytes),
                        "{byte} at {place} among {around}"
                    );
                }
            }
        }
    }
}
