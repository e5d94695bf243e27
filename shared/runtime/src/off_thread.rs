//! Long work beside the other tasks of a runtime.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work that may take long, on a thread that serves no other task meanwhile. In a single-threaded runtime, as of
/// tests, the work runs on the only thread.
pub fn off_thread<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Does short work in place, and long work [beside the runtime's other tasks](off_thread).
pub fn off_thread_if<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    match is_long {
        true => off_thread(work),
        false => work(),
    }
}
