//! Views that only policies of namespaces need, beside views of the cluster, while the log is full.

use super::*;

fn fill_and_list(log: &mut FullLog, handle: &WriteHandle, objects: usize) {
    log.fill(handle, objects);
    log.listed(handle);
}

/// The log holds twelve objects of [`FullLog::fill`] where a view of the cluster has more than two of them.
#[test]
fn the_namespace_with_most_bytes_is_suspended_first_and_the_cluster_last() {
    let mut log = FullLog::new();
    let small = log.open_in_quota("small", "a");
    let large = log.open_in_quota("large", "a");
    let largest = log.open_in_quota("largest", "b");
    let cluster = log.open("cluster");
    for (handle, objects) in [(&small, 2), (&large, 3), (&largest, 4), (&cluster, 3)] {
        fill_and_list(&mut log, handle, objects);
    }
    log.write();
    let views = [&small, &large, &largest, &cluster];
    assert!(views.iter().all(|view| log.is_synced(view)));
    let mut suspended = Vec::new();
    for at in 3..13 {
        log.put(&cluster, &at.to_string(), 1, 64 * KIB);
        log.write();
        for view in views {
            if log.has_no_room_for(view) && !suspended.contains(&&view.view) {
                suspended.push(&view.view);
            }
        }
    }
    let expected = [&large, &largest, &small, &cluster].map(|handle| &handle.view);
    assert_eq!(suspended, expected);
}

/// Opens a view of single objects that policies of namespaces name, with so many objects of [`FullLog::fill`] in each of
/// two namespaces.
fn open_shared(log: &mut FullLog, objects: [usize; 2]) -> WriteHandle {
    let info = SourceInfo {
        source: Source::Objects {
            gvr: anteroom_model::GroupVersionResource::new("", "v1", "shared"),
        },
        kind: String::new(),
        namespaced: true,
    };
    let handle = log.queue.open(info, HashMap::new());
    log.queue.set_in_quota(&handle.view, true);
    log.queue.limit_each_namespace(&handle.view, false);
    log.queue.begin_list(&handle);
    for (namespace, objects) in ["a", "b"].into_iter().zip(objects) {
        for at in 0..objects {
            let key = ObjectKey::new(namespace, at.to_string());
            let body = Bytes::from(vec![0; 64 * KIB]);
            let (now, origin) = (log.now, ChangeOrigin::List);
            log.queue.put(&handle, key, rv(1), body, now, origin);
        }
    }
    log.listed(&handle);
    handle
}

#[test]
fn a_view_that_namespaces_share_is_suspended_by_the_largest_part_of_one() {
    const QUOTA: Option<u64> = Some(8 * 1024 * KIB as u64);
    for (quota, objects, shared_first) in [
        (QUOTA, [4, 0], true),
        (QUOTA, [2, 2], false),
        // Without a quota nobody counts the parts.
        (None, [2, 2], true),
        (None, [1, 1], false),
    ] {
        let mut log = FullLog::new();
        log.queue.limit_namespaces(quota);
        let shared = open_shared(&mut log, objects);
        let (own, cluster) = (log.open_in_quota("own", "c"), log.open("cluster"));
        fill_and_list(&mut log, &own, 3);
        fill_and_list(&mut log, &cluster, 3);
        log.write();
        let (first, second) = match shared_first {
            true => (&shared, &own),
            false => (&own, &shared),
        };
        let mut at = 3..13;
        while log.is_synced(&shared) && log.is_synced(&own) {
            log.put(&cluster, &at.next().unwrap().to_string(), 1, 64 * KIB);
            log.write();
        }
        assert!(log.has_no_room_for(first), "{quota:?} {objects:?}");
        assert!(log.is_synced(second) && log.is_synced(&cluster));
    }
}

#[test]
fn a_view_of_a_tenant_without_objects_in_the_log_stays_when_it_would_make_no_room() {
    let mut log = FullLog::new();
    let (empty, cluster) = (log.open_in_quota("empty", "a"), log.open("cluster"));
    log.listed(&empty);
    fill_and_list(&mut log, &cluster, 13);
    log.write();
    assert!(log.has_no_room_for(&cluster));
    assert!(log.is_synced(&empty));
}

#[test]
fn a_view_that_a_policy_of_the_cluster_needs_too_is_suspended_as_the_clusters() {
    let mut log = FullLog::new();
    let (shared, own) = (log.open_in_quota("one", "a"), log.open_in_quota("two", "a"));
    let cluster = log.open("cluster");
    log.queue.set_in_quota(&shared.view, false);
    for (handle, objects) in [(&shared, 5), (&own, 2), (&cluster, 6)] {
        fill_and_list(&mut log, handle, objects);
    }
    log.write();
    assert!(log.has_no_room_for(&own));
    assert!(log.is_synced(&shared) && log.is_synced(&cluster));
}

