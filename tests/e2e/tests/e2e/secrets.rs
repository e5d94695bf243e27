//! Secrets, on real parts: read by whom an administrator has allowed to and by nobody else, never in
//! the clear in NATS or on its disk, with keys that are changed without a gap.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anteroom_e2e::{
    check::condition,
    guard::{Asker, guard},
    manifests,
    process::workspace_binary,
    system::SystemPlan,
    wait,
    world::{NAMESPACE, World},
};
use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::process::Command;

/// The values that only those may know who were allowed to, before and after it is changed, and while keys
/// change.
const SECRETS: [&str; 3] = [
    "known-to-nobody-else-1b7e",
    "known-to-nobody-else-2c8f",
    "known-to-nobody-else-3d90",
];

/// A public value, which the search must find: it proves that the search works.
const PLAIN: &str = "known-to-everybody-5a61";

const READERS: &str = "clusterpolicy/allowed-*,cachedcontextentry/tokens";

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_sealed_and_read_by_the_allowed_alone() -> anyhow::Result<()> {
    let keys = KeysFile::new()?;
    keys.write(&["one"])?;
    let asker_keys = KeysFile::new()?;
    asker_keys.write(&["asker"])?;
    let seals = ("--seal-keys-file", keys.path.display().to_string());
    let asks = ("--asker-keys-file", asker_keys.path.display().to_string());
    let plan = SystemPlan {
        watcher_args: vec![
            ("--allow-secrets", READERS.to_owned()),
            seals.clone(),
            asks.clone(),
        ],
        replica_args: vec![seals, asks.clone()],
        webhook_args: vec![asks],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    manifests::apply(&world.client, &may_read_secrets()).await?;
    manifests::apply(&world.client, &secret(SECRETS[0])).await?;
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": NAMESPACE, "name": "settings" }, "data": { "text": PLAIN } });
    manifests::apply(&world.client, &settings).await?;
    for entry in ["tokens", "more-tokens"] {
        world.create(&entry_on_secrets(entry)).await?;
    }
    for policy in policies() {
        world.create(&policy).await?;
    }
    world.system.ready().await?;
    let asker = Asker::new(&world).await?;

    the_allowed_decide_by_content(&world, &asker).await?;
    nobody_else_reads_one(&world, &asker).await?;
    a_login_reads_none(&world, &asker_keys).await?;
    keys_change_without_a_gap(&mut world, &asker, &keys).await?;
    nothing_is_in_the_clear(&world)
}

fn may_read_secrets() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"],
            "verbs": ["get", "list", "watch"] }],
    })
}

fn secret(token: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": NAMESPACE, "name": "token" },
        "data": { "token": BASE64_STANDARD.encode(token) } })
}

fn entry_on_secrets(name: &str) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": name },
        "spec": { "resource": { "version": "v1", "kind": "secrets", "namespace": NAMESPACE } } })
}

/// Policies by every route to a Secret, allowed and not; and one that reads the plain ConfigMap.
fn policies() -> Vec<Value> {
    let one = "data.token | base64_decode(@)";
    let of_all = "items[?metadata.name == 'token'] | [0].data.token | base64_decode(@)";
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/token");
    let roads = [
        (
            "called",
            json!({ "apiCall": { "urlPath": path, "jmesPath": one } }),
        ),
        (
            "kept",
            json!({ "resourceCache": { "version": "v1", "kind": "secrets",
            "namespace": NAMESPACE, "jmesPath": of_all } }),
        ),
        (
            "entry",
            json!({ "cachedContextEntry": { "name": "tokens", "jmesPath": of_all } }),
        ),
    ];
    let mut policies = Vec::new();
    for (road, mut context) in roads {
        context["name"] = "token".into();
        // Policies are in the log as they are, so they must not hold what is searched for there.
        let first = SECRETS[0].replace("nobody-else", "*");
        let condition = json!({ "key": "{{ token }}", "operator": "Equals", "value": first });
        for who in ["allowed", "other"] {
            // Whoever may write policies may read the entries that were allowed to.
            if (who, road) != ("other", "entry") {
                let name = format!("{who}-{road}");
                policies.push(guard(&name, &context, "this token is known", &condition));
            }
        }
    }
    let context = json!({ "name": "settings", "configMap": {
        "namespace": NAMESPACE, "name": "settings" } });
    let condition = json!({ "key": "{{ settings.data.text }}", "operator": "Equals",
        "value": PLAIN });
    policies.push(guard("plain", &context, "it is plain", &condition));
    policies
}

