use anteroom_model::ErrorCode;
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::json;

use super::*;
use crate::calls::testing::{Endpoint, ok, status};

const CONFIG: &str = r#"{"architecture":"amd64","config":{"User":"1000"}}"#;

fn manifest() -> String {
    json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": digest(CONFIG.as_bytes()), "size": CONFIG.len()},
        "layers": [{"size": 10}, {"size": 20}],
    })
    .to_string()
}

fn index(architecture: &str) -> String {
    json!({
        "schemaVersion": 2,
        "manifests": [
            {"digest": digest(b"another"), "platform": {"os": "windows", "architecture": "amd64"}},
            {"digest": digest(manifest().as_bytes()), "platform": {"os": "linux", "architecture": architecture}},
        ],
    })
    .to_string()
}

/// A registry with one image under a tag that is the manifest, and one that is an index.
fn answer(path: &str) -> Option<Response<String>> {
    let of_manifest = format!("/v2/shop/web/manifests/{}", digest(manifest().as_bytes()));
    let of_config = format!("/v2/shop/web/blobs/{}", digest(CONFIG.as_bytes()));
    match path {
        "/v2/shop/web/manifests/one" => ok(&manifest()),
        "/v2/shop/web/manifests/many" => ok(&index("amd64")),
        "/v2/shop/web/manifests/arm" => ok(&index("arm64")),
        "/v2/shop/web/manifests/large" => ok(&" ".repeat(MANIFEST_BYTES_MAX + 1)),
        "/v2/shop/web/manifests/text" => ok("hello"),
        "/v2/shop/web/manifests/bare" => ok("{}"),
        "/v2/shop/web/manifests/both" => {
            let both = index("amd64").replacen('{', r#"{"layers": [], "#, 1);
            ok(&both)
        }
        "/v2/shop/web/manifests/other" => {
            let kind = r#"{"mediaType": "application/vnd.oci.image.manifest.v1+json", "#;
            ok(&index("amd64").replacen('{', kind, 1))
        }
        "/v2/shop/web/manifests/values" => {
            ok(&format!(r#"{{"a": [{}0]}}"#, "0,".repeat(VALUES_MAX)))
        }
        "/v2/shop/web/manifests/moved" => redirect("/v2/shop/web/manifests/one"),
        "/v2/shop/web/manifests/round" => redirect("/v2/shop/web/manifests/round"),
        path if path == of_manifest => ok(&manifest()),
        path if path == of_config => redirect("/storage/config"),
        "/storage/config" => ok(CONFIG),
        // Not what was asked for.
        path if path.contains("sha256") => ok("{}"),
        _ => status(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
    }
}

fn redirect(to: &str) -> Option<Response<String>> {
    let response = Response::builder().status(307).header(header::LOCATION, to);
    Some(response.body(String::new()).unwrap())
}

async fn open() -> (Endpoint, Images) {
    let endpoint = Endpoint::start(|_, request| answer(request.uri().path())).await;
    let images = images(&endpoint);
    (endpoint, images)
}

fn images(endpoint: &Endpoint) -> Images {
    Images::new(Registries {
        insecure: vec![endpoint.address.to_string()],
    })
}

async fn error(images: &Images, reference: &str) -> (u16, String) {
    let error = images.read(reference, WAIT).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::LIVE_READ_FAILED);
    match error {
        FactError::LiveReadFailed { code, message } => (code, message),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_image_is_read_by_tag_and_by_digest() {
    let (endpoint, images) = open().await;
    let name = format!("{}/shop/web", endpoint.address);
    let manifest_digest = digest(manifest().as_bytes());
    let index_digest = digest(index("amd64").as_bytes());
    let parsed: Value = serde_json::from_str(&manifest()).unwrap();
    for (identifier, separator, resolved, of_list) in [
        ("one", ":", &manifest_digest, false),
        ("moved", ":", &manifest_digest, false),
        ("many", ":", &index_digest, true),
        (&*manifest_digest, "@", &manifest_digest, false),
    ] {
        let reference = format!("{name}{separator}{identifier}");
        let (data, bytes) = images.read(&reference, WAIT).await.unwrap();
        assert_eq!(data["image"], json!(reference));
        assert_eq!(data["resolvedImage"], json!(format!("{name}@{resolved}")));
        assert_eq!(data["registry"], json!(endpoint.address.to_string()));
        assert_eq!(data["repository"], "shop/web");
        assert_eq!(data["identifier"], json!(identifier));
        assert_eq!(data["manifest"], parsed);
        assert_eq!(data["configData"]["config"]["User"], "1000");
        assert_eq!(data.get("manifestList").is_some(), of_list, "{identifier}");
        assert!(bytes >= CONFIG.len() + manifest().len());
        // What was just read is remembered.
        let served = endpoint.served();
        images.read(&reference, WAIT).await.unwrap();
        assert_eq!(endpoint.served(), served);
    }
}

/// How long a place is waited for.
const WAIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn what_stands_in_the_answer_of_some_host_is_not_told() {
    let endpoint = Endpoint::start(|_, _| status(500, "the inner page")).await;
    let reference = format!("{}/shop/web:one", endpoint.address);
    let (code, message) = error(&images(&endpoint), &reference).await;
    assert_eq!(code, 500);
    assert!(
        message.ends_with("the registry answers HTTP 500"),
        "{message}"
    );
}

#[tokio::test]
async fn only_so_many_are_read_at_one_time() {
    let (_endpoint, images) = open().await;
    let places = u32::try_from(READS_AT_ONCE).unwrap();
    let all = Arc::clone(&images.places);
    let _taken = all.acquire_many(places).await.unwrap();
    let busy = images.read("a.example/b:c", Duration::ZERO).await;
    let code = busy.unwrap_err().code();
    let expected = FactError::LiveReadBusy {
        message: String::new(),
    };
    assert_eq!(code, expected.code());
}

#[tokio::test]
async fn what_is_wrong_is_told_and_not_remembered() {
    let (endpoint, images) = open().await;
    let wrong = digest(b"wrong");
    for (suffix, code, says) in [
        (":none".to_owned(), 404, "MANIFEST_UNKNOWN"),
        (":arm".to_owned(), 0, "none for linux/amd64"),
        (":large".to_owned(), 0, "over the limit"),
        (":text".to_owned(), 0, "not usable JSON"),
        (":bare".to_owned(), 0, "names no configuration"),
        (":both".to_owned(), 0, "both an index and a manifest"),
        (":other".to_owned(), 0, "both an index and a manifest"),
        (":values".to_owned(), 0, "more than 10000 values"),
        (":round".to_owned(), 0, "more than 3 redirects"),
        (format!("@{wrong}"), 0, "has not the digest"),
        ("/Web".to_owned(), 0, "no reference of an image"),
    ] {
        let reference = format!("{}/shop/web{suffix}", endpoint.address);
        let (found, message) = error(&images, &reference).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(says), "{message}");
        let served = endpoint.served();
        error(&images, &reference).await;
        assert!(endpoint.served() > served || code == 0);
    }
    // It is spoken to by http where that is said, and nowhere else.
    let secure = Images::new(Registries::default());
    let (code, message) = error(&secure, &format!("{}/shop/web:one", endpoint.address)).await;
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("out of reach"), "{message}");
}

/// One that gives nothing without a token, which it gives itself.
fn with_token(request: &Request<Incoming>) -> Option<Response<String>> {
    let text = |name: header::HeaderName| {
        let value = request.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let path = request.uri().path();
    if path == "/token" {
        let query = request.uri().query().unwrap();
        assert_eq!(query, "service=reg&scope=repository:shop/web:pull");
        return ok(r#"{"access_token":"let-me-in"}"#);
    }
    if path == "/storage/config" {
        return answer(path);
    }
    match text(header::AUTHORIZATION).as_deref() {
        Some("Bearer let-me-in") => answer(path),
        Some(other) => panic!("{other}"),
        None => {
            let realm = format!("http://{}/token", text(header::HOST).unwrap());
            let challenge = format!(r#"Bearer realm="{realm}",service="reg""#);
            let response = Response::builder().status(401);
            let response = response.header(header::WWW_AUTHENTICATE, challenge);
            Some(response.body("denied".to_owned()).unwrap())
        }
    }
}

#[tokio::test]
async fn a_token_is_fetched_where_it_is_asked_for() {
    let endpoint = Endpoint::start(|_, request| with_token(request)).await;
    let images = images(&endpoint);
    let reference = format!("{}/shop/web:many", endpoint.address);
    let (data, _) = images.read(&reference, WAIT).await.unwrap();
    assert_eq!(data["configData"]["architecture"], "amd64");
    // Denied, a token, the index, the manifest, the configuration and where it is.
    assert_eq!(endpoint.served(), 6);
}

#[tokio::test]
async fn who_asks_for_more_than_a_token_is_not_given_it() {
    for challenge in [
        None,
        Some("Basic realm=\"x\""),
        Some("Bearer realm=\"ftp://x\""),
    ] {
        let endpoint = Endpoint::start(move |_, _| {
            let mut response = Response::builder().status(401);
            if let Some(challenge) = challenge {
                response = response.header(header::WWW_AUTHENTICATE, challenge);
            }
            Some(response.body("denied".to_owned()).unwrap())
        })
        .await;
        let reference = format!("{}/shop/web:one", endpoint.address);
        let (code, message) = error(&images(&endpoint), &reference).await;
        let expected = if challenge.is_some_and(|c| c.contains("ftp")) {
            0
        } else {
            401
        };
        assert_eq!(code, expected, "{message}");
        assert_eq!(endpoint.served(), 1);
    }
}
