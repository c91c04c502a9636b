//! loom's form of what the files import from `crate::sync`.

use std::future::{Future, ready};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;

use loom::future::block_on;
use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};

pub(crate) use crate::oneshot;

/// A lock of loom that ignores the panic of an earlier owner, as those of `parking_lot` do.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    #[allow(dead_code, reason = "some files only use the default")]
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An atomic of loom with two differences. Its sequentially consistent loads return the newest value: those
/// of loom are acquiring loads, which may return an older one. And its stores are swaps: in loom, a store
/// and a change of another thread may each precede the other, so that the store is lost.
macro_rules! atomic {
    ($name:ident, $value:ty, $newest:ident($nothing:expr)) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        #[allow(dead_code, reason = "each atomic has all of them")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                match order {
                    Ordering::SeqCst => self.0.$newest($nothing, order),
                    _ => self.0.load(order),
                }
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.swap(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }

            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut current = self.load(fetch);
                while let Some(next) = change(current) {
                    match self.0.compare_exchange(current, next, set, fetch) {
                        Ok(previous) => return Ok(previous),
                        Err(newer) => current = newer,
                    }
                }
                Err(current)
            }
        }
    };
}

macro_rules! counting_atomic {
    ($name:ident, $value:ty) => {
        atomic!($name, $value, fetch_add(0));

        #[allow(dead_code, reason = "each atomic has all of them")]
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, order)
            }

            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_sub(value, order)
            }
        }
    };
}

atomic!(AtomicBool, bool, fetch_or(false));
counting_atomic!(AtomicU64, u64);
counting_atomic!(AtomicUsize, usize);

/// A waker that one task sets and others wake.
#[derive(Default)]
pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

impl AtomicWaker {
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.register_by_ref(waker);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}

/// The runtime: one worker thread by its own account, and a thread of loom for each task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn current() -> Self {
        Self
    }

    #[allow(clippy::unnecessary_wraps, reason = "the form of tokio")]
    pub(crate) fn try_current() -> Result<Self, std::convert::Infallible> {
        Ok(Self)
    }

    pub(crate) fn metrics(self) -> Self {
        self
    }

    pub(crate) fn num_workers(self) -> usize {
        1
    }

    pub(crate) fn spawn(self, task: impl Future<Output = ()> + 'static) {
        loom::thread::spawn(move || block_on(task));
    }
}

/// Lets the other threads go first.
pub(crate) fn yield_now() -> impl Future<Output = ()> {
    loom::thread::yield_now();
    ready(())
}

/// A time limit that is never reached.
pub(crate) async fn timeout<F: Future>(
    _limit: Duration,
    future: F,
) -> Result<F::Output, std::convert::Infallible> {
    Ok(future.await)
}
