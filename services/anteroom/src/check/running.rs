//! Checks of an installation. Pure.

use anteroom_runtime::{
    certs::{Pair, Pem},
    wall_clock,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    before::name,
    cluster::Cluster,
    finding::{Check, Finding},
};
use crate::output::counted;

/// The definitions that have to be there. Others may be left out.
const DEFINITIONS: [&str; 2] = [
    "cachedcontextentries.kyverno.io",
    "clusterpolicies.kyverno.io",
];

/// The Deployments of every installation.
const DEPLOYMENTS: [&str; 3] = [
    "anteroom-cache-replica",
    "anteroom-watcher",
    "anteroom-webhook",
];

/// The rest of a certificate's validity at which it has to be replaced.
const ENDS_SOON: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The Deployment of the reporter, which may be left out, and its lease.
const REPORTER: &str = "anteroom-reporter";

/// The time without a renewal after which a lease says that its holder is gone: four times its duration.
const LEASE_SILENCE_MAX: SignedDuration = SignedDuration::from_secs(60);

pub(super) const CHECKS: [Check; 13] = [
    Check {
        id: "definitions-served",
        category: "definitions",
        fact: "policies and entries are defined",
        is_pre: false,
        find: defined,
    },
    Check {
        id: "parts-available",
        category: "parts",
        fact: "every part has its pods",
        is_pre: false,
        find: |cluster| in_cluster(cluster, available),
    },
    Check {
        id: "parts-version",
        category: "parts",
        fact: "all services are of one version",
        is_pre: false,
        find: |cluster| in_cluster(cluster, one_version),
    },
    Check {
        id: "parts-keys",
        category: "parts",
        fact: "NATS has its certificate for 30 more days",
        is_pre: false,
        find: keys,
    },
    Check {
        id: "webhooks-registered",
        category: "webhooks",
        fact: "both webhook configurations are there, and are Anteroom's",
        is_pre: false,
        find: registered,
    },
    Check {
        id: "webhooks-reached",
        category: "webhooks",
        fact: "the webhook's Service leads to a ready pod",
        is_pre: false,
        find: |cluster| in_cluster(cluster, reached),
    },
    Check {
        id: "webhooks-trusted",
        category: "webhooks",
        fact: "the API server trusts the webhook's certificate",
        is_pre: false,
        find: trusted,
    },
    Check {
        id: "webhooks-certificate",
        category: "webhooks",
        fact: "the webhook's certificate is valid",
        is_pre: false,
        find: certificate,
    },
    Check {
        id: "policies-ready",
        category: "policies",
        fact: "every policy is enforced",
        is_pre: false,
        find: policies_ready,
    },
    Check {
        id: "policies-run",
        category: "policies",
        fact: "every rule is run",
        is_pre: false,
        find: rules_run,
    },
    Check {
        id: "policies-permitted",
        category: "policies",
        fact: "the watcher may change what policies change",
        is_pre: false,
        find: permitted,
    },
    Check {
        id: "entries-ready",
        category: "entries",
        fact: "every entry is served",
        is_pre: false,
        find: entries_ready,
    },
    Check {
        id: "reports-leader",
        category: "reports",
        fact: "a reporter holds the lease, and renews it",
        is_pre: false,
        find: reporter_leads,
    },
];

fn defined(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.definitions, |definitions| {
        let is_served = |wanted: &str| {
            let found = definitions
                .iter()
                .find(|definition| name(definition) == wanted);
            found.is_some_and(|found| condition(found, "Established").is_some_and(is_true))
        };
        let missing = DEFINITIONS.into_iter().filter(|wanted| !is_served(wanted));
        let missing = missing.map(|missing| format!("{missing} is not served"));
        Finding::none(missing.collect(), Finding::Failed)
    })
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// Returns the condition that says whether a policy or an entry is ready: policies of policies.kyverno.io have Kyverno's.
fn readiness(object: &Value) -> Option<&Value> {
    let in_cel = object.pointer("/status/conditionStatus/conditions");
    match in_cel.and_then(Value::as_array) {
        Some(conditions) => {
            (conditions.iter()).find(|condition| condition["type"] == "WebhookConfigured")
        }
        None => condition(object, "Ready"),
    }
}

fn is_true(condition: &Value) -> bool {
    condition["status"] == "True"
}

/// Returns the services' Deployments.
fn services(deployments: &[Value]) -> impl Iterator<Item = &Value> {
    let is_ours = |name: &str| name == "anteroom" || name.starts_with("anteroom-");
    (deployments.iter()).filter(move |deployment| is_ours(name(deployment)))
}

/// Returns the address at which the API server reaches a webhook that is elsewhere, as of `anteroom serve
/// --webhook-url`: all of its webhooks name a URL, and the namespace has no Deployment of Anteroom.
pub(super) fn outside(cluster: &Cluster) -> Option<String> {
    let deployments = cluster.deployments.as_ref().ok()?;
    let validating = cluster.validating.as_ref().ok()?;
    let mutating = cluster.mutating.as_ref().ok()?;
    if services(deployments).next().is_some() {
        return None;
    }
    let ours = [own(validating), own(mutating)].into_iter().flatten();
    let webhooks = ours.filter_map(|of| of["webhooks"].as_array()).flatten();
    let urls = webhooks.map(|webhook| webhook["clientConfig"]["url"].as_str());
    let urls = urls.collect::<Option<Vec<_>>>()?;
    let origin: Vec<_> = urls.first()?.split('/').take(3).collect();
    Some(origin.join("/"))
}

