//! Images, as a live read brings them.

use anteroom_model::ErrorCode;

use super::*;
use crate::gateway::{
    images::{ImageRequest, RegistryArgs, tests::answer},
    live::{
        allowed::{Allowed, ReadTarget},
        limits::{Beneficiary, ReadClaim},
        reader::Fetch,
    },
};

/// At most one read is begun in a second.
async fn open() -> (Endpoint, Rig) {
    let endpoint = Endpoint::start(|_, request| answer(request.uri().path())).await;
    let args = LiveArgs {
        live_reads_per_second: 1,
        registries: RegistryArgs {
            insecure_registry: vec![endpoint.address.to_string()],
            ..RegistryArgs::default()
        },
        ..LiveArgs::default()
    };
    (endpoint, Rig::new(args).await)
}

/// A remembered image has its true age for every caller.
#[tokio::test]
async fn a_cached_image_is_answered_with_its_age() {
    let (endpoint, mut rig) = open().await;
    let reference = format!("{}/shop/web:one", endpoint.address);
    let context = json!([{"name": "i", "imageRegistry": {"reference": reference}}]);
    rig.policy("", "p", context).await;
    let request = LiveRequest {
        call: LiveCall::Image { reference },
        ..get("p", "i", "")
    };
    let first = rig.ask(&request).await.unwrap();
    let (served, read) = (endpoint.served(), tokio::time::Instant::now());
    tokio::time::sleep(Duration::from_millis(20)).await;
    let least = u64::try_from(read.elapsed().as_millis()).unwrap();
    let again = rig.ask(&request).await.unwrap();
    assert_eq!(endpoint.served(), served);
    assert_eq!(first.result, again.result);
    assert!(again.age_ms >= least, "{} {least}", again.age_ms);
}

/// A remembered image needs no permit.
#[tokio::test]
async fn a_remembered_image_is_never_busy() {
    let (endpoint, rig) = open().await;
    let reader = rig.reader();
    let of = |tag: &str| Allowed {
        target: ReadTarget::Image(ImageRequest::plain(&format!(
            "{}/shop/web:{tag}",
            endpoint.address
        ))),
        data: None,
        config_map: false,
        takes_any_status: false,
        secret: false,
    };
    let within = |wait: Duration| ReadClaim {
        beneficiary: Beneficiary::Requests("n".into()),
        deadline: tokio::time::Instant::now() + wait,
    };
    let read = reader.read(&of("one"), false, &within(PATIENCE)).await;
    let Fetch { answer, .. } = read.unwrap();
    for _ in 0..3 {
        let again = reader
            .read(&of("one"), false, &within(Duration::ZERO))
            .await;
        assert!(Arc::ptr_eq(&again.unwrap().answer, &answer));
    }
    // An image that is not remembered takes a slot.
    let mut busy = 0;
    for _ in 0..3 {
        let other = reader
            .read(&of("none"), false, &within(Duration::ZERO))
            .await;
        let code = other.unwrap_err().code();
        busy += usize::from(code == ErrorCode::LIVE_READ_BUSY);
    }
    assert!(busy > 0);
}
