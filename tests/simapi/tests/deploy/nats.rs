//! NATS as it is deployed: logins, permissions, servers.

use super::*;

/// Returns how nats.conf begins what a login may do.
fn known_as(user: &str) -> String {
    format!("nkey: $NATS_NKEY_{},", user.to_uppercase())
}

/// Each service logs in with a key of its own, which is mounted nowhere else, over TLS.
#[test]
fn every_service_has_a_login_of_its_own() {
    let conf = fs::read_to_string(root().join("deploy/chart/files/nats.conf")).unwrap();
    let compose = yaml("docker-compose.yml");
    let manifests = manifests();
    for (workload, composed, user) in [
        ("anteroom-watcher", "watcher", "watcher"),
        ("anteroom-cache-replica", "replica-1", "replica"),
        ("anteroom-webhook", "webhook", "webhook"),
        ("anteroom-reporter", "reporter", "reporter"),
    ] {
        assert!(conf.contains(&known_as(user)), "{user}");
        let secret = format!("anteroom-nats-{user}");
        for other in of_kind(&manifests, &WORKLOADS) {
            let pod = &other["spec"]["template"]["spec"];
            let mut volumes = list(pod, "/volumes");
            let volume = volumes.find(|volume| of_volume(volume, &secret).is_some());
            assert_eq!(
                volume.is_some(),
                name(other) == workload,
                "{} {secret}",
                name(other)
            );
            let Some(volume) = volume else { continue };
            let mount = list(pod, "/containers/0/volumeMounts")
                .find(|mount| mount["name"] == volume["name"])
                .unwrap();
            let folder = text(mount, "/mountPath");
            let variables = list(pod, "/containers/0/env");
            let env: BTreeMap<&str, &str> = variables
                .map(|variable| (text(variable, "/name"), text(variable, "/value")))
                .collect();
            assert_eq!(env["ANTEROOM_NATS_TLS"], "true");
            assert_eq!(env["ANTEROOM_NATS_NKEY_FILE"], format!("{folder}/seed"));
            assert_eq!(env["ANTEROOM_NATS_CA_FILE"], format!("{folder}/ca.crt"));
        }
        let composed = &compose["services"][composed];
        let mounts: Vec<_> = list(composed, "/volumes")
            .filter_map(Value::as_str)
            .collect();
        let keys: Vec<_> = mounts
            .iter()
            .filter(|mount| mount.starts_with("keys-"))
            .collect();
        assert_eq!(keys, [&format!("keys-{user}:/etc/anteroom/nats:ro")]);
        let env = &composed["environment"];
        assert_eq!(env["ANTEROOM_NATS_TLS"], "true");
        assert_eq!(env["ANTEROOM_NATS_NKEY_FILE"], "/etc/anteroom/nats/seed");
    }
    assert!(!conf.contains("password"), "nobody logs in otherwise");
}

/// The log has a copy on each server, and each server knows the way to all.
#[test]
fn three_nats_servers_know_each_other_and_keep_the_log() {
    for (rendering, count, file) in [
        ("default", 3, "cluster.conf"),
        ("ha", 3, "cluster.conf"),
        ("one-nats-server", 1, "nats.conf"),
    ] {
        let manifests = rendered(rendering);
        let find = |kind: &str, named: &str| {
            let mut found = manifests
                .iter()
                .filter(|object| text(object, "/kind") == kind);
            found.find(|object| name(object) == named).unwrap()
        };
        let servers = &find("StatefulSet", "nats")["spec"];
        assert_eq!(servers["replicas"], count);
        let started = text(servers, "/template/spec/containers/0/args/1");
        assert_eq!(started, format!("/etc/nats/{file}"));
        let files = &find("ConfigMap", "nats-config")["data"];
        let conf = files[file].as_str().unwrap();
        if count == 3 {
            let path = format!("deploy/chart/files/{file}");
            let own = fs::read_to_string(root().join(path)).unwrap();
            assert_eq!(conf.trim(), own.trim(), "what the tests of NATS run");
        }
        for number in 0..count {
            let route = format!(
                "\"nats://nats-{number}.{}:6222\"",
                text(servers, "/serviceName")
            );
            assert_eq!(conf.contains(&route), count > 1, "{route}");
        }
        let watcher = find("Deployment", "anteroom-watcher");
        let mut env = list(watcher, "/spec/template/spec/containers/0/env");
        let copies = env.find(|found| text(found, "/name") == "ANTEROOM_NATS_REPLICAS");
        assert_eq!(text(copies.unwrap(), "/value"), count.to_string());
    }
}

/// Each party of a conversation over NATS may have it: what is asked is permitted to the asker, and
/// what is served to the server.
#[test]
fn permissions_on_nats_fit_each_other() {
    let conf = fs::read_to_string(root().join("deploy/chart/files/nats.conf")).unwrap();
    let of = |user: &str, what: &str| -> String {
        let (_, user) = conf.split_once(&known_as(user)).unwrap();
        let (_, allowed) = user.split_once(&format!("{what}: {{ allow: [")).unwrap();
        allowed.split(']').next().unwrap().to_owned()
    };
    for (asker, subject, server, served) in [
        ("webhook", "q.>", "replica", "q.> replicas"),
        ("webhook", "qf.>", "replica", "qf.> replicas"),
        ("webhook", "qi.>", "replica", "qi.> replicas"),
        ("webhook", "live", "watcher", "live watchers"),
        ("watcher", "beat", "replica", "beat"),
        ("watcher", "beat", "webhook", "beat"),
        ("replica", "rbeat", "watcher", "rbeat"),
        ("replica", "rbeat", "webhook", "rbeat"),
        ("webhook", "wbeat", "watcher", "wbeat"),
    ] {
        let quoted = |subject: &str| format!("\"ar.default.{subject}\"");
        assert!(
            of(asker, "publish").contains(&quoted(subject)),
            "{asker} {subject}"
        );
        assert!(
            of(server, "subscribe").contains(&quoted(served)),
            "{server} {served}"
        );
    }
    // Nobody but the watcher writes what the log keeps.
    for user in ["replica", "webhook"] {
        let publish = of(user, "publish");
        for kept in [
            "ar.default.obj",
            "ar.default.ctl",
            "STREAM.PURGE",
            "STREAM.DELETE",
        ] {
            assert!(!publish.contains(kept), "{user}: {kept}");
        }
    }
}
