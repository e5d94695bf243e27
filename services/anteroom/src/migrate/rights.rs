//! The rights that the watcher needs beyond those of the chart. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anteroom_policy::{KindPattern, Policy, ReadSource, Reference, Rule};
use serde_json::{Value, json};

use super::{
    installation::{Installation, text, title},
    kinds::{self, GroupResource, Kinds},
    yaml,
};

/// The resources that the chart lets the watcher read (`watcher.rbac.sources`): group and plurals.
pub(super) const SOURCES: [(&str, &[&str]); 6] = [
    (
        "",
        &[
            "configmaps",
            "namespaces",
            "pods",
            "replicationcontrollers",
            "services",
        ],
    ),
    (
        "apps",
        &["daemonsets", "deployments", "replicasets", "statefulsets"],
    ),
    ("batch", &["cronjobs", "jobs"]),
    ("networking.k8s.io", &["ingresses"]),
    ("policy", &["poddisruptionbudgets"]),
    (
        "rbac.authorization.k8s.io",
        &["clusterrolebindings", "rolebindings"],
    ),
];

/// Labels by which the watcher's two roles take up others.
const READS: &str = "anteroom.dev/aggregate-to-watcher";
const WRITES: &str = "anteroom.dev/aggregate-to-watcher-writes";

/// The verbs that a view needs.
const VIEW: [&str; 3] = ["get", "list", "watch"];

/// The groups whose reviews are created to be answered, and never kept. No other right to create is proposed.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Names in a comment; more are counted.
const NAMES_MAX: usize = 5;

/// The verbs that are granted on a resource, and for whom.
#[derive(Debug, Default)]
struct Grant {
    verbs: BTreeSet<&'static str>,
    whose: BTreeSet<String>,
}

/// The policy or entry that needs a right.
#[derive(Clone, Copy)]
struct Needing<'n> {
    /// Its kind and name.
    title: &'n str,
    /// The namespace of a policy that is about no other.
    home: Option<&'n str>,
}

/// The rights of one role.
type Grants = BTreeMap<GroupResource, Grant>;

/// The rights that the watcher needs.
#[derive(Debug, Default)]
pub(super) struct Rights {
    reads: Grants,
    scans: Grants,
    writes: Grants,
    /// The points to look at by hand, in sentences.
    pub(super) by_hand: BTreeSet<String>,
}

impl Rights {
    /// Returns the rights that policies and entries need; `scans`: also those to evaluate what exists.
    pub(super) fn of(
        installation: &Installation,
        policies: &[(String, Policy)],
        scans: bool,
    ) -> Self {
        let (mut rights, kinds) = (Self::default(), &installation.kinds);
        for entry in &installation.entries {
            rights.entry(entry, kinds);
        }
        for (title, policy) in policies {
            let whose = Needing {
                title,
                home: policy.namespace(),
            };
            for rule in policy.rules() {
                rights.rule(rule, whose, kinds);
            }
            let scanned = policy.scanned_kinds();
            for kind in scanned.iter().filter(|_| scans) {
                rights.kind(kind, whose, kinds);
            }
        }
        // What is read for a policy need not be granted once more.
        let Self { reads, scans, .. } = &mut rights;
        scans.retain(|resource, _| !reads.contains_key(resource));
        rights
    }

    fn entry(&mut self, entry: &Value, kinds: &Kinds) {
        let (title, spec) = (title(entry), &entry["spec"]);
        let whose = Needing {
            title: &title,
            home: None,
        };
        // Of a GlobalContextEntry, and of a CachedContextEntry. The latter may leave the group to the API server.
        let (global, cached) = (&spec["kubernetesResource"], &spec["resource"]);
        let path = text(spec, "/apiCall/urlPath");
        if global.is_object() {
            let (group, plural) = (text(global, "/group"), text(global, "/resource"));
            let found = kinds.resource(Some(&group), &plural);
            self.read(found, &VIEW, whose, || plural.clone());
        } else if cached.is_object() {
            let kind = text(cached, "/kind");
            let found = kinds.resource(cached["group"].as_str(), &kind);
            self.read(found, &VIEW, whose, || kind.clone());
        } else if !path.is_empty() {
            self.call(&path, spec["apiCall"]["method"] == "POST", whose);
        }
    }

