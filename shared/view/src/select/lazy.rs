//! A selection of which no object is looked at before it is asked for.

use std::sync::OnceLock;

use anteroom_model::{FactError, ResourceVersion, Shape, Source};
use anteroom_wire::body::BodyNode;

use super::selected::SelectedDocument;
use super::{Select, confined_to, invalid, object, referenced, response};
use crate::{Object, Read, Store};

/// The part of a view that a [`Select`] selects, before any object was looked at.
#[derive(Debug)]
pub enum Lazy<'a> {
    /// One object, or a response.
    One(BodyNode<'a>),
    /// A list of objects.
    List(LazyList<'a>),
}

/// Selected objects, in the API server's order.
#[derive(Debug)]
pub struct LazyList<'a> {
    select: &'a Select,
    store: &'a Store,
    /// All objects are in the namespace that is meant.
    is_whole: bool,
    /// The objects, where they had to be counted.
    chosen: OnceLock<Vec<&'a Object>>,
}

impl Select {
    /// Selects from `read` without a look at any object of a list.
    ///
    /// # Errors
    /// Fails as [`Select::apply`] does; a limit is [`FactError::RequestInvalid`].
    pub fn lazy<'a>(&'a self, read: Read<'a>) -> Result<Lazy<'a>, FactError> {
        let store = read.store();
        let info = store.record().map(|record| &record.info);
        self.check(info)?;
        self.check_readable(read)?;
        if self.limit.is_some() {
            return Err(invalid("a list that an expression is about has no limit"));
        }
        let source = info.map(|info| &info.source);
        let selected = match (&self.object, source) {
            (Some(key), Some(Source::Objects { gvr })) => referenced(store, gvr, key)?,
            (Some(key), _) => object(store, source, key)?,
            (None, _) if self.shape == Shape::Response => response(store)?,
            (None, _) => {
                return Ok(Lazy::List(LazyList {
                    select: self,
                    store,
                    is_whole: self.namespace.is_empty() || confined_to(info, &self.namespace),
                    chosen: OnceLock::new(),
                }));
            }
        };
        match selected.document {
            SelectedDocument::One(node) => Ok(Lazy::One(node)),
            SelectedDocument::Listed { .. } => {
                Err(invalid("one object is asked for, and there is a list"))
            }
        }
    }
}

impl<'a> LazyList<'a> {
    /// The objects in order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &'a Object> + 'a> {
        let select = self.select;
        let selects = !select.labels.is_empty() || !select.names.is_empty();
        match (self.is_whole, selects) {
            (true, false) => Box::new(self.store.objects()),
            (true, true) => Box::new(self.store.objects().filter(|object| select.matches(object))),
            (false, _) => {
                let objects = self.store.namespace(&select.namespace);
                Box::new(objects.filter(|object| select.matches(object)))
            }
        }
    }

    /// The only namespace of the selected objects, if the view has objects of several.
    pub fn namespace(&self) -> Option<&'a str> {
        (!self.is_whole).then_some(&*self.select.namespace)
    }

    /// The number of objects. Where only some are selected, all of those are looked at.
    pub fn len(&self) -> usize {
        match self.is_all() {
            true => self.store.len(),
            false => self.chosen().len(),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.is_within(0)
    }

    /// Returns true if there are no more than so many.
    pub fn is_within(&self, objects: usize) -> bool {
        self.iter().take(objects.saturating_add(1)).count() <= objects
    }

    /// The object at this place.
    pub fn get(&self, at: usize) -> Option<&'a Object> {
        match self.is_all() {
            true => self.store.nth(at),
            false => self.chosen().get(at).copied(),
        }
    }

    /// The object of the view with the key of this one, if it is selected.
    pub fn find(&self, object: &Object) -> Option<&'a Object> {
        let found = self.store.get(object.namespace(), object.name())?;
        self.select.admits(found).then_some(found)
    }

    /// The fields of the list itself that are texts: `apiVersion` and `kind`.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let texts = self.store.head().texts.iter();
        texts.map(|(name, text)| (*name, &**text))
    }

    /// The resource version of the list.
    pub fn version(&self) -> ResourceVersion {
        Read::new(self.store).version()
    }

    /// Every object of the view is selected.
    fn is_all(&self) -> bool {
        self.is_whole && self.select.labels.is_empty() && self.select.names.is_empty()
    }

    fn chosen(&self) -> &[&'a Object] {
        self.chosen.get_or_init(|| self.iter().collect())
    }
}
