//! The backends that have a fact, in order, and when the next one is asked. Pure.
//!
//! | read by a rule | first | then | then |
//! |---|---|---|---|
//! | an entry, a `resourceCache` | its view | | |
//! | an API call that is declared to be kept | its view | | |
//! | an API call whose scope is not the resource's: the API server knows no such path | a live read | | |
//! | an API call that a view may answer | its view | a live read | |
//! | a part in CEL of an API call's list | the view that has all of its lists | | |
//! | any other call | a live read | | |
//! | a ConfigMap | the labelled ones | the referenced ones, if it is named literally | a live read |
//! | the labels of a namespace | the view of namespaces | a live read, if it is not in the view too |
//! | bindings of roles | their view | | |
//! | the metadata of an image | a live read | | |
//! | objects that a rule changes | a live read | | |
//!
//! A view of Secrets is found by the reference that the watcher resolved for this policy alone. It resolves one only if
//! the policy may read Secrets. An entry on Secrets is allowed by its own name: every `ClusterPolicy` may read it, and
//! no policy of a namespace.

use std::collections::{BTreeMap, VecDeque};

use anteroom_model::{
    Binding, EntryKind, EntryState, ErrorSubject, FactError, GroupVersionResource, ObjectKey,
    Shape, Source, ViewId,
};
use anteroom_policy::{
    CelRequest, CollectionReference, FactRequest, FactSubject, PolicyKind, Reference,
    ResolvedApiCall, ViewBackedRead, may_miss_key,
};
use anteroom_wire::{
    live::LiveCall,
    query::{CelQuery, Query, Selection, VIEW},
};

use super::confined;
use crate::{catalog::Catalog, rule::RuleRef};

/// The part of a ConfigMap that a policy reads, in the shape of a live read.
const CONFIG_MAP: &str = "{data: data || `{}`, metadata: metadata}";

/// The watcher's reason for an entry on Secrets of a policy that was not allowed to read them.
const SECRETS_FORBIDDEN: &str = "SecretsForbidden";

/// The backends of one fact.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FactRoute {
    /// The id of the [`FactRequest`].
    pub(super) id: u32,
    /// The context entry that reads it.
    pub(super) variable: String,
    /// The name of the view or path that the variable reads, for messages.
    pub(super) subject: String,
    /// The backends that are still to be asked, in order. Never empty to begin with, but for a part.
    pub(super) backends: VecDeque<Backend>,
    /// The route asks about a use of the fact: worth no live read of its own, since the fact has other uses.
    pub(super) is_pushed_down: bool,
    /// The live read that a view's answer replaces, if it replaces one.
    pub(super) stands_for: Option<LiveRead>,
}

/// A backend to ask for a fact.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Backend {
    View(ViewRead),
    Live(LiveRead),
}

/// A query of a view.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ViewRead {
    pub(super) view: ViewId,
    pub(super) query: Query,
    pub(super) age_max_ms: Option<u64>,
    /// The view's bodies are sealed, and so must the reply be.
    pub(super) secret: bool,
    /// An object that the view does not have is absent. If this is false, the view holds only some of the objects.
    pub(super) absent_is_answer: bool,
    /// An object of which the view has a stub is an error. If this is false, the next view may have the object whole.
    pub(super) stub_is_answer: bool,
}

/// A live read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LiveRead {
    pub(super) call: LiveCall,
    pub(super) query: Query,
}

impl LiveRead {
    /// A live read of the whole answer.
    pub(super) fn whole(call: LiveCall) -> Self {
        Self {
            call,
            query: Query::default(),
        }
    }
}

