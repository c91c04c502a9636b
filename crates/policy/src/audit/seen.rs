//! What has a record already, so that what repeats with every request does not get one each time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;

/// A sender that is let in again within this time has a record already.
const LET_IN: Duration = Duration::from_secs(3600);
/// An address that runs into its rate again within this time has a record already: it would fill the disk otherwise.
const LIMITED: Duration = Duration::from_secs(60);
/// So many are remembered; who is forgotten gets a further record.
const MOST: usize = 65_536;

/// What repeats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Repeated {
    /// A principal is let in through a client.
    LetIn([u8; 16], Option<Arc<str>>),
    /// A rate is used up, of an address.
    Limited(&'static str, IpAddr),
}

/// Remembers what has a record.
#[derive(Debug)]
pub(super) struct Seen(Cache<Repeated, Duration>);

impl Seen {
    pub(super) fn new() -> Self {
        Self(Cache::new(MOST))
    }

    /// Whether this is the first time for a while. Two at the same moment may both be.
    pub(super) fn is_first(&self, what: Repeated, now: Duration) -> bool {
        let window = match what {
            Repeated::LetIn(..) => LET_IN,
            Repeated::Limited(..) => LIMITED,
        };
        if self.0.get(&what).is_some_and(|last| now.saturating_sub(last) < window) {
            return false;
        }
        self.0.insert(what, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f18_what_repeats_has_one_record_in_its_window() {
        let seen = Seen::new();
        let who = |n| Repeated::LetIn([n; 16], Some("ide".into()));
        assert!(seen.is_first(who(1), Duration::ZERO));
        assert!(!seen.is_first(who(1), LET_IN - Duration::from_secs(1)));
        assert!(seen.is_first(who(1), LET_IN));
        assert!(seen.is_first(who(2), LET_IN));
        assert!(seen.is_first(Repeated::LetIn([1; 16], None), LET_IN), "through another client");
        let limited = || Repeated::Limited("address_limit", [127, 0, 0, 1].into());
        assert!(seen.is_first(limited(), Duration::ZERO));
        assert!(!seen.is_first(limited(), LIMITED / 2));
        assert!(seen.is_first(limited(), LIMITED));
    }
}
