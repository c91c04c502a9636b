//! The numbers of writes that wait for the shared store, their sum, and the wait until one of them is
//! zero.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use weir_core::telemetry::instruments;

/// The sum of the writes of all kinds that wait, with its gauge. Clones are the same sum.
#[derive(Clone, Debug, Default)]
pub struct PendingSum(Arc<Mutex<usize>>);

impl PendingSum {
    /// The sum.
    pub fn get(&self) -> usize {
        *self.0.lock()
    }

    /// Replaces one part of the sum.
    fn change(&self, before: usize, now: usize) {
        let mut sum = self.0.lock();
        *sum = sum.saturating_sub(before) + now;
        // Within the lock, so that the gauge keeps the newest sum.
        instruments().store_pending.record(*sum as u64, &[]);
    }
}

/// A number of writes that changes while others wait for its zero. Clones are the same number.
#[derive(Clone, Debug)]
pub struct PendingCount {
    count: watch::Sender<usize>,
    sum: PendingSum,
}

impl PendingCount {
    /// No writes, as a part of a sum.
    pub fn new(sum: PendingSum) -> Self {
        Self {
            count: watch::Sender::new(0),
            sum,
        }
    }

    /// The number.
    pub fn get(&self) -> usize {
        *self.count.borrow()
    }

    /// Counts again. Counts are taken one after another, so that the last one is the newest; `count`
    /// may lock what the caller has not locked.
    pub fn update(&self, count: impl FnOnce() -> usize) {
        self.count.send_modify(|pending| {
            let now = count();
            self.sum.change(*pending, now);
            *pending = now;
        });
    }

    /// Waits until the number is zero; returns the number at the time limit. Cancel safe.
    pub async fn wait_for_zero(&self, limit: Duration) -> usize {
        self.wait_until(limit, |left| left == 0).await;
        self.get()
    }

    /// Waits until `is_met` is true for a count, at most for the time limit. Cancel safe.
    pub async fn wait_until(&self, limit: Duration, mut is_met: impl FnMut(usize) -> bool) {
        let mut pending = self.count.subscribe();
        let until = Instant::now() + limit;
        let _ = timeout_at(until, pending.wait_for(|left| is_met(*left))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_has_the_writes_of_all_kinds() {
        let sum = PendingSum::default();
        let [records, events] = [(); 2].map(|()| PendingCount::new(sum.clone()));
        for (count, number, expected) in [
            (&records, 3, 3),
            (&events, 4, 7),
            (&records, 1, 5),
            (&events, 0, 1),
            (&records, 0, 0),
        ] {
            count.update(|| number);
            assert_eq!((count.get(), sum.get()), (number, expected));
        }
    }
}
