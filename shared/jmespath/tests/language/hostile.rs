//! Expressions and documents that mean harm: each ends in a value or a typed error, in a debug build,
//! on a stack of 2 MiB.

use std::thread;

use anteroom_jmespath::{
    Budget, BudgetKind, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, Environment, EvalError,
    Expression, Limits, ParseErrorKind, json_memory,
};
use serde_json::{Value, json};

const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Limits that allow long texts, so that only the depth limit can refuse an expression.
const LONG: Limits = Limits {
    bytes: 64 * 1024 * 1024,
    depth: EXPRESSION_DEPTH_MAX,
};

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(test)
        .unwrap();
    thread.join().unwrap();
}

/// Parses, and evaluates what parses on documents of several shapes.
fn survive(text: &str) -> Result<(), ParseErrorKind> {
    let expression = Expression::parse_within(text, LONG).map_err(|error| error.kind)?;
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner, { "a": [] }]));
    for document in [
        json!(null),
        json!({"a": {"a": [1, 2]}}),
        json!([[1], [2]]),
        nested,
    ] {
        let _ = expression.evaluate_json(&document, &Environment::default());
    }
    Ok(())
}

#[test]
fn nesting_is_an_error_and_never_an_overflow() {
    let count = 200_000;
    let repeated = [
        "(", "[", "!", "&", "& ", "[[", "{a:", "[?", "[?a", "a[?", "f(", "f(&", "[*]", "[*].a",
        "[]", "[].a", "*.", "a.*.", "[0:1]", "[::-1]", "a[*].b", "a==", "!(", "a||(", "a&&(",
        "a|(", "a.[", "a.{b:", "@[", "-", "$", "'", "`", "\"", "\\", "\0", "é",
    ];
    on_a_small_stack(move || {
        for part in repeated {
            let text = part.repeat(count);
            assert!(survive(&text).is_err(), "{count} times {part}");
        }
        let closed = [
            ("(", "a", ")"),
            ("[", "a", "]"),
            ("{a:", "a", "}"),
            ("to_array(", "a", ")"),
            ("map(&", "a", ",@)"),
        ];
        for (open, middle, close) in closed {
            let text = format!("{}{middle}{}", open.repeat(count), close.repeat(count));
            assert_eq!(
                survive(&text),
                Err(ParseErrorKind::TooDeep),
                "{count} times {open}"
            );
        }
    });
}

#[test]
fn long_chains_do_not_nest() {
    on_a_small_stack(|| {
        for operator in [".", "||", "&&", "|", "[0].", "[-1] | "] {
            let text = vec!["a"; 200_000].join(operator);
            assert_eq!(survive(&text), Ok(()), "a{operator}a…");
        }
        let list = format!("[{}]", vec!["a"; 200_000].join(","));
        assert_eq!(survive(&list), Ok(()));
        let not_null = format!("not_null({})", vec!["a"; 200_000].join(","));
        assert_eq!(survive(&not_null), Ok(()));
    });
}

#[test]
fn the_deepest_expression_fits_the_stack() {
    on_a_small_stack(|| {
        let depth = EXPRESSION_DEPTH_MAX as usize;
        let shapes: [(&str, &str, &str); 12] = [
            ("(", "a", ")"),
            ("[", "@", "]"),
            ("{a:", "@", "}"),
            ("!", "a", ""),
            ("[*]", "", ""),
            ("[?@]", "", ""),
            ("", "@", "[]"),
            ("[?", "@", "]"),
            ("to_array(", "@", ")"),
            ("map(&", "@", ", [@, @])"),
            ("sort_by([@], &to_string(", "@", "))"),
            ("", "@", " == @"),
        ];
        for (open, middle, close) in shapes {
            let deepest = (1..=depth)
                .rev()
                .map(|count| format!("{}{middle}{}", open.repeat(count), close.repeat(count)))
                .find(|text| survive(text).is_ok());
            let deepest = deepest.unwrap_or_default();
            assert!(
                deepest.len() > depth / 4,
                "{open}{middle}{close}: {deepest}"
            );
        }
    });
}