impl ViewRead {
    /// Returns whether this error of the view is the fact's final result, so that no further backend is asked.
    pub(super) fn ends_with(&self, error: &FactError) -> bool {
        match error.class().subject {
            // The same expression over the same data.
            ErrorSubject::Evaluation => true,
            // A live read could not carry the object either, and each request would make one.
            ErrorSubject::Unreadable => self.stub_is_answer,
            ErrorSubject::Absent => self.absent_is_answer,
            ErrorSubject::Service
            | ErrorSubject::Request
            | ErrorSubject::Source
            | ErrorSubject::Reader
            | ErrorSubject::Write => false,
        }
    }
}

/// Returns the route to the data of `need`, in the name of `reader`.
///
/// # Errors
/// The error that the reader gets where no backend may be asked.
pub(super) fn route(
    need: FactRequest,
    reader: &RuleRef,
    catalog: &Catalog,
) -> Result<FactRoute, FactError> {
    let query = match &need.cel {
        Some(asked) => Query::cel(cel_query(asked), need.parameters, None),
        None => Query {
            expression: need.expression,
            parameters: need.parameters,
            missing_key_is_error: need.missing_key_is_error,
            selection: None,
            cel: None,
        },
    };
    let asked = FactLookup {
        catalog,
        policy: &reader.policy,
        namespace: reader.namespace(),
        age_max_ms: need.age_max_ms,
        is_pushed_down: need.is_pushed_down,
        query,
    };
    let subject = need.subject.to_string();
    let (backends, stands_for) = match need.subject {
        FactSubject::Entry {
            kind,
            name,
            projection,
        } => (asked.entry(kind, &name, &projection)?, None),
        FactSubject::Collection(collection) => (asked.collection(collection)?, None),
        FactSubject::Api(subject) => match &need.cel {
            Some(cel) => (asked.part(subject, cel), None),
            None => asked.api(subject)?,
        },
        FactSubject::Service { url, data } => (asked.live(LiveCall::Service { url, data }), None),
        FactSubject::ConfigMap { object, literal } => (asked.config_map(object, literal)?, None),
        FactSubject::Image { reference, .. } => (asked.live(LiveCall::Image { reference }), None),
        FactSubject::Existing(objects) => {
            confined::check_existing(&objects, asked.namespace)?;
            (asked.live(LiveCall::Existing { objects }), None)
        }
        FactSubject::NamespaceLabels { namespace } => (asked.namespace(namespace), None),
        FactSubject::RoleBindings { cluster } => (asked.role_bindings(cluster)?, None),
    };
    Ok(FactRoute {
        id: need.id,
        variable: need.variable,
        subject,
        backends: backends.into(),
        is_pushed_down: need.is_pushed_down,
        stands_for,
    })
}

fn cel_query(asked: &CelRequest) -> CelQuery {
    CelQuery {
        expression: asked.expression.clone(),
        variables: asked.variables.clone(),
        failed: asked.failed.clone(),
        documents: BTreeMap::new(),
    }
}

/// A fact to look up, without its subject.
struct FactLookup<'a> {
    catalog: &'a Catalog,
    policy: &'a ObjectKey,
    namespace: Option<&'a str>,
    age_max_ms: Option<u64>,
    is_pushed_down: bool,
    query: Query,
}