    fn rule(&mut self, rule: &Rule, whose: Needing<'_>, kinds: &Kinds) {
        for read in rule.reads() {
            match &read.source {
                ReadSource::Kept { reference, .. } | ReadSource::Around { reference, .. } => {
                    let (group, resource) = match reference {
                        Reference::Collection(all) => (all.group.as_deref(), &*all.resource),
                        Reference::Object(one) => (Some(&*one.group), &*one.resource),
                        Reference::LabelledConfigMaps => (Some(""), "configmaps"),
                    };
                    let found = kinds.resource(group, resource);
                    self.read(found, &VIEW, whose, || reference.name());
                }
                ReadSource::Call { path, is_post } => self.call(path, *is_post, whose),
                // Of an entry the entry says it. ConfigMaps are granted. The others are outside of the cluster.
                ReadSource::Entry { .. }
                | ReadSource::ConfigMap { .. }
                | ReadSource::Image { .. }
                | ReadSource::Service => {}
            }
        }
        if !rule.changes_existing() {
            return;
        }
        for trigger in rule.kinds() {
            let found = kinds.resource(Some(&trigger.group), name_of(trigger));
            self.read(found, &VIEW, whose, || trigger.to_string());
        }
        for target in rule.targets_of_existing() {
            let name = match &*target.resource {
                "" => &target.kind,
                plural => plural,
            };
            let is_one = |text: &str| !text.is_empty() && !text.contains(['*', '?']);
            let verbs: &[_] = match is_one(&target.name) && is_one(&target.namespace) {
                true => &["get", "update"],
                false => &["get", "list", "update"],
            };
            match kinds.resource(Some(&target.group), name) {
                Some(resource) => {
                    if let Some(resource) = self.grantable(resource, whose, "changes") {
                        grant(&mut self.writes, resource, verbs, whose);
                    }
                }
                None => self.leave_by_hand(whose, &target.to_string(), "changes"),
            }
        }
    }

    fn kind(&mut self, kind: &KindPattern, whose: Needing<'_>, kinds: &Kinds) {
        // Of a subresource nothing is stored.
        if !matches!(&*kind.subresource, "" | "*") {
            return;
        }
        match kinds.resource(Some(&kind.group), name_of(kind)) {
            // Never scanned, as the reporter has it.
            Some((group, plural)) if is_never_scanned(&group, &plural) => {}
            Some(resource) if is_granted(&resource) => {}
            Some(resource) => {
                if let Some(resource) = self.grantable(resource, whose, "is about, in scans,") {
                    grant(&mut self.scans, resource, &VIEW, whose);
                }
            }
            None => self.leave_by_hand(whose, &kind.to_string(), "is about, in scans,"),
        }
    }

    /// A call that no view answers.
    fn call(&mut self, path: &str, is_post: bool, whose: Needing<'_>) {
        match kinds::of_path(path) {
            Some((resource, verb)) if !is_post => {
                self.read(Some(resource), &[verb], whose, String::new);
            }
            Some((resource, _)) if REVIEWS.contains(&&*resource.0) => {
                self.read(Some(resource), &["create"], whose, String::new);
            }
            Some(_) => {
                let title = whose.title;
                self.by_hand.insert(format!(
                    "{title} posts to `{path}`, which may make an object. Allow it only if you mean that."
                ));
            }
            None => self.leave_by_hand(whose, path, "reads"),
        }
    }

