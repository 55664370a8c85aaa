//! A model placed on devices: how it is made and what it tells.

use crate::device::Device;
use crate::error::{c_path, c_text, check, read_text, Error, Result, Status, TextArray};
use crate::handle::{api, deadline_ns, nanoseconds, wait_ns, Owned};
use crate::model::{values_of, Model, ValueInfo};
use crate::run::raw_inputs;
use crate::runtime::{Format, Runtime};
use crate::sys::*;
use crate::tensor::Tensor;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asks work that it was given to to stop, for good. Clones are one token.
#[derive(Clone)]
pub struct Cancel {
    owned: Arc<Owned<evn_cancel>>,
}

impl Cancel {
    pub fn new() -> Result<Cancel> {
        let api = api()?;
        let make = |out, error| unsafe { (api.cancel_create)(out, error) };
        Ok(Cancel { owned: Arc::new(Owned::make(api, make)?) })
    }

    /// From any thread, also from a handler of a signal. The work ends soon after with Status::Cancelled.
    pub fn cancel(&self) {
        // The handle is this object's, so that there is nothing that could fail.
        let _ = unsafe { (self.owned.api.cancel_request)(self.owned.raw) };
    }

    pub(crate) fn raw(cancel: Option<&Cancel>) -> evn_cancel {
        cancel.map_or(evn_cancel::NULL, |cancel| cancel.owned.raw)
    }
}

/// The lowest precision to which products may round their operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    Default,
    Fp32,
    Bf16,
    Fp16,
    Auto,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numerics {
    #[default]
    Default,
    Fast,
    Strict,
}

/// Which library multiplies matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    #[default]
    Default,
    Own,
    OpenBlas,
    ClBlast,
    Auto,
    Measured,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPlan {
    #[default]
    Default,
    Fast,
    Small,
}

/// How submitted runs are joined to batches.
#[derive(Clone, Debug)]
pub struct Batching {
    pub max_batch: i32,
    pub max_delay: Duration,
    /// The model's input of 1 for what counts and 0 for padding.
    pub mask: Option<String>,
    /// Lengths in rising order.
    pub buckets: Vec<i64>,
}

impl Default for Batching {
    fn default() -> Self {
        Batching { max_batch: 8, max_delay: Duration::ZERO, mask: None, buckets: Vec::new() }
    }
}

/// How a session is made; what is left as it is comes from the configuration.
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// For nodes that no rule places: "cpu", "gpu", "auto", a name of the configuration, or several with
    /// commas.
    pub device: Option<String>,
    /// Where packed weights are kept from one process to the next: a file, or a folder that ends in /.
    pub cache_file: Option<PathBuf>,
    /// EVN_CACHE_... of the C API.
    pub cache_flags: u32,
    pub precision: Precision,
    /// Nodes that stay float32: globs of their names, or "type:Softmax".
    pub keep_fp32: Vec<String>,
    pub numerics: Numerics,
    pub disabled_passes: Vec<String>,
    /// How many runs compute at a time at most; 0: as the configuration says.
    pub concurrency: i32,
    pub batching: Option<Batching>,
    pub idle_arena_bytes: u64,
    /// Limit of the intermediate values of a run: what does not fit is computed again. 0: none.
    pub arena_limit: u64,
    /// What statistics call the session.
    pub name: Option<String>,
    pub products: Products,
    pub memory: MemoryPlan,
    /// Whether memory of intermediate values is shared with other sessions that have this; None: as the
    /// configuration says.
    pub share_arenas: Option<bool>,
    /// Inputs with a default that runs are going to give.
    pub overridable: Vec<String>,
    /// Ends the making of the session, not its runs.
    pub cancel: Option<Cancel>,
    pub deadline: Option<Instant>,
}

/// A model placed on the devices of a runtime. Any number of threads may run it at a time; to close it is to
/// drop it.
///
/// ```compile_fail,E0382
/// fn use_after_close(session: evener::Session) {
///     session.close();
///     let _ = session.inputs();
/// }
/// ```
/// ```compile_fail,E0382
/// fn double_close(session: evener::Session) {
///     session.close();
///     session.close();
/// }
/// ```
/// ```compile_fail,E0505
/// fn close_during_a_run(session: evener::Session, x: evener::Tensor) {
///     std::thread::scope(|threads| {
///         threads.spawn(|| session.run(&[&x]));
///         session.close();
///     });
/// }
/// ```
pub struct Session {
    pub(crate) owned: Owned<evn_session>,
}

