//! Selections: the part of a view that a query is about, and its shape.

mod lazy;
mod selected;

use anteroom_jmespath::Node as _;
use anteroom_model::{
    FactError, LabelSelector, NameSelector, ObjectKey, SelectorError, Shape, Source, SourceInfo,
};
use anteroom_wire::{
    query::Selection,
    referenced::{self, Referenced},
    unreadable,
};

use crate::{
    Object, Read, Store,
    listing::{Chosen, ListMetadata, is_built_in},
};

use selected::{object, referenced, response};

pub use lazy::{Lazy, LazyList};
pub use selected::Selected;

/// A [`Selection`] that has been read: which objects, and how they are presented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    shape: Shape,
    /// With [`Shape::Object`], and only then.
    object: Option<ObjectKey>,
    namespace: String,
    labels: LabelSelector,
    names: NameSelector,
    limit: Option<usize>,
}

impl Select {
    /// Reads `selection`.
    ///
    /// # Errors
    /// [`FactError::RequestInvalid`]: a selector that the API server would refuse, a field that
    /// cannot be selected here, an object that is not named.
    pub fn new(selection: &Selection) -> Result<Self, FactError> {
        let invalid_selector = |error: SelectorError| invalid(error.message);
        let object = match (selection.shape, &selection.object) {
            (Shape::Object, None) => {
                return Err(invalid("one object is asked for, and none is named"));
            }
            (Shape::Object, Some(key)) => Some(key.clone()),
            _ => None,
        };
        Ok(Self {
            shape: selection.shape,
            object,
            namespace: selection.namespace.clone(),
            labels: LabelSelector::parse(&selection.label_selector).map_err(invalid_selector)?,
            names: NameSelector::parse(&selection.field_selector).map_err(invalid_selector)?,
            // To the API server no limit, and one of 0, are the same.
            limit: selection
                .limit
                .filter(|limit| *limit > 0)
                .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        })
    }

    /// Checks that each object that is meant can be shown. What the log could not carry of an object is not
    /// known, so no answer about it is right.
    ///
    /// # Errors
    /// [`FactError::ObjectUnreadable`] names the first that cannot.
    pub fn check_readable(&self, read: Read<'_>) -> Result<(), FactError> {
        let store = read.store();
        if store.unreadable().is_empty() {
            return Ok(());
        }
        let stub = match &self.object {
            Some(key) if store.unreadable().has(key) => store.get(&key.namespace, &key.name),
            Some(_) => None,
            None => {
                let keys = store.unreadable().within(&self.namespace);
                let mut stubs = keys.filter_map(|(namespace, name)| store.get(namespace, name));
                stubs.find(|stub| match unreadable::has_labels(stub.node()) {
                    true => self.matches(stub),
                    false => self.names_match(stub),
                })
            }
        };
        let Some(stub) = stub else {
            return Ok(());
        };
        let view = store.record().map(|record| record.view.to_string());
        Err(FactError::ObjectUnreadable {
            view: view.unwrap_or_default(),
            object: ObjectKey::new(stub.namespace(), stub.name()).to_string(),
            reason: unreadable::reason(stub.node()).to_owned(),
        })
    }

