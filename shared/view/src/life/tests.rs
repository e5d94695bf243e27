use std::fmt::Write;

use super::*;

const LOGS: [Log; 5] = [
    Log::Reading,
    Log::Live,
    Log::Rebuilding,
    Log::Lost,
    Log::Passed,
];

fn failure() -> Failure {
    Failure::new("Forbidden", "no")
}

fn states() -> [LifeState; 7] {
    [
        LifeState::Unsynced,
        LifeState::Syncing,
        LifeState::Synced,
        LifeState::Stale,
        LifeState::Failed(failure()),
        LifeState::Evicted,
        LifeState::Dropped,
    ]
}

fn lives() -> Vec<Life> {
    let of = |state: &LifeState| LOGS.map(|log| Life::new(state.clone(), log));
    states().iter().flat_map(of).collect()
}

/// Every event there is, with its name.
fn events() -> Vec<(&'static str, Event<'static>)> {
    static FAILED: std::sync::LazyLock<ViewState> =
        std::sync::LazyLock::new(|| ViewState::Failed { failure: failure() });
    static UNREADABLE: std::sync::LazyLock<Failure> = std::sync::LazyLock::new(failure);
    vec![
        ("restart", Event::Restart),
        ("away", Event::Away),
        ("caught up, nothing said", Event::CaughtUp(None)),
        (
            "caught up, syncing",
            Event::CaughtUp(Some(&ViewState::Syncing)),
        ),
        (
            "caught up, synced",
            Event::CaughtUp(Some(&ViewState::Synced)),
        ),
        ("caught up, failed", Event::CaughtUp(Some(&FAILED))),
        (
            "caught up, dropped",
            Event::CaughtUp(Some(&ViewState::Dropped)),
        ),
        ("control, syncing", Event::Control(&ViewState::Syncing)),
        ("control, synced", Event::Control(&ViewState::Synced)),
        ("control, failed", Event::Control(&FAILED)),
        ("control, dropped", Event::Control(&ViewState::Dropped)),
        ("broken", Event::Broken { served: true }),
        ("broken while gathered", Event::Broken { served: false }),
        ("too old", Event::Aged { over: true }),
        ("fresh", Event::Aged { over: false }),
        ("evict", Event::Evict),
        ("cannot be read here", Event::Fail(&UNREADABLE)),
    ]
}

fn name(life: &Life) -> String {
    format!(
        "{} {}",
        life.state.name(),
        format!("{:?}", life.log).to_lowercase()
    )
}

/// All states that can be reached.
fn reachable() -> Vec<Life> {
    let mut found = vec![Life::reading(), Life::live(), Life::waiting()];
    let mut at = 0;
    while let Some(life) = found.get(at).cloned() {
        for (_, event) in events() {
            let (next, _) = life.clone().step(event);
            if !found.contains(&next) {
                found.push(next);
            }
        }
        at += 1;
    }
    lives()
        .into_iter()
        .filter(|life| found.contains(life))
        .collect()
}

/// The whole table, as `table.txt` has it.
fn table() -> String {
    let mut table = String::from(
        "What every event does in every state that can come about: the next state, and the effect.\n\
         Events that are not listed under a state change nothing there.\n",
    );
    for life in reachable() {
        let _ = write!(table, "\n{}\n", name(&life));
        for (event_name, event) in events() {
            let (next, effect) = life.clone().step(event);
            if next != life || effect != StoreEffect::None {
                let line = format!("  {event_name:<24} {:<20} {effect:?}", name(&next));
                let _ = writeln!(table, "{}", line.trim_end_matches("None").trim_end());
            }
        }
    }
    let never: Vec<_> = lives()
        .iter()
        .filter(|l| !reachable().contains(l))
        .map(name)
        .collect();
    let _ = writeln!(table, "\nnever: {}", never.join(", "));
    table
}

#[test]
fn the_state_table_of_a_view_is_as_reviewed() {
    let table = table();
    assert_eq!(table, include_str!("table.txt"), "the new table:\n{table}");
}

