use super::*;

fn rv(text: &str) -> ResourceVersion {
    ResourceVersion::new(text)
}

fn page(version: &str, next: Option<&str>) -> Input {
    Input::Page {
        version: rv(version),
        next: next.map(Into::into),
    }
}

fn heard(version: &str) -> Input {
    Input::Heard {
        version: Some(rv(version)),
    }
}

fn refused(code: u16) -> Input {
    Input::Failed(Fault::Refused {
        code,
        failure: Failure::new("Forbidden", "no"),
    })
}

fn gone() -> Input {
    Input::Failed(Fault::Gone {
        message: "too old".into(),
    })
}

fn server(code: u16) -> Input {
    Input::Failed(Fault::Server {
        code,
        message: "no".into(),
    })
}

fn watch(from: &str) -> ReflectorCommand {
    ReflectorCommand::Watch { from: rv(from) }
}

fn first_list() -> ReflectorCommand {
    ReflectorCommand::List {
        token: None,
        limit: PAGE_OBJECTS_MAX,
    }
}

/// A machine that has listed at `version` and heard something since.
fn watching(version: &str) -> Machine {
    let mut machine = Machine::new(ResourceVersion::default());
    machine.step(page(version, None), 0);
    machine.step(Input::Opened, 0);
    machine.step(heard(version), 0);
    machine
}

fn waits(machine: &mut Machine) -> Duration {
    let ReflectorCommand::Wait { wait, .. } = machine.command() else {
        panic!("does not wait: {:?}", machine.command());
    };
    machine.step(Input::Waited, 0);
    wait
}

#[test]
fn lists_page_by_page_then_watches_from_the_lists_version() {
    let mut machine = Machine::new(ResourceVersion::default());
    assert_eq!(machine.command(), first_list());
    let effects = machine.step(page("10", Some("next")), 0);
    assert_eq!(
        effects,
        [
            ReflectorEffect::Begin { afresh: false },
            ReflectorEffect::Deliver
        ]
    );
    assert_eq!(
        machine.command(),
        ReflectorCommand::List {
            token: Some("next".into()),
            limit: PAGE_OBJECTS_MAX
        }
    );
    let effects = machine.step(page("10", None), 0);
    assert_eq!(
        effects,
        [ReflectorEffect::Deliver, ReflectorEffect::Listed(rv("10"))]
    );
    assert_eq!(machine.command(), watch("10"));
    machine.step(Input::Opened, 0);
    machine.step(heard("12"), 0);
    machine.step(
        Input::Ended {
            lived: Duration::from_secs(50),
        },
        0,
    );
    assert_eq!(
        machine.command(),
        watch("12"),
        "at once, from where it stood"
    );
}

#[test]
fn an_expired_version_lists_again_at_once_but_not_in_a_loop() {
    let mut machine = watching("10");
    assert_eq!(machine.step(gone(), 0), []);
    assert_eq!(machine.command(), first_list());
    machine.step(page("20", None), 0);
    machine.step(gone(), 0);
    waits(&mut machine);
    assert_eq!(machine.command(), first_list());
}

#[test]
fn an_expired_token_begins_the_list_again() {
    let mut machine = Machine::new(ResourceVersion::default());
    machine.step(page("10", Some("next")), 0);
    machine.step(gone(), 0);
    waits(&mut machine);
    assert_eq!(machine.command(), first_list());
    let effects = machine.step(page("11", None), 0);
    let again = [
        ReflectorEffect::Begin { afresh: false },
        ReflectorEffect::Deliver,
        ReflectorEffect::Listed(rv("11")),
    ];
    assert_eq!(effects, again);
}

#[test]
fn a_refusal_is_told_at_once_and_retried_with_growing_waits() {
    let mut machine = watching("10");
    let told = [ReflectorEffect::Refused(Failure::new("Forbidden", "no"))];
    assert_eq!(machine.step(refused(403), 0), told);
    let first = waits(&mut machine);
    machine.step(Input::Opened, 0);
    assert_eq!(machine.command(), first_list());
    machine.step(refused(403), 0);
    assert!(waits(&mut machine) > first);
    let longest = |machine: &mut Machine, code: u16| {
        let draw = |random| {
            machine.step(refused(code), random);
            waits(machine)
        };
        (0..2_000).map(draw).max()
    };
    let growing = Some(Duration::from_millis(BACKOFF_MAX_MS));
    assert!(longest(&mut machine, 404) > Some(Duration::from_millis(FORBIDDEN_WAIT_MAX_MS)));
    assert!(longest(&mut machine, 404) <= growing);
    // Rights that are given back are seen in seconds, however long they were away.
    let forbidden = Some(Duration::from_millis(FORBIDDEN_WAIT_MAX_MS));
    assert!(longest(&mut machine, 403) <= forbidden);
    // Granted again.
    let effects = machine.step(page("12", None), 0);
    assert_eq!(
        effects,
        [
            ReflectorEffect::Begin { afresh: false },
            ReflectorEffect::Deliver,
            ReflectorEffect::Listed(rv("12"))
        ]
    );
}