    /// Selects the objects of `read`.
    ///
    /// # Errors
    /// - [`FactError::ObjectUnreadable`]: as [`Select::check_readable`].
    /// - [`FactError::ObjectNotFound`]: the API server has no such object, in its own words.
    /// - [`FactError::NotSynced`], [`FactError::Failed`], [`FactError::ObjectNotRegistered`], of an
    ///   object that is referenced by itself: nothing is known of it yet, it cannot be read, nobody
    ///   refers to it.
    /// - [`FactError::RequestInvalid`]: the view cannot say, since it holds less than is asked for, or
    ///   something else.
    pub fn apply<'a>(&self, read: Read<'a>) -> Result<Selected<'a>, FactError> {
        let store = read.store();
        let info = store.record().map(|record| &record.info);
        self.check(info)?;
        self.check_readable(read)?;
        let source = info.map(|info| &info.source);
        match (&self.object, source) {
            (Some(key), Some(Source::Objects { gvr })) => referenced(store, gvr, key),
            (
                Some(key),
                Some(Source::Collection(_) | Source::ApiCall { .. } | Source::System { .. }) | None,
            ) => object(store, source, key),
            (None, _) if self.shape == Shape::Response => response(store),
            (None, _) => Ok(self.listed(store, info)),
        }
    }

    /// Selects among `candidates`, which are objects of `read` in its order. `None`: the
    /// candidates alone do not decide the answer, as for a single object, under a limit, or where an object that
    /// is meant cannot be shown.
    pub fn among<'a>(
        &self,
        read: Read<'a>,
        candidates: impl Iterator<Item = &'a Object>,
    ) -> Option<Selected<'a>> {
        let store = read.store();
        let info = store.record().map(|record| &record.info);
        let listed = matches!(self.shape, Shape::Document | Shape::List | Shape::Array);
        let refused = self.check(info).is_err() || self.check_readable(read).is_err();
        if !listed || self.limit.is_some() || refused {
            return None;
        }
        let chosen = candidates.filter(|object| self.admits(object));
        let choice = Choice {
            objects: Some(chosen.collect()),
            ..Choice::default()
        };
        Some(self.presented(store, info, choice))
    }

    /// Returns true if this object of a list is one of those that are meant, as far as it can tell by
    /// itself: there may be a limit.
    pub fn admits(&self, object: &Object) -> bool {
        let within = self.namespace.is_empty() || object.namespace() == self.namespace;
        within && self.matches(object)
    }

    /// The number of objects that have to be looked at to find those that are meant, counted up to
    /// `most`.
    pub fn looks_at(&self, read: Read<'_>, most: usize) -> usize {
        let is_one = matches!(self.shape, Shape::Object | Shape::Response);
        match self.namespace.is_empty() {
            _ if is_one => most.min(1),
            true => read.len().min(most),
            false => read.namespace(&self.namespace).take(most).count(),
        }
    }

    /// Returns true if no more than so many objects have to be looked at to find those that are meant,
    /// with no more bytes in their bodies.
    pub fn is_within(&self, read: Read<'_>, objects_max: usize, bytes_max: usize) -> bool {
        match (&self.object, self.namespace.is_empty()) {
            (Some(key), _) => {
                let object = read.get(&key.namespace, &key.name);
                are_within(object.into_iter(), objects_max, bytes_max)
            }
            (None, true) if read.len() > objects_max => false,
            (None, true) => are_within(read.objects(), objects_max, bytes_max),
            (None, false) => are_within(read.namespace(&self.namespace), objects_max, bytes_max),
        }
    }

    /// Returns true if items are shown without `apiVersion` and `kind`: see [`ViewNode::listed`](crate::ViewNode::listed).
    pub fn is_bare(&self, read: Read<'_>) -> bool {
        self.lists_bare(read.store().record().map(|record| &record.info))
    }

    fn lists_bare(&self, info: Option<&SourceInfo>) -> bool {
        let group = info.and_then(SourceInfo::gvr).map(|gvr| &*gvr.group);
        self.shape == Shape::List && group.is_some_and(is_built_in)
    }

    /// The namespace whose objects are meant, all of them, and empty for all of the view; `None`
    /// where some are left out for another reason, or nothing is listed.
    pub fn whole_namespace(&self, read: Read<'_>) -> Option<&str> {
        let info = read.store().record().map(|record| &record.info);
        let listed = matches!(self.shape, Shape::Document | Shape::List | Shape::Array);
        let selects = !self.labels.is_empty() || !self.names.is_empty() || self.limit.is_some();
        (listed && !selects && self.check(info).is_ok()).then_some(&self.namespace)
    }

    /// The labels that objects are selected by.
    pub fn labels(&self) -> &LabelSelector {
        &self.labels
    }

    /// The shape in which it is presented.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The second name under which a document lists its items; `None`: the document has only `items`.
    pub fn plural<'a>(&self, read: Read<'a>) -> Option<&'a str> {
        let plural = read.store().head().plural.as_deref();
        plural.filter(|_| self.shape == Shape::Document)
    }

    /// The state of the selected object, if the view holds objects that are referenced by name.
    pub fn referenced_object(&self, read: Read<'_>) -> Option<ReferencedObject<'_>> {
        let store = read.store();
        let record = store.record()?;
        if !matches!(record.info.source, Source::Objects { .. }) {
            return None;
        }
        let key = self.object.as_ref()?;
        let state = match store.get(&key.namespace, &key.name) {
            None => ReferenceState::Unregistered,
            Some(held) => match referenced::read(held.node()) {
                Ok(Referenced::Pending) => ReferenceState::Pending,
                Ok(Referenced::Idle) => ReferenceState::Idle,
                _ => ReferenceState::Settled,
            },
        };
        Some(ReferencedObject { key, state })
    }

    /// The key of the selected object, if the selection is for a single object.
    pub fn object_key(&self) -> Option<&ObjectKey> {
        self.object.as_ref()
    }

    /// Checks that a view of this source can answer this at all. Objects that it does not hold would be
    /// taken for absent.
    fn check(&self, info: Option<&SourceInfo>) -> Result<(), FactError> {
        let Some(info) = info else {
            return Ok(());
        };
        let is_object = self.object.is_some();
        let namespace: &str = match &self.object {
            Some(object) => &object.namespace,
            None => &self.namespace,
        };
        match &info.source {
            Source::Objects { gvr } if !is_object => Err(invalid(format!(
                "the view holds single {gvr} that are referred to by name, and no list of them"
            ))),
            Source::ApiCall { .. } => Ok(()),
            _ if self.shape == Shape::Response => Err(invalid(
                "the view holds no response of an API call: ask for its objects",
            )),
            Source::Collection(collection) => {
                let held = &collection.namespaces;
                let asked = is_object || !namespace.is_empty();
                if info.namespaced
                    && asked
                    && !held.is_empty()
                    && !held.iter().any(|held| held == namespace)
                {
                    return Err(invalid(format!(
                        "the view holds namespace {} alone, and {namespace:?} is asked for",
                        held.join(", ")
                    )));
                }
                if !info.namespaced && !namespace.is_empty() {
                    return Err(invalid(format!(
                        "{} are not in namespaces, and {namespace:?} is asked for",
                        collection.gvr
                    )));
                }
                Ok(())
            }
            Source::Objects { .. } | Source::System { .. } => Ok(()),
        }
    }

    fn listed<'a>(&self, store: &'a Store, info: Option<&SourceInfo>) -> Selected<'a> {
        self.presented(store, info, self.choose(store, info))
    }

    fn presented<'a>(
        &self,
        store: &'a Store,
        info: Option<&SourceInfo>,
        choice: Choice<'a>,
    ) -> Selected<'a> {
        let bare_items = self.lists_bare(info);
        let metadata = (self.shape == Shape::List).then(|| ListMetadata {
            version: Read::new(store).version(),
            next: choice.next,
            remaining: choice.remaining,
        });
        let chosen = Chosen {
            objects: choice.objects,
            metadata,
            bare_items,
        };
        Selected::listed(store, self.shape, chosen, choice.looked_at)
    }

    fn choose<'a>(&self, store: &'a Store, info: Option<&SourceInfo>) -> Choice<'a> {
        let limit = self.limit.unwrap_or(usize::MAX);
        let is_whole = self.namespace.is_empty() || confined_to(info, &self.namespace);
        let selects = !self.labels.is_empty() || !self.names.is_empty();
        if is_whole && !selects && store.len() <= limit {
            return Choice::default();
        }
        if is_whole {
            self.choose_among(store.objects(), limit, selects)
        } else {
            self.choose_among(store.namespace(&self.namespace), limit, selects)
        }
    }

    fn choose_among<'a>(
        &self,
        mut objects: impl Iterator<Item = &'a Object>,
        limit: usize,
        selects: bool,
    ) -> Choice<'a> {
        let mut looked_at = 0;
        let mut matching = objects.by_ref().filter(|object| {
            looked_at += 1;
            self.matches(object)
        });
        let chosen: Vec<_> = matching.by_ref().take(limit).collect();
        let next = matching.next().map(next_of);
        // As the API server has it: with a selector, how many are left is not known.
        let remaining = (next.is_some() && !selects).then(|| 1 + objects.count() as u64);
        Choice {
            objects: Some(chosen),
            next,
            remaining,
            looked_at,
        }
    }

    fn matches(&self, object: &Object) -> bool {
        let names = self.names_match(object);
        if !names || self.labels.is_empty() {
            return names;
        }
        let metadata = object.node().field("metadata");
        let labels = metadata.and_then(|metadata| metadata.field("labels"));
        self.labels
            .matches(|key| labels.and_then(|labels| labels.field(key))?.as_str())
    }

    fn names_match(&self, object: &Object) -> bool {
        self.names.is_empty() || self.names.matches(object.namespace(), object.name())
    }
}

