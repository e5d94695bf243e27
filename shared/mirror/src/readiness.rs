//! The readiness of a mirror.

use anteroom_bus::LogScope;
use anteroom_model::{ViewId, system};
use anteroom_view::LifeState;

use crate::handle::ViewSet;

/// The readiness of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorReadiness {
    /// It has read the log to its end, and every view answers: with its content, or with an error
    /// that it can tell.
    Ready,
    /// Ready, with what it misses meanwhile, for people.
    ReadyBut(String),
    /// Not (any more), with what it waits for, for people.
    Waiting(String),
}

/// The views without which nothing can be said to be there: a reader that started before any
/// watcher did would otherwise be ready with nothing.
pub(crate) fn required(scope: &LogScope) -> Vec<ViewId> {
    match scope {
        LogScope::All => vec![system::entries(), system::policies(), system::kinds()],
        LogScope::Views(views) => views.clone(),
        LogScope::Controls => Vec::new(),
    }
}

pub(crate) fn judge(required: &[ViewId], caught_up_once: bool, views: &ViewSet) -> MirrorReadiness {
    if !caught_up_once {
        return MirrorReadiness::Waiting("the first read of the log".to_owned());
    }
    let unseen = required.iter().filter(|id| !views.contains_key(id));
    let mut waiting: Vec<_> = unseen
        .map(|id| format!("view {id}, which the watcher writes"))
        .collect();
    for (id, view) in views.iter() {
        let state = view.status().borrow().state.clone();
        match state {
            // An error that can be told is an answer.
            LifeState::Synced | LifeState::Failed(_) | LifeState::Evicted | LifeState::Dropped => {}
            LifeState::Stale => waiting.push(format!("fresh news of view {id}")),
            LifeState::Unsynced | LifeState::Syncing => {
                waiting.push(format!("view {id}, which is {}", state.name()));
            }
        }
    }
    if waiting.is_empty() {
        MirrorReadiness::Ready
    } else {
        MirrorReadiness::Waiting(waiting.join(", "))
    }
}