#[test]
fn values_that_grow_hit_the_budget() {
    let doubling = |times: usize| vec!["[@, @]"; times].join(" | ");
    let flattening = format!("{} | {}", doubling(20), vec!["[]"; 20].join(" | "));
    let cases = [
        // Shared on the way, huge when written.
        (doubling(40), BudgetKind::BuiltBytes),
        (
            format!("{} | to_string(@)", doubling(40)),
            BudgetKind::BuiltBytes,
        ),
        (doubling(300), BudgetKind::Depth),
        (vec!["[@]"; 10_000].join(" | "), BudgetKind::Depth),
        (vec!["{a: @}"; 10_000].join(" | "), BudgetKind::Depth),
        (flattening, BudgetKind::BuiltBytes),
        (
            format!("[{}] == [{}]", doubling(40), doubling(40)),
            BudgetKind::Steps,
        ),
        (
            format!("contains([{}], {})", doubling(40), doubling(40)),
            BudgetKind::Steps,
        ),
        (
            format!(
                "'{}' | {}",
                "x".repeat(1_000),
                ["join(@, ['', '', '', '', ''])"; 12].join(" | ")
            ),
            BudgetKind::BuiltBytes,
        ),
    ];
    on_a_small_stack(move || {
        let budget = Budget {
            steps: 500_000,
            built_bytes: 8 * 1024 * 1024,
            json_bytes: 8 * 1024 * 1024,
            ..Budget::default()
        };
        let environment = Environment::standard().with_budget(budget);
        for (text, expected) in cases {
            let expression = Expression::parse_within(&text, LONG).unwrap();
            let shown: String = text.chars().take(60).collect();
            match expression.evaluate_json(&json!({"a": 1}), &environment) {
                Err(EvalError::Budget { which, .. }) => assert_eq!(which, expected, "{shown}"),
                other => panic!("{shown}: {:?}", other.map(drop)),
            }
        }
    });
}

/// Small to hold, and huge as a document: parts are shared until they are converted.
#[test]
fn a_result_is_converted_out_of_the_memory_and_the_steps_that_are_left() {
    let times = |count: usize| format!("[{}]", vec!["@"; count].join(","));
    let text = format!("{{a: name == 'q'}} | {} | {}", times(1_000), times(900));
    let expression = Expression::parse(&text).unwrap();
    let (document, environment) = (json!({"name": "p"}), Environment::standard());
    let converted = |steps, json_bytes| {
        let mut left = Budget {
            steps,
            json_bytes,
            ..Budget::default()
        };
        let value = expression
            .evaluate_out_of(&document, &environment, &mut left)
            .unwrap();
        let evaluated = left.steps;
        let converted = value.to_json_out_of(&mut left);
        (converted.map(drop), evaluated - left.steps, left.steps)
    };
    let over = |which, limit| Err(EvalError::Budget { which, limit });
    let json_bytes = 16 * 1024 * 1024;
    let (ended, steps, _) = converted(1_000_000, json_bytes);
    assert_eq!(ended, over(BudgetKind::BuiltBytes, json_bytes));
    let most = json_bytes / 64;
    assert!((most * 9 / 10..=most).contains(&steps), "{steps}");
    let (ended, steps, left) = converted(20_000, json_bytes);
    assert_eq!(ended, over(BudgetKind::Steps, steps));
    assert_eq!(left, 0);
    assert!((17_000..20_000).contains(&steps), "{steps}");

    let (small, whole) = (json!([1, 2, 3]), Expression::parse("@").unwrap());
    let value = whole.evaluate(&small, &environment).unwrap();
    let mut left = Budget::default();
    assert_eq!(value.to_json_out_of(&mut left), Ok(small.clone()));
    let bytes = json_memory::list_bytes(3);
    let steps = Budget::default().steps - left.steps;
    assert_eq!(steps, bytes / json_memory::STEP_BYTES);
}

