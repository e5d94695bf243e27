use super::*;

fn rv(version: &str) -> ResourceVersion {
    ResourceVersion::new(version)
}

fn follows(own_lists: &[(&str, &str)]) -> Progress {
    let after = own_lists.iter();
    let after = after.map(|(namespace, at)| ((*namespace).to_owned(), rv(at)));
    Progress::Follows {
        after: after.collect(),
    }
}

/// The view knows its source up to 10, by the lists of other watches.
#[test]
fn a_view_takes_the_part_in_a_list_that_its_progress_allows() {
    let asked_again = Progress::Waits { asked_again: true };
    let joins = || Progress::Joins {
        list: 1,
        held: HeldEvents::default(),
    };
    let lists = || Progress::Lists {
        list: 1,
        known_to: rv("5"),
    };
    let takes = |is_known| ListPart::Takes { is_known };
    let waits_for = |since: Option<&str>| ListPart::WaitsForNext {
        since: since.map(rv),
    };
    let two = || follows(&[("a", "20"), ("b", "30")]);
    for (progress, version, part) in [
        (Progress::waits(), "10", takes(false)),
        (Progress::waits(), "9", waits_for(None)),
        (asked_again, "9", ListPart::RestartsHistory),
        (joins(), "10", takes(false)),
        (joins(), "9", ListPart::PassesOver),
        (lists(), "9", takes(false)),
        (follows(&[]), "9", takes(true)),
        (two(), "30", takes(true)),
        (two(), "20", ListPart::PassesOver),
        (two(), "25", waits_for(Some("30"))),
        (two(), "19", ListPart::PassesOver),
    ] {
        let found = progress.part_in_list(&rv(version), &rv("10"));
        assert_eq!(found, part, "{progress:?} and a list at {version}");
    }
}
