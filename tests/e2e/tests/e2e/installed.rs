//! The Helm chart at a real API server: what it renders is taken strictly, its Job makes keys, and it goes without a refusal.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anteroom_e2e::{
    cluster::Identity,
    manifests,
    process::{real_part, workspace_binary},
    system::SYSTEM_NAMESPACE,
    wait,
    world::{World, host, ingress},
};
use anyhow::{Context, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    apps::v1::Deployment,
    core::v1::Secret,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::load::decides_by_hosts;

/// What begins the line of a rendering that says how it was rendered.
const RENDERED_BY: &str = "# helm ";

/// The flags of every rendering here.
const COMMON: [&str; 7] = [
    "template",
    "anteroom",
    "deploy/chart",
    "--namespace",
    "anteroom",
    "--kube-version",
    "1.30.0",
];

/// Values that change what is rendered.
const VALUES: [&str; 7] = [
    "nats.replicas=5,cluster=prod",
    "config.allowSecrets={clusterpolicy/a,policy/b/c},config.resourceFilters={[Event\\,*\\,*]},config.excludeGroups={a,b}",
    "features.backgroundScan.enabled=false,features.policyExceptions.enabled=true,features.policyExceptions.namespace=*",
    "features.tracing.endpoint=http://collector:4318,features.logging.level=debug,networkPolicy.watcherEgress=true",
    "watcher.container.resources.limits.memory=2Gi,admissionController.container.extraArgs.query-hedge-ms=50,admissionController.drainSeconds=0",
    "grafana.enabled=true,grafana.labels.team=ours",
    "global.image.registry=registry.example.com,watcher.rbac.sources=false,watcher.podDisruptionBudget.enabled=false",
];

/// Values that are refused, and what of the message says where.
const REFUSED: [(&str, &str); 16] = [
    ("nats.replicas=2", "/nats/replicas"),
    ("admissionControler.replicas=3", "admissionControler"),
    ("watcher.replicas=0", "/watcher/replicas"),
    ("watcher.replicas=two", "/watcher/replicas"),
    ("cluster=a.b", "/cluster"),
    (
        "config.resourceFilters={Event}",
        "/config/resourceFilters/0",
    ),
    (
        "config.resourceFilters={[Node\\,?]}",
        "/config/resourceFilters/0",
    ),
    (
        "config.exemptNamespaces={team-*}",
        "/config/exemptNamespaces/0",
    ),
    ("config.allowSecrets={pods/a}", "/config/allowSecrets/0"),
    ("config.staleAfter=60", "/config/staleAfter"),
    ("features.logging.format=xml", "/features/logging/format"),
    (
        "features.policyExceptions.enabled=true",
        "/features/policyExceptions/namespace",
    ),
    (
        "cacheReplica.container.resources.limits.memory=64Mi",
        "128Mi is the least",
    ),
    (
        "admissionController.container.resources.limits.memory=128Mi",
        "reviews need 160Mi",
    ),
    ("spread.nodes=Never", "/spread/nodes"),
    (
        "global.extraEnvVars[0].name=A,global.extraEnvVars[0].value=1",
        "/global/extraEnvVars/0/value",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_comes_and_goes_without_a_refusal() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    renderings_are_up_to_date()?;
    wrong_values_are_refused()?;
    names_of_digits_are_texts()?;
    exemptions_roll_out_nothing()?;
    alerts_and_dashboards_are_the_files()?;
    for object in manifests::installed()? {
        if object["kind"] == "Namespace" {
            manifests::apply(&world.client, &object).await?;
        }
    }
    for values in VALUES {
        taken(world, &rendered(&["--set", values])?).await?;
    }
    for profile in ["values-ha.yaml", "values-beside-kyverno.yaml"] {
        let path = format!("deploy/chart/{profile}");
        taken(world, &rendered(&["--values", &path])?).await?;
    }
    keys_are_made_once(world).await?;
    decides_by_hosts(world, 20).await?;
    checks_find_what_is_wrong(world).await?;
    leaves_without_a_refusal(world).await?;
    helm_changes_it_and_keeps_policies(world).await
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn helm<'a>(args: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Output> {
    let mut command = Command::new(real_part("helm")?);
    let output = command.current_dir(root()).args(args).output();
    output.with_context(|| format!("cannot start {command:?}"))
}

fn text_of(output: Output) -> anyhow::Result<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the objects of the chart with these flags.
fn rendered(flags: &[&str]) -> anyhow::Result<Vec<Value>> {
    manifests::parse(&text_of(helm(COMMON.iter().chain(flags).copied())?)?)
}

/// What Prometheus' operator and Grafana are given is what tests of these files have seen.
fn alerts_and_dashboards_are_the_files() -> anyhow::Result<()> {
    let files = root().join("deploy/chart/files");
    let enabled = "podMonitor.enabled=true,prometheusRule.enabled=true,grafana.enabled=true";
    let objects = rendered(&["--set", enabled, "--show-only", "templates/monitors.yaml"])?;
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind);
    let dashboards = &of_kind("ConfigMap").context("no dashboards")?["data"];
    ensure!(
        dashboards.as_object().map(serde_json::Map::len) == Some(2),
        "{dashboards}"
    );
    for name in ["decisions.json", "facts.json"] {
        let file = std::fs::read_to_string(files.join("dashboards").join(name))?;
        ensure!(dashboards[name] == file, "{name} differs");
    }
    let rules: Value = serde_saphyr::from_str(&std::fs::read_to_string(files.join("rules.yaml"))?)?;
    let rule = of_kind("PrometheusRule").context("no alerts")?;
    ensure!(rule["spec"] == rules, "{rule}");
    ensure!(of_kind("PodMonitor").is_some(), "no PodMonitor");
    Ok(())
}

/// Each file of `deploy/install` is what the command in its header renders.
fn renderings_are_up_to_date() -> anyhow::Result<()> {
    text_of(helm(["lint", "--strict", "deploy/chart"])?)?;
    let mut files = 0;
    for file in std::fs::read_dir(root().join("deploy/install"))? {
        let path = file?.path();
        let text = std::fs::read_to_string(&path)?;
        let mut lines = text.splitn(3, '\n').skip(1);
        let by = lines.next().and_then(|line| line.strip_prefix(RENDERED_BY));
        let by = by.with_context(|| format!("{}: by what?", path.display()))?;
        let now = text_of(helm(by.split(' '))?)?;
        ensure!(
            lines.next() == Some(&now),
            "{} is out of date: run `cargo xtask chart`",
            path.display()
        );
        files += 1;
    }
    ensure!(files == 4, "{files} files");
    Ok(())
}

fn wrong_values_are_refused() -> anyhow::Result<()> {
    for (values, says) in REFUSED {
        let output = helm(COMMON.into_iter().chain(["--set", values]))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains(says),
            "{values}: {said}"
        );
    }
    Ok(())
}

