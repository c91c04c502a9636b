//! `rates:` as they are written: how often, how much a day, how many at once.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, de};

use super::{Ordered, Time};

/// How often clients may come. What is not given is not limited.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRates {
    /// Requests of an address (a /24 or, with IPv6, /64 network), before its credentials are looked
    /// at; loopback is exempt.
    pub(crate) address: Option<RawRate>,
    /// What each principal may do: so many requests, and so many calls by their cost. Does not bind
    /// callers without credentials.
    pub(crate) principal: Option<RawLimit>,
    /// The same on one endpoint, in place of `principal`; what it does not say, that says.
    pub(crate) endpoints: Option<Ordered<RawLimit>>,
    /// The same for members of a group, in place of both. Of several groups the first one here
    /// counts.
    pub(crate) groups: Option<Ordered<RawLimit>>,
    /// The same for what comes through an OAuth client (by its id), in place of all three.
    pub(crate) clients: Option<Ordered<RawLimit>>,
    /// Calls of tools, by a pattern of upstream and the tool's own name: `files/write_*`,
    /// `*/delete_*`. The first that matches counts.
    pub(crate) tools: Option<Ordered<RawToolLimit>>,
    /// Calls of an upstream, by their cost, of all principals together.
    pub(crate) upstreams: Option<Ordered<RawLimit>>,
    /// How many calls at the same time.
    pub(crate) concurrency: Option<RawConcurrency>,
    /// What becomes of a call whose daily quota cannot be counted. Default `allow`.
    pub(crate) uncounted: Option<RawUncounted>,
}

/// How often.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRate {
    /// So many in so much time: `50/s`.
    pub(crate) rate: Option<Frequency>,
    /// The most at once after a pause. Default: the number of the rate.
    pub(crate) burst: Option<u32>,
}

/// How often, and how much a day.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawLimit {
    /// So many in so much time: `20/s`, `100/m`.
    pub(crate) rate: Option<Frequency>,
    /// The most at once after a pause. Default: the number of the rate.
    pub(crate) burst: Option<u32>,
    /// Calls, by their cost, in a day of UTC.
    pub(crate) daily: Option<u64>,
}

/// How often some tools may be called, and what a call costs.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawToolLimit {
    /// Calls of these tools in so much time: `5/s`.
    pub(crate) rate: Option<Frequency>,
    /// The most at once after a pause. Default: the number of the rate.
    pub(crate) burst: Option<u32>,
    /// Calls of these tools in a day of UTC.
    pub(crate) daily: Option<u64>,
    /// As how many calls one counts against the limits of its principal and its upstream. Default
    /// 1.
    pub(crate) cost: Option<u32>,
    /// True: one budget for everybody. Default: one for each principal.
    pub(crate) shared: Option<bool>,
}

/// How many calls at the same time. Those of an upstream are in its own `limits.in_flight`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawConcurrency {
    /// Calls of one principal in flight. Default 64. Does not bind callers without credentials.
    pub(crate) principal: Option<usize>,
    /// Calls that wait for the places of one principal or one upstream, served in turn by
    /// principal. Default 128 for a principal, 1024 for an upstream.
    pub(crate) queue: Option<usize>,
    /// How long a call waits for its places. Default `2s`.
    pub(crate) wait: Option<Time>,
}

/// What becomes of a call whose daily quota cannot be counted.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawUncounted {
    /// It may go: rates still hold.
    Allow,
    /// It is refused.
    Refuse,
}

/// So many in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frequency {
    pub(crate) count: u32,
    pub(crate) per: Duration,
}

const WHAT: &str = "a rate";
const HINT: &str = "write a number, / and s, m, h or d, such as 20/s or 100/m";

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
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Frequency;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WHAT)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Frequency, E> {
                // What follows the newline becomes the hint.
                let bad = || E::custom(format_args!("`{text}` is no rate\n{HINT}"));
                Frequency::parse(text.trim()).ok_or_else(bad)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Frequency, E> {
                Err(Error::custom(format_args!(
                    "`{number}` says not in how much time\n{HINT}"
                )))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Frequency {
    fn schema_name() -> Cow<'static, str> {
        "Frequency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ ?/ ?[smhd]$", "description": HINT })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_says_how_many_in_how_much_time() {
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
