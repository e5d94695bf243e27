//! Detects changes of views, for readers that look again after each change.

use anteroom_model::ViewId;
use futures::future::select_all;
use tokio::sync::watch;

use crate::{Mirror, ViewHandle, ViewSet, ViewStatus};

/// The versions of views at one moment. A reader that takes them before it reads misses no later change.
#[derive(Debug)]
pub struct ChangeMarks {
    views: watch::Receiver<ViewSet>,
    statuses: Vec<watch::Receiver<ViewStatus>>,
}

impl ChangeMarks {
    /// Notes the present set of views, and the status of each view for which `is_one` is true.
    pub fn set(mirror: &Mirror, is_one: impl Fn(&ViewId) -> bool) -> Self {
        let mut views = mirror.views();
        let known = views.borrow_and_update().clone();
        let marked = known.iter().filter(|(id, _)| is_one(id));
        let statuses = marked.map(|(_, view)| ViewHandle::status(view)).collect();
        Self { views, statuses }
    }

    /// Waits until a noted view may have changed; for ever, once the mirror has ended.
    pub async fn passed(&mut self) {
        let statuses = self.statuses.iter_mut().map(|status| {
            Box::pin(async move {
                // An error means that the view is gone, and then the set of views changes.
                if status.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        });
        let statuses: Vec<_> = statuses.collect();
        let any = async {
            match statuses.is_empty() {
                true => std::future::pending().await,
                false => drop(select_all(statuses).await),
            }
        };
        tokio::select! {
            Ok(()) = self.views.changed() => {}
            () = any => {}
        }
    }
}
