//! The URL of one instance of an upstream: a text, or a map with a weight.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// The URL of one instance.
#[derive(Debug)]
pub enum RawUpstreamUrl {
    /// The URL alone.
    Plain(String),
    /// The URL with its weight.
    Weighted(RawWeightedUrl),
}

/// A URL with its weight.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawWeightedUrl {
    /// The URL of the instance.
    pub url: Option<String>,
    /// Its part of the calls, in relation to the weights of the others: from 0 to 1,000,000. With 0
    /// it gets no new calls. Default 100.
    pub weight: Option<u32>,
}

impl RawUpstreamUrl {
    /// Returns the URL as written, if there is one.
    pub fn url(&self) -> Option<&String> {
        match self {
            Self::Plain(url) => Some(url),
            Self::Weighted(weighted) => weighted.url.as_ref(),
        }
    }
}

impl<'de> Deserialize<'de> for RawUpstreamUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UrlVisitor;
        impl<'de> Visitor<'de> for UrlVisitor {
            type Value = RawUpstreamUrl;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, or a map with `url` and `weight`")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<RawUpstreamUrl, E> {
                Ok(RawUpstreamUrl::Plain(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawUpstreamUrl, A::Error> {
                RawWeightedUrl::deserialize(MapAccessDeserializer::new(map))
                    .map(RawUpstreamUrl::Weighted)
            }
        }
        deserializer.deserialize_any(UrlVisitor)
    }
}

impl JsonSchema for RawUpstreamUrl {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawUpstreamUrl".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let weighted = generator.subschema_for::<RawWeightedUrl>();
        json_schema!({ "anyOf": [{ "type": "string" }, weighted] })
    }
}
