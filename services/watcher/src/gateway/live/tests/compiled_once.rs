//! Policies as live reads find them.

use super::*;

#[tokio::test]
async fn a_version_of_a_policy_is_compiled_once_for_all_who_wait_for_it() {
    let mut rig = Rig::new(LiveArgs::default()).await;
    let (reader, key) = (rig.reader(), ObjectKey::new("", "p"));
    let mut before: Option<Arc<anteroom_policy::Policy>> = None;
    for path in ["/version", "/api/v1/nodes"] {
        let context = json!([{"name": "v", "apiCall": {"urlPath": path}}]);
        rig.policy("", "p", context).await;
        let news = loop {
            let all = (0..8).map(|_| reader.policies().get(&key));
            let all = futures::future::join_all(all).await;
            let is_news = |policy: &Arc<anteroom_policy::Policy>| match &before {
                Some(before) => !Arc::ptr_eq(before, policy),
                None => true,
            };
            if all[0].as_ref().is_some_and(is_news) {
                break all;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        let first = news[0].clone().unwrap();
        for policy in &news {
            assert!(Arc::ptr_eq(policy.as_ref().unwrap(), &first));
        }
        let again = reader.policies().get(&key).await.unwrap();
        assert!(Arc::ptr_eq(&again, &first), "and then it is known");
        before = Some(first);
    }
}
