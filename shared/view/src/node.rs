//! A whole view as one document that is never put together.

use anteroom_jmespath::{Node, Number, Shape};
use anteroom_wire::body::{BodyNode, Elements, Entries};

use crate::{
    Object, Store,
    listing::{ITEMS, ListMetadata, Listed, Listing},
};

/// A place in the document that a view is:
///
/// ```json
/// {
///   "apiVersion": "networking.k8s.io/v1",
///   "kind": "IngressList",
///   "items": [],
///   "ingresses": { "apiVersion": "networking.k8s.io/v1", "kind": "IngressList", "items": [] }
/// }
/// ```
///
/// `items` holds the objects in the API server's order. The list stands once more under its plural,
/// so that `items[...]` and `ingresses | items[...]` read the same. A view that is not a collection
/// of the API server has `items` alone.
///
/// A [`Select`](crate::Select) makes other documents of it: the list as the API server answers it,
/// the items alone, one object.
#[derive(Clone, Copy, Debug)]
pub struct ViewNode<'a>(NodeKind<'a>);

#[derive(Clone, Copy, Debug)]
enum NodeKind<'a> {
    /// The document whole.
    Root(Listing<'a>),
    /// The list that stands under the plural, or a list in the form of the API server.
    List(Listing<'a>),
    Items(Listing<'a>),
    /// Some objects, by themselves; whether they are bare.
    Some(&'a [Object], bool),
    /// The `metadata` of a list.
    Metadata(&'a ListMetadata),
    Text(&'a str),
    Count(u64),
    /// An object without its `apiVersion` and `kind`.
    Bare(BodyNode<'a>),
    Body(BodyNode<'a>),
}

/// Returns true for the fields that the items of some lists lack.
fn is_hidden(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind")
}

impl<'a> ViewNode<'a> {
    /// The document that `store` is.
    pub(crate) fn root(store: &'a Store) -> Self {
        Self(NodeKind::Root(Listing::all(store)))
    }

    /// A document of chosen objects.
    pub(crate) fn document(listing: Listing<'a>) -> Self {
        Self(NodeKind::Root(listing))
    }

    /// A list as the API server answers it.
    pub(crate) fn list(listing: Listing<'a>) -> Self {
        Self(NodeKind::List(listing))
    }

    /// The objects alone.
    pub(crate) fn array(listing: Listing<'a>) -> Self {
        Self(NodeKind::Items(listing))
    }

    /// One object.
    pub fn object(object: &'a Object) -> Self {
        Self::body(object.node())
    }

    pub(crate) fn body(node: BodyNode<'a>) -> Self {
        Self(NodeKind::Body(node))
    }

    /// One object as an item of a list; `bare`: as the API server lists its own types, without
    /// `apiVersion` and `kind`.
    pub fn listed(object: &'a Object, bare: bool) -> Self {
        if bare {
            Self(NodeKind::Bare(object.node()))
        } else {
            Self::object(object)
        }
    }

    /// Some objects as an array; `bare` as in [`ViewNode::listed`].
    pub fn array_of(objects: &'a [Object], bare: bool) -> Self {
        Self(NodeKind::Some(objects, bare))
    }

    /// Returns the listing of a root or a list; of a root also the plural.
    fn listing(self) -> Option<(Listing<'a>, Option<&'a str>)> {
        match self.0 {
            NodeKind::Root(listing) => Some((listing, listing.head().plural.as_deref())),
            NodeKind::List(listing) => Some((listing, None)),
            _ => None,
        }
    }

    /// The field of a list, or of its metadata, at `index`.
    fn own_field_at(self, index: usize) -> Option<(&'a str, Self)> {
        if let NodeKind::Metadata(metadata) = self.0 {
            return metadata_fields(metadata).nth(index);
        }
        let (listing, plural) = self.listing()?;
        let texts = &listing.head().texts;
        if let Some((name, text)) = texts.get(index) {
            return Some((name, Self(NodeKind::Text(text))));
        }
        let metadata = listing.metadata();
        let metadata = metadata.map(|metadata| (METADATA, Self(NodeKind::Metadata(metadata))));
        let items = Some((ITEMS, Self(NodeKind::Items(listing))));
        let again = plural.map(|plural| (plural, Self(NodeKind::List(listing))));
        let mut behind = [metadata, items, again].into_iter().flatten();
        behind.nth(index - texts.len())
    }
}

const METADATA: &str = "metadata";

fn metadata_fields(metadata: &ListMetadata) -> impl Iterator<Item = (&str, ViewNode<'_>)> {
    let text = |text| ViewNode(NodeKind::Text(text));
    let version = ("resourceVersion", text(metadata.version.as_str()));
    let next = metadata.next.as_deref();
    let next = next.map(|next| ("continue", text(next)));
    let remaining = metadata.remaining;
    let remaining = remaining.map(|count| ("remainingItemCount", ViewNode(NodeKind::Count(count))));
    [Some(version), next, remaining].into_iter().flatten()
}

impl<'a> Node<'a> for ViewNode<'a> {
    type Elements = ViewElements<'a>;
    type Entries = ViewEntries<'a>;

    #[inline]
    fn shape(self) -> Shape<'a> {
        match self.0 {
            NodeKind::Body(node) => node.shape(),
            NodeKind::Text(text) => Shape::String(text),
            NodeKind::Count(count) => Shape::Number(Number::U64(count)),
            NodeKind::Items(listing) => Shape::Array(listing.len()),
            NodeKind::Some(objects, _) => Shape::Array(objects.len()),
            NodeKind::Metadata(metadata) => Shape::Object(metadata_fields(metadata).count()),
            NodeKind::List(listing) | NodeKind::Root(listing) => {
                let plural = self.listing().and_then(|(_, plural)| plural);
                let texts = listing.head().texts.len();
                let more = [listing.metadata().is_some(), plural.is_some()];
                Shape::Object(texts + 1 + more.into_iter().filter(|there| *there).count())
            }
            NodeKind::Bare(node) => match node.shape() {
                Shape::Object(_) => Shape::Object(self.entries().count()),
                other => other,
            },
        }
    }

    #[inline]
    fn field(self, name: &str) -> Option<Self> {
        match self.0 {
            NodeKind::Body(node) => node.field(name).map(Self::body),
            NodeKind::Bare(_) if is_hidden(name) => None,
            NodeKind::Bare(node) => node.field(name).map(Self::body),
            NodeKind::Metadata(metadata) => {
                let found = metadata_fields(metadata).find(|(field, _)| *field == name);
                found.map(|(_, node)| node)
            }
            _ => {
                let (listing, plural) = self.listing()?;
                if name == ITEMS {
                    return Some(Self(NodeKind::Items(listing)));
                }
                if plural == Some(name) {
                    return Some(Self(NodeKind::List(listing)));
                }
                if name == METADATA {
                    return Some(Self(NodeKind::Metadata(listing.metadata()?)));
                }
                let mut texts = listing.head().texts.iter();
                let (_, text) = texts.find(|(field, _)| *field == name)?;
                Some(Self(NodeKind::Text(text)))
            }
        }
    }

    fn element(self, index: usize) -> Option<Self> {
        match self.0 {
            NodeKind::Body(node) | NodeKind::Bare(node) => node.element(index).map(Self::body),
            NodeKind::Items(listing) => {
                let object = listing.get(index)?;
                Some(Self::listed(object, listing.bare_items()))
            }
            NodeKind::Some(objects, bare) => {
                let object = objects.get(index)?;
                Some(Self::listed(object, bare))
            }
            _ => None,
        }
    }

    #[inline]
    fn elements(self) -> ViewElements<'a> {
        ViewElements(match self.0 {
            NodeKind::Body(node) | NodeKind::Bare(node) => InElements::Body(node.elements()),
            NodeKind::Items(listing) => InElements::Items {
                objects: listing.iter(),
                bare: listing.bare_items(),
            },
            NodeKind::Some(objects, bare) => InElements::Items {
                objects: Listed::Some(objects.iter()),
                bare,
            },
            _ => InElements::None,
        })
    }

    fn entries(self) -> ViewEntries<'a> {
        ViewEntries(match self.0 {
            NodeKind::Body(node) => InEntries::Body(node.entries()),
            NodeKind::Bare(node) => InEntries::Bare(node.entries()),
            _ => InEntries::Own { of: self, at: 0 },
        })
    }
}

/// The elements of an array of the document.
#[derive(Clone, Debug)]
pub struct ViewElements<'a>(InElements<'a>);

#[derive(Clone, Debug)]
enum InElements<'a> {
    None,
    Items { objects: Listed<'a>, bare: bool },
    Body(Elements<'a>),
}

impl<'a> Iterator for ViewElements<'a> {
    type Item = ViewNode<'a>;

    #[inline]
    fn next(&mut self) -> Option<ViewNode<'a>> {
        match &mut self.0 {
            InElements::None => None,
            InElements::Items { objects, bare } => {
                let object = objects.next()?;
                Some(ViewNode::listed(object, *bare))
            }
            InElements::Body(elements) => elements.next().map(ViewNode::body),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            InElements::None => (0, Some(0)),
            InElements::Items { objects, .. } => objects.size_hint(),
            InElements::Body(elements) => elements.size_hint(),
        }
    }
}

/// The entries of an object of the document.
#[derive(Clone, Debug)]
pub struct ViewEntries<'a>(InEntries<'a>);

#[derive(Clone, Debug)]
enum InEntries<'a> {
    /// The fields of a list, or of its metadata, from the `at`th on.
    Own {
        of: ViewNode<'a>,
        at: usize,
    },
    /// The entries that are not hidden.
    Bare(Entries<'a>),
    Body(Entries<'a>),
}

impl<'a> Iterator for ViewEntries<'a> {
    type Item = (&'a str, ViewNode<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (name, node) = match &mut self.0 {
            InEntries::Body(entries) => entries.next()?,
            InEntries::Bare(entries) => entries.find(|(name, _)| !is_hidden(name))?,
            InEntries::Own { of, at } => {
                let field = of.own_field_at(*at);
                *at += 1;
                return field;
            }
        };
        Some((name, ViewNode::body(node)))
    }
}

#[cfg(test)]
pub(crate) mod tests;
