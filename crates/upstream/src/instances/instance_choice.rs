//! The choice of an instance for a call: power of two choices over PeakEwma, with weights. Sans-IO:
//! randomness is an argument.
//!
//! Two candidates are drawn by their weights. The first gets the call, unless it costs more than
//! twice as much as the second. So the weights hold while all instances work alike, and the load
//! decides once they do not. No instance gets more than twice its part in this way: an instance with
//! a small weight is not to bear the load of the others.

use std::time::Duration;

/// A first candidate with this many times the cost of the second loses the call. Smaller
/// differences are chance: taking them would give two instances half of the calls each, whatever
/// their weights are.
const TOLERANCE: f64 = 2.0;
/// A shorter latency counts as this: below it the scheduling of a busy machine is measured, and not
/// the instance.
const MIN_LATENCY: f64 = 0.005;
/// The latency of one instance counts as at most this many times that of the fastest. A single long
/// call must not send all others to one instance that cannot bear them.
const MAX_LATENCY_RATIO: f64 = 10.0;
/// The calls of others make at most this many times its part of the recent calls of an instance.
const MAX_SHARE: f64 = 2.0;
/// An instance without a latency counts as so many times as fast as the others. That is beyond the
/// tolerance, so it gets a call soon, but not a second one before others get some.
const UNKNOWN_ADVANTAGE: f64 = 3.0;

/// An instance that may get the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Its position among the instances of the server.
    pub(crate) index: usize,
    /// Its part of the calls; at least 1.
    pub(crate) weight: u32,
    /// Its latency; absent if unknown.
    pub(crate) latency: Option<Duration>,
    /// Its calls in flight.
    pub(crate) in_flight: usize,
    /// The calls that it got recently.
    pub(crate) recent: f64,
}

/// Chooses one of the candidates. `random` returns numbers from 0 up to, but without, 1. Returns no
/// candidate if there is none.
pub(crate) fn choose(
    candidates: &[Candidate],
    mut random: impl FnMut() -> f64,
) -> Option<Candidate> {
    let first = draw(candidates, None, random())?;
    let Some(second) = draw(candidates, Some(first.index), random()) else {
        return Some(first);
    };
    let load = TotalLoad::of(candidates);
    let is_worse = load.cost(&first) > TOLERANCE * load.cost(&second);
    Some(if is_worse && load.has_room(&second) {
        second
    } else {
        first
    })
}

/// Draws a candidate by weight, other than `except`. `at` is the drawn number.
fn draw(candidates: &[Candidate], except: Option<usize>, at: f64) -> Option<Candidate> {
    let others = || {
        candidates
            .iter()
            .filter(move |one| Some(one.index) != except)
    };
    let total: f64 = others().map(|one| f64::from(one.weight)).sum();
    let mut left = at * total;
    others()
        .find(|one| {
            left -= f64::from(one.weight);
            left < 0.0
        })
        .or_else(|| others().next_back())
        .copied()
}

/// The sums over all candidates that the cost of one is relative to.
struct TotalLoad {
    weight: f64,
    in_flight: f64,
    recent: f64,
    /// The bounds of the latencies that count, in seconds.
    fastest: f64,
    slowest: f64,
    /// The latency of an instance without one.
    unknown: f64,
}

impl TotalLoad {
    fn of(candidates: &[Candidate]) -> Self {
        let known = || {
            let latencies = candidates.iter().filter_map(|one| one.latency);
            latencies.map(|latency| latency.as_secs_f64().max(MIN_LATENCY))
        };
        let fastest = known().fold(f64::INFINITY, f64::min).min(f64::MAX);
        let count = known().count().max(1);
        Self {
            weight: candidates.iter().map(|one| f64::from(one.weight)).sum(),
            in_flight: candidates.iter().map(|one| one.in_flight as f64).sum(),
            recent: candidates.iter().map(|one| one.recent).sum(),
            fastest,
            slowest: fastest * MAX_LATENCY_RATIO,
            unknown: known().sum::<f64>() / count as f64 / UNKNOWN_ADVANTAGE,
        }
    }

