//! Asynchronous runs: futures for any executor, and queues of those that have ended.

use crate::error::{check, Error, Result, Status};
use crate::handle::{api, guarded, wait_ns, Lent, Owned};
use crate::run::{memory_of, memory_of_values, raw_inputs, raw_values, taken, Outputs, RunOptions};
use crate::session::{Cancel, Session};
use crate::sys::*;
use crate::tensor::{Memory, Tensor};
use crate::value::Value;
use std::future::Future;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What keeps inputs from being written.
type Kept = Vec<Arc<Memory>>;

/// What the callback and the future know of a request.
#[derive(Default)]
struct Progress {
    is_done: bool,
    waker: Option<Waker>,
    keep: Kept,
}

type Shared = Arc<Mutex<Progress>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

// It only notes the end and wakes: what the waker does is the executor's, and a panic of it ends here.
unsafe extern "C" fn done(user: *mut c_void, _request: evn_request) {
    let shared = &*user.cast::<Shared>();
    guarded(|| {
        let (waker, keep) = {
            let mut progress = locked(shared);
            progress.is_done = true;
            (progress.waker.take(), std::mem::take(&mut progress.keep))
        };
        drop(keep);
        if let Some(waker) = waker {
            waker.wake();
        }
    });
}

mod kinds {
    use super::*;

    /// What a request gives: Tensor or Value.
    pub trait Kind: Sized {
        /// Takes the outputs of a request that has ended. Values share the memory of `inputs`.
        #[doc(hidden)]
        fn take(
            api: &'static evn_api,
            request: evn_request,
            outputs: usize,
            inputs: Kept,
        ) -> Result<Outputs<Self>>;
    }

    impl Kind for Tensor {
        fn take(
            api: &'static evn_api,
            request: evn_request,
            outputs: usize,
            _inputs: Kept,
        ) -> Result<Outputs<Tensor>> {
            let mut slots = vec![evn_tensor::NULL; outputs];
            let count = outputs as u32;
            check(|error| unsafe { (api.request_take)(request, slots.as_mut_ptr(), count, error) })?;
            Ok(Outputs::of(api, slots))
        }
    }

    impl Kind for Value {
        fn take(
            api: &'static evn_api,
            request: evn_request,
            outputs: usize,
            inputs: Kept,
        ) -> Result<Outputs<Value>> {
            let mut slots = vec![evn_value::NULL; outputs];
            let count = outputs as u32;
            check(|error| unsafe { (api.request_take_values)(request, slots.as_mut_ptr(), count, error) })?;
            Ok(Outputs::of_values(api, slots, inputs))
        }
    }
}
use kinds::Kind;

/// One asynchronous run: a future, which any executor can poll, or `wait`.
///
/// Where it is dropped before its end the run is cancelled, unless it was submitted with a token of the
/// caller's; `detach` lets it go on. Inputs may be dropped at once: the library keeps them, and they cannot
/// be written before the end.
#[must_use = "dropping a request cancels it"]
pub struct Request<T: Kind = Tensor> {
    owned: Owned<evn_request>,
    shared: Shared,
    own_cancel: Option<Cancel>,
    outputs: usize,
    /// Memory of the input values, which outputs may share. Kept until the outputs are taken.
    inputs: Kept,
    is_taken: bool,
    kind: PhantomData<fn() -> T>,
}

impl Session {
    /// Has threads of the library run the model, and returns at once.
    pub fn submit<'t, I>(&self, inputs: &[I], options: &RunOptions) -> Result<Request>
    where
        I: Copy + Into<Option<&'t Tensor>>,
    {
        let raw = raw_inputs(inputs);
        self.submit_any(memory_of(inputs), options, |options, slots, submit, out, error| unsafe {
            let (at, count, none) = (raw.as_ptr(), raw.len() as u32, std::ptr::null());
            let call = self.owned.api.session_submit;
            call(self.owned.raw, at, count, none, slots, options, submit, out, error)
        })
    }

    /// As `submit`, for models that take or give more than tensors.
    pub fn submit_values(&self, inputs: &[Option<&Value>], options: &RunOptions) -> Result<Request<Value>> {
        let (raw, given) = (raw_values(inputs), memory_of_values(inputs));
        let mut request =
            self.submit_any(given.clone(), options, |options, slots, submit, out, error| unsafe {
                let (at, count, none) = (raw.as_ptr(), raw.len() as u32, std::ptr::null());
                let call = self.owned.api.session_submit_values;
                call(self.owned.raw, at, count, none, slots, options, submit, out, error)
            })?;
        request.inputs = given;
        Ok(request)
    }

    /// Makes the request. `call` gets the options, the number of outputs, how it tells of its end, and where
    /// handle and error go.
    fn submit_any<T: Kind>(
        &self,
        keep: Kept,
        options: &RunOptions,
        call: impl FnOnce(
            *const evn_run_options,
            u32,
            *const evn_submit_options,
            *mut evn_request,
            *mut evn_error,
        ) -> evn_status,
    ) -> Result<Request<T>> {
        let own_cancel = if options.cancel.is_none() { Some(Cancel::new()?) } else { None };
        let outputs = self.output_count()?;
        let options =
            RunOptions { cancel: options.cancel.or(own_cancel.as_ref()), ..*options }.raw(outputs)?;
        let shared: Shared = Arc::default();
        locked(&shared).keep = keep;
        let lent = Lent::new(shared.clone());
        let mut submit = evn_submit_options::INIT;
        submit.done = Some(done);
        submit.user = lent.user;
        submit.release = Some(Lent::<Shared>::take_back);
        let owned = Owned::make(self.owned.api, |out, error| {
            call(&options.raw, outputs as u32, &submit, out, error)
        })?;
        lent.keep();
        Ok(Request {
            owned,
            shared,
            own_cancel,
            outputs,
            inputs: Kept::new(),
            is_taken: false,
            kind: PhantomData,
        })
    }

