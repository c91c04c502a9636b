//! `forward_proxy`: the word `environment`, or the keys of a proxy.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::config_secret::ConfigSecret;

/// The word of the proxy that the environment names.
const ENVIRONMENT: &str = "environment";

/// The forward proxy as written: a word or a section.
#[derive(Debug)]
pub enum RawForwardProxy {
    /// The proxy that the environment names.
    Environment,
    /// The keys of a proxy.
    Keys(RawProxyKeys),
}

/// The forward proxy of weir's own requests.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawProxyKeys {
    /// The URL `http://USER:PASSWORD@HOST:PORT`, or without user and password. Keep the password out
    /// of the file: `${PROXY_PASSWORD}`. The value of the variable must be percent-encoded: `@` is
    /// `%40`, `/` is `%2F`.
    pub url: Option<ConfigSecret>,
    /// The servers that are reached without the proxy, as in `NO_PROXY`: names with all names below
    /// them (`example.com`, `.example.com` and `*.example.com` mean the same), addresses, networks
    /// (`10.0.0.0/8`), or `*`. Names and addresses may have a port. A network covers servers whose
    /// URL has an address: names are not resolved.
    pub bypass: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for RawForwardProxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ForwardProxyVisitor;
        impl<'de> Visitor<'de> for ForwardProxyVisitor {
            type Value = RawForwardProxy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`environment` or a map")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<RawForwardProxy, E> {
                if text == ENVIRONMENT {
                    return Ok(RawForwardProxy::Environment);
                }
                // The text may hold a password, so it is not repeated. The second line is the hint.
                Err(E::custom(
                    "is neither `environment` nor a map\nwrite { url: http://host:port }",
                ))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawForwardProxy, A::Error> {
                RawProxyKeys::deserialize(MapAccessDeserializer::new(map))
                    .map(RawForwardProxy::Keys)
            }
        }
        deserializer.deserialize_any(ForwardProxyVisitor)
    }
}

impl JsonSchema for RawForwardProxy {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawForwardProxy".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<RawProxyKeys>();
        json_schema!({ "anyOf": [{ "const": ENVIRONMENT }, section] })
    }
}
