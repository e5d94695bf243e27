//! Chooses the way in which a query is answered. Pure.
//!
//! The first row that holds is taken:
//!
//! | path | taken if | the query runs |
//! |---|---|---|
//! | [`Inline`](AnswerPath::Inline) | `--verify-plans` is off, and the selection is small or an index leaves few objects | where the call arrived |
//! | [`Remembered`](AnswerPath::Remembered) | an equal query was answered over the same content | nowhere |
//! | [`Offloaded`](AnswerPath::Offloaded) | an index finds at most half of the objects within a limit of steps, or the selection has at most a slice of objects | on a worker thread |
//! | [`Sliced`](AnswerPath::Sliced) | the expression can be cut into slices, and most of the view is selected | slice by slice, in turns with other scans |
//! | [`Whole`](AnswerPath::Whole) | none of the others is | on a thread that leaves a core free |
//!
//! The first two rows are tried when a call arrives. Anything else goes to a worker, which starts at the second row.
//!
//! So a short query never waits for a long one: it is answered before anything is handed to a thread.

use std::time::Duration;

use crate::{
    derived::{LookupLimit, WAIT_MAX},
    scan::SLICE_OBJECTS,
};

/// The most objects that are evaluated over where the call arrived: that takes less than a tenth of a
/// millisecond, about as long as handing them to another thread and back under load.
pub(super) const INLINE_OBJECTS_MAX: usize = 64;

/// The most bytes of the bodies of a selection that is evaluated on arrival: about the bytes of
/// [`INLINE_OBJECTS_MAX`] usual objects.
const INLINE_BYTES_MAX: usize = 128 * 1024;

/// The most bytes of the bodies of objects that an index finds on arrival: few of them, but large ones, take long.
const INLINE_FOUND_BYTES_MAX: usize = 2 * INLINE_BYTES_MAX;

/// Values of an index that are looked at where the call arrived: about as long as that many objects take.
const INLINE_STEPS_MAX: usize = 4_096;

/// Values of an index that are looked at on a worker thread, at least: some milliseconds.
const WORKER_STEPS_MIN: usize = 1 << 18;

/// The most values of an index to look at, for each object of the view. Beyond that a scan of all objects costs
/// little more, counts against the query's budget, and delays no other query.
const WORKER_STEPS_PER_OBJECT: usize = 8;

/// The longest wait of a worker for an index that another one uses: to look through all objects takes longer.
const WORKER_WAIT_MAX: Duration = Duration::from_millis(50);

/// Returns the most values that a worker looks at in an index over this many objects.
fn worker_steps_max(objects: usize) -> usize {
    objects
        .saturating_mul(WORKER_STEPS_PER_OBJECT)
        .max(WORKER_STEPS_MIN)
}

/// A selection of less than this part of a view is evaluated whole: most slices of the view have none of its objects.
const SLICED_SHARE_MIN: usize = 4;

/// The way in which a query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPath {
    /// Evaluated where the call arrived, over few objects.
    Inline,
    /// The result of an equal query over the same content.
    Remembered,
    /// Evaluated on a worker thread, over some of the objects. On arrival: the worker chooses again.
    Offloaded,
    /// Evaluated slice by slice.
    Sliced,
    /// Evaluated over all selected objects, in a single piece.
    Whole,
}

/// The stage at which a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// On the task that took the call: nothing may take long.
    Arrival,
    /// On a worker thread.
    Worker,
}

/// The inputs of the choice. Each is found out when it is asked for, so the cheap ones are asked first.
pub(super) trait QueryTraits {
    /// The result is to be compared with that of a scan, which takes a worker.
    fn is_verified(&self) -> bool;
    /// The number of objects in the view.
    fn objects(&self) -> usize;
    /// The number of objects that have to be looked at for those that are selected, counted up to `most`.
    fn selected(&self, most: usize) -> usize;
    /// The selected objects, and their bodies, are no more than these.
    fn selects_at_most(&self, objects: usize, bytes: usize) -> bool;
    /// An index finds the objects within this limit.
    fn finds(&mut self, limit: LookupLimit) -> bool;
    /// The memo has the result.
    fn is_remembered(&mut self) -> bool;
    /// The expression can be cut into slices.
    fn is_sliceable(&mut self) -> bool;
}