    /// As `submit`, but `queue` gives the end of it with `key`. To stop it, cancel the token of the options.
    pub fn submit_to<'t, I>(
        &self,
        queue: &CompletionQueue,
        key: u64,
        inputs: &[I],
        options: &RunOptions,
    ) -> Result<()>
    where
        I: Copy + Into<Option<&'t Tensor>>,
    {
        let outputs = self.output_count()?;
        let lent = Lent::new(Ticket { key, outputs, keep: Mutex::new(memory_of(inputs)) });
        let mut submit = evn_submit_options::INIT;
        submit.queue = queue.owned.raw;
        submit.user = lent.user;
        submit.release = Some(Lent::<Ticket>::take_back);
        let (options, raw) = (options.raw(outputs)?, raw_inputs(inputs));
        check(|error| unsafe {
            let (at, count, slots) = (raw.as_ptr(), raw.len() as u32, outputs as u32);
            let (none, handle) = (std::ptr::null(), std::ptr::null_mut());
            let call = self.owned.api.session_submit;
            call(self.owned.raw, at, count, none, slots, &options.raw, &submit, handle, error)
        })?;
        lent.keep();
        Ok(())
    }
}

impl<T: Kind> Request<T> {
    /// Asks the run to stop: it ends soon after with Status::Cancelled. With a token of the caller's, that
    /// token is the way.
    pub fn cancel(&self) {
        if let Some(cancel) = &self.own_cancel {
            cancel.cancel();
        }
    }

    /// Lets the run go on without anybody who waits for it.
    pub fn detach(mut self) {
        self.own_cancel = None;
    }

    /// Whether it has ended; waits so long for it, None: as long as it takes.
    pub fn wait_for(&self, timeout: Option<Duration>) -> Result<bool> {
        let (wait, mut is_done) = (self.owned.api.request_wait, false);
        check(|error| unsafe { wait(self.owned.raw, wait_ns(timeout), &mut is_done, error) })?;
        Ok(is_done)
    }

    /// Blocks until the run has ended, and gives what it made.
    pub fn wait(mut self) -> Result<Outputs<T>> {
        self.wait_for(None)?;
        self.take()
    }

    // It has ended: the inputs are not read any more, whether or not the callback has said so yet.
    fn take(&mut self) -> Result<Outputs<T>> {
        self.is_taken = true;
        let keep = std::mem::take(&mut locked(&self.shared).keep);
        drop(keep);
        T::take(self.owned.api, self.owned.raw, self.outputs, std::mem::take(&mut self.inputs))
    }
}

impl<T: Kind> Future for Request<T> {
    type Output = Result<Outputs<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_taken {
            return Poll::Ready(Err(taken()));
        }
        let waker = context.waker().clone();
        let old = {
            let mut progress = locked(&self.shared);
            if progress.is_done {
                None
            } else {
                Some(progress.waker.replace(waker))
            }
        };
        if let Some(old) = old {
            drop(old); // without the lock: a waker runs code of the executor's
            return Poll::Pending;
        }
        Poll::Ready(self.take())
    }
}

impl<T: Kind> Drop for Request<T> {
    fn drop(&mut self) {
        if !self.is_taken {
            let waker = locked(&self.shared).waker.take();
            drop(waker);
            self.cancel();
        }
    }
}

/// What a queue knows a request by.
struct Ticket {
    key: u64,
    outputs: usize,
    keep: Mutex<Kept>,
}

/// A request that has ended.
pub struct Completion {
    /// As it was submitted with.
    pub key: u64,
    pub result: Result<Outputs>,
}

/// Requests that have ended, in that order, for one or more threads to take.
pub struct CompletionQueue {
    owned: Owned<evn_queue>,
}

impl CompletionQueue {
    pub fn new() -> Result<CompletionQueue> {
        let api = api()?;
        let make = |out, error| unsafe { (api.queue_create)(out, error) };
        Ok(CompletionQueue { owned: Owned::make(api, make)? })
    }

    /// The request that ended first; waits so long for one, None: as long as it takes. Ok(None): none came.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<Completion>> {
        let api = self.owned.api;
        let request = Owned::<evn_request>::make(api, |out, error| unsafe {
            (api.queue_next)(self.owned.raw, wait_ns(timeout), out, error)
        })?;
        if request.raw.is_null() {
            return Ok(None);
        }
        let mut user = std::ptr::null_mut();
        check(|error| unsafe { (api.request_user)(request.raw, &mut user, error) })?;
        if user.is_null() {
            return Err(Error::new(Status::Internal, "a request of the queue has no ticket"));
        }
        // It is there until the handle has been released, and only submit_to puts requests into this queue.
        let ticket = unsafe { &*user.cast::<Ticket>() };
        let keep = std::mem::take(&mut *locked(&ticket.keep));
        drop(keep);
        let (key, result) = (ticket.key, Tensor::take(api, request.raw, ticket.outputs, Kept::new()));
        drop(request);
        Ok(Some(Completion { key, result }))
    }

    /// A descriptor for poll and epoll, which can be read from while there are requests; it is the queue's.
    #[cfg(unix)]
    pub fn descriptor(&self) -> Result<std::os::unix::io::RawFd> {
        let mut fd = -1;
        check(|error| unsafe { (self.owned.api.queue_fd)(self.owned.raw, &mut fd, error) })?;
        Ok(fd)
    }
}
