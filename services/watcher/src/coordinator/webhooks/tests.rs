use super::*;

fn log(name: &str) -> Incarnation {
    Incarnation(name.into())
}

fn beat(webhook: &str, compiled: u64, enforced: u64) -> WebhookBeat {
    WebhookBeat {
        webhook: webhook.into(),
        incarnation: log("a"),
        compiled: Revision(compiled),
        enforced: Revision(enforced),
        ..WebhookBeat::default()
    }
}

/// The webhooks as these beats leave them, which were listened to for long enough.
fn after(beats: &[WebhookBeat]) -> (Webhooks, Instant) {
    let (mut webhooks, begun) = (Webhooks::default(), Instant::now());
    webhooks.listen(begun);
    let now = begun + LISTEN;
    for beat in beats {
        webhooks.take_beat(beat.clone(), now);
    }
    (webhooks, now)
}

#[test]
fn a_limited_number_of_webhooks_is_heard_at_once() {
    let names: Vec<_> = (0..=HEARD_MAX).map(|n| format!("w{n:03}")).collect();
    let beats: Vec<_> = names.iter().map(|name| beat(name, 5, 5)).collect();
    let (mut webhooks, now) = after(&beats);
    assert_eq!((webhooks.heard.len(), webhooks.left_out), (HEARD_MAX, 1));
    assert!(webhooks.take_beat(beat("w000", 6, 6), now), "it is known");
    let later = now + SILENCE_MAX;
    webhooks.tick(later);
    assert!(webhooks.take_beat(beat(&names[HEARD_MAX], 5, 5), later));
    assert_eq!((webhooks.heard.len(), webhooks.left_out), (1, 0));
}

/// A policy at position 5 of the log `a`.
#[test]
fn a_policy_is_in_force_once_every_webhook_that_is_heard_is_called_for_it() {
    let leaves = |webhook: &str| WebhookBeat {
        leaving: true,
        ..beat(webhook, 0, 0)
    };
    let elsewhere = WebhookBeat {
        incarnation: log("b"),
        ..beat("w1", 9, 9)
    };
    let troubled = WebhookBeat {
        trouble: Some(Failure::new("NotReached", "connection refused")),
        ..beat("w1", 5, 4)
    };
    for (beats, expected) in [
        (vec![beat("w1", 5, 5)], None),
        (vec![beat("w1", 9, 9), beat("w2", 5, 5)], None),
        (vec![beat("w1", 4, 4)], Some("webhook w1 has not read")),
        (vec![beat("w1", 5, 4)], Some("webhook w1 is not called")),
        (
            vec![beat("w1", 5, 5), beat("w2", 0, 0)],
            Some("webhook w2 has not read"),
        ),
        (
            vec![beat("w1", 0, 0), beat("w2", 0, 0)],
            Some("nor do 1 other(s)"),
        ),
        (vec![troubled], Some("connection refused")),
        (vec![elsewhere], Some("webhook w1 has not read")),
        // The last word counts.
        (vec![beat("w1", 5, 4), beat("w1", 5, 5)], None),
        (
            vec![beat("w1", 5, 5), beat("w1", 0, 0)],
            Some("webhook w1 has not read"),
        ),
        // Who leaves is not waited for.
        (vec![beat("w1", 5, 5), beat("w2", 0, 0), leaves("w2")], None),
    ] {
        let (webhooks, now) = after(&beats);
        let said = webhooks.enforce(&log("a"), Some(Revision(5)), now);
        match (said, expected) {
            (Ok(()), None) => {}
            (Err(failure), Some(says)) => {
                assert_eq!(failure.reason, NOT_ENFORCED, "{beats:?}");
                assert!(failure.message.contains(says), "{beats:?}: {failure}");
            }
            (said, expected) => panic!("{beats:?}: {said:?}, not {expected:?}"),
        }
    }
    let (webhooks, now) = after(&[beat("w1", 5, 5)]);
    let on_its_way = webhooks.enforce(&log("a"), None, now).unwrap_err();
    assert_eq!(on_its_way.reason, NOT_ENFORCED);
}

/// It has read what the log has lost since, and the policy stands in its place.
#[test]
fn a_webhook_beyond_the_end_of_the_log_is_waited_for() {
    let (mut webhooks, now) = after(&[beat("w1", 1_000, 1_000)]);
    let (log, policy) = (log("a"), Some(Revision(950)));
    assert_eq!(
        webhooks.enforce(&log, policy, now),
        Ok(()),
        "nobody has told the end"
    );
    webhooks.log_ends_at(Revision(950));
    let waits = webhooks.enforce(&log, policy, now).unwrap_err();
    assert!(waits.message.contains("does not have"), "{waits}");
    assert!(webhooks.is_any_beyond(&log));
    webhooks.take_beat(beat("w1", 950, 950), now);
    assert_eq!(webhooks.enforce(&log, policy, now), Ok(()));
    assert!(!webhooks.is_any_beyond(&log));
}

