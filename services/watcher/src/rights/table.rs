//! What was said of what is needed, and when to ask again. Pure.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::ExistingObjects;
use tokio::time::Instant;

/// Before what lacks is asked for again at first; twice as long each time.
const LACKING_AGAIN_MIN: Duration = Duration::from_secs(5);

/// And at last.
const LACKING_AGAIN_MAX: Duration = Duration::from_secs(300);

/// Before what is granted is asked for again: it may be taken away.
const GRANTED_AGAIN: Duration = Duration::from_secs(600);

/// Needs that are asked for; of more nothing is known.
const NEEDS_MAX: usize = 2_000;

/// Objects that a policy changes, as far as it says before there is a trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// Empty for all, as the name.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl From<ExistingObjects> for Need {
    fn from(objects: ExistingObjects) -> Self {
        let plain = |text: String| match text.contains(['*', '?', '{']) {
            true => String::new(),
            false => text,
        };
        Self {
            group: objects.group,
            version: objects.version,
            kind: objects.kind,
            namespace: plain(objects.namespace),
            name: plain(objects.name),
        }
    }
}

#[derive(Debug)]
struct Known {
    /// What lacks; `None`: nothing is known.
    said: Option<Option<String>>,
    due: Instant,
    /// The wait after the next answer, if it lacks still.
    pause: Duration,
}

/// All that is needed.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: BTreeMap<Need, Known>,
}

impl Table {
    /// These are needed, and no others. Sorted, since there may be thousands.
    pub(super) fn want(&mut self, needs: &[Need]) {
        debug_assert!(needs.is_sorted(), "needs are looked up");
        self.known
            .retain(|need, _| needs.binary_search(need).is_ok());
        for need in needs {
            if self.known.len() < NEEDS_MAX && !self.known.contains_key(need) {
                let known = Known {
                    said: None,
                    due: Instant::now(),
                    pause: LACKING_AGAIN_MIN,
                };
                self.known.insert(need.clone(), known);
            }
        }
    }

    /// What is to be asked now: what nothing is known of first.
    pub(super) fn due(&self, now: Instant) -> Option<Need> {
        let due = self.known.iter().filter(|(_, known)| known.due <= now);
        let first = due.min_by_key(|(_, known)| (known.said.is_some(), known.due));
        first.map(|(need, _)| need.clone())
    }

    /// When the next is.
    pub(super) fn next(&self) -> Option<Instant> {
        self.known.values().map(|known| known.due).min()
    }

    /// What lacks; `None`: the API server did not say, and what it said before stands.
    pub(super) fn said(&mut self, need: &Need, said: Option<Option<String>>, now: Instant) {
        let Some(known) = self.known.get_mut(need) else {
            return;
        };
        if matches!(said, Some(None)) {
            known.pause = LACKING_AGAIN_MIN;
            known.due = now + GRANTED_AGAIN;
        } else {
            known.due = now + known.pause;
            known.pause = (known.pause * 2).min(LACKING_AGAIN_MAX);
        }
        known.said = said.or(known.said.take());
    }

    /// All that is known.
    pub(super) fn found(&self) -> BTreeMap<Need, Option<String>> {
        let known = self.known.iter();
        known
            .filter_map(|(need, known)| Some((need.clone(), known.said.clone()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(name: &str) -> Need {
        ExistingObjects {
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: name.into(),
            ..ExistingObjects::default()
        }
        .into()
    }

    #[test]
    fn what_only_a_trigger_knows_is_needed_of_all() {
        assert_eq!(need("web-*").name, "");
        assert_eq!(need("web").name, "web");
    }

    #[tokio::test(start_paused = true)]
    async fn what_lacks_is_asked_for_again_ever_more_seldom() {
        let (mut table, mut now) = (Table::default(), Instant::now());
        let (a, b) = (need("a"), need("b"));
        table.want(&[a.clone(), b.clone()]);
        assert_eq!(table.due(now), Some(a.clone()));
        let lacks = || Some(Some("no".to_owned()));
        let mut waits = Vec::new();
        for _ in 0..8 {
            table.said(&a, lacks(), now);
            table.said(&b, Some(None), now);
            let next = table.next().unwrap();
            waits.push((next - now).as_secs());
            now = next;
            assert_eq!(table.due(now), Some(a.clone()));
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        // Where the API server does not say, what it said stands.
        table.said(&a, None, now);
        assert_eq!(table.found()[&a], Some("no".to_owned()));
        // Granted: it is taken back.
        table.said(&a, Some(None), now);
        assert_eq!((&table.found()[&a], table.due(now)), (&None, None));
        assert_eq!(table.known[&a].due - now, GRANTED_AGAIN);
        table.want(std::slice::from_ref(&b));
        assert_eq!(table.found().into_keys().collect::<Vec<_>>(), [b]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_very_many_needs_some_are_asked_for() {
        let needs = (0..=NEEDS_MAX).map(|at| need(&format!("p{at:04}")));
        let (needs, mut table) = (needs.collect::<Vec<_>>(), Table::default());
        table.want(&needs);
        assert_eq!(table.known.len(), NEEDS_MAX);
        // Of those that are left none is lost.
        table.want(&needs[..NEEDS_MAX / 2]);
        assert!(table.known.keys().eq(&needs[..NEEDS_MAX / 2]));
    }
}
