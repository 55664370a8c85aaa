//! The host's own threads in place of the library's.

use crate::handle::guarded;
use crate::sys::*;
use std::os::raw::c_void;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

/// A host's threads: with [`crate::RuntimeBuilder::executor`] the library starts none of its own. Results
/// have the same bits.
pub trait Executor: Send + Sync + 'static {
    /// Calls `task(i)` once for each i < count, on any threads, and returns when all these calls have. It may
    /// run them all here. It is called by threads that run sessions, also by several at a time. What it
    /// leaves out, or a panic does, others do.
    fn parallel_for(&self, count: u32, task: &(dyn Fn(u32) + Sync));

    /// Has a task run later, on any thread that may block for as long as a run takes, and returns at once. An
    /// error: there is no way, and what asked for it fails. As it stands here there are no requests.
    fn post(&self, task: PostedTask) -> Result<(), PostedTask> {
        Err(task)
    }
}

/// A task for [`Executor::post`]. Where it is dropped later without having been run it is run there: what
/// waits for it must end.
pub struct PostedTask {
    task: Task,
    state: Arc<AtomicU8>,
}

/// What became of a PostedTask: `post` has it and has not returned; `post` has returned; it was dropped
/// before that; it was run.
const POSTING: u8 = 0;
const POSTED: u8 = 1;
const DROPPED: u8 = 2;
const RUN: u8 = 3;

impl PostedTask {
    pub fn run(self) {
        self.state.store(RUN, Ordering::SeqCst);
        self.task.call(0);
    }
}

impl Drop for PostedTask {
    fn drop(&mut self) {
        let state = self.state.compare_exchange(POSTING, DROPPED, Ordering::SeqCst, Ordering::SeqCst);
        if state == Err(POSTED) {
            self.task.call(0);
        }
    }
}

pub(crate) type Shared = Arc<dyn Executor>;

struct Task {
    task: unsafe extern "C" fn(*mut c_void, u32),
    context: *mut c_void,
}

// A task may be called on any thread, by several at a time.
unsafe impl Send for Task {}
unsafe impl Sync for Task {}

impl Task {
    fn call(&self, index: u32) {
        unsafe { (self.task)(self.context, index) }
    }
}

pub(crate) unsafe extern "C" fn parallel_for(
    user: *mut c_void,
    count: u32,
    task: evn_task,
    context: *mut c_void,
) {
    let executor = &*user.cast::<Shared>();
    if let Some(task) = task {
        let task = Task { task, context };
        guarded(|| executor.parallel_for(count, &|index| task.call(index)));
    }
}

pub(crate) unsafe extern "C" fn post(user: *mut c_void, task: evn_task, context: *mut c_void) -> evn_status {
    let executor = &*user.cast::<Shared>();
    let task = match task {
        Some(task) => Task { task, context },
        None => return EVN_ERROR_INVALID_ARGUMENT,
    };
    let state = Arc::new(AtomicU8::new(POSTING));
    let posted = PostedTask { task, state: state.clone() };
    // It says by an error that there is no way, or by a panic: then the task has been dropped, or it was
    // handed on all the same.
    guarded(|| drop(executor.post(posted)));
    match state.compare_exchange(POSTING, POSTED, Ordering::SeqCst, Ordering::SeqCst) {
        Err(DROPPED) => EVN_ERROR_UNSUPPORTED,
        _ => EVN_OK,
    }
}
