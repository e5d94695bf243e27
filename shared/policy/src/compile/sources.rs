//! Context entries that name a source with a view: entries, inline collections, ConfigMaps.

use anteroom_functions::values::duration_ns;
use anteroom_model::EntryKind;

use super::{
    context::EntryCompiler,
    fields::{Field, KnownFields, ManifestObject},
};
use crate::ir::{
    CollectionReference, Driver, ImageCredentials, SecretName,
    call::{ApiCall, ConfigMapCall, ImageCall, PathTemplate, ViewBackedPlan, check_name},
    context::{ContextFact, FactOrigin},
    template::Template,
};

/// Secrets that an entry may name.
const SECRETS_MAX: usize = 16;

/// The longest `maxStaleness`, a day: who accepts news older than that wants no news.
pub const STALENESS_MAX_MS: u64 = 24 * 60 * 60 * 1000;

const CACHED_ENTRY: KnownFields = KnownFields {
    evaluated: &["jmesPath", "jmespath", "maxStaleness", "name"],
    inert: &[],
    later: &[],
};

const RESOURCE_CACHE: KnownFields = KnownFields {
    evaluated: &[
        "fieldSelector",
        "group",
        "jmesPath",
        "jmespath",
        "kind",
        "labelSelector",
        "maxStaleness",
        "name",
        "namespace",
        "version",
    ],
    inert: &[],
    later: &[],
};

const CONFIG_MAP: KnownFields = KnownFields {
    evaluated: &["name", "namespace"],
    inert: &[],
    later: &[],
};

const IMAGE_REGISTRY: KnownFields = KnownFields {
    evaluated: &[
        "imageRegistryCredentials",
        "jmesPath",
        "jmespath",
        "reference",
    ],
    inert: &[],
    later: &[],
};

const REGISTRY_CREDENTIALS: KnownFields = KnownFields {
    evaluated: &["allowInsecureRegistry", "providers", "secrets"],
    inert: &[],
    later: &[],
};

