//! The tour, held against the page that tells of it.

use std::{path::Path, time::Duration};

use anteroom_runtime::process::install_crypto_provider;
use clap::Parser as _;

use super::*;
use crate::{args::DemoArgs, cluster::Cluster, show::Show, system::System};

/// Where the transcript begins and ends in the page.
const FENCES: (&str, &str) = ("```text\n", "```\n");

/// Times differ from run to run.
fn without_times(text: &str) -> String {
    let mut words: Vec<_> = text.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        let is_unit = ["s", "ms"].contains(&words[at].trim_end_matches([',', ':', '\n']));
        if is_unit && words[at - 1].parse::<f64>().is_ok() {
            words[at - 1] = "N".to_owned();
        }
    }
    words.join(" ")
}

#[test]
fn only_times_are_left_out() {
    let text = "   looked at 1 of 3011 objects, 0.3 s old\n   after 5015 ms, and 7 Pods";
    let kept = "   looked at 1 of 3011 objects, N s old\n   after N ms, and 7 Pods";
    assert_eq!(without_times(text), kept);
}

#[test]
fn every_step_has_a_key_and_a_page() {
    for step in Step::ALL {
        assert_eq!(Step::of_key(step.key()), Some(step));
        let (file, heading) = step.page().split_once(", ").unwrap_or((step.page(), "# "));
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(file);
        let text = std::fs::read_to_string(&file).unwrap();
        let found = text
            .lines()
            .any(|line| line.starts_with('#') && line.contains(heading));
        assert!(found, "{}: no {heading}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_tour_shows_what_the_tour_prints() {
    install_crypto_provider();
    let args = DemoArgs::parse_from(["anteroom-demo", "--tour", "--once"]);
    let cluster = Cluster::start(&args, &Show::new(args.output))
        .await
        .unwrap();
    let system = System::start(&args, &cluster).await.unwrap();
    cluster.install().await.unwrap();
    system
        .enforced(Duration::from_secs(60), &cluster)
        .await
        .unwrap();
    let transcript = Transcript::new(false);
    Tour::new(&cluster, &system, &transcript)
        .play_all()
        .await
        .unwrap();
    system.stop().await.unwrap();
    cluster.clean_up().await.unwrap();
    let said = transcript.last(usize::MAX).join("\n") + "\n";

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = page.split_once(FENCES.0).unwrap();
    let (told, after) = rest.split_once(FENCES.1).unwrap();
    if std::env::var_os("ANTEROOM_UPDATE").is_some() {
        let page = format!("{before}{}{said}{}{after}", FENCES.0, FENCES.1);
        std::fs::write(&file, page).unwrap();
        return;
    }
    assert_eq!(
        without_times(&said),
        without_times(told),
        "docs/tour.md is behind the tour: ANTEROOM_UPDATE=1 cargo test -p anteroom-demo"
    );
}
