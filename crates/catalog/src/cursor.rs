//! Cursors: the point at which a client's list goes on, sealed so that only weir reads them and
//! only their owner can use them.
//!
//! A cursor names a version of a view and a position in it. A version is a digest of content, so
//! any replica that shows or still keeps the same content can go on from it.

use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::failure::Failure;
use weir_core::names::EndpointId;
use weir_core::port::{Audience, Random};
use weir_core::principal::Principal;
use weir_core::upstream::ListKind;
use weir_seal::Sealer;

/// Layout of the sealed bytes; another one is another number.
const LAYOUT: u8 = 1;
const LENGTH: usize = 1 + 16 + 2 + 4 + 8;
/// A cursor of weir's is under a hundred characters; a much longer text is not opened.
const MAX_TEXT_BYTES: usize = 256;

/// The owner and the list for which a cursor is valid. The scope is not part of the cursor: it has
/// to be given again to open it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CursorScope<'a> {
    /// The owner of the list.
    pub(crate) principal: &'a Principal,
    /// The endpoint.
    pub(crate) endpoint: &'a EndpointId,
    /// The audience of its owner, see [`weir_core::port::Authorizer::audience`]: under other rules the
    /// list is another one.
    pub(crate) audience: Option<Audience>,
    /// The kind of list.
    pub(crate) kind: ListKind,
}

/// The content of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The view it points into.
    pub(crate) version: ContentVersion,
    /// The class the view was built for.
    pub(crate) class: CapabilityClass,
    /// The first item that follows.
    pub(crate) position: u32,
    /// A random name of this reading of the list, to count readings that are given up.
    pub(crate) list: u64,
}

impl Cursor {
    /// Makes the text for the client.
    pub(crate) fn seal(
        &self,
        sealer: &Sealer,
        random: &dyn Random,
        scope: &CursorScope<'_>,
    ) -> String {
        let mut plain = Vec::with_capacity(LENGTH);
        plain.push(LAYOUT);
        plain.extend_from_slice(&self.version.0);
        plain.extend_from_slice(&self.class.bits().to_be_bytes());
        plain.extend_from_slice(&self.position.to_be_bytes());
        plain.extend_from_slice(&self.list.to_be_bytes());
        sealer.seal(random, &scope.purpose(), &plain)
    }

    /// Opens a client's cursor.
    ///
    /// # Errors
    ///
    /// [`Failure::bad_cursor`] for every reason: a foreign cursor cannot be distinguished from a
    /// broken one.
    pub(crate) fn open(
        sealer: &Sealer,
        scope: &CursorScope<'_>,
        text: &str,
    ) -> Result<Self, Failure> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(Failure::bad_cursor());
        }
        let plain = sealer
            .open(&scope.purpose(), text)
            .map_err(|error| Failure::bad_cursor().because(error))?;
        Self::read(&plain).ok_or_else(Failure::bad_cursor)
    }

    fn read(plain: &[u8]) -> Option<Self> {
        let (layout, rest) = plain.split_first()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (class, rest) = rest.split_first_chunk()?;
        let (position, rest) = rest.split_first_chunk()?;
        let list = rest.try_into().ok()?;
        (*layout == LAYOUT).then(|| Self {
            version: ContentVersion(*version),
            class: CapabilityClass::from_bits(u16::from_be_bytes(*class)),
            position: u32::from_be_bytes(*position),
            list: u64::from_be_bytes(list),
        })
    }
}

impl CursorScope<'_> {
    fn purpose(&self) -> Vec<u8> {
        let kind = match self.kind {
            ListKind::Tools => b't',
            ListKind::Prompts => b'p',
            ListKind::Resources => b'r',
            ListKind::Templates => b'm',
        };
        let mut purpose = b"weir cursor ".to_vec();
        purpose.push(kind);
        purpose.extend_from_slice(self.principal.digest());
        purpose.extend_from_slice(&self.audience.map_or([0; 16], |audience| audience.0));
        // Last, because it alone has no fixed length.
        purpose.extend_from_slice(self.endpoint.as_str().as_bytes());
        purpose
    }
}

#[cfg(test)]
mod tests;