/// What a session holds on all its devices together, in bytes.
pub type SessionMemoryStats = evn_session_memory_stats;

fn pointer(text: &Option<CString>) -> *const std::os::raw::c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

impl Session {
    pub fn new(runtime: &Runtime, model: &Model) -> Result<Session> {
        Session::with(runtime, model, &SessionOptions::default())
    }

    pub fn with(runtime: &Runtime, model: &Model, options: &SessionOptions) -> Result<Session> {
        let device = options.device.as_deref().map(c_text).transpose()?;
        let cache_file = options.cache_file.as_deref().map(c_path).transpose()?;
        let name = options.name.as_deref().map(c_text).transpose()?;
        let keep_fp32 = TextArray::new(&options.keep_fp32)?;
        let overridable = TextArray::new(&options.overridable)?;
        let passes = TextArray::new(&options.disabled_passes)?;
        let mask = options.batching.as_ref().and_then(|batching| batching.mask.as_deref());
        let mask = mask.map(c_text).transpose()?;
        let batching = options.batching.as_ref().map(|given| {
            let mut raw = evn_batching_options::INIT;
            raw.max_batch = given.max_batch;
            raw.max_delay_ns = nanoseconds(given.max_delay);
            raw.mask = pointer(&mask);
            raw.buckets = given.buckets.as_ptr();
            raw.bucket_count = given.buckets.len() as u32;
            raw
        });
        let mut raw = evn_session_options::INIT;
        raw.device = pointer(&device);
        raw.cache_file = pointer(&cache_file);
        raw.cache_flags = options.cache_flags;
        raw.precision = options.precision as evn_precision;
        raw.keep_fp32 = keep_fp32.as_ptr();
        raw.keep_fp32_count = keep_fp32.len();
        raw.numerics = options.numerics as evn_numerics;
        raw.disabled_passes = passes.as_ptr();
        raw.disabled_pass_count = passes.len();
        raw.overridable = overridable.as_ptr();
        raw.overridable_count = overridable.len();
        raw.concurrency = options.concurrency;
        raw.cancel = Cancel::raw(options.cancel.as_ref());
        raw.deadline_ns = deadline_ns(options.deadline)?;
        raw.batching = batching.as_ref().map_or(std::ptr::null(), |batching| batching);
        raw.idle_arena_bytes = options.idle_arena_bytes;
        raw.arena_limit = options.arena_limit;
        raw.name = pointer(&name);
        raw.products = options.products as evn_products;
        raw.memory = options.memory as evn_memory_plan;
        raw.arenas = match options.share_arenas {
            None => EVN_ARENAS_DEFAULT,
            Some(false) => EVN_ARENAS_OWN,
            Some(true) => EVN_ARENAS_SHARED,
        };
        let api = runtime.owned.api;
        let owned = Owned::make(api, |out, error| unsafe {
            (api.session_create)(runtime.owned.raw, model.owned.raw, &raw, out, error)
        })?;
        Ok(Session { owned })
    }

    /// The session on one device alone.
    pub fn on(runtime: &Runtime, model: &Model, device: &Device) -> Result<Session> {
        let options = SessionOptions { device: Some(device.info()?.name), ..SessionOptions::default() };
        Session::with(runtime, model, &options)
    }

    /// Ends this hold, as dropping it does. Requests that are under way end normally.
    pub fn close(self) {}

    /// Ends this hold, and waits until all requests that were submitted have ended and told of it.
    /// Status::Timeout: they go on.
    pub fn finish(self, timeout: Option<Duration>) -> Result<()> {
        let (api, raw) = (self.owned.api, self.owned.raw);
        let done = check(|error| unsafe { (api.session_finish)(raw, wait_ns(timeout), error) });
        match &done {
            Err(error) if error.status == Status::WrongState => drop(self), // nothing has happened yet
            _ => std::mem::forget(self),                                    // the call has ended the handle
        }
        done
    }

    pub fn inputs(&self) -> Result<Vec<ValueInfo>> {
        let api = self.owned.api;
        let (count, info, name) =
            (api.session_input_count, api.session_get_input_info, api.session_input_name);
        values_of(self.owned.raw, 0, count, info, name, None)
    }

