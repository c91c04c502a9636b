//! `store`: the word `memory`, a URL, or the keys of a shared store.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::config_secret::ConfigSecret;
use crate::raw::Time;

/// The word of the store in the process.
pub const MEMORY_STORE: &str = "memory";

/// The store as written: a text or a section.
#[derive(Debug)]
pub enum RawStore {
    /// The word `memory`, or a URL, which may have a password.
    Text(ConfigSecret),
    /// The keys of a shared store.
    Shared(RawSharedStore),
}

/// The store that all replicas share: Redis or Valkey.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawSharedStore {
    /// The URL `redis://USER:PASSWORD@HOST:PORT/DATABASE`, or `rediss://` for TLS; `valkey://` and
    /// `valkeys://` mean the same. With `cluster` or `sentinel`, a list of the URLs of nodes or
    /// sentinels. Keep the password out of the file: `${REDIS_PASSWORD}`.
    pub url: Option<RawStoreUrls>,
    /// The kind of servers at the URLs. Default `single`.
    pub kind: Option<RawStoreKind>,
    /// The name of the primary server at the sentinels. Required with `sentinel`.
    pub primary: Option<String>,
    /// Certificate authorities for `rediss://`, in PEM, instead of those of the system.
    pub ca_file: Option<String>,
    /// The beginning of every key in the store. Gateways with different names share no state.
    /// Letters, digits, `-`, `_` and `.`, at most 64. Default `weir`.
    pub namespace: Option<String>,
    /// The longest time that a client's request waits for one command, from `5ms` to `5s`. Default
    /// `50ms`.
    pub timeout: Option<Time>,
}

/// The kind of servers of a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawStoreKind {
    /// One server.
    Single,
    /// Sentinels, which know the current primary server.
    Sentinel,
    /// Nodes of a cluster.
    Cluster,
}

/// One URL, or a list of URLs.
#[derive(Debug)]
pub enum RawStoreUrls {
    /// One URL.
    One(ConfigSecret),
    /// A list.
    List(Vec<ConfigSecret>),
}

impl<'de> Deserialize<'de> for RawStore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StoreVisitor;
        impl<'de> Visitor<'de> for StoreVisitor {
            type Value = RawStore;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`memory`, a URL or a map")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<RawStore, E> {
                Ok(RawStore::Text(text.to_owned().into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawStore, A::Error> {
                RawSharedStore::deserialize(MapAccessDeserializer::new(map)).map(RawStore::Shared)
            }
        }
        deserializer.deserialize_any(StoreVisitor)
    }
}

impl JsonSchema for RawStore {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawStore".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<RawSharedStore>();
        json_schema!({ "anyOf": [{ "const": MEMORY_STORE }, { "type": "string" }, section] })
    }
}

impl<'de> Deserialize<'de> for RawStoreUrls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UrlsVisitor;
        impl<'de> Visitor<'de> for UrlsVisitor {
            type Value = RawStoreUrls;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL or a list of URLs")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<RawStoreUrls, E> {
                Ok(RawStoreUrls::One(text.to_owned().into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawStoreUrls, A::Error> {
                let mut urls = Vec::new();
                while let Some(url) = items.next_element()? {
                    urls.push(url);
                }
                Ok(RawStoreUrls::List(urls))
            }
        }
        deserializer.deserialize_any(UrlsVisitor)
    }
}

impl JsonSchema for RawStoreUrls {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawStoreUrls".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        })
    }
}
