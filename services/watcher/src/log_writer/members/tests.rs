use super::*;

fn members(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn loads(division: &BTreeMap<Group, String>) -> BTreeMap<&str, usize> {
    let mut loads = BTreeMap::new();
    for member in division.values() {
        *loads.entry(member.as_str()).or_default() += 1;
    }
    loads
}

fn stands(holder: &str) -> Beat {
    Beat {
        incarnation: Incarnation::default(),
        group: Group::NONE,
        term: 1,
        holder: holder.into(),
        page: 0,
        sent_ms: None,
        views: Vec::new(),
    }
}

#[test]
fn every_group_belongs_with_one_member_and_loads_are_even() {
    for n in 1..=12_usize {
        let names: BTreeSet<_> = (0..n).map(|n| format!("watcher-{n}")).collect();
        let division = divide(&names);
        let groups = Group::all().count();
        assert_eq!(division.len(), groups);
        let loads = loads(&division);
        assert!(loads.values().all(|load| *load <= groups.div_ceil(n)));
        if n <= 2 {
            assert_eq!(loads.len(), n, "each leads some");
        }
    }
    assert!(divide(&members(&[])).is_empty());
}

#[test]
fn a_member_that_leaves_moves_few_groups_of_others() {
    let all = divide(&members(&["a", "b", "c"]));
    let without = divide(&members(&["a", "b"]));
    let kept = all
        .iter()
        .filter(|(group, member)| without[group] == **member);
    assert!(kept.count() >= 4, "{all:?} {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_counts_until_it_withdraws_or_is_silent() {
    let me = Members::new("a");
    me.stand(true);
    let mine = || {
        Group::all()
            .filter(|group| me.preferred_leader(*group) == "a")
            .count()
    };
    assert_eq!(mine(), Group::all().count());
    me.take_beat(&stands("b"));
    assert!(mine() < Group::all().count() && mine() > 0);
    me.take_beat(&Beat {
        term: 0,
        ..stands("b")
    });
    assert_eq!(mine(), Group::all().count());
    me.take_beat(&stands("b"));
    tokio::time::advance(SILENCE_MAX).await;
    assert_eq!(mine(), Group::all().count());
    // A watcher that cannot do the work leads a group only while nobody else stands for election.
    me.stand(false);
    assert_eq!(mine(), Group::all().count());
    me.take_beat(&stands("b"));
    assert_eq!(mine(), 0);
}

#[tokio::test(start_paused = true)]
async fn candidates_that_crashed_are_forgotten() {
    let me = Members::new("a");
    for n in 0..9 {
        me.take_beat(&stands(&format!("w-{n}")));
        tokio::time::advance(SILENCE_MAX / 2).await;
    }
    let election = me.election.lock();
    let kept: Vec<_> = election.candidates.keys().collect();
    assert_eq!(kept, ["w-7", "w-8"]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_whose_batches_are_lost_stands_down_for_another_one_and_tries_again_later() {
    let me = Members::new("a");
    me.stand(true);
    assert!(!me.writes_fail(Group(3)), "nobody else is there");
    me.take_beat(&stands("b"));
    let mine = || Group::all().any(|group| me.preferred_leader(group) == "a");
    assert!(mine());
    assert!(me.writes_fail(Group(3)) && me.writes_fail(Group(4)));
    me.stand(true);
    assert!(!mine());
    me.writes_again(Group(4));
    assert!(!mine(), "the other group is not written");
    me.writes_again(Group(3));
    assert!(mine());
    assert!(me.writes_fail(Group(3)));
    tokio::time::advance(UNWRITTEN_MEMORY).await;
    me.take_beat(&stands("b"));
    assert!(!mine());
    me.stand(true);
    assert!(mine());
}

#[tokio::test(start_paused = true)]
async fn a_group_is_handed_over_only_when_it_stays_better_placed() {
    let me = Members::new("a");
    me.stand(true);
    me.take_beat(&stands("b"));
    let group = Group::all()
        .find(|group| me.preferred_leader(*group) == "b")
        .unwrap();
    let wait = |me: Members| async move { me.better_placed(group).await };
    let waiting = tokio::spawn(wait(me.clone()));
    // `b` was heard only once: its silence begins before the group would be handed over.
    tokio::time::sleep(HAND_OVER_AFTER * 2).await;
    assert!(!waiting.is_finished());
    for _ in 0..8 {
        me.take_beat(&stands("b"));
        tokio::time::sleep(HAND_OVER_AFTER / 5).await;
    }
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_counts_from_the_last_beat_of_this_term() {
    let me = Members::new("a");
    let (group, begun) = (Group(3), Instant::now());
    let lead = |term| Beat {
        group,
        term,
        ..stands("b")
    };
    me.take_beat(&lead(4));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(me.silence(group, 4, begun), Duration::from_secs(1));
    tokio::time::advance(Duration::from_secs(1)).await;
    me.take_beat(&lead(3));
    assert_eq!(
        me.silence(group, 4, begun),
        Duration::from_secs(2),
        "of one that was replaced"
    );
    assert!(me.leaderless().iter().all(|other| *other != group));
    tokio::time::advance(SILENCE_MAX * 2).await;
    assert!(me.leaderless().contains(&group));
}
