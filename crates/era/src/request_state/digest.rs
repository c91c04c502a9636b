//! A digest of a JSON text by its value: white space, escapes and the order of members do not
//! count.
//!
//! The text is read once and never becomes a tree: only the names and digests of the members of
//! open objects are held at any time. A number counts in the form that serde_json gives it: one for
//! each value.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use sha2::{Digest as _, Sha256};

/// Bytes of a digest.
pub(super) const LENGTH: usize = 32;

/// The digest of a checked JSON text. A text that serde_json does not read (a number beyond every
/// double, half a surrogate pair) counts by its spelling.
pub(super) fn of(json: &[u8]) -> [u8; LENGTH] {
    #[cfg(test)]
    READ.with(|read| read.set(read.get() + json.len()));
    let mut hash = Sha256::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = ValueDigest(&mut hash)
        .deserialize(&mut reader)
        .and_then(|()| reader.end());
    if read.is_err() {
        hash = Sha256::new();
        write(&mut hash, b'?', json);
    }
    hash.finalize().into()
}

#[cfg(test)]
thread_local! {
    /// Bytes that were digested on this thread.
    pub(super) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds bytes with their type and their length, so that no two values are written the same.
fn write(hash: &mut Sha256, what: u8, bytes: &[u8]) {
    hash.update([what]);
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// Adds the value that is read to a digest.
struct ValueDigest<'h>(&'h mut Sha256);

impl<'de> DeserializeSeed<'de> for ValueDigest<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueDigest<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        write(self.0, b'n', b"");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        write(self.0, b'b', &[u8::from(value)]);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        write(self.0, b'i', value.to_string().as_bytes());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        write(self.0, b'i', value.to_string().as_bytes());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        write(self.0, b'f', &value.to_bits().to_be_bytes());
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        write(self.0, b's', value.as_bytes());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.update(b"[");
        while items.next_element_seed(ValueDigest(self.0))?.is_some() {}
        self.0.update(b"]");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut all: Vec<(Cow<'de, str>, [u8; LENGTH])> = Vec::new();
        while let Some(MemberName(name)) = members.next_key()? {
            let mut hash = Sha256::new();
            members.next_value_seed(ValueDigest(&mut hash))?;
            all.push((name, hash.finalize().into()));
        }
        all.sort();
        self.0.update(b"{");
        for (name, value) in &all {
            write(self.0, b'm', name.as_bytes());
            self.0.update(value);
        }
        self.0.update(b"}");
        Ok(())
    }
}

/// A member's name, borrowed if it has no escapes. serde's own `Cow` never borrows.
#[derive(Deserialize)]
#[serde(transparent)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
