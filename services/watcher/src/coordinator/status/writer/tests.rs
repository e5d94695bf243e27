use anteroom_model::Failure;

use serde_json::json;

use super::{
    plan::{FIGURES_APART, FIGURES_INTERVAL, SEEN_AFTER, TIME_INTERVAL},
    *,
};
use crate::coordinator::status::{conditions, rules::RulesStatus};

/// The pace with only a few entries.
const FEW: WritePace = WritePace {
    figures: FIGURES_INTERVAL,
    time: TIME_INTERVAL,
};

fn ready(status: &'static str, reason: &str) -> Ready {
    Ready::new(status, Failure::new(reason, "m"), 1)
}

fn clock(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn figures(objects: i64, heard: i64) -> Figures {
    Figures {
        view: Some("pods.v1".into()),
        objects: Some(objects),
        bytes: Some(1),
        heard: Some(clock(heard)),
    }
}

fn desired(ready: Ready, figures: Option<Figures>) -> DesiredStatus {
    DesiredStatus {
        ready,
        figures,
        rules: None,
        rules_now: None,
        global: false,
        cel: None,
        conditions: Vec::new(),
        figures_now: Figures::default(),
    }
}

fn written(plan: &Plan, at: Instant) -> WrittenStatus {
    WrittenStatus {
        conditions: plan.conditions.clone(),
        summary: plan.summary.clone(),
        figures: plan.figures.clone(),
        rules: plan.rules.clone(),
        at,
    }
}

#[test]
fn a_condition_is_written_at_once_and_only_once() {
    let start = Instant::now();
    let first = desired(ready("False", "A"), None);
    let done = plan(&first, None, FEW, start, clock(1)).unwrap();
    assert!(done.transition);
    let written = written(&done, start);
    assert_eq!(plan(&first, Some(&written), FEW, start, clock(2)), None);
    let mut message = first.clone();
    message.ready.message = "other".into();
    let again = plan(&message, Some(&written), FEW, start, clock(2)).unwrap();
    assert!(!again.transition, "another message is not another state");
    let next = desired(ready("True", "A"), None);
    assert!(
        plan(&next, Some(&written), FEW, start, clock(2))
            .unwrap()
            .transition
    );
}

#[test]
fn a_condition_that_somebody_else_wrote_is_written_again() {
    let start = Instant::now();
    let first = desired(ready("True", "A"), None);
    let done = plan(&first, None, FEW, start, clock(1)).unwrap();
    let written = written(&done, start);
    let mut found = first.clone();
    found.conditions = desired(ready("False", "B"), None)
        .ready
        .put_into(&[], clock(2));
    assert!(!is_said(&found, Some(&written)), "it is looked at again");
    let soon = start + SEEN_AFTER / 2;
    assert_eq!(plan(&found, Some(&written), FEW, soon, clock(2)), None);
    let again = plan(&found, Some(&written), FEW, start + SEEN_AFTER, clock(3)).unwrap();
    assert_eq!(conditions::find(&again.conditions).unwrap().status, "True");
    found.conditions = again.conditions;
    assert!(is_said(&found, Some(&written)));
    assert_eq!(
        plan(&found, Some(&written), FEW, start + SEEN_AFTER, clock(3)),
        None
    );
}

#[test]
fn a_status_of_rules_is_written_once_and_is_no_transition() {
    let start = Instant::now();
    let told = |count: u64| {
        Some(RulesStatus::read(
            &json!({"rulecount": {"validate": count}}),
        ))
    };
    let of = |rules| DesiredStatus {
        rules,
        ..desired(ready("True", "A"), None)
    };
    let done = plan(&of(told(1)), None, FEW, start, clock(1)).unwrap();
    assert_eq!(done.patch["status"]["rulecount"]["validate"], 1);
    let written = written(&done, start);
    let again = |rules| plan(&of(rules), Some(&written), FEW, start, clock(2));
    assert_eq!(again(told(1)), None);
    let other = again(told(2)).unwrap();
    assert_eq!(other.patch["status"]["rulecount"]["validate"], 2);
    assert!(!other.transition, "the condition is the same");
    // After a restart, what the object says is not written again.
    let restarted = DesiredStatus {
        rules_now: told(1),
        conditions: done.conditions.clone(),
        ..of(told(1))
    };
    assert_eq!(plan(&restarted, None, FEW, start, clock(5)), None);
}

#[test]
fn changed_figures_are_written_only_after_their_interval() {
    let start = Instant::now();
    let at = |figures| desired(ready("True", "A"), Some(figures));
    let done = plan(&at(figures(1, 1)), None, FEW, start, clock(1)).unwrap();
    assert_eq!(done.patch["status"]["objects"], 1);
    assert_eq!(
        done.patch["status"]["lastHeardTime"],
        "1970-01-01T00:00:01Z"
    );
    let written = written(&done, start);
    let due =
        |figures, after| plan(&at(figures), Some(&written), FEW, start + after, clock(9)).is_some();
    assert!(!due(figures(2, 1), FIGURES_INTERVAL / 2));
    assert!(due(figures(2, 1), FIGURES_INTERVAL));
    assert!(
        !due(figures(1, 5), TIME_INTERVAL / 2),
        "only the time has moved"
    );
    assert!(due(figures(1, 5), TIME_INTERVAL));
}

#[test]
fn after_a_restart_what_the_object_says_is_not_written_again() {
    let start = Instant::now();
    let first = desired(ready("True", "A"), Some(figures(3, 1)));
    let done = plan(&first, None, FEW, start, clock(1)).unwrap();
    let again = DesiredStatus {
        conditions: done.conditions.clone(),
        figures_now: done.figures.clone(),
        ..first
    };
    assert_eq!(plan(&again, None, FEW, start, clock(5)), None);
}

#[test]
fn foreign_conditions_are_kept() {
    let mut first = desired(ready("True", "A"), None);
    first.conditions = ready("True", "B").put_into(&[], clock(1));
    first.conditions[0].type_ = "Other".into();
    let done = plan(&first, None, FEW, Instant::now(), clock(2)).unwrap();
    assert_eq!(
        done.patch["status"]["conditions"].as_array().unwrap().len(),
        2
    );
    assert!(
        done.patch["status"].get("objects").is_none(),
        "a policy has no figures"
    );
}

#[test]
fn paths_of_cluster_scoped_and_of_namespaced_objects() {
    let mut identity = Identity {
        name: "a".into(),
        ..Identity::default()
    };
    let path = |identity: &Identity| {
        StatusOwner::new("kyverno.io/v1", "Policy", "policies", identity).status_path()
    };
    assert_eq!(path(&identity), "/apis/kyverno.io/v1/policies/a/status");
    identity.namespace = "n".into();
    assert_eq!(
        path(&identity),
        "/apis/kyverno.io/v1/namespaces/n/policies/a/status"
    );
}

fn status_owner(name: &str) -> StatusOwner {
    let identity = Identity {
        name: name.into(),
        uid: name.into(),
        ..Identity::default()
    };
    StatusOwner::new("kyverno.io/v1", "Policy", "policies", &identity)
}

/// However many statuses there are, conditions are written at once, and what is no news is written so
/// often that all together stay few.
#[test]
fn conditions_are_written_before_figures_and_figures_are_limited() {
    const COUNT: usize = 10_000;
    let (start, mut slots) = (Instant::now(), Slots::default());
    let names = (0..COUNT).map(|n| format!("e{n}"));
    for name in names.clone() {
        slots.put(
            status_owner(&name),
            desired(ready("True", "A"), Some(figures(1, 1))),
        );
    }
    let mut first = Vec::new();
    loop {
        let due = slots.due(start, clock(1));
        assert!(due.len() <= WRITES_TOGETHER);
        if due.is_empty() {
            break;
        }
        for (owner, plan, _) in due {
            slots.all.get_mut(&owner).unwrap().written = Some(written(&plan, start));
            first.push(owner.name);
        }
    }
    assert_eq!(
        first,
        names.clone().collect::<Vec<_>>(),
        "each once, in order"
    );

    for name in names {
        slots.put(
            status_owner(&name),
            desired(ready("True", "A"), Some(figures(2, 2))),
        );
    }
    slots.put(
        status_owner("e7"),
        desired(ready("False", "B"), Some(figures(2, 2))),
    );
    let seconds = |n| Duration::from_secs(n);
    let news = slots.due(start + seconds(10), clock(10));
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].0.name, "e7");
    slots.all.get_mut(&news[0].0).unwrap().written = Some(written(&news[0].1, start));
    let a_second = FIGURES_APART * u32::try_from(COUNT).unwrap();
    assert!(slots.ripe(start + a_second / 2, clock(11)).is_empty());
    let ripe = slots.ripe(start + a_second, clock(12));
    assert_eq!(ripe.len(), WRITES_TOGETHER, "no more together");
}