/// Values of calls in progress are not built, and there all the same.
#[test]
fn the_values_of_calls_within_calls_are_limited() {
    let numbers: Value = (0..30_000).collect();
    let nested = (0..8).fold("@".to_owned(), |inner, _| {
        format!("max_by($all, &max([`1`, {inner}]))")
    });
    let parameters = [("all", &numbers)];
    let environment = Environment::standard()
        .with_parameters(&parameters)
        .with_budget(Budget {
            built_bytes: 1024 * 1024,
            json_bytes: 4 * 1024 * 1024,
            ..Budget::default()
        });
    let evaluate = |text: &str| {
        let expression = Expression::parse(text).unwrap();
        expression.evaluate_json(&json!(null), &environment)
    };
    assert_eq!(evaluate("max_by($all, &@)"), Ok(json!(29_999)));
    let ended = evaluate(&nested);
    let over = EvalError::Budget {
        which: BudgetKind::BuiltBytes,
        limit: 4 * 1024 * 1024,
    };
    assert_eq!(ended, Err(over));
}

#[test]
fn work_that_grows_hits_the_budget() {
    let numbers: Value = (0..3_000).collect();
    let long = json!("x".repeat(100_000));
    let same = long.clone();
    // Both objects have nearly the same keys, at different places: each key is looked up.
    let object = |from: u32| -> Value {
        let keys = from..from + 3_000;
        keys.map(|key| (format!("{key:05}"), 1)).collect()
    };
    let (object, moved) = (object(1), object(0));
    let named = json!({"x".repeat(100_000): 1});
    let twin = named.clone();
    let environment = Environment::standard().with_budget(Budget {
        steps: 1_000_000,
        ..Budget::default()
    });
    let cases = [
        "[*].[$all[*].[$all[*]]]",
        "map(&length($all[?@ == `-1`]), @)",
        "sort_by(@, &length($all[?@ == `-1`]))",
        "[?contains($all, `-1`)]",
        "[?$all != $all]",
        "[?$long == $same]",
        "[?contains($long, 'y')]",
        "[?starts_with($long, $long)]",
        "map(&$long, @) | sort(@)",
        "map(&$long, @) | max(@)",
        "[?to_number($long) == `1`]",
        "[?join($long, ['', '']) == 'y']",
        "[?join($long, ['']) == 'y']",
        "[?$named == $twin]",
        "$object == $moved",
    ];
    for text in cases {
        let expression = Expression::parse(text).unwrap();
        let parameters = [
            ("all", &numbers),
            ("long", &long),
            ("same", &same),
            ("named", &named),
            ("twin", &twin),
            ("object", &object),
            ("moved", &moved),
        ];
        let environment = environment.with_parameters(&parameters);
        let error = expression
            .evaluate_json(&numbers, &environment)
            .unwrap_err();
        assert_eq!(
            error,
            EvalError::Budget {
                which: BudgetKind::Steps,
                limit: 1_000_000
            },
            "{text}"
        );
    }
}

/// A charge that is too high would refuse honest expressions.
#[test]
fn a_long_value_is_charged_by_its_length_and_a_shared_one_at_once() {
    let long = json!("x".repeat(100_000));
    let object: Value = (0..1_000).map(|key| (format!("{key:04}"), 1)).collect();
    let (same, equal) = (long.clone(), object.clone());
    let parameters = [
        ("long", &long),
        ("same", &same),
        ("object", &object),
        ("equal", &equal),
    ];
    let environment = Environment::standard()
        .with_parameters(&parameters)
        .with_budget(Budget {
            steps: 10_000,
            ..Budget::default()
        });
    let doubled = |part: &str| format!("{} | @ == @", vec![part; 40].join(" | "));
    for (text, expected) in [
        ("length($long)".to_owned(), json!(100_000)),
        ("$long == $same".to_owned(), json!(true)),
        ("max([$long]) == $same".to_owned(), json!(true)),
        ("$object == $equal".to_owned(), json!(true)),
        (doubled("[@, @]"), json!(true)),
        (doubled("{a: @, b: @}"), json!(true)),
    ] {
        let expression = Expression::parse(&text).unwrap();
        let value = expression.evaluate_json(&json!(1), &environment);
        assert_eq!(value, Ok(expected), "{text}");
    }
}