fn are_within<'a>(
    objects: impl Iterator<Item = &'a Object>,
    objects_max: usize,
    bytes_max: usize,
) -> bool {
    let mut bytes = 0;
    for (index, object) in objects.enumerate() {
        bytes += object.body().len();
        if index >= objects_max || bytes > bytes_max {
            return false;
        }
    }
    true
}

/// An object that is referenced by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferencedObject<'s> {
    /// The key of the object.
    pub key: &'s ObjectKey,
    /// The state of the object.
    pub state: ReferenceState,
}

/// The state of an object that is referenced by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceState {
    /// Nobody refers to it.
    Unregistered,
    /// Nothing yet: the API server has been asked, or is about to be.
    Pending,
    /// Nothing at present: nobody has read it for long, so it has to be asked for.
    Idle,
    /// The object is there, or not, or cannot be read.
    Settled,
}

/// The objects of a store that were chosen.
#[derive(Default)]
struct Choice<'a> {
    /// `None`: all.
    objects: Option<Vec<&'a Object>>,
    next: Option<String>,
    remaining: Option<u64>,
    looked_at: u64,
}

/// Returns true if all of the view's objects are in `namespace`.
fn confined_to(info: Option<&SourceInfo>, namespace: &str) -> bool {
    match info.map(|info| &info.source) {
        Some(Source::Collection(collection)) => collection.only_namespace() == Some(namespace),
        Some(Source::Objects { .. } | Source::ApiCall { .. } | Source::System { .. }) | None => {
            false
        }
    }
}

/// A token that no server takes: a list of a view is not continued.
fn next_of(object: &Object) -> String {
    format!("anteroom:{}/{}", object.namespace(), object.name())
}

fn invalid(message: impl Into<String>) -> FactError {
    FactError::RequestInvalid {
        message: message.into(),
    }
}

#[cfg(test)]
mod tests;