    /// Inputs that need not be given, since they have a default: they follow the others in what runs take.
    pub fn defaults(&self) -> Result<Vec<ValueInfo>> {
        let api = self.owned.api;
        let mut first = 0;
        check(|error| unsafe { (api.session_input_count)(self.owned.raw, &mut first, error) })?;
        let (count, info, name) =
            (api.session_default_count, api.session_get_input_info, api.session_input_name);
        values_of(self.owned.raw, first, count, info, name, None)
    }

    pub fn outputs(&self) -> Result<Vec<ValueInfo>> {
        let api = self.owned.api;
        let (count, info, name) =
            (api.session_output_count, api.session_get_output_info, api.session_output_name);
        values_of(self.owned.raw, 0, count, info, name, None)
    }

    pub(crate) fn output_count(&self) -> Result<usize> {
        let mut count = 0;
        check(|error| unsafe { (self.owned.api.session_output_count)(self.owned.raw, &mut count, error) })?;
        Ok(count as usize)
    }

    /// The place of an input; the error lists the names there are.
    pub fn find_input(&self, name: &str) -> Result<usize> {
        let (name, mut index) = (c_text(name)?, 0);
        let find = self.owned.api.session_find_input;
        check(|error| unsafe { find(self.owned.raw, name.as_ptr(), &mut index, error) })?;
        Ok(index as usize)
    }

    /// The place of an output; the error lists the names there are.
    pub fn find_output(&self, name: &str) -> Result<usize> {
        let (name, mut index) = (c_text(name)?, 0);
        let find = self.owned.api.session_find_output;
        check(|error| unsafe { find(self.owned.raw, name.as_ptr(), &mut index, error) })?;
        Ok(index as usize)
    }

    /// For each node its device, kernel and the reason; copies between devices; memory.
    pub fn explain(&self, format: Format) -> Result<String> {
        let explain = self.owned.api.session_explain;
        read_text(1 << 16, |buffer, capacity, size, error| unsafe {
            explain(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }

    /// What runs and requests have come to so far.
    pub fn statistics(&self, format: Format) -> Result<String> {
        let statistics = self.owned.api.session_get_statistics;
        read_text(1 << 14, |buffer, capacity, size, error| unsafe {
            statistics(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }

    pub fn memory_stats(&self) -> Result<SessionMemoryStats> {
        let mut stats = evn_session_memory_stats::INIT;
        check(|error| unsafe {
            (self.owned.api.session_get_memory_stats)(self.owned.raw, &mut stats, error)
        })?;
        Ok(stats)
    }

    /// How far the outputs of another session of the same runtime are from this one's, and how long both
    /// take.
    pub fn compare(&self, other: &Session, inputs: &[&Tensor], format: Format) -> Result<String> {
        let inputs = raw_inputs(inputs);
        let compare = self.owned.api.session_compare;
        read_text(1 << 16, |buffer, capacity, size, error| unsafe {
            let (at, count) = (inputs.as_ptr(), inputs.len() as u32);
            compare(self.owned.raw, other.owned.raw, at, count, format.code(), buffer, capacity, size, error)
        })
    }

    /// Records what runs do that begin from now on; there is room for so many events.
    pub fn trace_start(&self, events: u32) -> Result<()> {
        check(|error| unsafe { (self.owned.api.session_trace_start)(self.owned.raw, events, error) })
    }

    pub fn trace_stop(&self) -> Result<()> {
        check(|error| unsafe { (self.owned.api.session_trace_stop)(self.owned.raw, error) })
    }

    /// What has been recorded: a trace that Chrome and Perfetto open (`Json`), or a table by node (`Text`).
    pub fn trace(&self, format: Format) -> Result<String> {
        let trace = self.owned.api.session_get_trace;
        read_text(1 << 16, |buffer, capacity, size, error| unsafe {
            trace(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }

    /// The handle, for functions of [`crate::sys`]. It stays this session's.
    pub fn as_raw(&self) -> evn_session {
        self.owned.raw
    }
}

/// Puts tensors with names into the order of a model, by a function that finds a name's place.
pub(crate) fn in_order<'t>(
    named: &[(&str, &'t Tensor)],
    find: impl Fn(&str) -> Result<usize>,
) -> Result<Vec<Option<&'t Tensor>>> {
    let mut ordered = Vec::new();
    for (name, tensor) in named {
        let index = find(name)?;
        if ordered.len() <= index {
            ordered.resize(index + 1, None);
        }
        if ordered[index].replace(*tensor).is_some() {
            return Err(Error::argument(format!("input '{}' is given twice", name)));
        }
    }
    Ok(ordered)
}
