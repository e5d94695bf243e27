//! Tests of credentials: who gets them, and who does not.

use std::{path::PathBuf, sync::Arc};

use anteroom_policy::SecretName;
use http::{Request, Response, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;

/// `me:secret` in base64.
const BASIC: &str = "Basic bWU6c2VjcmV0";

/// The path and the `Authorization` header of each request.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

fn text(request: &Request<Incoming>, name: header::HeaderName) -> Option<String> {
    let value = request.headers().get(name)?;
    Some(value.to_str().unwrap().to_owned())
}

fn denied(challenge: &str) -> Option<Response<String>> {
    let response = Response::builder().status(401);
    let response = response.header(header::WWW_AUTHENTICATE, challenge);
    Some(response.body("denied".to_owned()).unwrap())
}

/// Starts a registry that answers requests with the header `shown`, and sends the challenge to the rest. `{host}` in
/// the challenge is the registry's own address, which issues the tokens too.
async fn registry(shown: &'static str, challenge: &'static str) -> (Endpoint, Seen) {
    let seen = Seen::default();
    let told = Arc::clone(&seen);
    let endpoint = Endpoint::start(move |_, request| {
        let path = request.uri().path();
        let access = text(request, header::AUTHORIZATION);
        let whole = request.uri().path_and_query().unwrap().to_string();
        told.lock().push((whole, access.clone()));
        match (path, access.as_deref()) {
            ("/token", _) => ok(r#"{"access_token":"let-me-in"}"#),
            ("/storage/config", _) => answer(path),
            (_, Some(access)) if access == shown => answer(path),
            (_, Some(_)) => status(403, "{}"),
            _ => denied(&challenge.replace("{host}", &text(request, header::HOST).unwrap())),
        }
    })
    .await;
    (endpoint, seen)
}

/// A file that says this of a host, as long as it is held.
struct File(TempDir);

impl File {
    fn new(host: &str, entry: &str) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        let text = format!(r#"{{"auths": {{"{host}": {entry}}}}}"#);
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("config.json")
    }

    fn list(&self) -> Vec<PathBuf> {
        vec![self.path()]
    }
}

const ME: &str = r#"{"auth": "bWU6c2VjcmV0"}"#;

const BEARER: &str = r#"Bearer realm="http://{host}/token",service="reg""#;

#[tokio::test]
async fn a_token_is_fetched_where_it_is_asked_for() {
    let (endpoint, seen) = registry("Bearer let-me-in", BEARER).await;
    let images = images(&endpoint);
    let reference = format!("{}/shop/web:many", endpoint.address);
    let image = images.read(&ImageRequest::plain(&reference)).await.unwrap();
    assert_eq!(image.data["configData"]["architecture"], "amd64");
    let token = "/token?service=reg&scope=repository:shop/web:pull".to_owned();
    assert_eq!(seen.lock()[1], (token, None));
    // Denied, a token, the index, the manifest, the configuration and where it is.
    assert_eq!(endpoint.served(), 6);
}

/// Every kind of challenge, with every kind of credential.
#[tokio::test]
async fn each_kind_of_credential_answers_each_kind_of_challenge() {
    let identity = r#"{"identitytoken": "i&d"}"#;
    for (shown, challenge, entry, asked) in [
        (BASIC, r#"Basic realm="reg""#, ME, None),
        ("Bearer let-me-in", BEARER, ME, Some(BASIC)),
        ("Bearer own", BEARER, r#"{"registrytoken": "own"}"#, None),
        ("Bearer let-me-in", BEARER, identity, Some("")),
    ] {
        let (endpoint, seen) = registry(shown, challenge).await;
        let host = endpoint.address.to_string();
        let file = File::new(&host, entry);
        let images = speaking_to(&[&endpoint], file.list());
        let image = images
            .read(&ImageRequest::plain(&format!("{host}/shop/web:one")))
            .await;
        assert_eq!(
            image.unwrap().data["identifier"],
            "one",
            "{challenge} {entry}"
        );
        let seen = seen.lock();
        // It is not shown before it is asked for, and not to where it is sent for the bytes.
        assert_eq!(seen[0].1, None);
        let token = seen.iter().find(|(path, _)| path.starts_with("/token"));
        let token = token.map(|(_, access)| access.clone().unwrap_or_default());
        assert_eq!(token.as_deref(), asked, "{challenge} {entry}");
    }
}

/// An identity token goes in a form, not in a URL that is logged.
#[tokio::test]
async fn an_identity_token_is_posted() {
    let (endpoint, seen) = registry("Bearer let-me-in", BEARER).await;
    let host = endpoint.address.to_string();
    let file = File::new(&host, r#"{"identitytoken": "i&d"}"#);
    let images = speaking_to(&[&endpoint], file.list());
    images
        .read(&ImageRequest::plain(&format!("{host}/shop/web:one")))
        .await
        .unwrap();
    assert_eq!(seen.lock()[1].0, "/token");
}

/// Each registry gets what is for it; others, wherever they point at, get nothing.
#[tokio::test]
async fn no_registry_gets_the_credentials_of_another() {
    let (mine, seen_mine) = registry(BASIC, r#"Basic realm="reg""#).await;
    // It asks as `mine` does, with its name as realm and as service.
    let evil = r#"Basic realm="{host}", Bearer realm="http://{host}/token",service="reg""#;
    let (evil, seen_evil) = registry("Bearer let-me-in", evil).await;
    let host = mine.address.to_string();
    let file = File::new(&host, ME);
    let images = speaking_to(&[&mine, &evil], file.list());
    images
        .read(&ImageRequest::plain(&format!("{host}/shop/web:one")))
        .await
        .unwrap();
    let reference = format!("{}/{}/shop/web:one", evil.address, "localhost");
    error(&images, &reference).await;
    images
        .read(&ImageRequest::plain(&format!(
            "{}/shop/web:one",
            evil.address
        )))
        .await
        .unwrap();
    let has_secret = |seen: &Seen| {
        let seen = seen.lock();
        let of_me = |(_, access): &(String, Option<String>)| access.as_deref() == Some(BASIC);
        seen.iter().any(of_me)
    };
    assert!(has_secret(&seen_mine) && !has_secret(&seen_evil));
}

/// The target of a redirect may send any challenge.
#[tokio::test]
async fn only_the_registry_itself_is_signed_in_to() {
    for challenge in [r#"Basic realm="reg""#, BEARER] {
        let (evil, seen) = registry("nothing", challenge).await;
        let to = format!("http://{}/v2/shop/web/manifests/one", evil.address);
        let mine = Endpoint::start(move |_, _| redirect(&to)).await;
        let host = mine.address.to_string();
        let file = File::new(&host, ME);
        let images = speaking_to(&[&mine, &evil], file.list());
        let (code, _) = error(&images, &format!("{host}/shop/web:one")).await;
        assert_eq!(code, 401);
        let seen = seen.lock();
        let only = [("/v2/shop/web/manifests/one".to_owned(), None)];
        assert_eq!(&**seen, only, "{challenge}");
    }
}

#[tokio::test]
async fn a_challenge_that_no_credential_meets_is_an_error_that_says_why() {
    let elsewhere = File::new("other.example", ME);
    let wrong = File::new("*", r#"{"auth": "?"}"#);
    let of_all = File::new("*.*.*.*", ME);
    for (challenge, files, code, says) in [
        (None, Vec::new(), 401, "no file of the watcher's"),
        (
            Some("Basic realm=\"x\""),
            Vec::new(),
            401,
            "no file of the watcher's",
        ),
        (
            Some("Basic realm=\"x\""),
            elsewhere.list(),
            401,
            "no file of the watcher's",
        ),
        (
            Some("Negotiate"),
            of_all.list(),
            401,
            "no file of the watcher's",
        ),
        (Some("Bearer realm=\"ftp://x\""), Vec::new(), 0, "to no URL"),
        (
            Some("Bearer realm=\"http://x/\""),
            Vec::new(),
            0,
            "for a token by http",
        ),
        (
            Some("Bearer realm=\"https://[::1]/\""),
            Vec::new(),
            0,
            "`[::1]` is at no address",
        ),
        (
            Some("Basic realm=\"x\""),
            wrong.list(),
            401,
            "no file of the watcher's",
        ),
    ] {
        let endpoint = Endpoint::start(move |_, _| match challenge {
            Some(challenge) => denied(challenge),
            None => status(401, "denied"),
        })
        .await;
        let reference = format!("{}/shop/web:one", endpoint.address);
        let (found, message) = error(&speaking_to(&[&endpoint], files), &reference).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(says), "{message}");
        assert_eq!(endpoint.served(), 1);
    }
}

/// A token server is trusted no more than a registry.
#[tokio::test]
async fn an_answer_with_a_token_is_limited() {
    const EMPTY: &str = r#"{"token":""}"#;
    for (bytes, says) in [
        (
            TOKEN_BYTES_MAX,
            "the registry answers HTTP 404: MANIFEST_UNKNOWN",
        ),
        (TOKEN_BYTES_MAX + 1, "over the limit of 65536 bytes"),
    ] {
        let endpoint = Endpoint::start(move |_, request| {
            let host = text(request, header::HOST).unwrap();
            match (request.uri().path(), text(request, header::AUTHORIZATION)) {
                ("/token", _) => {
                    ok(&EMPTY.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - EMPTY.len()))))
                }
                (path, Some(_)) => answer(path),
                _ => denied(&BEARER.replace("{host}", &host)),
            }
        })
        .await;
        let reference = format!("{}/shop/web:none", endpoint.address);
        let (_, message) = error(&images(&endpoint), &reference).await;
        assert!(message.contains(says), "{message}");
    }
}

/// A file that cannot be read may have been the one that signs in.
#[tokio::test]
async fn unreadable_credentials_are_an_error_and_no_anonymous_read() {
    let (endpoint, seen) = registry("Bearer let-me-in", BEARER).await;
    let host = endpoint.address.to_string();
    let file = File::new(&host, r#"{"auth": "?"}"#);
    let images = speaking_to(&[&endpoint], file.list());
    let (code, message) = error(&images, &format!("{host}/shop/web:one")).await;
    assert_eq!(code, 0);
    assert!(message.contains("cannot read its credentials"), "{message}");
    assert_eq!(seen.lock().len(), 1);
}

fn secrets(names: &[&str], shared: bool) -> ImageCredentials {
    let names = names.iter().map(|name| SecretName::parse(name).unwrap());
    ImageCredentials {
        secrets: names.collect(),
        shared,
        ..ImageCredentials::default()
    }
}

/// Results for one policy's credentials are not used for another's.
#[tokio::test]
async fn each_policy_signs_in_by_the_secrets_that_it_names() {
    let (endpoint, seen) = registry(BASIC, r#"Basic realm="reg""#).await;
    let host = endpoint.address.to_string();
    let folder = tempfile::tempdir().unwrap();
    let entry = format!(r#"{{"auths": {{"{host}": {ME}}}}}"#);
    for (name, text) in [("mine", &*entry), ("other", r#"{"auths": {}}"#)] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("config.json"), text).unwrap();
    }
    let images = speaking_to(&[&endpoint], vec![folder.path().to_owned()]);
    let request = |credentials: ImageCredentials| ImageRequest {
        reference: format!("{host}/shop/web:one"),
        credentials,
    };
    let mine = request(secrets(&["mine"], false));
    assert!(images.read(&mine).await.is_ok());
    assert!(images.cached(&mine).is_some());
    for (credentials, code, says) in [
        (ImageCredentials::default(), 401, "no file of the watcher's"),
        (
            secrets(&["other"], false),
            401,
            "none of the Secrets that the policy names",
        ),
        (
            secrets(&["other"], true),
            401,
            "none of the Secrets that the policy names",
        ),
        (
            secrets(&["mine", "lost"], false),
            0,
            "no Secret `lost` is mounted in the watcher: mount it as the folder `lost`",
        ),
    ] {
        seen.lock().clear();
        let request = request(credentials);
        let (found, message) = told(&images, &request).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(says), "{message}");
        assert!(images.cached(&request).is_none());
        assert!(seen.lock().iter().all(|(_, access)| access.is_none()));
    }
}
