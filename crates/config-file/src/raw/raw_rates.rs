//! `rates:` as written in the file: rates, daily quotas and concurrency.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, de};

use crate::raw::OrderedMap;
use crate::raw::Time;

/// Rate limits and quotas of clients. An absent key means no limit. Replicas with a shared `store`
/// share them, except for `address` and `concurrency`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawRates {
    /// Requests of one address (a /24 or, with IPv6, /64 network), counted before authentication.
    /// Loopback is exempt.
    pub address: Option<RawRate>,
    /// The limits of each principal: requests, and calls weighted by their cost. Does not apply to
    /// callers without credentials.
    pub principal: Option<RawLimit>,
    /// The same on one endpoint, in place of `principal`. Absent keys come from `principal`.
    pub endpoints: Option<OrderedMap<RawLimit>>,
    /// The same for members of a group, in place of both. The first group listed here that the
    /// caller belongs to counts.
    pub groups: Option<OrderedMap<RawLimit>>,
    /// The same for callers of one OAuth client (by its id) or API key (by its subject, or by its id
    /// for that key alone), in place of all three.
    pub clients: Option<OrderedMap<RawLimit>>,
    /// Calls of tools, by a pattern of upstream and the tool's own name: `files/write_*`,
    /// `*/delete_*`. The first pattern that matches counts.
    pub tools: Option<OrderedMap<RawToolLimit>>,
    /// Calls of an upstream by all principals together, weighted by their cost.
    pub upstreams: Option<OrderedMap<RawLimit>>,
    /// The number of calls at the same time.
    #[schemars(extend("x-protection" = "none below"))]
    pub concurrency: Option<RawConcurrency>,
    /// The handling of a call whose daily quota cannot be counted. Default `allow`.
    pub uncounted: Option<RawUncounted>,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawRate {
    /// A count per time: `50/s`.
    pub rate: Option<Frequency>,
    /// The largest burst after a pause. Default: the number of the rate.
    #[schemars(extend("x-protection" = "none"))]
    pub burst: Option<u32>,
}

/// A rate limit and a daily quota.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawLimit {
    /// A count per time: `20/s`, `100/m`.
    pub rate: Option<Frequency>,
    /// The largest burst after a pause. Default: the number of the rate.
    #[schemars(extend("x-protection" = "none"))]
    pub burst: Option<u32>,
    /// Calls per UTC day, weighted by their cost.
    pub daily: Option<u64>,
}

/// The rate, quota and cost of the calls of some tools.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawToolLimit {
    /// Calls of these tools per time: `5/s`.
    pub rate: Option<Frequency>,
    /// The largest burst after a pause. Default: the number of the rate.
    #[schemars(extend("x-protection" = "none"))]
    pub burst: Option<u32>,
    /// Calls of these tools per UTC day.
    pub daily: Option<u64>,
    /// The number of calls that one call counts as, against the limits of its principal and its
    /// upstream. Default 1.
    #[schemars(extend("x-protection" = "none"))]
    pub cost: Option<u32>,
    /// True: all principals share one budget. Default: one budget for each principal.
    pub shared: Option<bool>,
}

/// The number of calls at the same time. An upstream's own bound is its `limits.in_flight`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawConcurrency {
    /// Calls of one principal in flight. Default 64. Does not apply to callers without credentials.
    pub principal: Option<usize>,
    /// Calls that may wait for a slot of one principal or one upstream, served in turn by
    /// principal. Default 128 for a principal, 1024 for an upstream.
    pub queue: Option<usize>,
    /// The time that a call waits for its slots. Default `2s`.
    pub wait: Option<Time>,
}

/// The handling of a call whose daily quota cannot be counted.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawUncounted {
    /// The call is allowed. Rates still apply.
    Allow,
    /// The call is refused.
    Refuse,
}

/// A count per time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// The count.
    pub count: u32,
    /// The time in which it is counted.
    pub per: Duration,
}

const RATE_NAME: &str = "a rate";
const RATE_HINT: &str = "write a number, / and s, m, h or d, such as 20/s or 100/m";

impl Frequency {
    fn parse(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once('/')?;
        let seconds = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return None,
        };
        let count = count.trim_end();
        let plain = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|_| plain)?;
        Some(Self {
            count,
            per: Duration::from_secs(seconds),
        })
    }
}

impl<'de> Deserialize<'de> for Frequency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FrequencyVisitor;
        impl Visitor<'_> for FrequencyVisitor {
            type Value = Frequency;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(RATE_NAME)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Frequency, E> {
                // The text after the newline becomes the hint.
                let bad = || E::custom(format_args!("`{text}` is not a rate\n{RATE_HINT}"));
                Frequency::parse(text.trim()).ok_or_else(bad)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Frequency, E> {
                Err(Error::custom(format_args!(
                    "`{number}` has no unit of time\n{RATE_HINT}"
                )))
            }
        }
        deserializer.deserialize_any(FrequencyVisitor)
    }
}

impl JsonSchema for Frequency {
    fn schema_name() -> Cow<'static, str> {
        "Frequency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ ?/ ?[smhd]$", "description": RATE_HINT })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_has_count_and_unit() {
        let read = |text| Frequency::parse(text).map(|read| (read.count, read.per.as_secs()));
        assert_eq!(read("20/s"), Some((20, 1)));
        assert_eq!(read("100 / m"), Some((100, 60)));
        assert_eq!(read("1/d"), Some((1, 86_400)));
        for bad in [
            "",
            "20",
            "/s",
            "20/",
            "20/ms",
            "20/w",
            "-1/s",
            "+1/s",
            "1.5/s",
            "5000000000/s",
            "1/s/s",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