/// A namespace or a release whose name has digits alone is no number.
fn names_of_digits_are_texts() -> anyhow::Result<()> {
    fn holds(value: &Value, number: u64) -> bool {
        match value {
            Value::Number(own) => own.as_u64() == Some(number),
            Value::Array(list) => list.iter().any(|value| holds(value, number)),
            Value::Object(fields) => fields.values().any(|value| holds(value, number)),
            _ => false,
        }
    }
    let set = "namespace.create=true,podMonitor.enabled=true,prometheusRule.enabled=true,grafana.enabled=true";
    let mut flags = COMMON;
    (flags[1], flags[4]) = ("7001", "7002");
    let text = text_of(helm(flags.into_iter().chain(["--set", set]))?)?;
    for object in manifests::parse(&text)? {
        let is_number = holds(&object, 7001) || holds(&object, 7002);
        ensure!(!is_number, "{object}");
    }
    Ok(())
}

/// What is exempt is in a ConfigMap alone, which services read again.
fn exemptions_roll_out_nothing() -> anyhow::Result<()> {
    let values = "config.resourceFilters={[Event\\,*\\,*]},config.excludeGroups={system:nodes},\
                  config.excludeUsernames={!ann,b*},config.exemptNamespaces={kube-system,ci}";
    let (before, after) = (rendered(&[])?, rendered(&["--set", values])?);
    let is_file = |object: &&Value| object["metadata"]["name"] == "anteroom-exemptions";
    let others = |objects: &[Value]| -> Vec<Value> {
        let others = objects.iter().filter(|object| !is_file(object));
        others.cloned().collect()
    };
    ensure!(others(&before) == others(&after), "more than the ConfigMap");
    let file = after.iter().find(is_file).context("no ConfigMap")?;
    let file = file["data"]["exemptions.yaml"].as_str();
    let file: Value = serde_saphyr::from_str(file.context("no file")?)?;
    let expected = json!({
        "resourceFilters": ["[Event,*,*]"],
        "excludeGroups": ["system:nodes"],
        "excludeUsernames": ["!ann", "b*"],
        "exemptNamespaces": ["kube-system", "ci"],
    });
    ensure!(file == expected, "{file}");
    Ok(())
}