/// Calls `check` for every pair of life and event, impossible pairs included.
fn every_step(check: impl Fn(&Life, Event<'_>, &Life, StoreEffect)) {
    for life in lives() {
        for (_, event) in events() {
            let (next, effect) = life.clone().step(event);
            check(&life, event, &next, effect);
        }
    }
}

#[test]
fn only_a_writers_control_record_makes_a_view_answer() {
    every_step(|life, event, next, _| {
        if next.state.answers() && !life.state.answers() {
            let said = match event {
                Event::CaughtUp(said) => {
                    assert_eq!(life.log, Log::Reading, "{life:?}");
                    said
                }
                Event::Control(said) => {
                    assert!(matches!(life.log, Log::Live | Log::Rebuilding), "{life:?}");
                    Some(said)
                }
                _ => None,
            };
            assert_eq!(said, Some(&ViewState::Synced), "{life:?} {event:?}");
        }
    });
}

#[test]
fn served_data_never_changes_before_the_new_data_is_complete() {
    every_step(|life, event, next, effect| {
        if !(life.state.answers() && next.state.answers()) {
            return;
        }
        if life.log == Log::Live && next.log != Log::Live {
            // Records that come now are kept apart.
            assert!(
                matches!(effect, StoreEffect::StageCopy | StoreEffect::StageEmpty),
                "{life:?} {event:?}"
            );
        }
        if life.log != Log::Live && next.log == Log::Live {
            assert_eq!(effect, StoreEffect::Install, "{life:?} {event:?}");
        }
        assert_ne!(effect, StoreEffect::Free, "{life:?} {event:?}");
    });
}

#[test]
fn gathered_records_are_installed_at_the_logs_end_or_by_a_control_record() {
    every_step(|life, event, _, effect| {
        if effect == StoreEffect::Install {
            assert!(
                matches!(
                    (life.log, event),
                    (Log::Reading, Event::CaughtUp(_)) | (Log::Rebuilding, Event::Control(_))
                ),
                "{life:?} {event:?}"
            );
        }
    });
}

#[test]
fn a_view_that_is_not_followed_returns_only_by_reading_again() {
    let followed = |log| !matches!(log, Log::Lost | Log::Passed);
    every_step(|life, event, next, _| {
        if !followed(life.log) && followed(next.log) {
            assert!(event == Event::Restart, "{life:?} {event:?}");
        }
    });
    for life in lives() {
        let (life, _) = life.step(Event::Restart);
        let (life, _) = life.step(Event::CaughtUp(Some(&ViewState::Synced)));
        assert!(life.state.answers() && life.log == Log::Live);
    }
}

#[test]
fn a_failure_reaches_readers_at_once_and_heals_by_itself() {
    let failed = ViewState::Failed { failure: failure() };
    for state in states() {
        let (life, _) = Life::new(state, Log::Live).step(Event::Control(&failed));
        assert_eq!(life.state, LifeState::Failed(failure()));
        let (life, _) = life.step(Event::Control(&ViewState::Synced));
        assert_eq!(life, Life::new(LifeState::Synced, Log::Live));
    }
}

/// A view that was freed answers *evicted* until the log was read for it, whatever happens.
#[test]
fn a_freed_view_answers_evicted_until_it_is_read_again() {
    for life in lives() {
        if life.state == LifeState::Dropped {
            continue;
        }
        let (evicted, effect) = life.step(Event::Evict);
        assert_eq!(effect, StoreEffect::Free);
        for (name, event) in events() {
            let (next, _) = evicted.clone().step(event);
            let failed = matches!(event, Event::Fail(_));
            assert!(failed || next.state == LifeState::Evicted, "{name}");
        }
    }
}

#[test]
fn a_broken_view_does_not_answer() {
    let may_answer = |life: &Life| life.log != Log::Passed;
    for life in lives().into_iter().filter(may_answer) {
        let (next, effect) = life.clone().step(Event::Broken { served: true });
        assert!(!next.state.answers(), "{life:?}");
        if life.state != LifeState::Dropped && life.log != Log::Passed {
            assert_eq!(
                (next.log, effect),
                (Log::Lost, StoreEffect::AskRestart),
                "{life:?}"
            );
        }
    }
}