impl AnswerPath {
    /// Returns the first path of the table whose condition holds.
    pub(super) fn choose(stage: Stage, traits: &mut impl QueryTraits) -> Self {
        let inline = LookupLimit {
            objects: INLINE_OBJECTS_MAX,
            bytes: INLINE_FOUND_BYTES_MAX,
            steps: INLINE_STEPS_MAX,
            wait_max: WAIT_MAX,
        };
        let is_arrival = stage == Stage::Arrival;
        if is_arrival
            && !traits.is_verified()
            && (traits.selects_at_most(INLINE_OBJECTS_MAX, INLINE_BYTES_MAX)
                || traits.finds(inline))
        {
            return Self::Inline;
        }
        if traits.is_remembered() {
            return Self::Remembered;
        }
        if is_arrival {
            return Self::Offloaded;
        }
        let objects = traits.objects();
        // With more, to look through all that is selected costs no more.
        let some = LookupLimit {
            objects: traits.selected(objects / 2),
            bytes: usize::MAX,
            steps: worker_steps_max(objects),
            wait_max: WORKER_WAIT_MAX,
        };
        if traits.finds(some) {
            return Self::Offloaded;
        }
        let selected = traits.selected(objects);
        if selected <= SLICE_OBJECTS {
            return Self::Offloaded;
        }
        match selected >= objects / SLICED_SHARE_MIN && traits.is_sliceable() {
            true => Self::Sliced,
            false => Self::Whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The traits of a query over a large view that is selected whole.
    #[derive(Clone, Copy)]
    struct Case {
        is_verified: bool,
        objects: usize,
        selected: usize,
        selected_bytes: usize,
        /// The number of objects that an index finds, and the steps for that.
        found: Option<(usize, usize)>,
        is_remembered: bool,
        is_sliceable: bool,
    }

    const SCAN: Case = Case {
        is_verified: false,
        objects: 10_000,
        selected: 10_000,
        selected_bytes: 20_000_000,
        found: None,
        is_remembered: false,
        is_sliceable: true,
    };

    impl QueryTraits for Case {
        fn is_verified(&self) -> bool {
            self.is_verified
        }

        fn objects(&self) -> usize {
            self.objects
        }

        fn selected(&self, most: usize) -> usize {
            self.selected.min(most)
        }

        fn selects_at_most(&self, objects: usize, bytes: usize) -> bool {
            self.selected <= objects && self.selected_bytes <= bytes
        }

        fn finds(&mut self, limit: LookupLimit) -> bool {
            self.found
                .is_some_and(|(objects, steps)| objects <= limit.objects && steps <= limit.steps)
        }

        fn is_remembered(&mut self) -> bool {
            self.is_remembered
        }

        fn is_sliceable(&mut self) -> bool {
            self.is_sliceable
        }
    }

    fn on_arrival(mut case: Case) -> AnswerPath {
        AnswerPath::choose(Stage::Arrival, &mut case)
    }

    fn on_worker(mut case: Case) -> AnswerPath {
        AnswerPath::choose(Stage::Worker, &mut case)
    }

    fn selecting(objects: usize, bytes: usize) -> Case {
        Case {
            selected: objects,
            selected_bytes: bytes,
            ..SCAN
        }
    }

    fn finding(objects: usize, steps: usize) -> Case {
        Case {
            found: Some((objects, steps)),
            ..SCAN
        }
    }

    #[test]
    fn few_objects_are_evaluated_inline_whatever_is_remembered() {
        for few in [
            selecting(0, 0),
            selecting(INLINE_OBJECTS_MAX, INLINE_BYTES_MAX),
            finding(0, 1),
            finding(INLINE_OBJECTS_MAX, INLINE_STEPS_MAX),
        ] {
            let remembered = Case {
                is_remembered: true,
                ..few
            };
            assert_eq!(on_arrival(remembered), AnswerPath::Inline);
            assert_eq!(on_arrival(few), AnswerPath::Inline);
            // It is to be compared with a scan, which may take long.
            let verified = Case {
                is_verified: true,
                ..few
            };
            assert_eq!(on_arrival(verified), AnswerPath::Offloaded);
        }
        for more in [
            selecting(INLINE_OBJECTS_MAX + 1, 0),
            selecting(1, INLINE_BYTES_MAX + 1),
            finding(INLINE_OBJECTS_MAX + 1, 1),
            finding(1, INLINE_STEPS_MAX + 1),
        ] {
            assert_eq!(on_arrival(more), AnswerPath::Offloaded);
        }
    }

    #[test]
    fn a_remembered_result_is_taken_before_any_longer_evaluation() {
        for case in [SCAN, finding(1_000, 1_000), selecting(500, 1_000_000)] {
            let remembered = Case {
                is_remembered: true,
                ..case
            };
            assert_eq!(on_arrival(remembered), AnswerPath::Remembered);
            assert_eq!(on_worker(remembered), AnswerPath::Remembered);
        }
    }

    #[test]
    fn some_of_the_objects_are_evaluated_on_a_worker() {
        for some in [
            finding(5_000, WORKER_STEPS_MIN),
            finding(1, 1),
            selecting(SLICE_OBJECTS, usize::MAX),
            selecting(1, usize::MAX),
        ] {
            assert_eq!(on_worker(some), AnswerPath::Offloaded);
        }
        assert_ne!(on_worker(finding(5_001, 1)), AnswerPath::Offloaded);
        let more = WORKER_STEPS_MIN + 1;
        assert_ne!(on_worker(finding(1, more)), AnswerPath::Offloaded);
        assert_ne!(
            on_worker(selecting(SLICE_OBJECTS + 1, 0)),
            AnswerPath::Offloaded
        );
    }

    #[test]
    fn most_of_a_view_is_evaluated_by_slices() {
        for case in [SCAN, selecting(2_500, 0), finding(9_000, 1)] {
            assert_eq!(on_arrival(case), AnswerPath::Offloaded);
            assert_eq!(on_worker(case), AnswerPath::Sliced);
        }
    }

    #[test]
    fn a_query_that_cannot_be_sliced_well_is_evaluated_whole() {
        let uncut = Case {
            is_sliceable: false,
            ..SCAN
        };
        for case in [uncut, selecting(2_499, 0)] {
            assert_eq!(on_arrival(case), AnswerPath::Offloaded);
            assert_eq!(on_worker(case), AnswerPath::Whole);
        }
    }
}