    fn read(
        &mut self,
        resource: Option<GroupResource>,
        verbs: &[&'static str],
        whose: Needing<'_>,
        written: impl FnOnce() -> String,
    ) {
        match resource {
            Some(resource)
                if is_granted(&resource) && verbs.iter().all(|verb| VIEW.contains(verb)) => {}
            Some(resource) => {
                if let Some(resource) = self.grantable(resource, whose, "reads") {
                    grant(&mut self.reads, resource, verbs, whose);
                }
            }
            None => self.leave_by_hand(whose, &written(), "reads"),
        }
    }

    /// Returns the resource if a right to it may be proposed for all namespaces. Otherwise notes why not.
    fn grantable(
        &mut self,
        resource: GroupResource,
        whose: Needing<'_>,
        does: &str,
    ) -> Option<GroupResource> {
        let Needing { title, home } = whose;
        let (group, plural) = &resource;
        if group.is_empty() && is_secrets(plural) {
            self.by_hand.insert(format!(
                "{title} {does} Secrets. Nothing here allows it: see docs/install.md#secrets."
            ));
            return None;
        }
        let Some(home) = home else {
            return Some(resource);
        };
        let of_group = if group.is_empty() { "" } else { "." };
        self.by_hand.insert(format!(
            "{title} {does} `{plural}{of_group}{group}` in {home} alone: allow it there, by a Role and a RoleBinding to the \
             watcher's ServiceAccount."
        ));
        None
    }

    fn leave_by_hand(&mut self, whose: Needing<'_>, what: &str, does: &str) {
        let title = whose.title;
        self.by_hand.insert(format!(
            "{title} {does} `{what}`: which resources that is, only a cluster can tell. Add a rule for them."
        ));
    }

    /// The roles by name, each with the label by which another role takes it up.
    fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, &Grants)> {
        let all = [
            ("anteroom-reads-for-policies", READS, &self.reads),
            ("anteroom-reads-for-scans", READS, &self.scans),
            ("anteroom-writes-for-policies", WRITES, &self.writes),
        ];
        all.into_iter().filter(|(.., grants)| !grants.is_empty())
    }

    /// Returns the roles, those with a rule in them.
    pub(super) fn roles(&self) -> Vec<Value> {
        let roles = self.named().map(|(name, label, grants)| {
            let rules = grants.iter().map(rule);
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": name, "labels": { label: "true" } },
                "rules": rules.collect::<Vec<_>>(),
            })
        });
        roles.collect()
    }

    /// Returns the roles as a file, with whom each rule is for.
    pub(super) fn yaml(&self) -> String {
        let mut page = yaml::comment(
            "What Anteroom's watcher has to be allowed for these policies and entries, beyond the chart's own roles \
             (watcher.rbac.sources). See docs/install.md#what-the-watcher-may-read. Read it before you apply it.",
            0,
        );
        for sentence in &self.by_hand {
            page.push_str(&yaml::comment(&format!("Not here: {sentence}"), 0));
        }
        if self.named().next().is_none() {
            page.push_str(&yaml::comment("Nothing else is needed.", 0));
        }
        for (name, label, grants) in self.named() {
            let _ = write!(
                page,
                "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\n  \
                 labels: {{{label}: \"true\"}}\nrules:\n"
            );
            for granted in grants {
                page.push_str(&yaml::comment(
                    &format!("For {}.", names(&granted.1.whose)),
                    2,
                ));
                let _ = writeln!(page, "  - {}", yaml::flow(&rule(granted)));
            }
        }
        page
    }
}

fn rule(((group, plural), grant): (&GroupResource, &Grant)) -> Value {
    json!({ "apiGroups": [group], "resources": [plural], "verbs": grant.verbs })
}

fn name_of(kind: &KindPattern) -> &str {
    kind.resource
        .as_ref()
        .map_or(&kind.kind, |resource| &resource.plural)
}

fn is_secrets(plural: &str) -> bool {
    let first = plural.split('/').next();
    first.is_some_and(|plural| plural.eq_ignore_ascii_case("secrets"))
}

fn is_never_scanned(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("", "secrets" | "events") | ("events.k8s.io", _) | ("coordination.k8s.io", "leases")
    )
}

fn is_granted((group, plural): &GroupResource) -> bool {
    SOURCES
        .iter()
        .any(|(own, plurals)| own == group && plurals.contains(&&**plural))
}

fn grant(grants: &mut Grants, resource: GroupResource, verbs: &[&'static str], whose: Needing<'_>) {
    let grant = grants.entry(resource).or_default();
    grant.verbs.extend(verbs);
    grant.whose.insert(whose.title.to_owned());
}

fn names(whose: &BTreeSet<String>) -> String {
    let named: Vec<_> = whose.iter().take(NAMES_MAX).map(String::as_str).collect();
    match whose.len().saturating_sub(NAMES_MAX) {
        0 => named.join(", "),
        more => format!("{}, and {more} more", named.join(", ")),
    }
}