#[test]
fn an_evaluation_that_is_over_its_steps_leaves_none() {
    let document: Value = (0..10_000).collect();
    for text in ["[*].[@, @]", "to_string(@)"] {
        let expression = Expression::parse(text).unwrap();
        let mut left = Budget {
            steps: 50,
            ..Budget::default()
        };
        let environment = Environment::standard();
        let ended = expression.evaluate_out_of(&document, &environment, &mut left);
        let over = EvalError::Budget {
            which: BudgetKind::Steps,
            limit: 50,
        };
        assert_eq!(ended.map(drop), Err(over), "{text}");
        assert_eq!(left.steps, 0, "{text}");
    }
}

#[test]
fn each_expression_limit_holds_at_its_edge() {
    let at = |bytes| Expression::parse(&"a".repeat(bytes)).map_err(|error| error.kind);
    assert!(at(EXPRESSION_BYTES_MAX).is_ok());
    assert_eq!(
        at(EXPRESSION_BYTES_MAX + 1).unwrap_err(),
        ParseErrorKind::TooLong
    );

    let at = |depth: u32| {
        let parentheses = depth as usize - 1;
        Expression::parse(&format!(
            "{}a{}",
            "(".repeat(parentheses),
            ")".repeat(parentheses)
        ))
    };
    assert!(at(EXPRESSION_DEPTH_MAX).is_ok());
    assert_eq!(
        at(EXPRESSION_DEPTH_MAX + 1).unwrap_err().kind,
        ParseErrorKind::TooDeep
    );

    let evaluate = |text: &str, budget| {
        let environment = Environment::standard().with_budget(budget);
        Expression::parse(text)
            .unwrap()
            .evaluate_json(&json!([1, 2, 3]), &environment)
    };
    // Five steps: the projection, the projected array, and three elements.
    let steps = |steps| {
        evaluate(
            "[*]",
            Budget {
                steps,
                ..Budget::default()
            },
        )
    };
    assert!(steps(5).is_ok());
    assert_eq!(
        steps(4).unwrap_err(),
        EvalError::Budget {
            which: BudgetKind::Steps,
            limit: 4
        }
    );
    let depth = |depth| {
        evaluate(
            "[[[@]]]",
            Budget {
                depth,
                ..Budget::default()
            },
        )
    };
    assert!(depth(4).is_ok());
    assert_eq!(
        depth(3).unwrap_err(),
        EvalError::Budget {
            which: BudgetKind::Depth,
            limit: 3
        }
    );
    // A built value is one level deeper than its parts, however flat the evaluation is.
    for part in ["[@]", "{a: @}"] {
        let built = |levels| {
            let budget = Budget {
                depth: 3,
                ..Budget::default()
            };
            evaluate(&vec![part; levels].join(" | "), budget)
        };
        assert!(built(3).is_ok(), "{part}");
        assert_eq!(
            built(4).unwrap_err(),
            EvalError::Budget {
                which: BudgetKind::Depth,
                limit: 3
            },
            "{part}"
        );
    }
    let bytes = |built_bytes| {
        evaluate(
            "join('', ['ab', 'cd'])",
            Budget {
                built_bytes,
                ..Budget::default()
            },
        )
    };
    assert!(bytes(72).is_ok());
    assert_eq!(
        bytes(71).unwrap_err(),
        EvalError::Budget {
            which: BudgetKind::BuiltBytes,
            limit: 71
        }
    );
}

