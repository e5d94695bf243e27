use std::path::PathBuf;

use anteroom_model::ErrorCode;
use http::{Response, header};
use serde_json::json;

use super::{
    document::{VALUES_MAX, digest},
    reader::INDEXES_MAX,
    *,
};
use crate::gateway::calls::testing::{Endpoint, ok, status};

mod signing;

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

/// So many indexes, each in the one before, the last of which names the manifest.
fn nested(indexes: usize) -> String {
    match indexes {
        1 => index("amd64"),
        more => of_index(&nested(more - 1), "application/vnd.oci.image.index.v1+json"),
    }
}

/// Returns an index with a single entry, which has a media type and no platform.
fn of_index(named: &str, media_type: &str) -> String {
    let digest = digest(named.as_bytes());
    json!({"schemaVersion": 2, "manifests": [{"digest": digest, "mediaType": media_type}]})
        .to_string()
}

/// Answers a path with the document of its digest.
fn named(path: &str) -> Option<Response<String>> {
    let mut all: Vec<_> = (1..=INDEXES_MAX).map(nested).collect();
    all.push(index("arm64"));
    let own = |text: &String| path.ends_with(&digest(text.as_bytes()));
    all.iter().find(|text| own(text)).and_then(|text| ok(text))
}

/// Answers for a registry with an image under two tags: a manifest, and an index.
pub(crate) fn answer(path: &str) -> Option<Response<String>> {
    let of_manifest = format!("/v2/shop/web/manifests/{}", digest(manifest().as_bytes()));
    let of_config = format!("/v2/shop/web/blobs/{}", digest(CONFIG.as_bytes()));
    match path {
        "/v2/shop/web/manifests/one" => ok(&manifest()),
        "/v2/shop/web/manifests/many" => ok(&index("amd64")),
        "/v2/shop/web/manifests/arm" => ok(&index("arm64")),
        "/v2/shop/web/manifests/nested" => ok(&nested(2)),
        "/v2/shop/web/manifests/deepest" => ok(&nested(INDEXES_MAX)),
        "/v2/shop/web/manifests/deeper" => ok(&nested(INDEXES_MAX + 1)),
        "/v2/shop/web/manifests/nested-arm" => ok(&of_index(&index("arm64"), "")),
        "/v2/shop/web/manifests/not-index" => ok(&of_index(
            &manifest(),
            "application/vnd.oci.image.index.v1+json",
        )),
        "/v2/shop/web/manifests/not-manifest" => ok(&of_index(
            &index("amd64"),
            "application/vnd.docker.distribution.manifest.v2+json",
        )),
        "/v2/shop/web/manifests/largest" => ok(&of_bytes(MANIFEST_BYTES_MAX)),
        "/v2/shop/web/manifests/large" => ok(&of_bytes(MANIFEST_BYTES_MAX + 1)),
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
            ok(&format!(r#"{{"a": [{}0]}}"#, "0,".repeat(VALUES_MAX - 1)))
        }
        "/v2/shop/web/manifests/another-size" => {
            let size = format!(r#""size":{}"#, CONFIG.len());
            assert!(manifest().contains(&size));
            ok(&manifest().replace(&size, r#""size":3"#))
        }
        "/v2/shop/web/manifests/schema1" => ok(r#"{"schemaVersion": 1, "fsLayers": []}"#),
        "/v2/shop/web/manifests/metadata" => redirect("http://169.254.169.254/latest/meta-data"),
        "/v2/shop/web/manifests/moved" => redirect("/v2/shop/web/manifests/one"),
        "/v2/shop/web/manifests/round" => redirect("/v2/shop/web/manifests/round"),
        path if path == of_manifest => ok(&manifest()),
        path if path == of_config => redirect("/storage/config"),
        "/storage/config" => ok(CONFIG),
        // Or not what was asked for.
        path if path.contains("sha256") => named(path).or_else(|| ok("{}")),
        _ => status(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
    }
}

/// The manifest, with so many bytes.
fn of_bytes(bytes: usize) -> String {
    let manifest = manifest();
    format!("{manifest}{}", " ".repeat(bytes - manifest.len()))
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
    speaking_to(&[endpoint], Vec::new())
}

/// Returns images with these endpoints as insecure registries.
fn speaking_to(endpoints: &[&Endpoint], files: Vec<PathBuf>) -> Images {
    let insecure = endpoints
        .iter()
        .map(|endpoint| endpoint.address.to_string());
    let registries = Registries {
        insecure: insecure.collect(),
        ..Registries::default()
    };
    let keyring = super::keyring::Keyring {
        files,
        for_policies: false,
    };
    Images::new(registries, keyring)
}

async fn error(images: &Images, reference: &str) -> (u16, String) {
    told(images, &ImageRequest::plain(reference)).await
}

async fn told(images: &Images, request: &ImageRequest) -> (u16, String) {
    let error = images.read(request).await.unwrap_err();
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
    let parsed_index: Value = serde_json::from_str(&index("amd64")).unwrap();
    let largest_digest = digest(of_bytes(MANIFEST_BYTES_MAX).as_bytes());
    let both = format!("none@{manifest_digest}");
    let nested = [nested(2), nested(INDEXES_MAX)];
    let [nested, deepest] = nested.map(|text| {
        let parsed: Value = serde_json::from_str(&text).unwrap();
        (digest(text.as_bytes()), parsed)
    });
    for (identifier, separator, resolved, list) in [
        ("one", ":", &manifest_digest, &Value::Null),
        ("moved", ":", &manifest_digest, &Value::Null),
        ("largest", ":", &largest_digest, &Value::Null),
        ("many", ":", &index_digest, &parsed_index),
        // Told is the index that the reference names.
        ("nested", ":", &nested.0, &nested.1),
        ("deepest", ":", &deepest.0, &deepest.1),
        (&*manifest_digest, "@", &manifest_digest, &Value::Null),
        // The tag is told, and not asked for.
        (&*both, ":", &manifest_digest, &Value::Null),
    ] {
        let reference = format!("{name}{separator}{identifier}");
        let request = ImageRequest::plain(&reference);
        let before = Instant::now();
        let Image { data, bytes, begun } = images.read(&request).await.unwrap();
        assert!(begun >= before);
        assert_eq!(data["image"], json!(reference));
        assert_eq!(data["resolvedImage"], json!(format!("{name}@{resolved}")));
        assert_eq!(data["registry"], json!(endpoint.address.to_string()));
        assert_eq!(data["repository"], "shop/web");
        assert_eq!(data["identifier"], json!(identifier));
        assert_eq!(data["manifest"], parsed);
        assert_eq!(data["configData"]["config"]["User"], "1000");
        assert_eq!(data.get("manifestList"), Some(list), "{identifier}");
        assert!(bytes >= CONFIG.len() + manifest().len());
        // What was just read is remembered, and is as old as it is.
        let served = endpoint.served();
        let again = images.read(&request).await.unwrap();
        assert_eq!((endpoint.served(), again.begun), (served, begun));
    }
}

#[tokio::test]
async fn the_body_of_a_registrys_error_is_not_repeated() {
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
async fn a_failed_image_read_says_why_and_is_not_cached() {
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
        (":deeper".to_owned(), 0, "more than 4 indexes"),
        (":nested-arm".to_owned(), 0, "none for linux/amd64"),
        (":not-index".to_owned(), 0, "it is something else"),
        (":not-manifest".to_owned(), 0, "it is something else"),
        (":another-size".to_owned(), 0, "another size"),
        (":schema1".to_owned(), 0, "schema version 1"),
        (
            ":metadata".to_owned(),
            0,
            "`169.254.169.254` is at no address",
        ),
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
}

/// Hosts that no option names use https, and may not be at a loopback address.
#[tokio::test]
async fn a_registry_that_no_option_names_is_not_asked_at_loopback() {
    let (endpoint, _) = open().await;
    let host = format!("localhost:{}", endpoint.address.port());
    for (registries, says) in [
        (
            Registries::default(),
            "at no address that images are read from",
        ),
        (
            Registries {
                trusted: vec![host.clone()],
                ..Registries::default()
            },
            "out of reach",
        ),
    ] {
        let images = Images::new(registries, super::keyring::Keyring::default());
        // That a policy allows http is told, and allows nothing that nobody else does.
        for insecure in [false, true] {
            let mut request = ImageRequest::plain(&format!("{host}/shop/web:one"));
            request.credentials.insecure = insecure;
            let (code, message) = told(&images, &request).await;
            assert_eq!(code, 0, "{message}");
            assert!(message.contains(says), "{message}");
            let hint = "`allowInsecureRegistry` counts for hosts that the watcher's `--insecure-registry` names";
            assert_eq!(message.contains(hint), insecure, "{message}");
        }
    }
    assert_eq!(endpoint.served(), 0);
}

/// Its author chooses the host and reads the error.
#[test]
fn a_namespaced_policy_learns_nothing_of_what_is_at_an_address() {
    let told = |namespaced, fault: &CallFault| {
        let mut request = ImageRequest::plain("10.0.0.1:22/a");
        request.credentials.namespaced = namespaced;
        failed(&request, fault, "").to_string()
    };
    let text = |text: &str| text.to_owned();
    let faults = [
        CallFault::Unreachable {
            message: text("connection refused"),
        },
        CallFault::Slow { timeout: TIMEOUT },
        CallFault::TooLarge { bytes_max: 1 },
        CallFault::Redirected {
            problem: text("too many"),
        },
        CallFault::Unreadable {
            problem: text("no JSON"),
        },
        CallFault::Registry {
            problem: text("no digest"),
        },
        CallFault::Status {
            code: 404,
            message: text("not found"),
        },
        CallFault::Status {
            code: 200,
            message: text(r#"{"errors": [{"code": "lower"}]}"#),
        },
    ];
    let same = told(true, &faults[0]);
    assert!(
        same.contains("no registry gives a usable answer there"),
        "{same}"
    );
    for fault in &faults[1..] {
        assert_eq!(told(true, fault), same, "{fault:?}");
        assert_ne!(told(false, fault), same, "{fault:?}");
    }
    // A registry's own words are told.
    let unknown = r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#.to_owned();
    let unknown = CallFault::Status {
        code: 404,
        message: unknown,
    };
    assert!(told(true, &unknown).contains("HTTP 404: MANIFEST_UNKNOWN"));
}
