//! A process's way to the API server, which can be cut.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use axum::{Router, body::Body as Served};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use http::{Request, Response};
use kube::client::Body;
use tokio::sync::watch;
use tower::{Service, ServiceExt as _};

/// The error of a request whose way is cut.
#[derive(Debug)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the way to the API server is cut")
    }
}

impl std::error::Error for Cut {}

/// Requests to the API server, until the way is cut.
#[derive(Clone)]
pub(crate) struct Way {
    server: Router,
    /// True while it is cut.
    cut: watch::Receiver<bool>,
}

impl Way {
    /// Returns a way to this server, with its switch.
    pub(crate) fn new(server: Router) -> (Self, watch::Sender<bool>) {
        let (switch, cut) = watch::channel(false);
        (Self { server, cut }, switch)
    }

    /// A client that goes it.
    pub(crate) fn client(self) -> kube::Client {
        kube::Client::new(self, "default")
    }
}

impl Service<Request<Body>> for Way {
    type Response = Response<Served>;
    type Error = Cut;
    type Future = BoxFuture<'static, Result<Response<Served>, Cut>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (server, cut) = (self.server.clone(), self.cut.clone());
        async move {
            let answered = until_cut(cut.clone(), server.oneshot(request.map(Served::new)));
            let response = answered
                .await?
                .unwrap_or_else(|never: Infallible| match never {});
            Ok(response.map(|body| until_cut_off(body, cut)))
        }
        .boxed()
    }
}

async fn until_cut<T>(
    mut cut: watch::Receiver<bool>,
    act: impl Future<Output = T>,
) -> Result<T, Cut> {
    tokio::select! {
        biased;
        _ = cut.wait_for(|cut| *cut) => Err(Cut),
        done = act => Ok(done),
    }
}

/// The body, which breaks off when the way is cut.
fn until_cut_off(body: Served, mut cut: watch::Receiver<bool>) -> Served {
    let broken = async move {
        let _ = cut.wait_for(|cut| *cut).await;
    };
    let whole = body
        .into_data_stream()
        .map(|part| part.map_err(std::io::Error::other));
    let broken = stream::once(broken.map(|()| Err::<Bytes, _>(std::io::Error::other(Cut))));
    // Whichever comes first ends it.
    let parts = stream::select(
        whole.map(Some).chain(stream::once(none())),
        broken.map(Some),
    );
    let parts = parts.scan(false, |over, part: Option<Result<Bytes, _>>| {
        if *over {
            return ready(None);
        }
        *over = part.as_ref().is_none_or(Result::is_err);
        ready(part)
    });
    Served::from_stream(parts)
}

fn none<T>() -> Ready<Option<T>> {
    ready(None)
}