#[test]
fn a_watch_that_is_refused_is_asked_for_until_it_opens_and_then_there_is_a_list() {
    let mut machine = watching("10");
    for _ in 0..3 {
        let told = [ReflectorEffect::Refused(Failure::new("Forbidden", "no"))];
        assert_eq!(machine.step(refused(403), 0), told);
        waits(&mut machine);
        assert_eq!(
            machine.command(),
            watch("10"),
            "no list that nobody follows"
        );
    }
    assert_eq!(machine.step(Input::Opened, 0), []);
    assert_eq!(machine.command(), first_list());
    let effects = machine.step(page("12", None), 0);
    assert_eq!(effects.last(), Some(&ReflectorEffect::Listed(rv("12"))));
    assert_eq!(machine.step(Input::Opened, 0), []);
    assert_eq!(machine.command(), watch("12"));
}

#[test]
fn a_list_while_the_watch_is_refused_is_announced_with_the_watch() {
    let mut machine = watching("10");
    machine.step(refused(403), 0);
    waits(&mut machine);
    machine.step(Input::Relist, 0);
    let effects = machine.step(page("12", None), 0);
    assert_eq!(
        effects,
        [
            ReflectorEffect::Begin { afresh: false },
            ReflectorEffect::Deliver
        ],
        "not announced yet"
    );
    assert_eq!(
        machine.step(Input::Opened, 0),
        [ReflectorEffect::Listed(rv("12"))]
    );
    assert_eq!(machine.step(Input::Opened, 0), []);
}

#[test]
fn retry_after_is_waited_for() {
    let mut machine = watching("10");
    let after = Some(Duration::from_secs(7));
    let effects = machine.step(
        Input::Failed(Fault::Throttled {
            code: 429,
            after,
            message: "busy".into(),
        }),
        0,
    );
    assert!(matches!(effects.as_slice(), [ReflectorEffect::Troubled(_)]));
    assert_eq!(waits(&mut machine), Duration::from_secs(7));
    assert_eq!(machine.command(), watch("10"), "it goes on where it stood");
}

#[test]
fn a_failed_page_is_asked_for_again() {
    let mut machine = Machine::new(ResourceVersion::default());
    machine.step(page("10", Some("next")), 0);
    machine.step(server(500), 0);
    waits(&mut machine);
    assert!(matches!(
        machine.command(),
        ReflectorCommand::List { token: Some(_), .. }
    ));
}

#[test]
fn a_page_that_is_too_large_is_asked_for_in_halves() {
    let mut machine = Machine::new(ResourceVersion::default());
    machine.step(Input::Failed(Fault::TooLarge { bytes_max: 1 }), 0);
    let half = ReflectorCommand::List {
        token: None,
        limit: PAGE_OBJECTS_MAX / 2,
    };
    assert_eq!(machine.command(), half);
}

/// Returns the number of objects of the page that is asked for next.
fn page_limit(machine: &Machine) -> u32 {
    match machine.command() {
        ReflectorCommand::List { limit, .. } => limit,
        other => panic!("asks for no page: {other:?}"),
    }
}

/// Lists once, and returns the limits of the pages with which the list began and ended. So many of its pages are slow.
fn list_with_slow_pages(machine: &mut Machine, slow: usize) -> [u32; 2] {
    machine.step(Input::Relist, 0);
    let first = page_limit(machine);
    machine.step(page("10", Some("next")), 0);
    for _ in 0..slow {
        let after = Duration::from_secs(30);
        machine.step(Input::Failed(Fault::Slow { after }), 0);
        waits(machine);
    }
    let last = page_limit(machine);
    machine.step(page("10", None), 0);
    [first, last]
}

#[test]
fn pages_shrink_while_they_are_slow_and_grow_again_after_a_list_without_slow_ones() {
    let mut machine = Machine::new(ResourceVersion::default());
    for (slow, expected) in [
        (0, [500, 500]),
        (1, [500, 250]),
        (6, [250, 31]),
        (0, [31, 31]),
        (0, [62, 62]),
        (1, [124, 62]),
        (0, [62, 62]),
        (0, [124, 124]),
        (0, [248, 248]),
        (0, [496, 496]),
        (0, [500, 500]),
        (0, [500, 500]),
    ] {
        assert_eq!(list_with_slow_pages(&mut machine, slow), expected);
    }
    // What was too large may be gone.
    machine.step(Input::Relist, 0);
    machine.step(Input::Failed(Fault::TooLarge { bytes_max: 1 }), 0);
    machine.step(page("10", None), 0);
    for (slow, expected) in [(0, [250, 250]), (0, [500, 500])] {
        assert_eq!(list_with_slow_pages(&mut machine, slow), expected);
    }
}