/// The API server takes all objects as they stand, and Pod Security "restricted" all pods.
async fn taken(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    ensure!(objects.len() > 30, "{} objects", objects.len());
    for object in objects {
        manifests::would_apply(&world.client, object).await?;
        let template = &object["spec"]["template"];
        if template["spec"]["containers"].is_array() {
            let mut spec = template["spec"].clone();
            let claims = object["spec"]["volumeClaimTemplates"].as_array();
            let volumes = claims.into_iter().flatten().map(|claim| {
                let name = &claim["metadata"]["name"];
                json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })
            });
            if let Some(there) = spec["volumes"].as_array_mut() {
                there.extend(volumes);
            }
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "spec": spec,
                "metadata": { "name": "a", "namespace": SYSTEM_NAMESPACE, "labels": template["metadata"]["labels"] },
            });
            manifests::would_apply(&world.client, &pod).await?;
        }
    }
    Ok(())
}

async fn anteroom(world: &World, identity: Identity, args: &[&str]) -> anyhow::Result<Output> {
    let kubeconfig = world.cluster.kubeconfig_file(identity)?;
    let mut command = tokio::process::Command::new(workspace_binary("anteroom")?);
    command.args(args).arg("--kubeconfig").arg(kubeconfig);
    command.envs(world.nats.logins().env("operator"));
    Ok(command.output().await?)
}

/// By its own rights, `anteroom init` makes each Secret once.
async fn keys_are_made_once(world: &World) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), SYSTEM_NAMESPACE);
    let versions = async || -> anyhow::Result<Vec<_>> {
        let all = secrets.list(&Default::default()).await?.items;
        let of = |secret: &Secret| (secret.name_any(), secret.resource_version());
        Ok(all.iter().map(of).collect())
    };
    let init = || anteroom(world, Identity::Init, &["init"]);
    text_of(init().await?)?;
    let made = versions().await?;
    // The server's, six logins', and the webhook's.
    ensure!(made.len() == 8, "{made:?}");
    text_of(init().await?)?;
    ensure!(versions().await? == made, "made again");
    // As installed here, its account has no right to read the Secrets of the two keys.
    text_of(anteroom(world, Identity::Admin, &["init", "--secret-keys"]).await?)?;
    ensure!(versions().await?.len() == 10, "no keys");
    // A login that is lost is made alone; without the server's, all are made anew.
    for lost in ["anteroom-nats-operator", "anteroom-nats-server"] {
        secrets.delete(lost, &DeleteParams::default()).await?;
        text_of(init().await?)?;
        logins_are_known(&secrets).await?;
    }
    Ok(())
}

/// The server knows the key of each login.
async fn logins_are_known(secrets: &Api<Secret>) -> anyhow::Result<()> {
    let server = "anteroom-nats-server";
    let seed = async |login: &str| -> anyhow::Result<String> {
        let secret = secrets.get(&format!("anteroom-nats-{login}")).await?;
        let data = secret.data.context("data")?;
        Ok(String::from_utf8(data["seed"].0.clone())?)
    };
    let data = secrets.get(server).await?.data.context("data")?;
    let known = String::from_utf8(data["keys.conf"].0.clone())?;
    for login in anteroom_keys::LOGINS {
        let public = anteroom_keys::public_key(&seed(login).await?)?;
        ensure!(known.contains(&public), "{login} is not known");
    }
    Ok(())
}

