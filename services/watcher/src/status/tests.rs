use super::*;

fn ready(status: &'static str, reason: &str) -> Ready {
    Ready {
        status,
        reason: reason.into(),
        message: "m".into(),
        generation: 1,
    }
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

fn wanted(ready: Ready, figures: Option<Figures>) -> Wanted {
    Wanted {
        ready,
        figures,
        global: false,
        conditions: Vec::new(),
        figures_now: Figures::default(),
    }
}

fn written(plan: &Plan, at: Instant) -> Written {
    Written {
        conditions: plan.conditions.clone(),
        figures: plan.figures.clone(),
        at,
    }
}

#[test]
fn a_condition_is_written_at_once_and_only_once() {
    let start = Instant::now();
    let first = wanted(ready("False", "A"), None);
    let done = plan(&first, None, start, clock(1)).unwrap();
    assert!(done.transition);
    let written = written(&done, start);
    assert_eq!(plan(&first, Some(&written), start, clock(2)), None);
    let mut message = first.clone();
    message.ready.message = "other".into();
    let again = plan(&message, Some(&written), start, clock(2)).unwrap();
    assert!(!again.transition, "another message is not another state");
    let next = wanted(ready("True", "A"), None);
    assert!(
        plan(&next, Some(&written), start, clock(2))
            .unwrap()
            .transition
    );
}

#[test]
fn figures_wait_for_their_turn() {
    let start = Instant::now();
    let at = |figures| wanted(ready("True", "A"), Some(figures));
    let done = plan(&at(figures(1, 1)), None, start, clock(1)).unwrap();
    assert_eq!(done.patch["status"]["objects"], 1);
    assert_eq!(
        done.patch["status"]["lastHeardTime"],
        "1970-01-01T00:00:01Z"
    );
    let written = written(&done, start);
    let due =
        |figures, after| plan(&at(figures), Some(&written), start + after, clock(9)).is_some();
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
    let first = wanted(ready("True", "A"), Some(figures(3, 1)));
    let done = plan(&first, None, start, clock(1)).unwrap();
    let again = Wanted {
        conditions: done.conditions.clone(),
        figures_now: done.figures.clone(),
        ..first
    };
    assert_eq!(plan(&again, None, start, clock(5)), None);
}

#[test]
fn what_others_say_is_kept() {
    let mut first = wanted(ready("True", "A"), None);
    first.conditions = ready("True", "B").put_into(&[], clock(1));
    first.conditions[0].type_ = "Other".into();
    let done = plan(&first, None, Instant::now(), clock(2)).unwrap();
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
    let author = |identity: &Identity| {
        Author::new("kyverno.io/v1", "Policy", "policies", identity).status_path()
    };
    assert_eq!(author(&identity), "/apis/kyverno.io/v1/policies/a/status");
    identity.namespace = "n".into();
    assert_eq!(
        author(&identity),
        "/apis/kyverno.io/v1/namespaces/n/policies/a/status"
    );
}
