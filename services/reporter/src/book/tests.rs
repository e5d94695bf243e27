mod limits;

use super::*;

pub(crate) fn subject(uid: &str) -> Subject {
    Subject {
        uid: uid.into(),
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "n".into(),
        name: uid.into(),
    }
}

pub(crate) fn finder(policy: &str) -> Finder {
    Finder {
        policy: ObjectKey::new("", policy),
        view: ViewId::new("pods.v1"),
    }
}

pub(crate) fn result(rule: &str, outcome: Outcome) -> RuleResult {
    RuleResult {
        rule: rule.into(),
        outcome,
        message: "m".into(),
    }
}

fn take_all(book: &mut Book) -> Vec<String> {
    std::iter::from_fn(|| book.take_changed())
        .map(|subject| subject.uid.to_string())
        .collect()
}

#[test]
fn only_what_differs_is_a_change() {
    let mut book = Book::default();
    let (a, p) = (subject("a"), finder("p"));
    book.put(&a, &p, vec![result("r", Outcome::Fail)], 1);
    assert_eq!(take_all(&mut book), ["a"]);
    book.told("a");
    book.put(&a, &p, vec![result("r", Outcome::Fail)], 2);
    assert_eq!(take_all(&mut book), [""; 0]);
    let since = |book: &Book| book.page("a").unwrap().of(&p)[0].since_s;
    assert_eq!(since(&book), 1, "it is what it was");
    assert!(!book.page("a").unwrap().of(&p)[0].is_new);
    book.put(&a, &p, vec![result("r", Outcome::Pass)], 3);
    assert_eq!(take_all(&mut book), ["a"]);
    assert_eq!(since(&book), 3);
    book.put(&a, &finder("q"), Vec::new(), 4);
    assert_eq!(take_all(&mut book), [""; 0]);
    book.put(&a, &p, Vec::new(), 5);
    assert_eq!(take_all(&mut book), ["a"]);
    assert_eq!(book.len(), 0);
}

#[test]
fn an_error_with_other_numbers_is_no_change() {
    let mut book = Book::default();
    let (a, p) = (subject("a"), finder("p"));
    let error = |message: &str| {
        let mut error = result("r", Outcome::Error);
        error.message = message.into();
        vec![error]
    };
    book.put(&a, &p, error("AR201 after 1 s"), 1);
    take_all(&mut book);
    book.put(&a, &p, error("AR201 after 2 s"), 2);
    assert_eq!(take_all(&mut book), [""; 0]);
    book.put(&a, &p, error("AR202 after 2 s"), 3);
    assert_eq!(take_all(&mut book), ["a"]);
}

#[test]
fn each_change_gets_its_turn() {
    let mut book = Book::default();
    let mut taken = Vec::new();
    book.put(
        &subject("b"),
        &finder("p"),
        vec![result("r", Outcome::Pass)],
        0,
    );
    for rule in ["1", "2", "3"] {
        let changed = vec![result(rule, Outcome::Pass)];
        book.put(&subject("a"), &finder("p"), changed, 0);
        taken.extend(book.take_changed().map(|subject| subject.uid.to_string()));
    }
    assert_eq!(taken, ["a", "b", "a"]);
}

#[test]
fn what_a_policy_found_can_be_told_in_another_way() {
    let mut book = Book::default();
    let results = || vec![result("r", Outcome::Pass)];
    book.put(&subject("a"), &finder("p"), results(), 1);
    book.put(&subject("b"), &finder("q"), results(), 1);
    take_all(&mut book);
    book.touch(|policy| &*policy.name == "q");
    assert_eq!(take_all(&mut book), ["b"]);
}

#[test]
fn what_no_finder_knows_is_forgotten() {
    let mut book = Book::default();
    let results = || vec![result("r", Outcome::Error)];
    book.put(&subject("a"), &finder("p"), results(), 1);
    book.put(&subject("a"), &finder("q"), results(), 1);
    book.put(&subject("b"), &finder("p"), results(), 1);
    take_all(&mut book);
    assert_eq!(book.errors_of(&finder("p")).len(), 2);
    book.retain(|finder| &*finder.policy.name == "q");
    assert_eq!(take_all(&mut book), ["a", "b"]);
    assert!(book.page("a").is_some() && book.page("b").is_none());
    book.forget("a", &finder("q"));
    book.forget("a", &finder("q"));
    assert_eq!(take_all(&mut book), ["a"]);
    assert_eq!(book.len(), 0);
}

#[test]
fn of_many_finders_those_that_are_gone_are_forgotten() {
    let mut book = Book::with_limits(Limits {
        pages_max: 20,
        ..Limits::default()
    });
    let names: Vec<_> = (0..30).map(|number| format!("{number:02}")).collect();
    for (object, name) in names.iter().enumerate() {
        for policy in &names[object..] {
            let results = vec![result("r", Outcome::Pass)];
            book.put(&subject(name), &finder(policy), results, 1);
        }
    }
    assert_eq!((book.len(), book.left_out()), (20, 10));
    take_all(&mut book);
    let stays = |finder: &Finder| finder.policy.name.as_bytes()[1] < b'5';
    book.retain(stays);
    assert_eq!(take_all(&mut book).len(), 20, "each had one of the others");
    // Of the last ones nobody else speaks.
    assert_eq!((book.len(), book.left_out()), (20, 5));
    for (object, name) in names.iter().take(20).enumerate() {
        let page = book.page(name).unwrap();
        let found = page.findings.iter().map(|found| &*found.finder.policy.name);
        let expected = names[object..]
            .iter()
            .filter(|name| name.as_bytes()[1] < b'5');
        assert!(found.eq(expected), "{name}");
    }
    book.retain(stays);
    assert_eq!(take_all(&mut book), [""; 0]);
}
