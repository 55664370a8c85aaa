//! Handles with owners, callbacks' user data, and times.

use crate::error::{check, Error, Result, Status};
use crate::sys::*;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

pub(crate) type Api = &'static evn_api;

pub(crate) fn api() -> Result<Api> {
    Ok(evener_sys::api()?)
}

/// A kind of handle, and how it is given back.
pub(crate) trait Kind: Copy + Default {
    fn release(self, api: Api);
}

macro_rules! kinds {
    ($($name:ident: $release:ident,)*) => {
        $(impl Kind for $name {
            fn release(self, api: Api) {
                // What could be said here is of a handle that this owner does not have.
                let _ = unsafe { (api.$release)(self) };
            }
        })*
    };
}

kinds! {
    evn_runtime: runtime_release,
    evn_device: device_release,
    evn_tensor: tensor_release,
    evn_value: value_release,
    evn_model: model_release,
    evn_session: session_release,
    evn_cancel: cancel_release,
    evn_state: state_release,
    evn_quantizer: quantizer_release,
    evn_request: request_release,
    evn_queue: queue_release,
    evn_event: event_release,
    evn_trainer: trainer_release,
}

/// A handle that is given back when this goes.
pub(crate) struct Owned<H: Kind> {
    pub(crate) raw: H,
    pub(crate) api: Api,
}

impl<H: Kind> Owned<H> {
    /// Makes it by a function whose last parameters are where the handle goes and the error.
    pub(crate) fn make(
        api: Api,
        call: impl FnOnce(*mut H, *mut evn_error) -> evn_status,
    ) -> Result<Owned<H>> {
        let mut raw = H::default();
        check(|error| call(&mut raw, error))?;
        Ok(Owned { raw, api })
    }
}

impl<H: Kind> Drop for Owned<H> {
    fn drop(&mut self) {
        self.raw.release(self.api);
    }
}

/// What a callback is handed, on the heap. Until `keep` it goes back with this.
pub(crate) struct Lent<T> {
    pub(crate) user: *mut c_void,
    kind: std::marker::PhantomData<T>,
}

// It owns the value, which nobody sees through it.
unsafe impl<T: Send> Send for Lent<T> {}
unsafe impl<T: Sync> Sync for Lent<T> {}

impl<T> Lent<T> {
    pub(crate) fn new(value: T) -> Lent<T> {
        Lent { user: Box::into_raw(Box::new(value)).cast(), kind: std::marker::PhantomData }
    }
    /// The library has taken it: it calls `take_back` once.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
    pub(crate) unsafe extern "C" fn take_back(user: *mut c_void) {
        let value = Box::from_raw(user.cast::<T>());
        guarded(|| drop(value));
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        unsafe { drop(Box::from_raw(self.user.cast::<T>())) };
    }
}

/// Runs what a host gave for a callback: a panic ends here, and its text is the error.
pub(crate) fn caught<R>(body: impl FnOnce() -> R) -> std::result::Result<R, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        // What a panic carries may panic again when it is dropped; what that one carries is left alone.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text.unwrap_or_default()
    })
}

/// As `caught`, where nobody wants to know the text. None: it panicked.
pub(crate) fn guarded<R>(body: impl FnOnce() -> R) -> Option<R> {
    caught(body).ok()
}

/// Calls a function of the host's; an error, or a panic, is told to C.
pub(crate) unsafe fn told(
    error: *mut evn_error,
    what: &str,
    body: impl FnOnce() -> Result<()>,
) -> evn_status {
    let failed = match caught(body) {
        Ok(Ok(())) => return EVN_OK,
        Ok(Err(failed)) => failed,
        Err(text) => Error::new(Status::Internal, format!("{} panicked: {}", what, text)),
    };
    if !error.is_null() {
        let message = &mut (*error).message;
        let last = message.len() - 1;
        let bytes = failed.message.bytes().filter(|byte| *byte != 0).take(last);
        let mut length = 0;
        for byte in bytes {
            message[length] = byte as c_char;
            length += 1;
        }
        message[length] = 0;
    }
    match failed.status.code() {
        EVN_OK => EVN_ERROR_INTERNAL, // of Status::Other(0)
        code => code,
    }
}

#[repr(C)]
struct Timespec {
    seconds: std::os::raw::c_long,
    nanoseconds: std::os::raw::c_long,
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

const CLOCK_MONOTONIC: i32 = if cfg!(target_os = "macos") { 6 } else { 1 };

/// Nanoseconds of CLOCK_MONOTONIC at an Instant; one that has passed is in the past there too.
pub(crate) fn monotonic_ns(deadline: Instant) -> Result<u64> {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    if unsafe { clock_gettime(CLOCK_MONOTONIC, &mut time) } != 0 {
        return Err(Error::new(Status::Internal, "the system has no monotonic clock"));
    }
    let now = time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64;
    let left = deadline.saturating_duration_since(Instant::now());
    Ok(now.saturating_add(nanoseconds(left)).max(1))
}

/// For deadline_ns of options: 0 is none.
pub(crate) fn deadline_ns(deadline: Option<Instant>) -> Result<u64> {
    deadline.map_or(Ok(0), monotonic_ns)
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// For waits: None is as long as it takes.
pub(crate) fn wait_ns(timeout: Option<Duration>) -> u64 {
    timeout.map_or(u64::MAX, nanoseconds)
}