#[test]
fn extreme_numbers_are_values_or_errors() {
    let document = json!([0, 1, 2, 3, 4]);
    let min = i64::MIN;
    let max = i64::MAX;
    let values = [
        (format!("[{min}]"), json!(null)),
        (format!("[{max}]"), json!(null)),
        (format!("[{min}:{max}:{max}]"), json!([0])),
        (format!("[{max}:{min}:{min}]"), json!([4])),
        (format!("[::{min}]"), json!([4])),
        (
            format!("abs(`{min}`)"),
            json!(9_223_372_036_854_775_808_u64),
        ),
        (
            format!("sum(`[{max}, {max}, 2]`)"),
            json!(18_446_744_073_709_551_616.0),
        ),
        (format!("sum(`[{max}, {max}, 1]`)"), json!(u64::MAX)),
        (format!("avg(`[{min}, {min}]`)"), json!(min)),
        ("to_number('1e999')".to_owned(), json!(null)),
        ("ceil(`1e300`)".to_owned(), json!(1e300)),
        ("floor(`-0.5`)".to_owned(), json!(-1)),
    ];
    for (text, expected) in values {
        let value = Expression::parse(&text)
            .unwrap()
            .evaluate_json(&document, &Environment::default());
        assert_eq!(value, Ok(expected), "{text}");
    }
    for text in [
        "[9223372036854775808]",
        "[-9223372036854775809]",
        "[99999999999999999999999]",
        "[::0]",
        "[:-0:-0]",
    ] {
        assert_eq!(
            Expression::parse(text).unwrap_err().kind,
            ParseErrorKind::InvalidValue,
            "{text}"
        );
    }
    for text in [
        "`1e999`",
        "`-1e999`",
        "`NaN`",
        "`Infinity`",
        "[1.5]",
        "[-]",
        "[0x10]",
        "[1e3]",
    ] {
        assert_eq!(
            Expression::parse(text).unwrap_err().kind,
            ParseErrorKind::Syntax,
            "{text}"
        );
    }
    let overflow = Expression::parse("sum(`[1e308, 1e308]`)").unwrap();
    let error = overflow
        .evaluate_json(&document, &Environment::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "sum(): the result is too large for a number"
    );
}

#[test]
fn broken_text_is_an_error() {
    let broken = [
        "\0",
        "a\0",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"\\x\"",
        "\"a\nb\"",
        "`\"\\ud800\"`",
        "`{\"a\":}`",
        "``",
        "'a",
        "\"a",
        "`1",
        "'\\",
        "\"\\",
        "`\\",
        "a.'b'",
        "\u{feff}a",
        "a\u{a0}b",
        "é",
        "$",
        "$1",
        "$ a",
        "a.$b",
        "&a",
        "[&a]",
        "(&a)",
        "a | &b",
        "sort_by(@, (&a))",
        "f(a b)",
        "f(a,)",
        "f(,)",
        "[a,]",
        "[,]",
        "{a: b,}",
        "f(a",
    ];
    for text in broken {
        assert_eq!(
            Expression::parse(text)
                .map(drop)
                .map_err(|error| error.kind),
            Err(ParseErrorKind::Syntax),
            "{text:?}"
        );
    }
}

/// A document deeper than anything is written or compared, without the stack that would take.
#[test]
fn a_document_too_deep_is_an_error() {
    on_a_small_stack(|| {
        let nested = |depth| (0..depth).fold(json!(1), |inner, _| Value::Array(vec![inner]));
        for depth in [790, 1_500] {
            let (left, right) = (nested(depth), nested(depth));
            let environment = Environment::default();
            for text in ["@", "to_string(@)", "@ == $other", "[@]", "{a: @}"] {
                let parameters = [("other", &right)];
                let environment = environment.with_parameters(&parameters);
                let outcome = Expression::parse(text)
                    .unwrap()
                    .evaluate_json(&left, &environment);
                let too_deep = EvalError::Budget {
                    which: BudgetKind::Depth,
                    limit: 800,
                };
                let expected = if depth < 800 { None } else { Some(too_deep) };
                assert_eq!(outcome.err(), expected, "{depth} {text}");
            }
        }
    });
}
