use super::*;

/// The verdict of Kubernetes' `labels.Parse` on each: whether it selects an object with these labels, or
/// `None` where it refuses.
#[test]
fn labels_select_and_are_refused_as_by_the_api_server() {
    let labels = [
        ("app", "web"),
        ("tier", "front"),
        ("a.dev/x", ""),
        ("n", "5"),
    ];
    let label = |key: &str| {
        let found = labels.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| *value)
    };
    for (selector, expected) in [
        ("", Some(true)),
        ("  ", Some(true)),
        ("app", Some(true)),
        ("!app", Some(false)),
        ("! none", Some(true)),
        ("app=web", Some(true)),
        ("app=api", Some(false)),
        ("app==web,tier=front", Some(true)),
        ("app = web , tier != back", Some(true)),
        ("app\t=\nweb", Some(true)),
        ("app=web,!app", Some(false)),
        ("app=", Some(false)),
        ("app==", Some(false)),
        ("app!=", Some(true)),
        ("app=,tier=front", Some(false)),
        ("app=in", Some(false)),
        ("none!=x", Some(true)),
        ("none=", Some(false)),
        ("app in (web, api)", Some(true)),
        ("app in(web) ", Some(true)),
        ("app\tin\t(web)", Some(true)),
        ("app in (api),tier", Some(false)),
        ("app in (web),n=5", Some(true)),
        ("app in (web,)", Some(true)),
        ("app in (notin,web)", Some(true)),
        ("app notin (web)", Some(false)),
        ("app notin(db)", Some(true)),
        ("app notin ()", Some(true)),
        ("none notin (x,y)", Some(true)),
        ("none in ()", Some(false)),
        ("in", Some(false)),
        ("notin", Some(false)),
        ("in in (a)", Some(false)),
        ("a.dev/x=", Some(true)),
        ("a.dev/x", Some(true)),
        ("a.dev/x in ()", Some(true)),
        ("a-b.dev/x", Some(false)),
        ("a.dev/x in (,)", Some(true)),
        ("n>4", Some(true)),
        ("n>4,n<6", Some(true)),
        ("n>04", Some(true)),
        ("n > 5", Some(false)),
        ("n<5", Some(false)),
        ("n>9223372036854775807", Some(false)),
        ("app<6", Some(false)),
        ("none>0", Some(false)),
        (",", None),
        ("a,,b", None),
        ("app,", None),
        (",app", None),
        ("app web", None),
        ("app like web", None),
        ("app in web", None),
        ("app in (web", None),
        ("app)", None),
        ("app=web)", None),
        ("app=(web)", None),
        ("app within (a)", None),
        ("in (a)", None),
        ("a in (b))", None),
        ("a in ((b))", None),
        ("app in (a b)", None),
        ("app in (!web)", None),
        ("!app in (x)", None),
        ("!app=web", None),
        ("!", None),
        ("!!a", None),
        ("a!b", None),
        ("=x", None),
        ("a=b=c", None),
        ("a=b c", None),
        ("app = = web", None),
        ("app=!web", None),
        ("app=\"web\"", None),
        ("app\u{a0}=web", None),
        ("a=-b", None),
        ("a=b-", None),
        ("-a", None),
        ("a/", None),
        ("/a", None),
        ("a/b/c", None),
        ("A.b/c", None),
        ("a_b.dev/x", None),
        ("n>", None),
        ("n>x", None),
        ("n>-1", None),
        ("n>+4", None),
        ("n>=4", None),
        ("n=>4", None),
        ("n>9223372036854775808", None),
    ] {
        let read = LabelSelector::parse(selector);
        let selected = read.ok().map(|selector| selector.matches(label));
        assert_eq!(selected, expected, "{selector:?}");
    }
    assert!(LabelSelector::parse(" ").unwrap().is_empty());
    assert!(!LabelSelector::parse("!app").unwrap().is_empty());
}

#[test]
fn label_names_and_values_have_a_length_limit() {
    let longest = "b".repeat(LABEL_BYTES_MAX);
    let prefix = "p".repeat(LABEL_PREFIX_BYTES_MAX);
    for (selector, is_read) in [
        (format!("a={longest}"), true),
        (format!("a={longest}b"), false),
        (format!("{prefix}/{longest}"), true),
        (format!("{longest}b"), false),
        (format!("{prefix}p/a"), false),
    ] {
        let read = LabelSelector::parse(&selector);
        assert_eq!(read.is_ok(), is_read, "{selector}");
    }
}

/// The verdict of Kubernetes' `fields.ParseSelector` on each, and its list of the fields that each type
/// has.
#[test]
fn field_selectors_select_and_are_refused_as_by_the_api_server() {
    for (selector, expected) in [
        ("", Some(true)),
        (",", Some(true)),
        ("metadata.name=p", Some(true)),
        ("metadata.name=p,", Some(true)),
        (",metadata.name=p", Some(true)),
        ("metadata.name==p,metadata.namespace=n", Some(true)),
        ("metadata.name=p,,metadata.namespace=n", Some(true)),
        ("metadata.name!=p", Some(false)),
        ("metadata.name=", Some(false)),
        ("metadata.name!=", Some(true)),
        ("metadata.name= p", Some(false)),
        ("metadata.name=a:b c", Some(false)),
        ("metadata.namespace!=m", Some(true)),
        ("metadata.namespace=m", Some(false)),
        ("metadata.namespace==n,metadata.name=q", Some(false)),
        (" ", None),
        ("metadata.name", None),
        ("metadata.name = p", None),
        (" metadata.name=p", None),
        ("metadata.name=p=q", None),
        ("metadata.name===p", None),
        ("metadata.name!=p=q", None),
        ("metadata.name=p!=q", None),
        ("metadata.name=p\\", None),
        ("metadata.name=\\p", None),
        ("spec.nodeName=a", None),
    ] {
        let read = NameSelector::parse(selector);
        let selected = read.ok().map(|names| names.matches("n", "p"));
        assert_eq!(selected, expected, "{selector:?}");
    }
    let name = NameSelector::parse("metadata.name=a:b c").unwrap();
    assert!(name.matches("", "a:b c"), "as roles may be named");
    assert!(NameSelector::parse(",").unwrap().is_empty() && !name.is_empty());
}

/// The API server accepts the escape, so the selector must never be read with a different meaning.
#[test]
fn an_escape_in_a_field_selector_is_not_read() {
    for selector in ["metadata.name=p\\,q", "metadata.name=p\\=q"] {
        assert!(NameSelector::parse(selector).is_err(), "{selector}");
    }
}

#[test]
fn a_field_selector_returns_its_one_name_and_its_one_namespace() {
    for (selector, name, namespace) in [
        ("metadata.name=a,metadata.namespace=n", Some("a"), Some("n")),
        ("metadata.namespace==n", None, Some("n")),
        ("metadata.name!=a,metadata.namespace!=n", None, None),
        ("metadata.name=,metadata.namespace=", None, None),
        ("metadata.name==a", Some("a"), None),
    ] {
        let names = NameSelector::parse(selector).unwrap();
        let told = (names.name(), names.namespace());
        assert_eq!(told, (name, namespace), "{selector}");
    }
}
