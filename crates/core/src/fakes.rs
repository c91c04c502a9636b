//! What this crate's own tests and fuzz targets put behind its ports.

use crate::port::Random;

/// Gives nothing but sevens.
pub(crate) struct Sevens;

impl Random for Sevens {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}