impl FactLookup<'_> {
    fn entry(
        mut self,
        kind: EntryKind,
        name: &str,
        projection: &str,
    ) -> Result<Vec<Backend>, FactError> {
        let record = self.catalog.entry(kind, name)?;
        let binding = record.binding_within(self.namespace)?;
        if binding.secret && self.namespace.is_some() {
            return Err(self.secret_forbidden());
        }
        let mut query = std::mem::take(&mut self.query);
        let is_array = binding.shape == Shape::Array && projection.is_empty();
        if query.cel.is_some() && !is_array {
            // In CEL an object that is not there is null, which the data of an entry never are. A list in an answer
            // has no kinds in its items, and a projection is yet to be computed.
            return Ok(Vec::new());
        }
        if !projection.is_empty() {
            let named = record.projections.iter().find(|p| p.name == projection);
            let Some(named) = named else {
                let known: Vec<_> = record.projections.iter().map(|p| &*p.name).collect();
                return Err(FactError::ProjectionNotFound {
                    entry: name.to_owned(),
                    projection: projection.to_owned(),
                    known: if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    },
                });
            };
            if self.is_pushed_down && may_miss_key(&named.expression) {
                // Of a part, whatever forgave that would make a value of an error.
                return Ok(Vec::new());
            }
            query.expression = projected(&named.expression, &query.expression);
        }
        let selection = Selection {
            shape: binding.shape,
            object: binding.object.clone(),
            ..Selection::default()
        };
        Ok(vec![self.view(binding, query, selection)])
    }

    fn collection(mut self, collection: CollectionReference) -> Result<Vec<Backend>, FactError> {
        let reference = Reference::Collection(collection);
        // Confined to a namespace, it is by name of it that the collection is declared.
        let query = std::mem::take(&mut self.query);
        let binding = self.bound(&reference, self.namespace)?;
        Ok(vec![self.view(binding, query, Selection::default())])
    }

    fn api(self, subject: ResolvedApiCall) -> Result<(Vec<Backend>, Option<LiveRead>), FactError> {
        let ResolvedApiCall {
            path,
            data,
            by_view: read,
        } = subject;
        confined::check_path(&path, self.namespace)?;
        if let (Some(own), Some(read)) = (self.namespace, &read)
            && !is_of(read, own)
        {
            return Err(confined::outside(&path, own));
        }
        let answers =
            |read: &ViewBackedRead| self.catalog.keeps(&read.reference) && self.fits(read);
        let read = read.filter(|read| data.is_none() && answers(read));
        let live = LiveRead {
            call: LiveCall::Api { path, data },
            query: self.query.clone(),
        };
        let Some(read) = read else {
            return Ok((vec![Backend::Live(live)], None));
        };
        let declared = read.reference.is_declared();
        let view = self.by_view(read);
        Ok(match view {
            Ok(view) if declared => (vec![view], Some(live)),
            Ok(view) => (vec![view, Backend::Live(live.clone())], Some(live)),
            Err(error) if declared => return Err(error),
            Err(_) => (vec![Backend::Live(live)], None),
        })
    }

    /// Returns the view that evaluates a part of an expression in CEL. It returns none if one of the part's lists is
    /// missing, or in another view: then the lists are read.
    fn part(mut self, subject: ResolvedApiCall, cel: &CelRequest) -> Vec<Backend> {
        let mut selections = BTreeMap::new();
        let mut first: Option<ViewRead> = None;
        let further = cel.documents.iter();
        let further = further.map(|(name, subject)| (name.as_str(), subject));
        for (name, subject) in std::iter::once((VIEW, &FactSubject::Api(subject))).chain(further) {
            let FactSubject::Api(subject) = subject else {
                return Vec::new();
            };
            let Some(read) = self.list_by_view(subject) else {
                return Vec::new();
            };
            match &first {
                None => first = Some(read),
                Some(known) if known.view == read.view && known.secret == read.secret => {
                    selections.insert(name.to_owned(), read.query.selection.unwrap_or_default());
                }
                Some(_) => return Vec::new(),
            }
        }
        let Some(mut read) = first else {
            return Vec::new();
        };
        if let Some(cel) = &mut self.query.cel {
            cel.documents = selections;
        }
        let selection = read.query.selection.take();
        read.query = Query {
            selection,
            ..self.query
        };
        vec![Backend::View(read)]
    }

    /// The view that holds the list of a call; `None`: it has to be read live, or may not be read.
    fn list_by_view(&self, subject: &ResolvedApiCall) -> Option<ViewRead> {
        confined::check_path(&subject.path, self.namespace).ok()?;
        let read = subject.by_view.clone().filter(|_| subject.data.is_none())?;
        if self.namespace.is_some_and(|own| !is_of(&read, own)) {
            return None;
        }
        let answers = self.catalog.keeps(&read.reference) && self.fits(&read);
        if !answers || read.object.is_some() || read.limit.is_some() {
            return None;
        }
        match self.by_view(read) {
            Ok(Backend::View(read)) => Some(read),
            Ok(Backend::Live(_)) | Err(_) => None,
        }
    }

    /// Returns the view that answers a call, with the selection of its objects.
    fn by_view(&self, read: ViewBackedRead) -> Result<Backend, FactError> {
        let binding = match &read.reference {
            Reference::Object(object) if !read.reference.may_be_secrets() => {
                objects(&object.group, &object.version, &object.resource)
            }
            // The view may hold more than a confined reader's namespace: what is selected does not.
            reference => self.bound(reference, None)?.clone(),
        };
        let shape = match read.object {
            Some(_) => Shape::Object,
            None => Shape::List,
        };
        let selection = Selection {
            shape,
            object: read.object,
            namespace: read.namespace,
            label_selector: read.label_selector,
            field_selector: read.field_selector,
            limit: read.limit,
        };
        Ok(self.view(&binding, self.query.clone(), selection))
    }

    fn config_map(self, object: ObjectKey, literal: bool) -> Result<Vec<Backend>, FactError> {
        confined::check_namespace(&object, self.namespace)?;
        let query = Query {
            expression: CONFIG_MAP.to_owned(),
            ..Query::default()
        };
        let selection = Selection {
            shape: Shape::Object,
            object: Some(object.clone()),
            ..Selection::default()
        };
        let mut backends = Vec::new();
        let labelled = self.registered(&Reference::LabelledConfigMaps.name());
        let labelled = labelled.and_then(|record| record.binding());
        if let Ok(binding) = labelled
            && !binding.secret
        {
            let mut read = self.view_read(binding, query.clone(), selection.clone());
            read.absent_is_answer = false;
            // Whatever a namespace labels, the next view has objects that the cluster's policies name, and a live read others.
            read.stub_is_answer = false;
            backends.push(Backend::View(read));
        }
        if literal {
            let binding = objects("", "v1", "configmaps");
            backends.push(self.view(&binding, query, selection));
        }
        backends.extend(self.live(LiveCall::ConfigMap { object }));
        Ok(backends)
    }

    /// Returns the backends for the Namespace of an object. A Namespace that the view does not have may have just
    /// been created, so the API server is asked next. If it has none either, the fact is an error.
    fn namespace(self, name: String) -> Vec<Backend> {
        let path = format!("/api/v1/namespaces/{name}");
        let selection = Selection {
            shape: Shape::Object,
            object: Some(ObjectKey::new("", name)),
            ..Selection::default()
        };
        let reference = Reference::Collection(CollectionReference::namespaces());
        let mut backends = Vec::new();
        if let Ok(binding) = self.bound(&reference, None) {
            let mut read = self.view_read(binding, self.query.clone(), selection);
            read.absent_is_answer = false;
            backends.push(Backend::View(read));
        }
        backends.extend(self.live(LiveCall::Api { path, data: None }));
        backends
    }

    /// Returns the backends for the bindings of all namespaces, also for a namespaced policy: like the user's groups,
    /// the user's roles belong to the request.
    fn role_bindings(self, cluster: bool) -> Result<Vec<Backend>, FactError> {
        let reference = Reference::Collection(CollectionReference::role_bindings(cluster));
        let binding = self.bound(&reference, None)?;
        let query = self.query.clone();
        Ok(vec![self.view(binding, query, Selection::default())])
    }

    fn live(self, call: LiveCall) -> Vec<Backend> {
        let query = self.query;
        vec![Backend::Live(LiveRead { call, query })]
    }

    fn view(&self, binding: &Binding, query: Query, selection: Selection) -> Backend {
        Backend::View(self.view_read(binding, query, selection))
    }

    fn view_read(&self, binding: &Binding, mut query: Query, selection: Selection) -> ViewRead {
        query.selection = Some(selection).filter(|s| *s != Selection::default());
        ViewRead {
            view: binding.view.clone(),
            query,
            age_max_ms: self.age_max_ms,
            secret: binding.secret,
            absent_is_answer: true,
            stub_is_answer: true,
        }
    }

    /// The view that the watcher keeps for a reference of this policy.
    fn bound(&self, reference: &Reference, within: Option<&str>) -> Result<&Binding, FactError> {
        let record = self.registered(&reference.name_for(self.policy))?;
        if let EntryState::Invalid { failure } = &record.state
            && failure.reason == SECRETS_FORBIDDEN
        {
            return Err(self.secret_forbidden());
        }
        let binding = record.binding_within(within)?;
        match binding.secret && !reference.may_be_secrets() {
            true => Err(self.secret_forbidden()), // Shared entries never hold Secrets.
            false => Ok(binding),
        }
    }

    fn secret_forbidden(&self) -> FactError {
        FactError::SecretForbidden {
            reader: PolicyKind::describe(self.policy),
        }
    }

    /// Returns whether the API server has such a path. A cluster-scoped resource is in no namespace, and an object of
    /// a namespaced one is in one. For a resource that is not known here, the watcher keeps only fitting paths.
    fn fits(&self, read: &ViewBackedRead) -> bool {
        let gvr = match &read.reference {
            Reference::Object(object) => {
                GroupVersionResource::new(&*object.group, &*object.version, &*object.resource)
            }
            Reference::Collection(collection) => {
                let (Some(group), Some(version)) = (&collection.group, &collection.version) else {
                    return true;
                };
                GroupVersionResource::new(&**group, &**version, &*collection.resource)
            }
            Reference::LabelledConfigMaps => return true,
        };
        let Some(kind) = self.catalog.kinds.of_resource(&gvr) else {
            return true;
        };
        let in_object = read.object.as_ref().map(|object| &*object.namespace);
        let in_namespace = !read.namespace.is_empty() || in_object.is_some_and(|of| !of.is_empty());
        match kind.namespaced {
            true => in_namespace || read.object.is_none(),
            false => !in_namespace,
        }
    }

    /// The entry that the watcher made of a reference.
    fn registered(&self, name: &str) -> Result<&anteroom_model::EntryRecord, FactError> {
        let not_yet = |_| FactError::NotSynced {
            view: name.to_owned(),
            state: "the watcher has not registered this reference of the policy yet".to_owned(),
        };
        self.catalog
            .entry(EntryKind::Implicit, name)
            .map_err(not_yet)
    }
}