/// Returns the exit code of `anteroom check`, and the checks that failed or were not asked.
async fn checked(
    world: &World,
    by: Identity,
    args: &[&str],
) -> anyhow::Result<(Option<i32>, Vec<String>)> {
    let args = [&["check", "-o", "json"], args].concat();
    let output = anteroom(world, by, &args).await?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let categories = said["categories"].as_array().into_iter().flatten();
    let checks = categories.filter_map(|category| category["checks"].as_array());
    let failed = checks
        .flatten()
        .filter(|check| check["result"] == "error" || check["result"] == "not asked");
    let ids = failed.filter_map(|check| Some(check["id"].as_str()?.to_owned()));
    Ok((output.status.code(), ids.collect()))
}

/// The services run, and their Deployments are not there; then they are.
async fn checks_find_what_is_wrong(world: &World) -> anyhow::Result<()> {
    let before = checked(world, Identity::Admin, &["--pre"]).await?;
    ensure!(before == (Some(0), vec![]), "{before:?}");
    // Webhooks at a URL, and no Deployment: the services run outside of the cluster.
    let outside = checked(world, Identity::Admin, &[]).await?;
    let not_asked = ["parts-available", "parts-version", "webhooks-reached"];
    let expected = (Some(0), not_asked.map(str::to_owned).to_vec());
    ensure!(outside == expected, "{outside:?}");

    for object in manifests::installed()? {
        let kind = object["kind"].as_str().unwrap_or_default();
        if matches!(kind, "Deployment" | "StatefulSet") {
            manifests::apply(&world.client, &object).await?;
            let replicas = &object["spec"]["replicas"];
            let status = json!({ "replicas": replicas, "readyReplicas": replicas });
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let patch = Patch::Merge(json!({ "status": status }));
            let of = world.api(&object);
            of.patch_status(name, &Default::default(), &patch).await?;
        }
    }
    manifests::apply(
        &world.client,
        &json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "anteroom-webhook-1", "namespace": SYSTEM_NAMESPACE,
                "labels": { "kubernetes.io/service-name": "anteroom-webhook" } },
            "endpoints": [{ "addresses": ["192.0.2.7"], "conditions": { "ready": true } }],
        }),
    )
    .await?;
    // The reporter has a Deployment, and does not run.
    let expected = (Some(1), vec!["reports-leader".to_owned()]);
    wait::until("one finding", async || {
        let found = checked(world, Identity::Admin, &[]).await?;
        ensure!(found == expected, "{found:?}");
        Ok(())
    })
    .await?;
    reporter_leads(world, "reporter-1").await?;
    let after = checked(world, Identity::Admin, &["--wait", "30s"]).await?;
    ensure!(after == (Some(0), vec![]), "{after:?}");
    let of_secrets = ["parts-keys", "webhooks-trusted", "webhooks-certificate"];
    apply_but(world, "templates/tests/check.yaml", "Pod").await?;
    reporter_leads(world, "reporter-2").await?;
    let by_helm = checked(world, Identity::Check, &["--wait", "30s"]).await?;
    let expected = (Some(0), of_secrets.map(str::to_owned).to_vec());
    ensure!(by_helm == expected, "{by_helm:?}");

    let broken = json!({
        "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry", "metadata": { "name": "broken" },
        "spec": { "resource": { "group": "example.com", "version": "v1", "kind": "things" } },
    });
    manifests::apply(&world.client, &broken).await?;
    let found = checked(world, Identity::Admin, &["--only", "entries"]).await?;
    ensure!(
        found == (Some(1), vec!["entries-ready".to_owned()]),
        "{found:?}"
    );
    manifests::delete(&world.client, &broken).await
}