#[test]
fn a_version_from_the_future_is_found_by_the_probe() {
    let mut machine = watching("100");
    machine.step(server(504), 0);
    waits(&mut machine);
    assert_eq!(machine.command(), ReflectorCommand::Probe);
    assert_eq!(machine.step(page("40", Some("more")), 0), []);
    assert_eq!(machine.command(), first_list());
    let effects = machine.step(page("40", None), 0);
    assert_eq!(effects[0], ReflectorEffect::Begin { afresh: true });
    assert_eq!(machine.command(), watch("40"));
}

#[test]
fn a_version_from_the_future_is_found_by_a_bookmark() {
    let mut machine = watching("100");
    machine.step(heard("40"), 0);
    waits(&mut machine);
    assert_eq!(machine.command(), first_list());
    assert_eq!(
        machine.step(page("41", None), 0)[0],
        ReflectorEffect::Begin { afresh: true }
    );
}

#[test]
fn a_watch_that_ended_without_a_word_is_not_believed() {
    let mut machine = watching("10");
    let ended = || Input::Ended {
        lived: Duration::from_secs(50),
    };
    machine.step(ended(), 0);
    assert_eq!(machine.command(), watch("10"), "it had said something");
    machine.step(Input::Opened, 0);
    machine.step(ended(), 0);
    assert_eq!(machine.command(), first_list());
}

#[test]
fn a_restart_knows_where_the_source_was_left() {
    let mut machine = Machine::new(rv("100"));
    assert_eq!(
        machine.step(page("99", None), 0)[0],
        ReflectorEffect::Begin { afresh: true }
    );
}

#[test]
fn after_silence_or_a_lost_connection_the_watch_is_resumed() {
    for fault in [
        Fault::Silent {
            after: Duration::from_secs(55),
        },
        Fault::Slow {
            after: Duration::from_secs(30),
        },
        Fault::Transport {
            message: "reset".into(),
        },
        Fault::Server {
            code: 500,
            message: "no".into(),
        },
    ] {
        let mut machine = watching("10");
        for _ in 0..5 {
            let effects = machine.step(Input::Failed(fault.clone()), 0);
            assert!(matches!(effects.as_slice(), [ReflectorEffect::Troubled(_)]));
            waits(&mut machine);
            assert_eq!(machine.command(), ReflectorCommand::Probe);
            machine.step(page("12", Some("more")), 0);
            assert_eq!(machine.command(), watch("10"));
        }
    }
}

#[test]
fn a_line_that_cannot_be_read_may_have_been_an_event() {
    let mut machine = watching("10");
    machine.step(
        Input::Failed(Fault::Unreadable {
            message: "x".into(),
        }),
        0,
    );
    waits(&mut machine);
    assert_eq!(machine.command(), first_list());
}

#[test]
fn a_watch_that_ends_at_once_is_not_asked_in_a_loop() {
    let mut machine = Machine::new(ResourceVersion::default());
    machine.step(page("10", None), 0);
    for _ in 0..3 {
        machine.step(
            Input::Ended {
                lived: Duration::ZERO,
            },
            0,
        );
        waits(&mut machine);
        assert_eq!(machine.command(), watch("10"));
        machine.step(Input::Opened, 0);
    }
}

/// An object without a version has one of its content, which says nothing to the API server.
#[test]
fn a_watch_goes_on_only_from_versions_of_the_api_servers_making() {
    let mut machine = watching("5");
    machine.step(heard("x0123456789abcdef"), 0);
    assert_eq!(machine.command(), watch("5"));
    machine.step(heard("6"), 0);
    assert_eq!(machine.command(), watch("6"));
    let bookmark = |version: &str| Input::Bookmark {
        version: rv(version),
    };
    machine.step(bookmark(""), 0);
    assert_eq!(machine.command(), watch("6"));
    machine.step(bookmark("8"), 0);
    assert_eq!(machine.command(), watch("8"));
    machine.step(bookmark("7"), 0);
    assert_ne!(machine.command(), watch("7"), "the history restarted");
    let mut opaque = watching("one");
    opaque.step(heard("x0123456789abcdef"), 0);
    assert_eq!(opaque.command(), watch("one"));
    opaque.step(bookmark("two"), 0);
    assert_eq!(opaque.command(), watch("two"));
}
