//! The data of the simulated server: keys with texts, hashes and sorted sets, which may expire.

use std::collections::BTreeMap;

/// Bytes of keys, fields and values.
pub(crate) type Text = Vec<u8>;

/// An answer in RESP2.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Ok,
    Number(i64),
    Bulk(Text),
    Many(Vec<Reply>),
    Error(&'static str),
}

impl Reply {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into_bytes())
    }

    pub(crate) fn of(value: Option<&Text>) -> Self {
        value.map_or(Self::Nil, |value| Self::Bulk(value.clone()))
    }

    /// Writes the answer as the server sends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Ok => out.extend_from_slice(b"+OK\r\n"),
            Self::Number(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Self::Bulk(text) => {
                out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Self::Many(all) => {
                out.extend_from_slice(format!("*{}\r\n", all.len()).as_bytes());
                all.iter().for_each(|one| one.encode(out));
            }
            Self::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
        }
    }
}

/// The value of a key.
#[derive(Clone, Debug)]
enum Value {
    Text(Text),
    Hash(BTreeMap<Text, Text>),
    Sorted(BTreeMap<Text, f64>),
}

/// The data.
#[derive(Clone, Debug, Default)]
pub(crate) struct RedisData {
    keys: BTreeMap<Text, (Value, Option<u64>)>,
    /// The time in milliseconds of the Unix epoch.
    pub(crate) now: u64,
}

impl RedisData {
    /// Sets the time, and removes what is over.
    pub(crate) fn set_time(&mut self, now: u64) {
        self.now = now;
        self.keys
            .retain(|_, (_, ends)| ends.is_none_or(|ends| ends > now));
    }

    /// The names of all keys.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Text> {
        self.keys.keys()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Text> {
        match self.keys.get(key) {
            Some((Value::Text(text), _)) => Some(text),
            Some(_) | None => None,
        }
    }

    pub(crate) fn set(&mut self, key: &[u8], text: Text, life: Option<u64>) {
        let ends = life.map(|life| self.now + life);
        self.keys.insert(key.to_vec(), (Value::Text(text), ends));
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.keys.remove(key).is_some()
    }

    pub(crate) fn expire(&mut self, key: &[u8], life: u64) {
        let ends = self.now + life;
        if let Some((_, until)) = self.keys.get_mut(key) {
            *until = Some(ends);
        }
    }

    /// The milliseconds that a key has left; -1 without an end, -2 if it is not there.
    pub(crate) fn left(&self, key: &[u8]) -> i64 {
        match self.keys.get(key) {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(ends))) => {
                i64::try_from(ends.saturating_sub(self.now)).unwrap_or(i64::MAX)
            }
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> Option<&BTreeMap<Text, Text>> {
        match self.keys.get(key) {
            Some((Value::Hash(hash), _)) => Some(hash),
            Some(_) | None => None,
        }
    }

    pub(crate) fn field(&self, key: &[u8], field: &[u8]) -> Option<&Text> {
        self.hash(key)?.get(field)
    }

    pub(crate) fn set_field(&mut self, key: &[u8], field: &[u8], value: Text) {
        let entry = self.keys.entry(key.to_vec());
        let (found, _) = entry.or_insert_with(|| (Value::Hash(BTreeMap::new()), None));
        if let Value::Hash(hash) = found {
            hash.insert(field.to_vec(), value);
        }
    }

    pub(crate) fn remove_field(&mut self, key: &[u8], field: &[u8]) -> bool {
        let Some((Value::Hash(hash), _)) = self.keys.get_mut(key) else {
            return false;
        };
        let had = hash.remove(field).is_some();
        if hash.is_empty() {
            self.keys.remove(key);
        }
        had
    }

    pub(crate) fn score(&self, key: &[u8], member: &[u8]) -> Option<f64> {
        match self.keys.get(key) {
            Some((Value::Sorted(sorted), _)) => sorted.get(member).copied(),
            Some(_) | None => None,
        }
    }

    pub(crate) fn set_score(&mut self, key: &[u8], member: &[u8], score: f64) {
        let entry = self.keys.entry(key.to_vec());
        let (found, _) = entry.or_insert_with(|| (Value::Sorted(BTreeMap::new()), None));
        if let Value::Sorted(sorted) = found {
            sorted.insert(member.to_vec(), score);
        }
    }

    pub(crate) fn remove_member(&mut self, key: &[u8], member: &[u8]) -> bool {
        let Some((Value::Sorted(sorted), _)) = self.keys.get_mut(key) else {
            return false;
        };
        let had = sorted.remove(member).is_some();
        if sorted.is_empty() {
            self.keys.remove(key);
        }
        had
    }

    /// The members of a sorted set by score, and of one score by name.
    pub(crate) fn members(&self, key: &[u8]) -> Vec<(Text, f64)> {
        let Some((Value::Sorted(sorted), _)) = self.keys.get(key) else {
            return Vec::new();
        };
        let mut all: Vec<_> = sorted
            .iter()
            .map(|(name, score)| (name.clone(), *score))
            .collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        all
    }
}
