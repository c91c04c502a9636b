//! How many of something are open, altogether and of each principal: listen and GET streams, and
//! what clients subscribed to. A place is given back when it is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::Principal;
use weir_core::budget::Reservation;

/// The books. The map has an entry only for a principal that holds a place, so the total bounds it.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    open: usize,
    by_principal: HashMap<[u8; 16], usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The service has as many as it may.
    Total,
    /// The principal has.
    Principal,
}

/// A place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    /// `None` for the anonymous principal, who is everybody: the total alone binds it.
    of: Option<[u8; 16]>,
    /// What is held with it of a budget of the process.
    weight: Option<Reservation>,
}

impl Places {
    /// Takes a place for `principal`, of `most` altogether and `own_most` of each principal.
    pub(crate) fn take(
        self: &Arc<Self>,
        principal: &Principal,
        (most, own_most): (usize, usize),
    ) -> Result<Place, NoPlace> {
        let of = (!principal.is_anonymous()).then(|| *principal.digest());
        let mut books = self.books();
        if books.open >= most {
            return Err(NoPlace::Total);
        }
        if let Some(of) = of {
            let own = books.by_principal.get(&of).copied().unwrap_or(0);
            if own >= own_most {
                return Err(NoPlace::Principal);
            }
            books.by_principal.insert(of, own + 1);
        }
        books.open += 1;
        drop(books);
        Ok(Place {
            places: self.clone(),
            of,
            weight: None,
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The same, which gives this back with the place.
    pub(crate) fn weighing(mut self, weight: Reservation) -> Self {
        self.weight = Some(weight);
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut books = self.places.books();
        books.open -= 1;
        if let Some(of) = self.of
            && let Entry::Occupied(mut own) = books.by_principal.entry(of)
        {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}
