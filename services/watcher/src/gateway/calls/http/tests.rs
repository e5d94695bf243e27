use std::{sync::Arc, time::Duration};

use http::{Response, header};

use super::*;
use crate::gateway::calls::{
    Services,
    testing::{Certificate, Endpoint, ok, on_loopback, status},
};

/// A timeout for calls that end at once.
const PATIENCE: Duration = Duration::from_secs(20);

fn call(url: &str, bundle: Option<&str>) -> HttpCall {
    HttpCall {
        url: url.parse().unwrap(),
        headers: HeaderMap::new(),
        data: None,
        clients: HttpClients::new(Arc::new(on_loopback())),
        ca_bundle: bundle.map(str::to_owned),
        redirects: Redirects::SameOrigin,
        bytes_max: 1_000,
        reads_errors_whole: false,
    }
}

async fn fetched(call: &HttpCall) -> Result<String, CallFault> {
    match call.make(&Validators::default(), PATIENCE).await? {
        CallAnswer::Body(bytes, _) => Ok(String::from_utf8(bytes.to_vec()).unwrap()),
        CallAnswer::Unchanged => panic!("nothing was known"),
    }
}

/// A certificate is checked against the bundle, and against nothing else.
#[tokio::test]
async fn https_is_verified_against_the_bundle_alone() {
    let (mine, other) = (Certificate::new(), Certificate::new());
    let endpoint = Endpoint::start_tls(&mine, |_, _| ok("{}")).await;
    let url = format!("https://localhost:{}/", endpoint.address.port());
    assert_eq!(fetched(&call(&url, Some(&mine.pem))).await.unwrap(), "{}");
    let both = format!("{}{}", other.pem, mine.pem);
    assert_eq!(fetched(&call(&url, Some(&both))).await.unwrap(), "{}");
    let wrong_host = format!("https://127.0.0.1:{}/", endpoint.address.port());
    for (url, bundle) in [(&url, &other.pem), (&wrong_host, &mine.pem)] {
        let fault = fetched(&call(url, Some(bundle))).await.unwrap_err();
        let CallFault::Unreachable { message } = &fault else {
            panic!("{fault:?}");
        };
        assert!(message.contains("certificate"), "{message}");
    }
    assert_eq!(endpoint.served(), 2);
}

/// The message says in words what is wrong with the certificate.
#[tokio::test]
async fn a_refused_certificate_is_told_in_words() {
    let (mine, other) = (Certificate::new(), Certificate::new());
    let authority = Certificate::authority();
    for (served, host, trusted, says) in [
        (
            &mine,
            "localhost",
            &other,
            "an authority that is not trusted",
        ),
        (&mine, "127.0.0.1", &mine, "for another host"),
        (
            &authority,
            "localhost",
            &authority,
            "of an authority (CA:TRUE)",
        ),
    ] {
        let endpoint = Endpoint::start_tls(served, |_, _| ok("{}")).await;
        let url = format!("https://{host}:{}/", endpoint.address.port());
        let fault = fetched(&call(&url, Some(&trusted.pem))).await.unwrap_err();
        let told = fault.to_string();
        assert!(
            told.contains(says) && !told.contains("CaUsedAsEndEntity"),
            "{told}"
        );
    }
}

/// A name is judged by its addresses, and an address by itself, however it is written.
#[tokio::test]
async fn no_loopback_address_is_reached_unless_its_host_is_trusted() {
    let endpoint = Endpoint::start(|_, _| ok("{}")).await;
    let port = endpoint.address.port();
    for host in [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0.0.0.0",
    ] {
        let mut call = call(&format!("http://{host}:{port}/"), None);
        call.clients = HttpClients::new(Arc::new(Services::default()));
        let fault = fetched(&call).await.unwrap_err();
        assert!(
            matches!(fault, CallFault::NotAsked { .. }),
            "{host}: {fault:?}"
        );
        let told = fault.to_string();
        assert!(told.contains("`--trusted-service`"), "{told}");
    }
    assert_eq!(endpoint.served(), 0);
    let trusted = call(&format!("http://localhost:{port}/"), None);
    assert_eq!(fetched(&trusted).await.unwrap(), "{}");
}

/// Returns an endpoint that redirects each call.
async fn redirecting(to: String) -> Endpoint {
    Endpoint::start(move |_, _| {
        let redirect = Response::builder().status(302);
        let redirect = redirect.header(header::LOCATION, &to);
        Some(redirect.body(String::new()).unwrap())
    })
    .await
}