const ALLOWED: [&str; 3] = ["allowed-called", "allowed-kept", "allowed-entry"];

/// Checks decisions by a call, by an inline collection and by an entry, from views.
async fn the_allowed_decide_by_content(world: &World, asker: &Asker) -> anyhow::Result<()> {
    condition(world, &entry_on_secrets("tokens"), "True", "").await?;
    for name in ALLOWED {
        let what = "refused by what a view says of the Secret";
        asker
            .until(name, what, |decided| {
                decided.message.contains("this token is known") && decided.fact()["from"] == "view"
            })
            .await?;
    }
    asker.refused("plain", "it is plain").await?;
    manifests::apply(&world.client, &secret(SECRETS[1])).await?;
    for name in ALLOWED {
        asker.admitted(name).await?;
    }
    manifests::apply(&world.client, &secret(SECRETS[0])).await?;
    for name in ALLOWED {
        asker.refused(name, "this token is known").await?;
    }
    Ok(())
}

/// The same Secret, by the same roads, is refused to whoever was not allowed to read it,
/// although a view has it.
async fn nobody_else_reads_one(world: &World, asker: &Asker) -> anyhow::Result<()> {
    condition(world, &entry_on_secrets("more-tokens"), "False", "AR115").await?;
    let mut read = Vec::new();
    for name in ["other-called", "other-kept"] {
        let policy = guard(name, &Value::Null, "", &Value::Null);
        condition(world, &policy, "False", "AR115").await?;
        let decided = asker.ask(name).await?;
        if decided.allowed || !decided.message.contains("AR115") {
            read.push(format!("{name}: {decided:?}"));
        }
    }
    ensure!(read.is_empty(), "{read:#?}");
    Ok(())
}

/// Whoever may ask on NATS, and has no asker key, gets nothing of a view of Secrets.
async fn a_login_reads_none(world: &World, keys: &KeysFile) -> anyhow::Result<()> {
    let asked = async |login: &str, keys: Option<&KeysFile>| {
        let mut command = Command::new(workspace_binary("anteroom")?);
        command
            .args(["query", "tokens", "items[].data.token"])
            .envs(world.nats.logins().env(login));
        if let Some(keys) = keys {
            command.arg("--asker-keys-file").arg(&keys.path);
        }
        let said = command.output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        anyhow::Ok((text(&said.stdout), text(&said.stderr)))
    };
    let other = KeysFile::new()?;
    other.write(&["other"])?;
    let token = BASE64_STANDARD.encode(SECRETS[0]);
    for (login, code) in [("webhook", "AR123"), ("reporter", "AR")] {
        for without in [None, Some(&other)] {
            let (printed, error) = asked(login, without).await?;
            ensure!(printed.is_empty(), "{login}: {printed}");
            ensure!(
                error.contains(code) && !error.contains(&token),
                "{login}: {error}"
            );
        }
    }
    let (printed, error) = asked("webhook", Some(keys)).await?;
    ensure!(printed.contains(&token), "{printed}{error}");
    Ok(())
}