/// The expression over the projection's result.
fn projected(projection: &str, expression: &str) -> String {
    if expression.is_empty() {
        return projection.to_owned();
    }
    format!("({projection}) | ({expression})")
}

/// The objects of a type that are referenced one by one. Not for Secrets.
fn objects(group: &str, version: &str, resource: &str) -> Binding {
    let gvr = GroupVersionResource::new(group, version, resource);
    Binding::whole(Source::Objects { gvr }.view_id())
}

/// Returns whether the selected objects are in `namespace` alone. The path ensures that already; this checks the
/// selection that was made from the path.
fn is_of(read: &ViewBackedRead, namespace: &str) -> bool {
    let of_reference = match &read.reference {
        Reference::Collection(collection) => &*collection.namespace,
        Reference::Object(object) => &*object.namespace,
        Reference::LabelledConfigMaps => "",
    };
    let of_object = read.object.as_ref().map(|object| &*object.namespace);
    let named = [of_object.unwrap_or_default(), &read.namespace, of_reference];
    match named.into_iter().find(|named| !named.is_empty()) {
        Some(named) => named == namespace,
        // The Namespace itself, which is in none.
        None => read
            .object
            .as_ref()
            .is_some_and(|object| *object.name == *namespace),
    }
}

#[cfg(test)]
mod tests;