    /// Reports if `one` may get a call in place of another instance.
    fn has_room(&self, one: &Candidate) -> bool {
        let part = f64::from(one.weight) / self.weight;
        one.recent < MAX_SHARE * part * self.recent + 1.0
    }

    /// Returns the cost of giving a call to `one`: its latency, times its calls in flight against
    /// those that its weight allows.
    fn cost(&self, one: &Candidate) -> f64 {
        let latency = one.latency.map_or(self.unknown, |latency| {
            latency.as_secs_f64().clamp(self.fastest, self.slowest)
        });
        let due = self.in_flight * f64::from(one.weight) / self.weight;
        latency.max(MIN_LATENCY / UNKNOWN_ADVANTAGE) * (one.in_flight as f64 + 1.0) / (due + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn candidate(index: usize, weight: u32, latency: Duration, in_flight: usize) -> Candidate {
        Candidate {
            index,
            weight,
            latency: Some(latency),
            in_flight,
            recent: 0.0,
        }
    }

    /// Returns the calls out of 10,000 that each candidate gets.
    fn shares(candidates: &[Candidate]) -> Vec<usize> {
        let mut state = 7_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut shares = vec![0; candidates.len()];
        let mut candidates = candidates.to_vec();
        for _ in 0..10_000 {
            let chosen = choose(&candidates, &mut random).expect("there is one");
            shares[chosen.index] += 1;
            candidates[chosen.index].recent += 1.0;
        }
        shares
    }

    #[test]
    fn weights_hold_while_all_work_alike() {
        let [few, many] = shares(&[candidate(0, 10, 30 * MS, 1), candidate(1, 90, 20 * MS, 6)])[..]
        else {
            panic!("two of them")
        };
        assert!((900..1100).contains(&few) && few + many == 10_000, "{few}");
        let even = shares(&[20, 25, 30].map(|ms| candidate(ms / 5 - 4, 1, 20 * MS, 0)));
        assert!(
            even.iter().all(|share| (3100..3560).contains(share)),
            "{even:?}"
        );
        let three = shares(&[(0, 90), (1, 5), (2, 5)].map(|(at, w)| candidate(at, w, MS, 0)));
        assert!((8850..9150).contains(&three[0]), "{three:?}");
    }

    #[test]
    fn slow_or_overloaded_instance_loses_its_calls() {
        let slow = [candidate(0, 1, 300 * MS, 0), candidate(1, 1, 10 * MS, 0)];
        assert_eq!(shares(&slow), [0, 10_000]);
        let hung = [candidate(0, 1, 10 * MS, 9), candidate(1, 1, 10 * MS, 1)];
        assert_eq!(shares(&hung), [0, 10_000]);
        // One long call is not a reason to send forty to the other instance.
        let loaded = [
            candidate(0, 1, 60_000 * MS, 1),
            candidate(1, 1, 10 * MS, 40),
        ];
        assert!(shares(&loaded)[0] > 4000);
        let noise = [candidate(0, 1, MS / 10, 0), candidate(1, 1, 4 * MS, 0)];
        assert!(shares(&noise)[1] > 4700, "both are fast");
    }

    #[test]
    fn canary_gets_at_most_twice_its_part_while_others_are_slow() {
        let few = shares(&[candidate(0, 10, MS, 0), candidate(1, 90, 500 * MS, 0)])[0];
        assert!((1950..2050).contains(&few), "{few}");
    }

    #[test]
    fn instance_without_a_latency_gets_one_call_at_a_time() {
        let mut new = candidate(0, 1, MS, 0);
        new.latency = None;
        for latency in [MS, 100 * MS] {
            assert_eq!(shares(&[new, candidate(1, 1, latency, 0)]), [10_000, 0]);
            let begun = Candidate {
                in_flight: 1,
                ..new
            };
            let share = shares(&[begun, candidate(1, 1, latency, 0)])[0];
            assert!((4700..5300).contains(&share), "{share}");
        }
        assert_eq!(shares(&[new]), [10_000]);
        assert!(choose(&[], || 0.5).is_none());
        assert_eq!(choose(&[new], || 0.999_999).map(|one| one.index), Some(0));
    }
}
