//! Fakes behind the ports, for this crate's own tests and fuzz targets.

use crate::port::environment::Random;

/// Random bytes that are all sevens.
pub(crate) struct Sevens;

impl Random for Sevens {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}
