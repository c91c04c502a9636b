//! The part of Protocol Buffers that OTLP needs: writing requests, and reading responses.

/// A message that is being written. Callers leave fields at their default out, as proto3 does,
/// unless the default is significant.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(Vec<u8>);

/// The wire types.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

impl ProtoMessage {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn varint(&mut self, field: u64, value: u64) -> &mut Self {
        self.tag(field, VARINT).raw(value)
    }

    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.tag(field, LENGTH).raw(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn string(&mut self, field: u64, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    pub(super) fn fixed64(&mut self, field: u64, value: u64) -> &mut Self {
        self.tag(field, EIGHT_BYTES)
            .0
            .extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn fixed32(&mut self, field: u64, value: u32) -> &mut Self {
        self.tag(field, FOUR_BYTES)
            .0
            .extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn double(&mut self, field: u64, value: f64) -> &mut Self {
        self.fixed64(field, value.to_bits())
    }

    /// Writes an embedded message.
    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0)
    }

    /// Writes packed numbers of eight bytes each.
    pub(super) fn packed(&mut self, field: u64, values: impl Iterator<Item = u64>) -> &mut Self {
        let inner: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &inner)
    }

    fn tag(&mut self, field: u64, way: u64) -> &mut Self {
        self.raw(field << 3 | way)
    }

    fn raw(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }
}

/// Returns the number of rejected items in a response: `partial_success` is its field 1, and the
/// number is field 1 of that.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = fields(answer).find_map(|(field, value)| match value {
        ProtoValue::Bytes(bytes) if field == 1 => Some(bytes),
        ProtoValue::Bytes(_) | ProtoValue::Number(_) => None,
    });
    let number = partial.and_then(|partial| {
        fields(partial).find_map(|(field, value)| match value {
            ProtoValue::Number(number) if field == 1 => Some(number),
            ProtoValue::Number(_) | ProtoValue::Bytes(_) => None,
        })
    });
    number.unwrap_or(0)
}

enum ProtoValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, up to the first malformed one.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, ProtoValue<'_>)> {
    std::iter::from_fn(move || {
        let tag = number(&mut rest)?;
        let value = match tag & 7 {
            VARINT => ProtoValue::Number(number(&mut rest)?),
            LENGTH => {
                let length = usize::try_from(number(&mut rest)?).ok()?;
                let (value, after) = rest.split_at_checked(length)?;
                rest = after;
                ProtoValue::Bytes(value)
            }
            way => {
                let (value, after) =
                    rest.split_at_checked(if way == EIGHT_BYTES { 8 } else { 4 })?;
                rest = after;
                ProtoValue::Bytes(value)
            }
        };
        Some((tag >> 3, value))
    })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_encoding_says() {
        let mut message = ProtoMessage::default();
        // The examples of the encoding's own documentation.
        message
            .varint(1, 150)
            .string(2, "testing")
            .message(3, |inner| {
                inner.varint(1, 150);
            });
        assert_eq!(
            message.into_bytes(),
            b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01"
        );
    }

    #[test]
    fn rejected_items_are_read_from_a_response() {
        let mut answer = ProtoMessage::default();
        answer.message(1, |partial| {
            partial.varint(1, 300).string(2, "no room");
        });
        let answer = answer.into_bytes();
        assert_eq!(rejected(&answer), 300);
        assert_eq!(
            (rejected(b""), rejected(b"\x0a\x00")),
            (0, 0),
            "all was taken"
        );
        for end in 0..answer.len() {
            assert!(rejected(&answer[..end]) <= 300, "whatever is cut off");
        }
        assert_eq!(
            (
                rejected(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                rejected(b"{}")
            ),
            (0, 0)
        );
    }
}
