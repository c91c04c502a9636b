//! Runs of plain characters in a JSON string: bytes that neither end it nor need an escape.
//!
//! Most strings of a message are short, so the search works in registers, eight bytes at a time,
//! before it calls the vector unit.

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
/// The length up to which the search stays in registers; longer strings are worth a call.
const REGISTER_SEARCH_LEN: usize = 64;

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
    while let Some(word) = bytes[at..].first_chunk::<8>() {
        let found = special::<CONTROLS>(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
        if at == REGISTER_SEARCH_LEN {
            return at + long_run_len::<CONTROLS>(&bytes[at..]);
        }
    }
    at + first_special::<CONTROLS>(&bytes[at..])
}

/// Returns a word with the high bit set in the first special byte; the bits behind that have no
/// meaning.
const fn special<const CONTROLS: bool>(word: u64) -> u64 {
    let quote = word ^ (LOW_BITS * b'"' as u64);
    let slash = word ^ (LOW_BITS * b'\\' as u64);
    let zero = (quote.wrapping_sub(LOW_BITS) & !quote) | (slash.wrapping_sub(LOW_BITS) & !slash);
    let control = if CONTROLS {
        word.wrapping_sub(LOW_BITS * 0x20) & !word
    } else {
        0
    };
    (zero | control) & HIGH_BITS
}

fn long_run_len<const CONTROLS: bool>(bytes: &[u8]) -> usize {
    let bytes = &bytes[..memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())];
    // The vector unit finds the least byte fastest, without an early exit.
    let control = CONTROLS && bytes.iter().fold(u8::MAX, |least, &byte| least.min(byte)) < 0x20;
    if control {
        first_special::<true>(bytes)
    } else {
        bytes.len()
    }
}

fn first_special<const CONTROLS: bool>(bytes: &[u8]) -> usize {
    let is_special = |&byte: &u8| byte == b'"' || byte == b'\\' || CONTROLS && byte < 0x20;
    bytes.iter().position(is_special).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            for place in 0..20 {
                for around in [b'!', 0x7f, 0x80, 0xff, 0x21, 0x23, 0x5b, 0x5d] {
                    let mut bytes = [around; 20];
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
