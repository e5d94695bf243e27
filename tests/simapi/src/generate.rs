//! Objects of the size and make of a real cluster's: about 2 KB of JSON, half of it managed fields; Pods
//! are of about 5.2 KB.
//!
//! The same seed gives the same objects, and object `i` does not depend on how many are made.

mod pod;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Map, Value, json};

const CREATED: &str = "2026-01-05T08:30:00Z";
const TEAMS: [&str; 8] = [
    "atlas", "borealis", "cobalt", "dorado", "ember", "fjord", "granite", "harbor",
];

/// A cluster to make objects for.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// The seed that everything is made from.
    pub seed: u64,
    /// Over how many namespaces namespaced objects are spread. At least 1.
    pub namespaces: usize,
}

/// The host of an Ingress of [`Cluster::ingresses`], unique over all of them: the `rule`-th of the
/// `index`-th.
pub fn ingress_host(index: usize, rule: usize) -> String {
    match rule {
        0 => format!("app-{index}.example-{}.com", index % 97),
        rule => format!("app-{index}-{rule}.example-{}.com", index % 97),
    }
}

impl Cluster {
    /// The name of the namespace that holds object `index`.
    pub fn namespace(&self, index: usize) -> String {
        let namespace = index % self.namespaces.max(1);
        format!("{}-{namespace}", TEAMS[namespace % TEAMS.len()])
    }

    /// The namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = Value> {
        let cluster = *self;
        (0..self.namespaces.max(1)).map(move |index| {
            let name = cluster.namespace(index);
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name,
                "labels": {"team": TEAMS[index % TEAMS.len()]}}, "spec": {"finalizers": ["kubernetes"]}})
        })
    }

    /// `count` Services, `svc-0` and on.
    pub fn services(&self, count: usize) -> impl Iterator<Item = Value> {
        let cluster = *self;
        (0..count).map(move |index| cluster.service(index))
    }

    /// `count` Ingresses, `ing-0` and on, with `hosts_each` hosts: see [`ingress_host`].
    pub fn ingresses(&self, count: usize, hosts_each: usize) -> impl Iterator<Item = Value> {
        let cluster = *self;
        (0..count).map(move |index| cluster.ingress(index, hosts_each))
    }

    /// `count` Pods, `pod-0` and on, as a ReplicaSet makes them, in threes, and a kubelet runs them.
    pub fn pods(&self, count: usize) -> impl Iterator<Item = Value> {
        let cluster = *self;
        (0..count).map(move |index| cluster.pod(index))
    }

    fn random(&self, kind: u64, index: usize) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ (kind << 56) ^ index as u64)
    }

    fn service(&self, index: usize) -> Value {
        let mut random = self.random(1, index);
        let labels = labels(index, "backend", &mut random);
        let ip = format!(
            "10.{}.{}.{}",
            96 + index / 65_536,
            index / 256 % 256,
            index % 256
        );
        let port = |name: &str, port: u16, target: u16| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": target});
        let spec = json!({
            "clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [port("http", 80, 8080), port("metrics", 9090, random.random_range(9000..9999))],
            "selector": {"app.kubernetes.io/instance": format!("app-{index}"),
                "app.kubernetes.io/name": format!("app-{index}")},
            "sessionAffinity": "None", "type": "ClusterIP",
        });
        let mut service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": self.metadata(index, &format!("svc-{index}"), &labels, &mut random),
            "spec": spec, "status": {"loadBalancer": {}}});
        manage(&mut service, &["helm"]);
        service
    }

    fn ingress(&self, index: usize, hosts_each: usize) -> Value {
        let mut random = self.random(2, index);
        let labels = labels(index, "edge", &mut random);
        let backend = json!({"service": {"name": format!("svc-{index}"), "port": {"number": 80}}});
        let hosts: Vec<String> = (0..hosts_each)
            .map(|rule| ingress_host(index, rule))
            .collect();
        let rules: Vec<Value> = hosts
            .iter()
            .map(|host| {
                json!({"host": host, "http": {"paths": [
                    {"path": "/", "pathType": "Prefix", "backend": backend}]}})
            })
            .collect();
        let mut metadata = self.metadata(index, &format!("ing-{index}"), &labels, &mut random);
        metadata["annotations"]["cert-manager.io/cluster-issuer"] = "letsencrypt".into();
        metadata["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"] = "16m".into();
        let mut ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": metadata,
            "spec": {"ingressClassName": "nginx", "rules": rules,
                "tls": [{"hosts": hosts, "secretName": format!("tls-{index}")}]},
            "status": {"loadBalancer": {"ingress": [{"ip": format!("203.0.113.{}", index % 250)}]}}});
        manage(&mut ingress, &["helm", "nginx-ingress-controller"]);
        ingress
    }

    fn metadata(&self, index: usize, name: &str, labels: &Value, random: &mut StdRng) -> Value {
        let revision: u32 = random.random();
        json!({
            "name": name, "namespace": self.namespace(index), "labels": labels,
            "annotations": {"meta.helm.sh/release-name": format!("app-{index}"),
                "meta.helm.sh/release-namespace": self.namespace(index),
                "example.com/revision": format!("{revision:08x}"),
                "example.com/runbook": format!("https://runbooks.example.com/app-{index}")},
            "creationTimestamp": CREATED,
        })
    }
}

