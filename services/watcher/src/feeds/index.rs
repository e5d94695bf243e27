//! An index of views by the name and namespace of the objects that they can hold: an event must not
//! cost more where a thousand views are each on an object of their own.
//!
//! Labels are not looked at: an object that lost one concerns the views that had it.

use std::collections::{BTreeSet, HashMap};

use anteroom_model::{ObjectKey, ViewId};

use super::plan::ViewFilter;

#[derive(Debug, Default)]
pub(super) struct Index {
    names: HashMap<String, BTreeSet<ViewId>>,
    namespaces: HashMap<String, BTreeSet<ViewId>>,
    rest: BTreeSet<ViewId>,
}

impl Index {
    pub(super) fn insert(&mut self, view: &ViewId, filter: &ViewFilter) {
        if let Some(name) = filter.fields.name() {
            put(&mut self.names, name, view);
        } else if filter.namespaces.is_empty() {
            self.rest.insert(view.clone());
        } else {
            let all = filter.namespaces.iter();
            all.for_each(|namespace| put(&mut self.namespaces, namespace, view));
        }
    }

    pub(super) fn remove(&mut self, view: &ViewId, filter: &ViewFilter) {
        if let Some(name) = filter.fields.name() {
            take(&mut self.names, name, view);
        } else if filter.namespaces.is_empty() {
            self.rest.remove(view);
        } else {
            let all = filter.namespaces.iter();
            all.for_each(|namespace| take(&mut self.namespaces, namespace, view));
        }
    }

    /// Each at most once.
    pub(super) fn views_of(&self, key: &ObjectKey) -> impl Iterator<Item = &ViewId> {
        let named = self.names.get(&*key.name).into_iter().flatten();
        let within = self.namespaces.get(&*key.namespace).into_iter().flatten();
        named.chain(within).chain(&self.rest)
    }
}

fn put(by_text: &mut HashMap<String, BTreeSet<ViewId>>, text: &str, view: &ViewId) {
    by_text
        .entry(text.to_owned())
        .or_default()
        .insert(view.clone());
}

fn take(by_text: &mut HashMap<String, BTreeSet<ViewId>>, text: &str, view: &ViewId) {
    if let Some(views) = by_text.get_mut(text) {
        views.remove(view);
        if views.is_empty() {
            by_text.remove(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Collection, GroupVersionResource};

    use super::*;

    fn filter(namespaces: &[&str], fields: &str) -> ViewFilter {
        ViewFilter::new(&Collection {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            field_selector: fields.into(),
            ..Collection::all(GroupVersionResource::new("", "v1", "things"))
        })
    }

    /// An event looks only at the views that it can change, of a thousand.
    #[test]
    fn an_object_is_looked_for_only_where_it_can_be() {
        let mut index = Index::default();
        let mut views = Vec::new();
        for n in 0..1_000 {
            let fields = format!("metadata.name=o{n}");
            views.push((ViewId::new(fields.clone()), filter(&[], &fields)));
        }
        views.push((ViewId::new("within"), filter(&["a", "b"], "")));
        views.push((ViewId::new("one"), filter(&[], "metadata.namespace=a")));
        views.push((ViewId::new("not"), filter(&[], "metadata.name!=o7")));
        views.push((ViewId::new("foreign"), filter(&["b"], "spec.x=1")));
        views
            .iter()
            .for_each(|(view, filter)| index.insert(view, filter));
        let of = |index: &Index, namespace, name| {
            let key = ObjectKey::new(namespace, name);
            let found = index.views_of(&key);
            let found: Vec<String> = found.map(ToString::to_string).collect();
            found.join(" ")
        };
        assert_eq!(of(&index, "a", "o7"), "metadata.name=o7 one within not");
        assert_eq!(of(&index, "b", "x"), "foreign within not");
        assert_eq!(of(&index, "c", "x"), "not");
        views
            .iter()
            .for_each(|(view, filter)| index.remove(view, filter));
        assert_eq!(of(&index, "a", "o7"), "");
        assert!(index.names.is_empty() && index.namespaces.is_empty());
    }
}
