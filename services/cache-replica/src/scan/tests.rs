use anteroom_plan::Document;
use anteroom_view::testing::TestView;
use anteroom_wire::body;
use futures::FutureExt as _;
use serde_json::json;

use super::*;

const OBJECTS: u64 = 2_000;

fn view() -> TestView {
    let mut view = TestView::new("", "pods", "Pod");
    for n in 0..OBJECTS {
        put(&mut view, n, n);
    }
    view
}

fn put(view: &mut TestView, n: u64, value: u64) {
    view.put("ns", &format!("pod-{n:05}"), &json!({ "value": value }));
}

fn scan(view: &TestView, expression: &str, budget: Budget, pieces: Option<&Pieces>) -> Scan {
    let state = view.snapshot();
    let document = Document::List {
        plural: Some("pods"),
    };
    let sliced = Sliced::of(&expression.parse().unwrap(), document).unwrap();
    let query = Query {
        expression: expression.to_owned(),
        parameters: Arc::new([("least".to_owned(), json!(1_990))].into()),
        missing_key_is_error: true,
        selection: None,
        cel: None,
    };
    let functions = anteroom_functions::query_functions();
    let select = Select::default();
    Scan::new(
        Arc::new(sliced),
        &state,
        &select,
        &query,
        functions,
        budget,
        pieces,
    )
}

fn run(scan: &Scan) -> Option<Result<Bytes, FactError>> {
    while !scan.is_over() {
        scan.step();
    }
    scan.result()
}

fn json_of(scan: &Scan) -> serde_json::Value {
    body::to_json(&run(scan).unwrap().unwrap()).unwrap()
}

#[test]
fn after_a_change_only_what_changed_is_looked_through() {
    let mut view = view();
    let first = scan(&view, "items[].value", Budget::default(), None);
    assert!(first.slices() > 2, "{}", first.slices());
    let values: Vec<u64> = (0..OBJECTS).collect();
    assert_eq!(json_of(&first), json!(values));

    let pieces = first.pieces();
    let state = first.state.clone();
    drop(first);
    drop(state);
    put(&mut view, 700, 7);
    let second = scan(&view, "items[].value", Budget::default(), Some(&pieces));
    assert_eq!(second.slices(), 1);
    let mut values = values;
    values[700] = 7;
    assert_eq!(json_of(&second), json!(values));

    let again = scan(
        &view,
        "items[].value",
        Budget::default(),
        Some(&second.pieces()),
    );
    assert_eq!(again.slices(), 0);
    assert_eq!(json_of(&again), json!(values));
}

#[test]
fn counts_of_slices_add_up() {
    let view = view();
    let text = "items[?value >= $least].value | [length(@), length([?@ > `1995`])] | [1]";
    let scan = scan(&view, text, Budget::default(), None);
    assert_eq!(json_of(&scan), json!(4));
}

#[test]
fn slices_share_a_budget_to_the_last_step() {
    let view = view();
    let steps = |steps| Budget {
        steps,
        ..Budget::default()
    };
    let takes = |budget| {
        let scan = scan(&view, "items[].value", budget, None);
        run(&scan).unwrap()
    };
    let (mut too_few, mut enough) = (1, 1_000_000);
    while too_few + 1 < enough {
        let between = u64::midpoint(too_few, enough);
        match takes(steps(between)) {
            Ok(_) => enough = between,
            Err(error) => {
                let FactError::BudgetExceeded { message } = error else {
                    panic!("{error}");
                };
                assert!(message.contains(&format!("{between} steps")), "{message}");
                too_few = between;
            }
        }
    }
    // A few for each stretch, and each object; of one slice alone it would be a quarter.
    assert!((2 * OBJECTS..8 * OBJECTS).contains(&enough), "{enough}");
}

#[tokio::test(start_paused = true)]
async fn a_scan_takes_more_than_one_lane_only_while_nothing_short_is_asked() {
    let scans = Scans::new(4);
    tokio::time::advance(LULL).await;
    assert_eq!(scans.width(), 4);
    scans.short();
    assert_eq!(scans.width(), 1);
    tokio::time::advance(LULL - Duration::from_millis(1)).await;
    assert_eq!(scans.width(), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(scans.width(), 4);
}

#[test]
fn evaluations_over_whole_views_wait_for_none_of_a_single_other_namespace() {
    for (cores, most) in [(1, 1), (2, 1), (3, 2), (8, 7)] {
        let scans = Scans::new(cores);
        let take = |namespace: &str| {
            scans
                .wholes
                .take(Beneficiary::of(namespace, "", false))
                .now_or_never()
        };
        let held: Vec<_> = std::iter::from_fn(|| take("a")).collect();
        assert_eq!(held.len(), most, "on {cores} cores");
        assert!(take("b").is_some(), "on {cores} cores");
    }
    assert_eq!(Scans::new(0).wholes.free(), 0);
}

#[tokio::test]
async fn scans_take_turns_slice_by_slice() {
    let view = view();
    let scans = Arc::new(Scans::new(1));
    let lane = scans.lanes.take(Beneficiary::Scans).await;
    let deadline = Deadline::after(Duration::from_secs(60));
    let long = Arc::new(scan(&view, "items[].value", Budget::default(), None));
    let run = |scan: &Arc<Scan>| {
        let (scans, scan) = (Arc::clone(&scans), Arc::clone(scan));
        tokio::spawn(async move { scans.run(&scan, &Beneficiary::Scans, deadline).await })
    };
    let running = run(&long);
    tokio::task::yield_now().await;
    // A later caller has its turn before the second slice.
    let next = scans.lanes.take(Beneficiary::Scans);
    tokio::pin!(next);
    assert!(futures_pending(next.as_mut()).await);
    drop(lane);
    let lane = next.await;
    assert_eq!(long.progress.lock().next, 1);
    drop(lane);
    assert!(running.await.unwrap().unwrap().unwrap().is_ok());
}

/// Polls a future once, which puts it into the queue. Returns true if it is pending.
async fn futures_pending(future: impl Future + Unpin) -> bool {
    let mut future = future;
    std::future::poll_fn(|context| {
        let pending = std::pin::Pin::new(&mut future).poll(context).is_pending();
        std::task::Poll::Ready(pending)
    })
    .await
}