/// Returns the finding of a check that is about pods of the namespace. Such a check is not asked where the services run
/// elsewhere.
fn in_cluster(cluster: &Cluster, find: fn(&Cluster) -> Finding) -> Finding {
    match outside(cluster) {
        Some(address) => Finding::NotAsked(format!(
            "no Deployment of Anteroom is in namespace {}, and the API server calls {address}: the services run outside \
             of the cluster, as with `anteroom serve --webhook-url`, or in another namespace (--namespace). \
             /readyz?verbose there says how they are",
            cluster.namespace
        )),
        None => find(cluster),
    }
}

fn available(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.deployments, |deployments| {
        Finding::of(&cluster.stateful_sets, |sets| {
            let nats = sets.iter().filter(|set| name(set) == "nats");
            let there: Vec<_> = services(deployments).chain(nats).collect();
            let missing = DEPLOYMENTS.into_iter().chain(["nats"]);
            let missing = missing.filter(|wanted| !there.iter().any(|part| name(part) == *wanted));
            let missing = missing.map(|missing| format!("{missing} is not there"));
            let waiting = there.iter().filter_map(|part| {
                let wanted = part["spec"]["replicas"].as_u64().unwrap_or(1);
                let ready = part["status"]["readyReplicas"].as_u64().unwrap_or_default();
                (ready < wanted).then(|| {
                    format!(
                        "{}: {ready} of {} ready",
                        name(part),
                        counted(wanted, "pod")
                    )
                })
            });
            Finding::none(missing.chain(waiting).collect(), Finding::Failed)
        })
    })
}

fn one_version(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.deployments, |deployments| {
        let image =
            |part: &Value| part["spec"]["template"]["spec"]["containers"][0]["image"].to_string();
        let mut images: Vec<_> = services(deployments)
            .map(|part| (image(part), name(part)))
            .collect();
        images.sort_unstable();
        let is_one = images.iter().all(|(image, _)| *image == images[0].0);
        let shown = images
            .iter()
            .map(|(image, part)| format!("{part}: {image}"));
        match is_one {
            true => Finding::Good,
            false => Finding::none(shown.collect(), Finding::Warning),
        }
    })
}

/// Returns a text of a Secret's data.
fn text(secret: &Value, key: &str) -> Option<String> {
    let data = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
    String::from_utf8(data).ok()
}

fn valid(secret: &Value, rest_min: SignedDuration) -> Finding {
    let pem = text(secret, "tls.crt").zip(text(secret, "tls.key"));
    let Some((chain, key)) = pem.filter(|(chain, _)| !chain.is_empty()) else {
        return Finding::Failed(format!("Secret {} holds none yet", name(secret)));
    };
    let now = wall_clock::now();
    match Pair::parse(&Pem { chain, key }, now) {
        Err(error) => Finding::Failed(format!("Secret {}: {error}", name(secret))),
        Ok(pair) if pair.not_after() < now + rest_min => Finding::Warning(format!(
            "the certificate in Secret {} ends at {}",
            name(secret),
            pair.not_after()
        )),
        Ok(_) => Finding::Good,
    }
}

fn keys(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.nats_secret, |secret| match secret {
        Some(secret) => valid(secret, ENDS_SOON),
        None if outside(cluster).is_some() => Finding::NotAsked(format!(
            "namespace {} has no Secret anteroom-nats-server: the bus is in the process of `anteroom serve`, or the \
             Secret is kept in another namespace (--namespace)",
            cluster.namespace
        )),
        None => Finding::Failed(
            "there is no Secret anteroom-nats-server: run `anteroom init`".to_owned(),
        ),
    })
}

fn certificate(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.webhook_secret, |secret| match secret {
        // It is renewed by itself.
        Some(secret) => valid(secret, SignedDuration::ZERO),
        None if outside(cluster).is_some() => Finding::NotAsked(format!(
            "namespace {} has no Secret anteroom-webhook-tls: it is kept in another namespace (--namespace), or the \
             certificate comes from files (--tls-cert-file)",
            cluster.namespace
        )),
        None => Finding::Failed(
            "there is no Secret anteroom-webhook-tls: run `anteroom init`".to_owned(),
        ),
    })
}

/// Returns Anteroom's own of each kind, if it is there.
fn own(configurations: &[Value]) -> Option<&Value> {
    configurations.iter().find(|of| name(of) == "anteroom")
}

fn registered(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.validating, |validating| {
        Finding::of(&cluster.mutating, |mutating| {
            let kinds = [("validating", own(validating)), ("mutating", own(mutating))];
            let problems = kinds.into_iter().filter_map(|(kind, found)| {
                let owner = found.map(|of| &of["metadata"]["labels"]["app.kubernetes.io/managed-by"]);
                match owner {
                    None => Some(format!("there is no {kind} one: the webhook writes it once it has read the policies")),
                    Some(owner) if owner != "anteroom-webhook" => Some(format!("the {kind} one is {owner}'s")),
                    Some(_) => None,
                }
            });
            Finding::none(problems.collect(), Finding::Failed)
        })
    })
}

