//! The book holds no more than its limits say, and always of the same objects.

use proptest::prelude::*;

use super::*;

fn limited(pages_max: usize, bytes_max: usize) -> Book {
    Book::with_limits(Limits {
        pages_max,
        bytes_max,
        ..Limits::default()
    })
}

fn uids(book: &Book) -> Vec<String> {
    book.all()
        .keys()
        .map(|subject| subject.uid.to_string())
        .collect()
}

fn pass() -> Vec<RuleResult> {
    vec![result("r", Outcome::Pass)]
}

#[test]
fn at_the_limit_all_are_held_and_beyond_it_the_last_is_left_out() {
    let mut book = limited(2, usize::MAX);
    book.put(&subject("c"), &finder("p"), pass(), 1);
    book.put(&subject("b"), &finder("p"), pass(), 1);
    assert_eq!(
        (uids(&book), book.left_out()),
        (vec!["b".into(), "c".into()], 0)
    );
    take_all(&mut book);
    book.put(&subject("a"), &finder("p"), pass(), 1);
    assert_eq!(
        (uids(&book), book.left_out()),
        (vec!["a".into(), "b".into()], 1)
    );
    assert_eq!(
        take_all(&mut book),
        ["a", "c"],
        "of what is left out the report goes"
    );
    for policy in ["p", "q"] {
        book.put(&subject("c"), &finder(policy), pass(), 1);
        book.put(&subject("d"), &finder(policy), pass(), 1);
    }
    assert_eq!(take_all(&mut book), [""; 0]);
    assert_eq!((book.len(), book.left_out()), (2, 2));
    book.forget("d", &finder("p"));
    assert_eq!(book.left_out(), 2, "another policy speaks of it");
    book.put(&subject("d"), &finder("q"), Vec::new(), 1);
    assert_eq!(book.left_out(), 1);
    book.retain(|finder| &*finder.policy.name == "none");
    assert_eq!((book.len(), book.left_out()), (0, 0));
}

#[test]
fn room_is_given_away_by_the_next_whole_scan_where_there_is_enough() {
    let mut book = limited(16, usize::MAX);
    let names: Vec<_> = (0..18).map(|number| format!("{number:02}")).collect();
    let scan = |book: &mut Book| {
        for name in &names {
            book.put(&subject(name), &finder("p"), pass(), 1);
        }
        (book.len(), book.left_out())
    };
    assert!(!book.reopen(), "nothing is left out");
    assert_eq!(scan(&mut book), (16, 2));
    book.forget("03", &finder("p"));
    assert!(!book.reopen());
    assert_eq!(uids(&book).len(), 15);
    book.put(&subject("17"), &finder("p"), pass(), 1);
    assert_eq!(book.left_out(), 2, "nothing comes and goes at the limit");
    book.forget("04", &finder("p"));
    book.put(&subject("17"), &finder("p"), pass(), 1);
    assert_eq!(book.len(), 14, "not before all are judged again");
    assert!(book.reopen());
    assert!(!book.reopen(), "once");
    for name in ["17", "16"] {
        book.put(&subject(name), &finder("p"), pass(), 1);
    }
    assert_eq!((book.len(), book.left_out()), (16, 0));
}

#[test]
fn what_is_gone_is_remembered_up_to_a_limit_and_beyond_it_that_there_is_some() {
    let mut book = Book::with_limits(Limits {
        pages_max: 1,
        bytes_max: usize::MAX,
        gone_max: 1,
    });
    let come_and_go = |book: &mut Book, name: &str| {
        book.put(&subject(name), &finder("p"), pass(), 1);
        book.forget(name, &finder("p"));
        book.take_lost()
    };
    let lost = ["a", "b", "a", "c"].map(|name| come_and_go(&mut book, name));
    assert_eq!(lost, [false, false, false, true]);
    // Whatever is gone, what is held is looked at.
    book.put(&subject("d"), &finder("p"), pass(), 1);
    assert_eq!(take_all(&mut book), ["a", "b", "d"]);
    assert!(!come_and_go(&mut book, "e"));
}

#[test]
fn what_many_share_is_held_once() {
    let mut book = Book::default();
    book.put(&subject("a"), &finder("p"), pass(), 1);
    let one = book.bytes();
    book.put(&subject("b"), &finder("p"), pass(), 1);
    assert!(
        book.bytes() - one < 2 * size_of::<Page>(),
        "{one} {}",
        book.bytes()
    );
    assert_eq!(book.results.len(), 1);
    assert!(Arc::ptr_eq(
        &book.page("a").unwrap().findings[0].result,
        &book.page("b").unwrap().findings[0].result,
    ));
    for uid in ["a", "b"] {
        book.forget(uid, &finder("p"));
    }
    assert_eq!(
        (book.bytes(), book.results.len(), book.texts.len()),
        (0, 0, 0)
    );
}

#[test]
fn large_pages_are_left_out_by_their_bytes() {
    let mut book = Book::default();
    book.put(&subject("a"), &finder("p"), pass(), 1);
    let one = book.bytes();
    let mut book = limited(usize::MAX, one);
    book.put(&subject("a"), &finder("p"), pass(), 1);
    assert_eq!((book.len(), book.bytes()), (1, one), "just so much");
    let mut book = limited(usize::MAX, one - 1);
    book.put(&subject("a"), &finder("p"), pass(), 1);
    assert_eq!((book.len(), book.left_out(), book.bytes()), (0, 1, 0));
}

/// An object, a policy, and how long what it says is; 0: it says nothing.
type Put = (u8, u8, usize);

fn put(book: &mut Book, (object, policy, length): Put) {
    let mut one = result("r", Outcome::Fail);
    one.message = format!("{object}").repeat(length).into();
    let results = if length == 0 { Vec::new() } else { vec![one] };
    let (subject, finder) = (
        subject(&format!("{object:03}")),
        finder(&policy.to_string()),
    );
    book.put(&subject, &finder, results, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Of objects that nobody changes, in whatever order they come.
    #[test]
    fn who_is_left_out_is_for_the_objects_to_say_and_not_for_their_order(
        puts in prop::collection::btree_map((0..12_u8, 0..3_u8), 1..200_usize, 0..30),
        order in any::<u64>(),
        pages_max in 1..12_usize,
        bytes_max in 500..6_000_usize,
    ) {
        let puts: Vec<Put> = puts.into_iter().map(|((o, p), length)| (o, p, length)).collect();
        let mut shuffled = puts.clone();
        shuffled.sort_by_key(|put| xxhash_rust::xxh3::xxh3_64_with_seed(format!("{put:?}").as_bytes(), order));
        let mut book = limited(pages_max, bytes_max);
        shuffled.iter().for_each(|one| put(&mut book, *one));
        // The model: as many of the first as there is room for.
        let objects: BTreeSet<u8> = puts.iter().map(|(object, ..)| *object).collect();
        let with = |count: usize| {
            let mut whole = Book::default();
            let held: Vec<u8> = objects.iter().take(count).copied().collect();
            let of_these = puts.iter().filter(|(object, ..)| held.contains(object));
            of_these.for_each(|one| put(&mut whole, *one));
            whole
        };
        let fits = |count: &usize| *count <= pages_max && with(*count).bytes() <= bytes_max;
        let count = (0..=objects.len()).rev().find(fits).unwrap_or_default();
        prop_assert_eq!(book.all(), with(count).all());
        prop_assert_eq!(book.left_out(), objects.len() - count);
        prop_assert_eq!(book.bytes(), with(count).bytes());
    }
}