/// The owner of an endpoint leads nobody elsewhere, not even to a host that may be called.
#[tokio::test]
async fn a_service_redirects_to_no_other_origin() {
    let other = Endpoint::start(|_, _| ok("{}")).await;
    let port = other.address.port();
    for to in [
        format!("http://127.0.0.1:{port}/metrics"),
        format!("http://localhost:{port}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "https://example.com/".to_owned(),
    ] {
        let endpoint = redirecting(to.clone()).await;
        let url = format!("http://{}/", endpoint.address);
        let fault = fetched(&call(&url, None)).await.unwrap_err();
        assert!(
            matches!(fault, CallFault::Redirected { .. }),
            "{to}: {fault:?}"
        );
    }
    assert_eq!(other.served(), 0);
}

/// Registries may redirect to other hosts, each of which is judged.
#[tokio::test]
async fn a_redirect_is_judged_as_the_call_was() {
    let other = Endpoint::start(|_, _| ok("{}")).await;
    for host in ["localhost", "127.0.0.1"] {
        let endpoint = redirecting(format!("http://{host}:{}/", other.address.port())).await;
        let mut call = call(&format!("http://{}/", endpoint.address), None);
        call.redirects = Redirects::AnyOrigin;
        let trusted = vec![endpoint.address.to_string().parse().unwrap()];
        call.clients = HttpClients::new(Arc::new(Services { trusted }));
        let fault = fetched(&call).await.unwrap_err();
        assert!(matches!(fault, CallFault::NotAsked { .. }), "{fault:?}");
    }
    assert_eq!(other.served(), 0);
}

#[tokio::test]
async fn a_bundle_without_a_certificate_is_told() {
    for bundle in [
        "",
        "text",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let call = call("http://localhost/", Some(bundle));
        let fault = fetched(&call).await.err();
        assert!(
            matches!(fault, Some(CallFault::Bundle { .. })),
            "{bundle}: {fault:?}"
        );
    }
}

/// At the limit and one over it, whether the length is said or not.
#[tokio::test]
async fn an_answer_over_the_limit_is_a_fault() {
    for (bytes, fits) in [(1_000, true), (1_001, false)] {
        let endpoint = Endpoint::start(move |_, _| ok(&"x".repeat(bytes))).await;
        let fetched = fetched(&call(&format!("http://{}/", endpoint.address), None)).await;
        let expected = CallFault::TooLarge { bytes_max: 1_000 };
        match fetched {
            Ok(text) => assert!(fits && text.len() == bytes),
            Err(fault) => assert!(!fits && fault == expected, "{fault}"),
        }
    }
}

/// Three redirects and no more.
#[tokio::test]
async fn redirects_are_limited() {
    for (redirects, fits) in [(REDIRECTS_MAX, true), (REDIRECTS_MAX + 1, false)] {
        let endpoint = Endpoint::start(move |at, request| {
            if at == redirects {
                return ok("there");
            }
            let to = format!("{}x", request.uri().path());
            let redirect = Response::builder().status(302).header(header::LOCATION, to);
            Some(redirect.body(String::new()).unwrap())
        })
        .await;
        let fetched = fetched(&call(&format!("http://{}/", endpoint.address), None)).await;
        assert_eq!(fetched.is_ok(), fits, "{fetched:?}");
        assert_eq!(endpoint.served(), REDIRECTS_MAX + 1);
    }
}

/// An answer that does not come in time.
#[tokio::test]
async fn a_silent_endpoint_is_given_up() {
    let endpoint = Endpoint::start(|_, _| None).await;
    let call = call(&format!("http://{}/", endpoint.address), None);
    let timeout = Duration::from_millis(50);
    let fault = call
        .make(&Validators::default(), timeout)
        .await
        .unwrap_err();
    assert_eq!(fault, CallFault::Slow { timeout });
}

#[tokio::test]
async fn a_call_sends_its_method_query_and_headers() {
    let endpoint = Endpoint::start(|_, request| {
        let header = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
        let said = [
            header("host"),
            header("x-key"),
            header("accept"),
            header("content-type"),
        ];
        let said: Vec<_> = said.into_iter().map(Option::unwrap_or_default).collect();
        ok(&format!(
            "{} {} {}",
            request.method(),
            request.uri(),
            said.join(" ")
        ))
    })
    .await;
    let mut call = call(&format!("http://{}/a?b=c", endpoint.address), None);
    call.headers
        .insert("x-key", HeaderValue::from_static("word"));
    let host = endpoint.address;
    let expected = format!("GET /a?b=c {host} word application/json ");
    assert_eq!(fetched(&call).await.unwrap(), expected);
    call.data = Some("{}".into());
    let expected = format!("POST /a?b=c {host} word application/json application/json");
    assert_eq!(fetched(&call).await.unwrap(), expected);
}

#[tokio::test]
async fn an_error_is_told_in_the_endpoints_own_words() {
    let endpoint = Endpoint::start(|at, _| match at {
        0 => status(404, r#"{"kind":"Status","message":"no such thing"}"#),
        1 => status(500, "broken\n"),
        2 => status(304, ""),
        _ => status(503, ""),
    })
    .await;
    let call = call(&format!("http://{}/", endpoint.address), None);
    for (code, message) in [
        (404, "no such thing"),
        (500, "broken"),
        (304, "HTTP 304"),
        (503, "HTTP 503"),
    ] {
        let fault = fetched(&call).await.unwrap_err();
        let message = message.to_owned();
        assert_eq!(fault, CallFault::Status { code, message });
    }
}
