//! Long work beside the other tasks of a runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that may take long, on a thread that serves no other task meanwhile. In a single-threaded runtime, as of
/// tests, the work runs on the only thread.
pub(crate) fn off_thread<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
