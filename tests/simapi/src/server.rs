//! The HTTP server: every request, from its path to its answer.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{Method, Request},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    SimConfig, control,
    discovery::{Discovery, WrittenGroups},
    faults::Faults,
    list,
    metadata::Identity,
    request::{Params, ResourcePath, Route, verb},
    resource::ResourceType,
    selector::Selection,
    stats::Recorder,
    status::{Failure, json_response, no_such_path, raw_json_response},
    store::Store,
    watch,
    write::Write,
};

/// The largest body of a request, as in Kubernetes; a larger one is answered with 413.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: SimConfig,
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pub(crate) recorder: Recorder,
    pub(crate) identity: Identity,
    written_groups: WrittenGroups,
    pub(crate) stop: CancellationToken,
}

impl App {
    pub(crate) fn new(config: SimConfig) -> Arc<Self> {
        Arc::new(Self {
            store: Store::new(config.history_events_max, config.served),
            faults: Faults::default(),
            recorder: Recorder::default(),
            identity: Identity::new(config.seed),
            written_groups: WrittenGroups::default(),
            stop: CancellationToken::new(),
            config,
        })
    }
}

/// The service below HTTP.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new().fallback(answer).with_state(app)
}

/// Serves until the app is stopped.
pub(crate) async fn serve(app: Arc<App>, listener: TcpListener) {
    let stop = app.stop.clone();
    let served = axum::serve(listener, router(app)).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = served.await {
        tracing::error!(%error, "the simulated API server ended");
    }
}

async fn answer(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let route = Route::parse(request.uri().path());
    match route {
        Route::Control(what) => control::answer(&app, &what, request).await,
        Route::Version => json_response(200, &version()),
        Route::Health => "ok".into_response(),
        Route::Resource(path) => answer_resource(&app, path, request).await,
        Route::Unknown => no_such_path(false),
        discovery => {
            let response = match app.faults.meet("discovery", None, None).await {
                Ok(()) => discover(&app, &discovery, &request),
                Err(failure) => failure.into_response(),
            };
            app.recorder
                .answered("discovery", None, response.status().as_u16());
            response
        }
    }
}

fn version() -> serde_json::Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0+anteroom-simapi",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64"})
}

fn discover(app: &App, route: &Route, request: &Request<Body>) -> Response {
    let mut resources = app.store.resources();
    resources.retain(|resource| !app.faults.is_hidden(&resource.name()));
    let down = |group: &str| app.faults.is_down(group);
    if let Route::GroupVersion { group, .. } = route
        && down(group)
    {
        return Failure::new(503, "ServiceUnavailable", "service unavailable").into_response();
    }
    let discovery = Discovery::new(resources, &app.written_groups, request.headers(), down);
    match route {
        Route::CoreVersions => discovery.core(),
        Route::Groups => discovery.groups(),
        Route::Group(group) => discovery.group(group),
        Route::GroupVersion { group, version } => discovery.group_version(group, version),
        _ => no_such_path(false),
    }
}

async fn answer_resource(app: &Arc<App>, path: ResourcePath, request: Request<Body>) -> Response {
    let name = path.resource();
    let params = Params::parse(request.uri());
    let verb = verb(
        request.method(),
        &path,
        params.as_ref().unwrap_or(&Params::default()),
    );
    let Some(verb) = verb else {
        let message = "the server does not allow this method on the requested resource";
        return Failure::new(405, "MethodNotAllowed", message).into_response();
    };
    let served = async {
        let namespace = path.namespace.as_deref();
        app.faults.meet(verb, Some(&name), namespace).await?;
        match find(app, &path) {
            Some(resource) => serve_resource(app, resource, path, params?, verb, request).await,
            None => Ok(no_such_path(is_built_in(app, &path.group))),
        }
    };
    let response = served.await.unwrap_or_else(Failure::into_response);
    app.recorder
        .answered(verb, Some(&name), response.status().as_u16());
    tracing::debug!(verb, resource = %name, status = response.status().as_u16(), "answered");
    response
}

fn is_built_in(app: &App, group: &str) -> bool {
    let resources = app.store.resources();
    resources
        .iter()
        .any(|resource| resource.group == group && !resource.custom)
}

/// The resource of a path, if it is served there.
fn find(app: &App, path: &ResourcePath) -> Option<Arc<ResourceType>> {
    let resource = app.store.resource(&path.resource())?;
    let served = resource.versions.contains(&path.version)
        && !app.faults.is_hidden(&resource.name())
        && (resource.namespaced || path.namespace.is_none())
        && match path.subresource.as_deref() {
            None => true,
            Some("status") => resource.status,
            Some(_) => false,
        };
    served.then_some(resource)
}

async fn serve_resource(
    app: &Arc<App>,
    resource: Arc<ResourceType>,
    path: ResourcePath,
    params: Params,
    verb: &str,
    request: Request<Body>,
) -> Result<Response, Failure> {
    if request.method() != Method::GET {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
            let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
            Failure::new(413, "RequestEntityTooLarge", message)
        })?;
        let write = Write {
            app,
            resource,
            path,
            params,
            headers: parts.headers,
            body,
        };
        return write.run(verb).await;
    }
    if verb == "get" {
        return get(app, &resource, &path);
    }
    let mut namespace = path.namespace.clone();
    let mut fields = params.field_selector.clone();
    // A watch of one object, named in the path.
    if let Some(name) = &path.name {
        namespace = namespace.filter(|_| resource.namespaced);
        fields = format!("metadata.name={name},{fields}");
    }
    let selection = Selection::parse(&resource, namespace, &params.label_selector, &fields)?;
    match verb {
        "watch" => watch::watch(app, &resource, &path.version, selection, &params),
        _ => list::list(&app.store, &resource, &path.version, &selection, &params),
    }
}

fn get(app: &App, resource: &ResourceType, path: &ResourcePath) -> Result<Response, Failure> {
    let (namespace, name) = (
        path.namespace.as_deref().unwrap_or_default(),
        path.name.as_deref().unwrap_or_default(),
    );
    if resource.namespaced && namespace.is_empty() {
        return Err(Failure::not_found(resource, name));
    }
    let stored = app.store.get(&resource.name(), namespace, name);
    let stored = stored.ok_or_else(|| Failure::not_found(resource, name))?;
    let mut body = bytes::BytesMut::new();
    stored.write(&crate::object::head(resource, &path.version), &mut body);
    Ok(raw_json_response(200, body.freeze()))
}
