//! The simulator does what a real API server must do alike. (`tests/e2e` runs the same cases
//! against a real one.)

use std::{sync::Arc, time::Duration};

use anteroom_simapi::{
    Fault, SimApi, SimConfig,
    conformance::{CASES, Target},
};
use http::HeaderMap;

#[tokio::test]
async fn the_simulator_passes_the_conformance_cases() {
    let bookmark_interval = Duration::from_millis(200);
    let config = SimConfig {
        bookmark_interval,
        ..SimConfig::default()
    };
    let sim = Arc::new(SimApi::start(config).await.unwrap());
    let compacted = sim.clone();
    let target = Target {
        url: sim.url(),
        headers: HeaderMap::new(),
        tls: None,
        compact: Some(Arc::new(move || {
            let done = compacted.fault(Fault::Compact { resource: None });
            Box::pin(async move { Ok(done?) })
        })),
    };
    let mut failures = Vec::new();
    for case in CASES {
        if let Err(error) = case.run(&target).await {
            failures.push(format!("{error:#}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