fn reached(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.endpoints, |slices| {
        let endpoints = slices
            .iter()
            .filter_map(|slice| slice["endpoints"].as_array());
        // Unknown counts as ready, as the API says.
        let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"] != false;
        match endpoints.flatten().any(is_ready) {
            true => Finding::Good,
            false => Finding::Failed("no pod of the webhook is ready".to_owned()),
        }
    })
}

fn trusted(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.webhook_secret, |secret| {
        let Some(authority) = secret.as_ref().and_then(|secret| text(secret, "ca.crt")) else {
            return Finding::NotAsked(
                "there is no certificate: see webhooks-certificate".to_owned(),
            );
        };
        Finding::of(&cluster.validating, |validating| {
            Finding::of(&cluster.mutating, |mutating| {
                let ours = [own(validating), own(mutating)].into_iter().flatten();
                let webhooks = ours.filter_map(|of| of["webhooks"].as_array()).flatten();
                let others = webhooks.filter(|webhook| {
                    let bundle = webhook["clientConfig"]["caBundle"].as_str();
                    let bundle = bundle.and_then(|bundle| STANDARD.decode(bundle).ok());
                    bundle.as_deref().map(<[u8]>::trim_ascii) != Some(authority.trim().as_bytes())
                });
                let others = others.map(|webhook| {
                    let name = webhook["name"].as_str().unwrap_or_default();
                    format!("{name} has another authority: somebody has written it")
                });
                Finding::none(others.collect(), Finding::Failed)
            })
        })
    })
}

/// Returns an object's kind, namespace and name.
fn shown(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("object");
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", name(object)),
        None => format!("{kind} {}", name(object)),
    }
}

fn ready(objects: &[Value]) -> Finding {
    let waiting = objects.iter().filter_map(|object| match readiness(object) {
        Some(ready) if is_true(ready) => None,
        Some(ready) => {
            let text = |key| ready[key].as_str().unwrap_or_default();
            Some(format!(
                "{}: {}: {}",
                shown(object),
                text("reason"),
                text("message")
            ))
        }
        None => Some(format!(
            "{}: no watcher has said anything of it",
            shown(object)
        )),
    });
    Finding::none(waiting.collect(), Finding::Failed)
}

fn policies_ready(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.policies, |policies| ready(policies))
}

fn entries_ready(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.entries, |entries| ready(entries))
}

/// Returns a line for each rule that a field of policies' statuses lists.
fn listed(cluster: &Cluster, field: &str) -> Finding {
    Finding::of(&cluster.policies, |policies| {
        let lines = policies.iter().flat_map(|policy| {
            let rules = policy["status"][field].as_array().into_iter().flatten();
            rules.map(|rule| {
                let text = |key| rule[key].as_str().unwrap_or_default();
                format!(
                    "{}, rule {}: {}",
                    shown(policy),
                    text("rule"),
                    text("message")
                )
            })
        });
        Finding::none(lines.collect(), Finding::Warning)
    })
}

fn rules_run(cluster: &Cluster) -> Finding {
    listed(cluster, "notRun")
}

fn permitted(cluster: &Cluster) -> Finding {
    listed(cluster, "notPermitted")
}

fn reporter_leads(cluster: &Cluster) -> Finding {
    Finding::of(&cluster.deployments, |deployments| {
        let reporter = services(deployments).find(|part| name(part) == REPORTER);
        if reporter.is_none_or(|part| part["spec"]["replicas"] == 0) {
            return Finding::Good; // Nobody wants reports.
        }
        Finding::of(&cluster.reporter_lease, |lease| {
            let held_by = lease
                .as_ref()
                .and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            let Some(holder) = held_by.filter(|holder| !holder.is_empty()) else {
                return Finding::Failed(format!("nobody holds the lease {REPORTER}"));
            };
            match lease.as_ref().and_then(written_at) {
                Some(at) => Finding::of(&cluster.clock_ahead_seconds, |ahead| {
                    let now = wall_clock::now() + SignedDuration::from_secs(*ahead);
                    renewed(holder, now.duration_since(at))
                }),
                None => Finding::Good,
            }
        })
    })
}

/// Returns when somebody wrote an object last, by the API server's clock: other machines' clocks may differ from that.
fn written_at(object: &Value) -> Option<Timestamp> {
    let fields = object["metadata"]["managedFields"].as_array()?;
    let times = fields.iter().filter_map(|of| of["time"].as_str());
    times.filter_map(|time| time.parse().ok()).max()
}

fn renewed(holder: &str, silence: SignedDuration) -> Finding {
    match silence <= LEASE_SILENCE_MAX {
        true => Finding::Good,
        false => Finding::Failed(format!(
            "{holder} holds the lease {REPORTER}, and has not renewed it for {} s",
            silence.as_secs()
        )),
    }
}