impl EntryCompiler<'_> {
    /// Compiles `imageRegistry`.
    pub(super) fn image_registry(&mut self, field: &Field<'_>) -> Option<ContextFact> {
        let registry = field.object(&IMAGE_REGISTRY, self.problems)?;
        let reference = registry.required("reference", self.problems);
        let reference = reference.and_then(|field| self.template(&field));
        let query = self.query(&registry);
        let credentials = registry.get("imageRegistryCredentials");
        let credentials = credentials.map(|field| self.credentials(&field));
        Some(ContextFact {
            source: FactOrigin::Image(ImageCall {
                reference: reference?,
                credentials: ImageCredentials {
                    namespaced: self.home.is_some(),
                    ..credentials.unwrap_or_default()
                },
            }),
            query: query?,
            default: None,
            age_max_ms: None,
            id: self.problems.ids.next(),
        })
    }

    /// Compiles the credentials. A driver that signs in by files alone refuses all providers but `default`,
    /// which is the files. The operator decides which Secrets are mounted and which registries are reached by
    /// http; an image that cannot be read is an error of the rule.
    fn credentials(&mut self, field: &Field<'_>) -> ImageCredentials {
        let known: fn(Driver) -> bool = |driver| driver.image_providers;
        let Some(credentials) = field.object(&REGISTRY_CREDENTIALS, self.problems) else {
            return ImageCredentials::default();
        };
        let secrets = credentials.get("secrets");
        let secrets = secrets.map_or_else(Vec::new, |field| self.secrets(&field));
        let providers = credentials.get("providers");
        let providers = providers.map_or_else(Vec::new, |field| field.texts(self.problems));
        if providers.iter().any(|provider| provider != "default") {
            let message = "registries are signed in to by the watcher's `--registry-config` alone: \
                           mount what signs in there, and say `default` or nothing";
            self.problems
                .unsupported_unless(known, credentials.child("providers"), message);
        }
        let insecure = credentials.get("allowInsecureRegistry");
        let insecure = insecure.and_then(|field| field.boolean(self.problems));
        ImageCredentials {
            shared: secrets.is_empty() || providers.iter().any(|provider| provider == "default"),
            secrets,
            insecure: insecure.unwrap_or_default(),
            ..ImageCredentials::default()
        }
    }

    fn secrets(&mut self, field: &Field<'_>) -> Vec<SecretName> {
        let texts = field.texts(self.problems);
        if texts.len() > SECRETS_MAX {
            let message = format!("{} Secrets, over the limit of {SECRETS_MAX}", texts.len());
            self.problems.invalid(field.path(), message);
        }
        let mut names = Vec::new();
        for text in texts.iter().take(SECRETS_MAX) {
            match SecretName::parse(text) {
                Some(name) => names.extend(self.own_secret(field, name)),
                None => self.problems.invalid(
                    field.path(),
                    format!("`{text}` is no name of a Secret, as in `NAME` or `NAMESPACE/NAME`"),
                ),
            }
        }
        names
    }

    /// Returns the Secret with this name. A `Policy` names Secrets of its own namespace.
    fn own_secret(&mut self, field: &Field<'_>, name: SecretName) -> Option<SecretName> {
        let Some(home) = self.home else {
            return Some(name);
        };
        let message = format!(
            "Secret `{name}` is not in policy namespace {home:?}: a Policy signs in by Secrets of its own"
        );
        let own = name.within(home);
        if own.is_none() {
            self.problems.forbidden(field.path(), message);
        }
        own
    }

    pub(super) fn cached_entry(&mut self, field: &Field<'_>) -> Option<ContextFact> {
        let cached = field.object(&CACHED_ENTRY, self.problems)?;
        let name = cached.required("name", self.problems);
        let name = name.and_then(|field| field.plain_text(self.problems));
        let (query, age_max_ms) = (self.query(&cached), self.age_max_ms(&cached));
        Some(ContextFact {
            source: FactOrigin::Entry {
                kind: EntryKind::Cached,
                name: Template::literal(&name?),
            },
            query: query?,
            default: None,
            age_max_ms: age_max_ms?,
            id: self.problems.ids.next(),
        })
    }

    pub(super) fn global_reference(&mut self, field: &Field<'_>) -> Option<ContextFact> {
        let reference = field.object(&CACHED_ENTRY, self.problems)?;
        let name = reference.get("name");
        let name = name.filter(|name| name.value().as_str() != Some(""));
        if name.is_none() {
            // As Kyverno's own schema says it.
            let message = "Required value: the name of a GlobalContextEntry, or entry.projection";
            self.problems.invalid(reference.child("name"), message);
        }
        let name = name.and_then(|field| self.template(&field));
        let (query, age_max_ms) = (self.query(&reference), self.age_max_ms(&reference));
        Some(ContextFact {
            source: FactOrigin::Entry {
                kind: EntryKind::Global,
                name: name?,
            },
            query: query?,
            default: None,
            age_max_ms: age_max_ms?,
            id: self.problems.ids.next(),
        })
    }

    /// Compiles an inline collection, or an object of a collection. The collection is kept before the first request,
    /// so its fields cannot have variables of a request.
    pub(super) fn resource_cache(&mut self, field: &Field<'_>) -> Option<ContextFact> {
        let cache = field.object(&RESOURCE_CACHE, self.problems)?;
        cache.required("kind", self.problems);
        let mut fixed = |name| self.fixed(&cache, name);
        let (group, version) = (fixed("group"), fixed("version"));
        let (kind, namespace, name) = (fixed("kind"), fixed("namespace"), fixed("name"));
        let (labels, fields) = (fixed("labelSelector"), fixed("fieldSelector"));
        let (query, age_max_ms) = (self.query(&cache), self.age_max_ms(&cache));
        let group = self.group(&cache, group?);
        let namespace = self.within_home(&cache, namespace?);
        let collection = CollectionReference {
            group: group?,
            version: version?,
            resource: kind??,
            namespace: namespace?.unwrap_or_default(),
            label_selector: labels?.unwrap_or_default(),
            field_selector: fields?.unwrap_or_default(),
            declared: true,
            inline: true,
        };
        Some(ContextFact {
            source: match name? {
                Some(name) => self.one_object(&cache, &collection, &name)?,
                None => FactOrigin::Collection(collection),
            },
            query: query?,
            default: None,
            age_max_ms: age_max_ms?,
            id: self.problems.ids.next(),
        })
    }

    /// A text without variables, if it is given.
    fn fixed(&mut self, object: &ManifestObject<'_>, name: &str) -> Option<Option<String>> {
        let Some(field) = object.get(name) else {
            return Some(None);
        };
        let text = field.text(self.problems)?;
        if text.contains("{{") {
            self.problems.invalid(
                field.path(),
                "no variable can stand here: what is kept is kept before any request comes. Use a \
                 variable in `jmesPath`, or an `apiCall`",
            );
            return None;
        }
        let is_path_part = !matches!(name, "group" | "labelSelector" | "fieldSelector");
        if is_path_part && let Err(message) = check_name(text) {
            self.problems.invalid(field.path(), message);
            return None;
        }
        Some(Some(text.to_owned()))
    }

    /// Compiles the group, as in `networking.k8s.io`. It may also be written as the beginning of a path.
    fn group(
        &mut self,
        cache: &ManifestObject<'_>,
        group: Option<String>,
    ) -> Option<Option<String>> {
        let Some(group) = group else {
            return Some(None);
        };
        let short = group.strip_prefix("apis/").unwrap_or(&group);
        if short.contains('/') {
            let message = format!("`{group}` is no group: the version stands in `version`");
            self.problems.invalid(cache.child("group"), message);
            return None;
        }
        let is_core = matches!(short, "" | "core" | "api");
        Some(Some(if is_core { "" } else { short }.to_owned()))
    }

    /// A `Policy` without a namespace here means its own namespace.
    fn within_home(
        &mut self,
        cache: &ManifestObject<'_>,
        namespace: Option<String>,
    ) -> Option<Option<String>> {
        match (self.home, namespace) {
            (Some(home), Some(other)) if home != other => {
                let message = format!(
                    "resourceCache namespace {other:?} is different from policy namespace {home:?}: \
                     a Policy reads nothing outside its own"
                );
                self.problems.forbidden(cache.child("namespace"), message);
                None
            }
            (home, namespace) => Some(namespace.or(home.map(str::to_owned))),
        }
    }

    /// Returns the origin of a source with a name: a GET of the object's path.
    fn one_object(
        &mut self,
        cache: &ManifestObject<'_>,
        of: &CollectionReference,
        name: &str,
    ) -> Option<FactOrigin> {
        let (Some(group), Some(version)) = (&of.group, &of.version) else {
            let message =
                "with a name, group and version are required (`group: \"\"` for the core group)";
            self.problems.invalid(cache.child("name"), message);
            return None;
        };
        if !of.label_selector.is_empty() || !of.field_selector.is_empty() {
            let message = "with a name there is nothing to select";
            self.problems.invalid(cache.child("name"), message);
            return None;
        }
        let prefix = match group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let resource = &of.resource;
        let text = match of.namespace.as_str() {
            "" => format!("{prefix}/{resource}/{name}"),
            namespace => format!("{prefix}/namespaces/{namespace}/{resource}/{name}"),
        };
        let path = PathTemplate::parse(&Template::literal(&text), true);
        let found = path.and_then(|path| {
            let by_view = ViewBackedPlan::of(&path, self.home, true, true)?;
            Ok((path, by_view))
        });
        match found {
            Ok((path, by_view)) => Some(FactOrigin::Api(ApiCall {
                path,
                data: None,
                by_view: Some(by_view),
            })),
            Err(message) => {
                self.problems.invalid(cache.path(), message);
                None
            }
        }
    }

    pub(super) fn config_map(&mut self, field: &Field<'_>) -> Option<ContextFact> {
        let config_map = field.object(&CONFIG_MAP, self.problems)?;
        let name = config_map.required("name", self.problems);
        let name = name.and_then(|field| self.name_template(&field));
        let namespace = match config_map.get("namespace") {
            Some(field) if field.value().as_str() != Some("") => self.name_template(&field),
            _ => Some(Template::literal("")),
        };
        let (name, namespace) = (name?, namespace?);
        let other = namespace.fixed().filter(|other| !other.is_empty());
        if let (Some(home), Some(other)) = (self.home, other)
            && home != other
        {
            let message = format!(
                "configMap namespace {other:?} is different from policy namespace {home:?}: a Policy \
                 reads nothing outside its own"
            );
            self.problems
                .forbidden(config_map.child("namespace"), message);
        }
        Some(ContextFact {
            source: FactOrigin::ConfigMap(ConfigMapCall { namespace, name }),
            query: None,
            default: None,
            age_max_ms: None,
            id: self.problems.ids.next(),
        })
    }

    /// Returns the name of one object or entry, in which variables may stand.
    fn name_template(&mut self, field: &Field<'_>) -> Option<Template> {
        let template = self.template(field)?;
        if let Err(message) = check_name(&template.sample("x")) {
            self.problems.invalid(field.path(), message);
        }
        Some(template)
    }

    /// `maxStaleness`. `None` after a problem.
    pub(super) fn age_max_ms(&mut self, object: &ManifestObject<'_>) -> Option<Option<u64>> {
        let Some(field) = object.get("maxStaleness") else {
            return Some(None);
        };
        let text = field.text(self.problems)?;
        let age_ms = duration_ns(text).and_then(|ns| u64::try_from(ns / 1_000_000).ok());
        if let Some(age_ms) = age_ms
            && (1..=STALENESS_MAX_MS).contains(&age_ms)
        {
            return Some(Some(age_ms));
        }
        let message = format!("`{text}` is no duration from 1ms to 24h, as in `5s` or `1m30s`");
        self.problems.invalid(field.path(), message);
        None
    }
}
