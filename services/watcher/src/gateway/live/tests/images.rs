//! Images, as a live read brings them.

use anteroom_model::ErrorCode;
use anteroom_wire::beneficiary::Beneficiary;

use super::*;
use crate::gateway::{
    images::{ImageRequest, RegistryArgs, tests::answer},
    live::{
        allowed::{Allowed, ReadTarget},
        limits::ReadClaim,
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

/// The quota of a namespace is for reads that are made.
#[tokio::test]
async fn a_remembered_image_is_answered_while_its_namespace_may_begin_no_read() {
    let registry = Endpoint::start(|_, request| answer(request.uri().path())).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let slow = Endpoint::start_held(held, |_, request| answer(request.uri().path())).await;
    let args = LiveArgs {
        // Policies of one namespace have one read of the four.
        live_read_concurrency: 4,
        registries: RegistryArgs {
            insecure_registry: vec![registry.address.to_string(), slow.address.to_string()],
            ..RegistryArgs::default()
        },
        ..LiveArgs::default()
    };
    let mut rig = Rig::new(args).await;
    let images = [&registry, &slow].map(|endpoint| format!("{}/shop/web:one", endpoint.address));
    let context = json!([
        {"name": "known", "imageRegistry": {"reference": images[0]}},
        {"name": "slow", "imageRegistry": {"reference": images[1]}},
    ]);
    rig.policy("n", "p", context).await;
    let of = |variable: &str, reference: String| LiveRequest {
        policy: ObjectKey::new("n", "p"),
        call: LiveCall::Image { reference },
        ..get("p", variable, "")
    };
    let [known, slow_image] = images;
    let (known, slow_image) = (of("known", known), of("slow", slow_image));
    let first = rig.ask(&known).await.unwrap();
    let asked = async {
        while slow.served() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let again = rig.ask_within(&known, Duration::from_millis(500)).await;
        gate.add_permits(1_000);
        again
    };
    let (again, read) = tokio::join!(asked, rig.ask(&slow_image));
    assert_eq!(again.unwrap().result, first.result);
    read.unwrap();
}
