use anteroom_runtime::Readiness;
use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn args(given: &[&str]) -> Args {
    Cli::parse_from([&["webhook"], given].concat()).args
}

#[test]
fn the_certificate_names_every_way_to_reach_us() {
    let always = [
        "anteroom-webhook.anteroom.svc",
        "anteroom-webhook.anteroom.svc.cluster.local",
        "anteroom-webhook.anteroom",
        "anteroom-webhook",
    ];
    assert_eq!(
        names(&args(&[])),
        [&always[..], &["localhost", "127.0.0.1"]].concat()
    );
    for (url, host) in [
        ("https://hook.example:9443", "hook.example"),
        ("https://[::1]:9443/", "::1"),
    ] {
        let names = names(&args(&["--webhook-url", url]));
        assert_eq!(names[4], host);
    }
    let names = names(&args(&["--webhook-url", "https://localhost:9443"]));
    assert_eq!(names.iter().filter(|name| *name == "localhost").count(), 1);
}

#[test]
fn given_files_come_first_and_both_or_neither() {
    let files = ["--tls-cert-file", "a", "--tls-key-file", "b"];
    assert!(matches!(
        Source::new(&args(&files), None),
        Source::Files { .. }
    ));
    assert!(matches!(Source::new(&args(&[]), None), Source::Memory));
    let half = Cli::try_parse_from(["webhook", "--tls-cert-file", "a"]);
    assert!(half.is_err());
}

#[tokio::test]
async fn without_a_cluster_there_is_a_certificate_at_once() {
    let service = anteroom_runtime::Service::new("webhook");
    let certificates = Certificates::new(&service.metrics);
    let (trust, mut trusted) = watch::channel(None);
    let outlet = CertificateChannels {
        certificates: certificates.clone(),
        trust,
        tokens: PathTokens::default(),
        check: Arc::new(Readiness::new().check("certificate", "a certificate")),
    };
    let keeping = tokio::spawn(keep(
        Source::Memory,
        vec!["a.b.svc".into()],
        outlet,
        service.shutdown.clone(),
    ));
    trusted.wait_for(Option::is_some).await.unwrap();
    assert!(certificates.current().is_some());
    service.shutdown.trigger("the test is over");
    keeping.await.unwrap().unwrap();
}
