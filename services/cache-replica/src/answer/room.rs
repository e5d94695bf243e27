//! Room for requests: at most so many are under way, of the policies of one namespace a part of them, and of those of all
//! namespaces a larger part.

use std::collections::BTreeMap;

use anteroom_model::FactError;
use parking_lot::Mutex;

/// The policies of one namespace have this part of the requests; one at least.
const NAMESPACE_PART: u32 = 4;

/// The policies of all namespaces together have so many hundredths of the requests, so that policies of the cluster have
/// the rest; one at least.
const NAMESPACES_PERCENT: u32 = 75;

/// Counts the running and waiting requests.
#[derive(Debug)]
pub(super) struct Room {
    all_max: u32,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: u32,
    /// The sum of `of_namespaces`.
    of_all_namespaces: u32,
    /// None is 0.
    of_namespaces: BTreeMap<String, u32>,
}

/// A request that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Admitted<'r> {
    room: &'r Room,
    namespace: String,
}

impl Room {
    pub(super) fn new(all_max: u32) -> Self {
        Self {
            all_max,
            under_way: Mutex::default(),
        }
    }

    /// Takes in a request of policies of a namespace, or (empty) of the cluster.
    ///
    /// # Errors
    /// [`FactError::Busy`] where there is no room, with the limit that was met.
    pub(super) fn admit(&self, namespace: &str) -> Result<Admitted<'_>, FactError> {
        let refused = |limit: u32| FactError::Busy {
            limit: limit.into(),
        };
        let mut under_way = self.under_way.lock();
        if under_way.all >= self.all_max {
            return Err(refused(self.all_max));
        }
        if !namespace.is_empty() {
            let part = (self.all_max / NAMESPACE_PART).max(1);
            let together = u64::from(self.all_max) * u64::from(NAMESPACES_PERCENT) / 100;
            let together = together.max(1) as u32;
            if under_way.of_all_namespaces >= together {
                return Err(refused(together));
            }
            match under_way.of_namespaces.get_mut(namespace) {
                Some(count) if *count >= part => return Err(refused(part)),
                Some(count) => *count += 1,
                None => drop(under_way.of_namespaces.insert(namespace.to_owned(), 1)),
            }
            under_way.of_all_namespaces += 1;
        }
        under_way.all += 1;
        Ok(Admitted {
            room: self,
            namespace: namespace.to_owned(),
        })
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut under_way = self.room.under_way.lock();
        under_way.all -= 1;
        under_way.of_all_namespaces -= u32::from(!self.namespace.is_empty());
        if let Some(count) = under_way.of_namespaces.get_mut(&self.namespace) {
            *count -= 1;
            if *count == 0 {
                under_way.of_namespaces.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_a_quarter_and_leaves_the_rest_to_others() {
        let room = Room::new(8);
        let of_a: Vec<_> = [room.admit("a"), room.admit("a")].into();
        assert!(of_a.iter().all(Result::is_ok));
        assert_eq!(room.admit("a").unwrap_err(), FactError::Busy { limit: 2 });
        let others: Vec<_> = ["b", "b", "", "", "", ""]
            .map(|namespace| room.admit(namespace).unwrap())
            .into();
        assert_eq!(room.admit("c").unwrap_err(), FactError::Busy { limit: 8 });
        drop((of_a, others));
        let under_way = room.under_way.lock();
        assert_eq!((under_way.all, under_way.of_namespaces.len()), (0, 0));
    }

    #[test]
    fn many_namespaces_leave_a_quarter_to_policies_of_the_cluster() {
        let room = Room::new(8);
        let held = ["a", "a", "b", "b", "c", "c"].map(|namespace| room.admit(namespace).unwrap());
        assert_eq!(room.admit("d").unwrap_err(), FactError::Busy { limit: 6 });
        let of_cluster = [room.admit("").unwrap(), room.admit("").unwrap()];
        assert_eq!(room.admit("").unwrap_err(), FactError::Busy { limit: 8 });
        drop((held, of_cluster));
        assert_eq!(room.under_way.lock().of_all_namespaces, 0);
    }

    #[test]
    fn the_least_part_is_one() {
        let room = Room::new(1);
        let one = room.admit("a").unwrap();
        assert_eq!(room.admit("").unwrap_err(), FactError::Busy { limit: 1 });
        drop(one);
        assert!(room.admit("").is_ok());
    }
}
