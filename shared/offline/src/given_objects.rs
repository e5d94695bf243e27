//! The given objects, as an API server would list and get them.

use std::collections::HashSet;

use anteroom_model::{FactError, LabelSelector, NameSelector, ObjectKey};
use anteroom_policy::{CollectionReference, Reference};
use serde_json::{Value, json};

use crate::{
    facts::{Unanswered, World, nothing, unknown},
    resource::Resource,
};

/// A type of objects, as whoever reads them names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectType<'a> {
    /// `None`: of whatever group is given. Empty: of the core group.
    pub(crate) group: Option<&'a str>,
    /// The plural or the kind.
    pub(crate) name: &'a str,
}

impl<'a> ObjectType<'a> {
    pub(crate) fn new(group: &'a str, name: &'a str) -> Self {
        let group = Some(group);
        Self { group, name }
    }

    pub(crate) fn of(collection: &'a CollectionReference) -> Self {
        Self {
            group: collection.group.as_deref(),
            name: &collection.resource,
        }
    }

    fn is_of(self, own: &Resource) -> bool {
        self.group.is_none_or(|group| group == own.group)
            && (own.kind.eq_ignore_ascii_case(self.name) || own.plural() == self.name)
    }
}

impl World {
    /// Every given object, targets first, then resources, then those of a `Context` file.
    fn all(&self) -> impl Iterator<Item = &Resource> {
        let context = self.context.iter().flat_map(|context| &context.resources);
        let given = self.targets.iter().chain(&self.resources);
        given.chain(context)
    }

    /// The given objects that are meant, targets first, each once. An object that is given more than once is
    /// what stands first.
    pub(crate) fn given(&self, is_meant: impl Fn(&Resource) -> bool) -> Vec<&Resource> {
        let mut seen = HashSet::new();
        let all = self.all();
        all.filter(|own| is_meant(own) && seen.insert(own.identity()))
            .collect()
    }

    pub(crate) fn collection(&self, of: &CollectionReference) -> Result<Value, Unanswered> {
        let (Ok(fields), Ok(labels)) = (
            NameSelector::parse(&of.field_selector),
            LabelSelector::parse(&of.label_selector),
        ) else {
            // Of other fields only an API server knows.
            let name = Reference::Collection(of.clone()).name();
            return Err(self.unanswered(ObjectType::of(of), &name));
        };
        self.list_selected(ObjectType::of(of), &of.namespace, |own| {
            let own_labels = &own.value["metadata"]["labels"];
            fields.matches(&own.namespace, &own.name)
                && labels.matches(|name| own_labels.get(name)?.as_str())
        })
    }

    /// Returns a collection as rules see a kept collection: the list, also under its plural.
    pub(crate) fn document(&self, of: &CollectionReference) -> Result<Value, Unanswered> {
        let list = self.collection(of)?;
        let wanted = ObjectType::of(of);
        let first = self.given(|own| wanted.is_of(own)).into_iter().next();
        Ok(with_plural(list, first))
    }

    /// The Namespace of this name. It is no entry of a context, which could be gone on without.
    pub(crate) fn namespace(&self, name: &str) -> Result<&Value, FactError> {
        let key = ObjectKey::new("", name);
        self.object(ObjectType::new("", "namespaces"), &key)
            .map_err(|why| match why {
                Unanswered::Nothing(error) | Unanswered::Failed(error) => error,
                Unanswered::Given => unknown(name),
            })
    }

    /// The error of `what`, which reads objects of a type.
    pub(crate) fn unanswered(&self, of: ObjectType<'_>, what: &str) -> Unanswered {
        match self.given(|own| of.is_of(own)).is_empty() {
            true => nothing(what),
            false => unknown(what).into(),
        }
    }

    /// The given objects of a type that are selected, in a namespace or in all: of a type of which none is given,
    /// nothing is known.
    pub(crate) fn list_selected(
        &self,
        of: ObjectType<'_>,
        namespace: &str,
        is_selected: impl Fn(&Resource) -> bool,
    ) -> Result<Value, Unanswered> {
        let of_type = self.given(|own| of.is_of(own));
        let Some(first) = of_type.first() else {
            return Err(nothing(of.name));
        };
        if of_type.iter().any(|own| own.group != first.group) {
            let groups = format!("which group's {} are meant", of.name);
            return Err(unknown(&groups).into());
        }
        let is_inside = |own: &&&Resource| namespace.is_empty() || own.namespace == namespace;
        let items: Vec<_> = of_type
            .iter()
            .filter(is_inside)
            .filter(|own| is_selected(own))
            .map(|own| &own.value)
            .collect();
        Ok(json!({
            "apiVersion": first.value["apiVersion"], "kind": format!("{}List", first.kind), "items": items,
        }))
    }

    pub(crate) fn object(&self, of: ObjectType<'_>, key: &ObjectKey) -> Result<&Value, Unanswered> {
        let mut all = self.all();
        let found = all.find(|own| own.is_at(&key.namespace, &key.name) && of.is_of(own));
        found
            .map(|own| &own.value)
            .ok_or_else(|| self.unanswered(of, &format!("{} {key}", of.name)))
    }
}

/// A list that stands once more under the plural of its first object's kind.
pub(crate) fn with_plural(mut list: Value, first: Option<&Resource>) -> Value {
    if let Some(plural) = first.map(Resource::plural)
        && plural != "items"
    {
        list[plural] = list.clone();
    }
    list
}
