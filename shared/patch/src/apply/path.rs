//! Paths in a value, for errors. They live on the stack and become text only where there is one.

use std::fmt;

/// A path, as Kubernetes writes it: `.spec.containers[name="app"].image`.
pub(super) struct Path<'p> {
    above: Option<&'p Path<'p>>,
    step: PathStep<'p>,
}

/// A step of a path.
pub(super) enum PathStep<'p> {
    /// None: the value itself.
    Root,
    /// A field.
    Field(&'p str),
    /// An element of a list, by its place.
    Index(usize),
    /// An element of a list, by the identity that distinguishes the element within the list.
    Item(&'p str),
}

impl<'p> Path<'p> {
    pub(super) const ROOT: Self = Self {
        above: None,
        step: PathStep::Root,
    };

    pub(super) fn below(&'p self, step: PathStep<'p>) -> Self {
        let above = Some(self);
        Self { above, step }
    }

    pub(super) fn text(&self) -> String {
        match self.above {
            None => ".".to_owned(),
            Some(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            PathStep::Root => Ok(()),
            PathStep::Field(name) => write!(f, ".{name}"),
            PathStep::Index(place) => write!(f, "[{place}]"),
            PathStep::Item(item) => f.write_str(item),
        }
    }
}