/// A key is added, made the first, and the old one taken away; meanwhile every decision is
/// right. A replica that starts later reads all with the new key alone.
async fn keys_change_without_a_gap(
    world: &mut World,
    asker: &Asker,
    keys: &KeysFile,
) -> anyhow::Result<()> {
    let (stop, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let asking = tokio::spawn({
        let (stop, asked, asker) = (Arc::clone(&stop), Arc::clone(&asked), asker.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                for name in ALLOWED {
                    let decided = asker.ask(name).await?;
                    let right = decided.message.contains("this token is known");
                    ensure!(right, "{name}: {decided:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        }
    });
    for ring in [&["one", "two"][..], &["two", "one"], &["two"]] {
        keys.write(ring)?;
        keys_are_read(world, keys, ring).await?;
    }
    stop.store(true, Ordering::Relaxed);
    asking.await??;
    let asked = asked.load(Ordering::Relaxed);
    ensure!(asked > 100, "only {asked} decisions while the keys changed");

    let mut killed = world.system.replicas[0].take().context("replica 0 runs")?;
    let recipe = killed.recipe().clone();
    killed.process.kill()?;
    let mut again = recipe.start()?;
    again.ready().await?;
    world.system.replicas[0] = Some(again);
    // With the new key alone, by the new replica alone.
    let mut other = world.system.replicas[1].take().context("replica 1 runs")?;
    other.process.kill()?;
    for name in ALLOWED {
        asker.refused(name, "this token is known").await?;
    }
    manifests::apply(&world.client, &secret(SECRETS[2])).await?;
    for name in ALLOWED {
        asker.admitted(name).await?;
    }
    Ok(())
}

/// The watcher and the replicas say that they have read these keys of the file, in this order.
async fn keys_are_read(world: &World, file: &KeysFile, ring: &[&str]) -> anyhow::Result<()> {
    let path = file.path.to_str().context("a path in UTF-8")?;
    let says = ring
        .iter()
        .map(|id| format!("\"{id}\""))
        .collect::<Vec<_>>()
        .join(", ");
    for name in ["watcher", "replica-0", "replica-1"] {
        let log = world.folder.path().join(format!("{name}.log"));
        wait::until(&format!("{name} to have read [{says}]"), async || {
            let text = fs::read_to_string(&log)?.replace('\\', "");
            let last = text
                .lines()
                .rfind(|line| line.contains("keys read") && line.contains(path))
                .context("no word of keys")?;
            ensure!(last.contains(&format!("[{says}]")), "{last}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Neither NATS's disk nor any log holds a Secret, plain or as the API server writes it.
fn nothing_is_in_the_clear(world: &World) -> anyhow::Result<()> {
    let stores = ["nats-0", "nats-1", "nats-2"].map(|name| world.folder.path().join(name));
    for store in &stores {
        ensure!(found_in(store, PLAIN)? > 0, "the search finds nothing");
    }
    for token in SECRETS {
        for text in [token.to_owned(), BASE64_STANDARD.encode(token)] {
            for store in &stores {
                ensure!(found_in(store, &text)? == 0, "{text} is in the store");
            }
            for name in [
                "nats-0",
                "nats-1",
                "nats-2",
                "watcher",
                "replica-0",
                "replica-1",
                "webhook",
            ] {
                let log = world.folder.path().join(format!("{name}.log"));
                ensure!(found_in(&log, &text)? == 0, "{text} is in {name}'s log");
            }
        }
    }
    Ok(())
}

/// In how many files below a folder, or in this file, these bytes are.
fn found_in(path: &Path, text: &str) -> anyhow::Result<usize> {
    if path.is_dir() {
        let mut found = 0;
        for item in fs::read_dir(path)? {
            found += found_in(&item?.path(), text)?;
        }
        return Ok(found);
    }
    let bytes = fs::read(path)?;
    let held = bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes());
    Ok(usize::from(held))
}

/// A file of keys, as it is mounted.
struct KeysFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl KeysFile {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self {
            path: folder.path().join("keys"),
            _folder: folder,
        })
    }

    /// These keys, the first of which seals: swapped, as a mounted Secret is.
    fn write(&self, ids: &[&str]) -> anyhow::Result<()> {
        let line = |id: &&str| {
            let byte = id.bytes().map(u32::from).sum::<u32>() as u8;
            format!("{id} {}\n", BASE64_STANDARD.encode([byte; 32]))
        };
        let next = self.path.with_extension("next");
        fs::write(&next, ids.iter().map(line).collect::<String>())?;
        Ok(fs::rename(next, &self.path)?)
    }
}
