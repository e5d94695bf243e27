use super::*;

#[test]
fn faults_are_written_as_json() {
    for text in [
        r#"{"fault":"forbid","resource":"services"}"#,
        r#"{"fault":"fail","resource":"services","verbs":["list"],"status":429,"retryAfterSeconds":1,"count":2}"#,
        r#"{"fault":"forbidEverywhere","resource":"services"}"#,
        r#"{"fault":"forbidIn","resource":"services","namespace":"a"}"#,
        r#"{"fault":"groupDown","group":"metrics.k8s.io"}"#,
        r#"{"fault":"delay","delayMs":5}"#,
        r#"{"fault":"cutWatches"}"#,
        r#"{"fault":"restore","resourceVersion":7}"#,
        r#"{"fault":"clear"}"#,
    ] {
        let fault: Fault = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let again = serde_json::to_string(&fault).unwrap();
        assert_eq!(
            serde_json::from_str::<Fault>(&again).unwrap(),
            fault,
            "{text}"
        );
    }
    assert!(serde_json::from_str::<Fault>(r#"{"fault":"none"}"#).is_err());
}

#[tokio::test]
async fn failures_count_down_and_match() {
    let faults = Faults::default();
    let matching = Matching::new("list", "services");
    faults.set(Fault::Fail {
        matching,
        status: 503,
        retry_after_seconds: None,
        count: Some(2),
    });
    let services = ResourceName::from("services");
    let list = || faults.meet("list", Some(&services), None);
    assert!(faults.meet("watch", Some(&services), None).await.is_ok());
    assert!(
        faults
            .meet("list", Some(&"pods".into()), None)
            .await
            .is_ok()
    );
    assert_eq!(list().await.unwrap_err().code, 503);
    assert_eq!(list().await.unwrap_err().reason, "ServiceUnavailable");
    assert!(list().await.is_ok());
    faults.set(Fault::Forbid {
        resource: services.clone(),
    });
    assert_eq!(list().await.unwrap_err().code, 403);
    faults.set(Fault::Clear {});
    assert!(list().await.is_ok());
}

#[tokio::test]
async fn rights_are_of_all_namespaces_or_of_one() {
    let faults = Faults::default();
    let services = ResourceName::from("services");
    let list = async |namespace| {
        let met = faults.meet("list", Some(&services), namespace).await;
        met.err().map(|failure| failure.message)
    };
    let resource = services.clone();
    faults.set(Fault::ForbidEverywhere { resource });
    assert!(list(None).await.unwrap().contains("at the cluster scope"));
    assert_eq!(list(Some("a")).await, None);
    let (resource, namespace) = (services.clone(), "a".to_owned());
    faults.set(Fault::ForbidIn {
        resource,
        namespace,
    });
    let said = list(Some("a")).await.unwrap();
    assert!(said.contains("in the namespace \"a\""), "{said}");
    assert_eq!(list(Some("b")).await, None);
    let resource = services.clone();
    faults.set(Fault::Allow { resource });
    assert_eq!((list(None).await, list(Some("a")).await), (None, None));
}

#[tokio::test]
async fn a_group_that_is_down_fails_whatever_is_asked_of_it() {
    let faults = Faults::default();
    let widgets = ResourceName::from("widgets.example.com");
    let before = faults.watches().borrow().cuts(&widgets);
    let group = "example.com".to_owned();
    faults.set(Fault::GroupDown { group });
    let failed = faults.meet("get", Some(&widgets), None).await;
    assert_eq!(failed.unwrap_err().code, 503);
    assert!(faults.is_down("example.com"));
    assert_ne!(faults.watches().borrow().cuts(&widgets), before);
    let services = ResourceName::from("services");
    assert!(faults.meet("get", Some(&services), None).await.is_ok());
    let group = "example.com".to_owned();
    faults.set(Fault::GroupUp { group });
    assert!(faults.meet("get", Some(&widgets), None).await.is_ok());
}

#[test]
fn stalls_and_cuts_are_of_one_resource_or_of_all() {
    let faults = Faults::default();
    let (services, pods) = ("services".into(), "pods".into());
    faults.set(Fault::StallWatches {
        resource: Some("services".into()),
    });
    let state = faults.watches();
    assert!(state.borrow().is_stalled(&services) && !state.borrow().is_stalled(&pods));
    faults.set(Fault::ResumeWatches { resource: None });
    assert!(!state.borrow().is_stalled(&services));
    faults.set(Fault::CutWatches {
        resource: Some("pods".into()),
        clean: false,
    });
    assert_eq!(
        state.borrow().cuts(&pods),
        Cuts {
            clean: 0,
            broken: 1
        }
    );
    faults.set(Fault::CutWatches {
        resource: None,
        clean: true,
    });
    assert_eq!(
        state.borrow().cuts(&services),
        Cuts {
            clean: 1,
            broken: 0
        }
    );
}