fn labels(index: usize, component: &str, random: &mut StdRng) -> Value {
    json!({
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": format!("app-{index}"),
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": format!("app-{index}"),
        "app.kubernetes.io/version": format!("1.{}.{}", random.random_range(0..30), index % 10),
        "helm.sh/chart": format!("app-{}.{}.0", random.random_range(1..9), index % 10),
        "team": TEAMS[index % TEAMS.len()],
    })
}

/// Adds the managed fields that its first manager (and a second one, of the status) would have left.
fn manage(object: &mut Value, managers: &[&str]) {
    let api_version = object["apiVersion"].clone();
    let owned = |part: &Value, fields: &[&str]| {
        let fields = fields
            .iter()
            .filter_map(|field| Some((format!("f:{field}"), owns(part.get(*field)?))));
        Value::Object(fields.collect())
    };
    let metadata = &object["metadata"];
    let spec = json!({"f:metadata": owned(metadata, &["annotations", "labels"]),
        "f:spec": owns(&object["spec"])});
    let status = json!({"f:status": owns(&object["status"])});
    let entries: Vec<Value> = managers
        .iter()
        .zip([("", spec), ("status", status)])
        .map(|(manager, (subresource, fields))| {
            let mut entry = json!({"manager": manager, "operation": "Update", "time": CREATED,
                "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields});
            if !subresource.is_empty() {
                entry["subresource"] = subresource.into();
            }
            entry
        })
        .collect();
    object["metadata"]["managedFields"] = entries.into();
}

/// A value's fields as a field set: lists are owned whole.
fn owns(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut owned: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), owns(value)))
                .collect();
            owned.insert(".".into(), json!({}));
            Value::Object(owned)
        }
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const CLUSTER: Cluster = Cluster {
        seed: 7,
        namespaces: 200,
    };

    #[test]
    fn objects_are_of_a_real_size() {
        let mean = |objects: &mut dyn Iterator<Item = Value>| {
            let sizes: Vec<usize> = objects.map(|object| object.to_string().len()).collect();
            sizes.iter().sum::<usize>() / sizes.len()
        };
        for (kind, bytes, real) in [
            ("services", mean(&mut CLUSTER.services(100)), 1_700..2_300),
            (
                "ingresses",
                mean(&mut CLUSTER.ingresses(100, 1)),
                1_700..3_300,
            ),
            ("pods", mean(&mut CLUSTER.pods(100)), 5_000..5_200),
        ] {
            assert!(real.contains(&bytes), "{kind}: {bytes}");
        }
    }

    #[test]
    fn generated_objects_are_repeatable_and_hosts_are_unique() {
        let twice = || CLUSTER.ingresses(300, 2).collect::<Vec<_>>();
        assert_eq!(twice(), twice());
        assert_eq!(
            twice()[..10],
            CLUSTER.ingresses(10, 2).collect::<Vec<_>>()[..]
        );
        let hosts: HashSet<String> = (0..300)
            .flat_map(|i| [ingress_host(i, 0), ingress_host(i, 1)])
            .collect();
        assert_eq!(hosts.len(), 600);
        assert_eq!(twice()[5]["spec"]["rules"][1]["host"], ingress_host(5, 1));
    }

    #[test]
    fn every_object_is_in_a_namespace_that_is_made() {
        for namespaces in [1, 7, 200] {
            let cluster = Cluster {
                seed: 1,
                namespaces,
            };
            let made: HashSet<String> = cluster
                .namespaces()
                .map(|namespace| namespace["metadata"]["name"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(made.len(), namespaces);
            assert!(
                (0..5_000).all(|index| made.contains(&cluster.namespace(index))),
                "{namespaces}"
            );
        }
    }
}