#[test]
fn a_view_of_the_cluster_comes_back_first_and_takes_the_room_of_tenants() {
    let mut log = FullLog::new();
    let (mut cluster, mut tenant) = (log.open("one"), log.open_in_quota("two", "a"));
    fill_and_list(&mut log, &tenant, 2);
    fill_and_list(&mut log, &cluster, 13);
    log.write();
    assert!(log.has_no_room_for(&tenant) && log.has_no_room_for(&cluster));
    log.bytes_max *= 2;
    log.look();
    let later = log.now + Duration::from_secs(10);
    let first = log.queue.next_to_resume(later);
    assert_eq!(first, Some(cluster.view.clone()), "though it is larger");

    log.bytes_max /= 2;
    log.look();
    log.resume_after_full(&mut tenant);
    fill_and_list(&mut log, &tenant, 2);
    log.write();
    assert!(
        log.is_synced(&tenant),
        "it does not wait for what cannot fit"
    );
    let shrink = |log: &mut FullLog, name: &str| {
        let (now, origin) = (log.now, ChangeOrigin::List);
        log.queue.delete(&cluster, &key(name), rv(2), now, origin);
    };
    shrink(&mut log, "12");
    let next = log.queue.next_to_resume(log.now);
    assert_eq!(next, None, "the room of tenants counts by half");
    shrink(&mut log, "11");
    log.resume_after_full(&mut cluster);
    fill_and_list(&mut log, &cluster, 11);
    log.write();
    assert!(log.is_synced(&cluster));
    assert!(log.has_no_room_for(&tenant));
    log.now += Duration::from_secs(10);
    assert_eq!(log.queue.next_to_resume(log.now), None);
}

/// A writer cannot suspend tenants' views of another group.
#[test]
fn views_of_tenants_leave_a_reserve_to_the_cluster() {
    let mut log = FullLog::new();
    let (tenant, cluster) = (log.open_in_quota("one", "a"), log.open("cluster"));
    for handle in [&tenant, &cluster] {
        log.put(handle, "x", 1, KIB);
        log.listed(handle);
    }
    let of_other_groups = log.bytes_max / 10 * 8;
    log.queue.set_room(LogSize {
        bytes: of_other_groups,
        bytes_max: Some(log.bytes_max),
    });
    log.write();
    assert!(log.has_no_room_for(&tenant));
    assert!(log.is_synced(&cluster));
}

#[test]
fn a_refused_batch_of_the_cluster_suspends_a_view_of_a_tenant_that_is_not_in_the_batch() {
    let mut log = FullLog::new();
    let (tenant, cluster) = (log.open_in_quota("one", "a"), log.open("cluster"));
    for handle in [&tenant, &cluster] {
        fill_and_list(&mut log, handle, 1);
    }
    log.write();
    log.put(&cluster, "more", 2, KIB);
    let Some(Work::Append(batch)) = log.queue.next_work(log.now) else {
        panic!("there is a batch");
    };
    let rest = log.queue.refuse(batch, log.now).unwrap();
    assert_eq!(rest.records.len(), 1, "nothing of it is left out");
    log.write();
    assert!(log.has_no_room_for(&tenant));
    let last = log.reader.append(&rest);
    log.queue.written(&rest, last);
    assert_eq!(log.reader.content(&cluster.view).len(), 2);
    assert!(log.is_synced(&cluster));
}

proptest! {
    #[test]
    fn a_view_of_the_cluster_is_never_suspended_while_a_tenants_view_that_holds_bytes_is_written(
        puts in proptest::collection::vec((0..6_usize, 0..8_u8, 1..200_usize), 0..60)
    ) {
        let mut log = FullLog::new();
        let views = [
            log.open("one"),
            log.open("two"),
            log.open_in_quota("one", "a"),
            log.open_in_quota("two", "a"),
            log.open_in_quota("one", "b"),
            log.open_in_quota("two", "b"),
        ];
        let (cluster, tenants) = views.split_at(2);
        let mut suspended = 0;
        for (version, (view, object, kib)) in (1..).zip(puts) {
            log.put(&views[view], &object.to_string(), version, kib * KIB);
            log.write();
            let before = suspended;
            suspended = cluster.iter().filter(|view| log.has_no_room_for(view)).count();
            let is_empty = |view: &WriteHandle| log.reader.content(&view.view).is_empty();
            let no_tenant_holds_bytes = tenants.iter().all(is_empty);
            prop_assert!(suspended == before || (view < 2 && no_tenant_holds_bytes));
        }
    }
}