/// Steps of a test: the time, the event, and then the state of a new policy and of one that was in
/// force. `.`: it is in force, or stays so.
#[test]
fn webhooks_that_come_and_go_move_no_policy_that_is_in_force() {
    let (silence, away) = (WEBHOOK_SILENCE_MAX_MS, WEBHOOKS_AWAY_MAX_MS);
    let listen = u64::try_from(LISTEN.as_millis()).unwrap();
    let there = || Some(beat("w1", 9, 9));
    let gone = || {
        Some(WebhookBeat {
            leaving: true,
            ..beat("w1", 9, 9)
        })
    };
    let behind = || Some(beat("w2", 0, 0));
    let stories = [
        (
            "the start",
            vec![
                (0, there(), NOT_ENFORCED, "."),
                (listen - 1, None, NOT_ENFORCED, "."),
                (listen, None, ".", "."),
            ],
        ),
        (
            "one joins",
            vec![
                (listen, there(), ".", "."),
                (listen + 1, behind(), NOT_ENFORCED, "."),
                (listen + 2, Some(beat("w2", 9, 9)), ".", "."),
            ],
        ),
        (
            "one of two falls silent",
            vec![
                (listen, behind(), NOT_ENFORCED, "."),
                (listen + silence - 1, there(), NOT_ENFORCED, "."),
                (listen + silence, None, ".", "."),
            ],
        ),
        (
            "the only one is started again",
            vec![
                (listen, there(), ".", "."),
                (listen + 1, gone(), NO_WEBHOOK, "."),
                (listen + 9_000, Some(beat("w1", 0, 0)), NOT_ENFORCED, "."),
                (listen + 9_100, there(), ".", "."),
            ],
        ),
        (
            "the only one goes for good",
            vec![
                (listen, there(), ".", "."),
                (listen + 1, gone(), NO_WEBHOOK, "."),
                (listen + away, None, NO_WEBHOOK, "."),
                (listen + away + 1, None, NO_WEBHOOK, NO_WEBHOOK),
                (listen + away + 2, there(), ".", "."),
            ],
        ),
        (
            "nobody was ever there",
            vec![
                (listen, None, NO_WEBHOOK, "."),
                (away - 1, None, NO_WEBHOOK, "."),
                (away, None, NO_WEBHOOK, NO_WEBHOOK),
            ],
        ),
    ];
    for (story, moments) in stories {
        let (mut webhooks, begun) = (Webhooks::default(), Instant::now());
        webhooks.listen(begun);
        for (at_ms, beat, new, old) in moments {
            let now = begun + Duration::from_millis(at_ms);
            if let Some(beat) = beat {
                webhooks.take_beat(beat, now);
            }
            webhooks.tick(now);
            let said = |result: Result<(), Failure>| match result {
                Ok(()) => ".".to_owned(),
                Err(failure) => failure.reason,
            };
            let found = (
                said(webhooks.enforce(&log("a"), Some(Revision(5)), now)),
                said(webhooks.still_enforce(now)),
            );
            assert_eq!(
                found,
                (new.to_owned(), old.to_owned()),
                "{story}, at {at_ms} ms"
            );
        }
    }
}

#[test]
fn webhooks_that_were_never_listened_to_do_not_count_as_absent() {
    let webhooks = Webhooks::default();
    let now = Instant::now() + AWAY_MAX * 2;
    assert!(webhooks.still_enforce(now).is_ok());
    let waits = webhooks.enforce(&log("a"), Some(Revision(0)), now);
    assert_eq!(waits.unwrap_err().reason, NOT_ENFORCED);
}

#[test]
fn only_a_change_of_what_is_enforced_is_news() {
    let (mut webhooks, now) = after(&[]);
    assert!(webhooks.take_beat(beat("w1", 5, 5), now));
    assert!(!webhooks.take_beat(beat("w1", 5, 5), now));
    assert!(
        !webhooks.take_beat(beat("w1", 6, 5), now),
        "nothing is enforced that was not"
    );
    assert!(webhooks.take_beat(beat("w1", 6, 6), now));
    let leaving = WebhookBeat {
        leaving: true,
        ..beat("w1", 6, 5)
    };
    assert!(webhooks.take_beat(leaving.clone(), now));
    assert!(!webhooks.take_beat(leaving, now));
}