/// Writes the lease as a reporter does that has just taken it.
async fn reporter_leads(world: &World, holder: &str) -> anyhow::Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "anteroom-reporter", "namespace": SYSTEM_NAMESPACE },
        "spec": { "holderIdentity": holder },
    });
    manifests::apply(&world.client, &lease).await
}

/// Applies a template's objects, but those of a kind.
async fn apply_but(world: &World, template: &str, kind: &str) -> anyhow::Result<()> {
    let objects = rendered(&["--show-only", template])?;
    for object in objects.iter().filter(|object| object["kind"] != kind) {
        manifests::apply(&world.client, object).await?;
    }
    Ok(())
}

/// `anteroom uninstall` takes the webhook out of the way while objects are written: none is refused that should not be.
async fn leaves_without_a_refusal(world: &mut World) -> anyhow::Result<()> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let registered = configurations.get("anteroom").await?;
    let role = roles.get("anteroom-webhook").await?;
    let owners = registered.owner_references();
    ensure!(
        owners
            .iter()
            .any(|owner| Some(&owner.uid) == role.metadata.uid.as_ref()),
        "{owners:?}"
    );

    apply_but(world, "templates/uninstall.yaml", "Job").await?;
    let stop = CancellationToken::new();
    let leaving = async {
        let run = anteroom(world, Identity::Uninstall, &["uninstall"]).await;
        stop.cancel();
        text_of(run?)
    };
    let (written, said) = tokio::try_join!(writes(world, &stop), leaving)?;
    ensure!(written > 50, "{written} writes");
    for gone in [
        "ValidatingWebhookConfiguration anteroom",
        "ClusterRoleBinding anteroom-webhook",
    ] {
        ensure!(said.contains(&format!("{gone}: deleted")), "{said}");
    }
    ensure!(configurations.get_opt("anteroom").await?.is_none());
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    ensure!(bindings.get_opt("anteroom-webhook").await?.is_none());
    // The services may go in any order now.
    world.system.webhook.process.kill()?;
    world.create(&ingress(9_999, &host(7))).await?;
    Ok(())
}

/// A release is changed, taken back and removed. Without hooks, since nobody runs Jobs here.
async fn helm_changes_it_and_keeps_policies(world: &World) -> anyhow::Result<()> {
    let kubeconfig = world.cluster.kubeconfig_file(Identity::Admin)?;
    let release = async |args: &[&str]| -> anyhow::Result<()> {
        let mut command = tokio::process::Command::new(real_part("helm")?);
        command
            .current_dir(root())
            .args(args)
            .args(["--namespace", SYSTEM_NAMESPACE, "--no-hooks"])
            .env("KUBECONFIG", &kubeconfig);
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(home, world.folder.path().join("helm"));
        }
        text_of(command.output().await?).with_context(|| format!("helm {args:?}"))?;
        Ok(())
    };
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), SYSTEM_NAMESPACE);
    let watchers = async || -> anyhow::Result<_> {
        let watcher = deployments.get("anteroom-watcher").await?;
        Ok(watcher.spec.and_then(|spec| spec.replicas))
    };
    // Definitions and roles are there already, and become the release's.
    release(&["install", "anteroom", "deploy/chart", "--take-ownership"]).await?;
    ensure!(watchers().await? == Some(2));
    let more = ["--reuse-values", "--set", "watcher.replicas=3"];
    release(&[&["upgrade", "anteroom", "deploy/chart"], &more[..]].concat()).await?;
    ensure!(watchers().await? == Some(3));
    release(&["rollback", "anteroom", "1"]).await?;
    ensure!(watchers().await? == Some(2));
    release(&["uninstall", "anteroom"]).await?;
    ensure!(deployments.get_opt("anteroom-watcher").await?.is_none());
    let policies = json!({ "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy" });
    ensure!(world.listed(&policies).await?.len() == 1, "the policy went");
    Ok(())
}

/// Writes objects that no policy is against, until `stop`. Returns how many there were.
async fn writes(world: &World, stop: &CancellationToken) -> anyhow::Result<usize> {
    let mut written = 0;
    while !stop.is_cancelled() {
        let number = 1_000 + written;
        world.create(&ingress(number, &host(number))).await?;
        written += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(written)
}
