//! The documents that a query in CEL is about, as inputs of its expression.

use anteroom_cel::{EvalError, Input};
use anteroom_model::{FactError, Shape};
use anteroom_plan::ViewList;
use anteroom_view::Lazy;
use anteroom_wire::body::BodyNode;

use super::{CelQueryContext, Host};

/// The documents of a query.
pub(super) struct Documents<'b>(Vec<CelDocument<'b>>);

enum CelDocument<'b> {
    List {
        list: ViewList<'b>,
        shape: Shape,
        version: String,
    },
    One(BodyNode<'b>),
    /// The API server has no such object.
    Absent,
}

impl<'b> Documents<'b> {
    /// # Errors
    /// A part of some document is not known.
    pub(super) fn of(context: CelQueryContext<'b>, host: &'b Host<'b>) -> Result<Self, FactError> {
        let read = context.batch.state.read();
        if let Some(kept) = read.kept() {
            context.check_retained(kept)?;
        }
        let documents = context.cel.selects.iter().map(|select| {
            Ok(match select.lazy(read) {
                Ok(Lazy::One(node)) => CelDocument::One(node),
                Ok(Lazy::List(objects)) => CelDocument::List {
                    version: objects.version().as_str().to_owned(),
                    list: ViewList::new(objects, host),
                    shape: select.shape(),
                },
                Err(FactError::ObjectNotFound { .. }) => CelDocument::Absent,
                Err(error) => return Err(error),
            })
        });
        Ok(Self(documents.collect::<Result<_, FactError>>()?))
    }

    /// The inputs of the expression: see [`crate::plan::inputs`].
    pub(super) fn inputs<'d>(&'d self, context: CelQueryContext<'d>) -> Vec<Input<'d>> {
        let documents = self.0.iter().map(CelDocument::input);
        let parameters = context.prepared.query.parameters.values().map(Input::json);
        let failed = context.query.failed.iter().map(|(name, message)| {
            Input::failed(EvalError::Input {
                name: name.clone(),
                message: message.clone(),
            })
        });
        documents.chain(parameters).chain(failed).collect()
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = &ViewList<'b>> {
        self.0.iter().filter_map(|document| match document {
            CelDocument::List { list, .. } => Some(list),
            CelDocument::One(_) | CelDocument::Absent => None,
        })
    }

    pub(super) fn are_cut(&self) -> bool {
        self.lists().any(ViewList::is_cut)
    }

    pub(super) fn examined(&self) -> u64 {
        self.lists().map(ViewList::examined).sum()
    }
}

impl CelDocument<'_> {
    fn input(&self) -> Input<'_> {
        let (list, shape, version) = match self {
            Self::Absent => return Input::null(),
            Self::One(node) => return Input::body(*node),
            Self::List {
                list,
                shape,
                version,
            } => (list, shape, version),
        };
        let items = Input::objects(list);
        if *shape == Shape::Array {
            return items;
        }
        let texts = list.objects().texts();
        let mut fields: Vec<_> = texts
            .map(|(name, text)| (name, Input::text(text)))
            .collect();
        if *shape == Shape::List {
            let metadata = Input::record(vec![("resourceVersion", Input::text(version))]);
            fields.push(("metadata", metadata));
        }
        fields.push(("items", items));
        Input::record(fields)
    }
}
