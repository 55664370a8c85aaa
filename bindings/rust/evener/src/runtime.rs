//! The runtime: devices, memory pools, threads and the log.

use crate::device::Device;
use crate::error::{c_path, c_text, check, read_text, text_at, Result};
use crate::executor::{self, Executor};
use crate::handle::{api, deadline_ns, guarded, nanoseconds, Lent, Owned};
use crate::model::Model;
use crate::session::{Cancel, Session};
use crate::sys::*;
use std::ffi::CString;
use std::os::raw::c_void;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A text as the library writes it. `Dot` and `Svg` are of [`Session::explain`] alone, `Prometheus` of
/// [`Runtime::statistics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Dot,
    Svg,
    Prometheus,
}

impl Format {
    pub(crate) fn code(self) -> evn_format {
        match self {
            Format::Text => EVN_FORMAT_TEXT,
            Format::Json => EVN_FORMAT_JSON,
            Format::Dot => EVN_FORMAT_DOT,
            Format::Svg => EVN_FORMAT_SVG,
            Format::Prometheus => EVN_FORMAT_PROMETHEUS,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
}

impl LogLevel {
    fn code(self) -> evn_log_level {
        match self {
            LogLevel::Error => EVN_LOG_ERROR,
            LogLevel::Warning => EVN_LOG_WARNING,
            LogLevel::Info => EVN_LOG_INFO,
            LogLevel::Debug => EVN_LOG_DEBUG,
        }
    }
    fn of(code: evn_log_level) -> LogLevel {
        match code {
            EVN_LOG_ERROR => LogLevel::Error,
            EVN_LOG_WARNING => LogLevel::Warning,
            EVN_LOG_INFO => LogLevel::Info,
            _ => LogLevel::Debug,
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogRecord {
    pub level: LogLevel,
    /// CLOCK_MONOTONIC.
    pub timestamp_ns: u64,
    pub message: String,
    /// What happened, for programs: "session.created"; evn_log_record of the C API lists the names.
    pub event: String,
    pub device: String,
    pub node: String,
    /// Figures of the event.
    pub fields: Vec<(String, String)>,
}

type Log = Box<dyn Fn(&LogRecord) + Send + Sync>;

unsafe extern "C" fn deliver(user: *mut c_void, record: *const evn_log_record) {
    let (log, record) = (&*user.cast::<Log>(), &*record);
    guarded(|| {
        let fields = if record.field_count == 0 {
            &[][..]
        } else {
            std::slice::from_raw_parts(record.fields, record.field_count as usize)
        };
        log(&LogRecord {
            level: LogLevel::of(record.level),
            timestamp_ns: record.timestamp_ns,
            message: text_at(record.message),
            event: text_at(record.event),
            device: text_at(record.device),
            node: text_at(record.node),
            fields: fields.iter().map(|field| (text_at(field.key), text_at(field.value))).collect(),
        })
    });
}

/// How a runtime is made: `Runtime::builder().threads(2).config_text(yaml).build()?`.
#[derive(Default)]
#[must_use]
pub struct RuntimeBuilder {
    threads: i32,
    config: Config,
    cache_dir: Option<PathBuf>,
    memory_limit: u64,
    log: Option<(Log, LogLevel)>,
    executor: Option<executor::Shared>,
    probe_program: Option<PathBuf>,
    probe_timeout: Duration,
}

#[derive(Default)]
struct Config {
    path: Option<PathBuf>,
    text: Option<String>,
}

impl Config {
    /// The path for C, which must live as long as the options.
    fn path(&self) -> Result<Option<CString>> {
        self.path.as_deref().map(c_path).transpose()
    }
    fn text(&self) -> (*const std::os::raw::c_char, usize) {
        self.text.as_ref().map_or((ptr::null(), 0), |text| (text.as_ptr().cast(), text.len()))
    }
}

fn pointer(text: &Option<CString>) -> *const std::os::raw::c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

impl RuntimeBuilder {
    /// Threads of the CPU device, the caller's included; 0: from the configuration, else all that the process
    /// may use.
    pub fn threads(mut self, count: i32) -> Self {
        self.threads = count;
        self
    }
    /// A YAML file; config/schema.yaml documents its keys.
    pub fn config_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.path = Some(path.into());
        self
    }
    /// The YAML itself.
    pub fn config_text(mut self, text: impl Into<String>) -> Self {
        self.config.text = Some(text.into());
        self
    }
    /// Folder for compiled OpenCL programs; "" for none.
    pub fn cache_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache_dir = Some(path.into());
        self
    }
    /// Cap of the CPU device in bytes.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }
    /// Receives what happens up to `level`, on the thread on which it happens. It must not call the library;
    /// a panic is lost.
    pub fn log(mut self, level: LogLevel, log: impl Fn(&LogRecord) + Send + Sync + 'static) -> Self {
        self.log = Some((Box::new(log), level));
        self
    }
    /// The host's threads in place of the library's; `threads` says into how many tasks work is split at
    /// most.
    pub fn executor(mut self, executor: impl Executor) -> Self {
        self.executor = Some(Arc::new(executor));
        self
    }
    /// Path of the `evener` command, which tries drivers before they are loaded into this process, and how
    /// long it may take.
    pub fn probe(mut self, program: impl Into<PathBuf>, timeout: Duration) -> Self {
        self.probe_program = Some(program.into());
        self.probe_timeout = timeout;
        self
    }

    pub fn build(self) -> Result<Runtime> {
        let api = api()?;
        let config_path = self.config.path()?;
        let cache_dir = self.cache_dir.as_deref().map(c_path).transpose()?;
        let probe_program = self.probe_program.as_deref().map(c_path).transpose()?;
        let mut options = evn_runtime_options::INIT;
        options.thread_count = self.threads;
        options.config_path = pointer(&config_path);
        let (text, size) = self.config.text();
        options.config_text = text;
        options.config_size = size;
        options.cache_dir = pointer(&cache_dir);
        options.cpu_memory_limit_bytes = self.memory_limit;
        options.probe_program = pointer(&probe_program);
        options.probe_timeout_ns = nanoseconds(self.probe_timeout);
        let lent = self.log.map(|(log, level)| {
            options.log_level = level.code();
            Lent::new(log)
        });
        if let Some(lent) = &lent {
            options.log_sink = Some(deliver);
            options.log_sink_user = lent.user;
            options.log_sink_release = Some(Lent::<Log>::take_back);
        }
        let lent_executor = self.executor.map(|shared| (Lent::new(shared.clone()), Lent::new(shared)));
        if let Some((parallel, post)) = &lent_executor {
            options.parallel_for = Some(executor::parallel_for);
            options.parallel_user = parallel.user;
            options.parallel_release = Some(Lent::<executor::Shared>::take_back);
            options.post = Some(executor::post);
            options.post_user = post.user;
            options.post_release = Some(Lent::<executor::Shared>::take_back);
        }
        let owned = Owned::make(api, |out, error| unsafe { (api.runtime_create)(&options, out, error) })?;
        if let Some(lent) = lent {
            lent.keep();
        }
        if let Some((parallel, post)) = lent_executor {
            parallel.keep();
            post.keep();
        }
        Ok(Runtime { owned })
    }
}

/// Devices, memory pools and threads. What is made of it keeps it, so it may be dropped at any time.
pub struct Runtime {
    pub(crate) owned: Owned<evn_runtime>,
}

impl Runtime {
    /// The CPU with all cores that this process may use.
    pub fn new() -> Result<Runtime> {
        Runtime::builder().build()
    }

    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// The devices that have been opened so far; the first is the CPU.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let (api, raw, mut count) = (self.owned.api, self.owned.raw, 0);
        check(|error| unsafe { (api.runtime_device_count)(raw, &mut count, error) })?;
        (0..count).map(|index| self.device_at(index)).collect()
    }

    fn device_at(&self, index: u32) -> Result<Device> {
        let (api, raw) = (self.owned.api, self.owned.raw);
        let make = |out, error| unsafe { (api.runtime_device_at)(raw, index, out, error) };
        Ok(Device { owned: Owned::make(api, make)? })
    }

    pub fn cpu(&self) -> Result<Device> {
        self.device_at(0)
    }

    /// A device by its string: "cpu", "gpu", "gpu:1", "opencl:0" or a name of the configuration. Opens it if
    /// need be.
    pub fn device(&self, name: &str) -> Result<Device> {
        let (api, name) = (self.owned.api, c_text(name)?);
        let make =
            |out, error| unsafe { (api.runtime_device_find)(self.owned.raw, name.as_ptr(), out, error) };
        Ok(Device { owned: Owned::make(api, make)? })
    }

    /// Every platform and device that this machine offers, opened or not.
    pub fn describe_devices(&self, format: Format) -> Result<String> {
        let describe = self.owned.api.runtime_describe_devices;
        read_text(4096, |buffer, capacity, size, error| unsafe {
            describe(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }

    /// The statistics of all sessions, and the memory of the devices.
    pub fn statistics(&self, format: Format) -> Result<String> {
        let statistics = self.owned.api.runtime_get_statistics;
        read_text(1 << 14, |buffer, capacity, size, error| unsafe {
            statistics(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }

    /// The session of a model that the configuration names in `models:`, the same one for all who ask.
    pub fn session(&self, name: &str) -> Result<Session> {
        let (api, name) = (self.owned.api, c_text(name)?);
        let make = |out, error| unsafe { (api.runtime_session)(self.owned.raw, name.as_ptr(), out, error) };
        Ok(Session { owned: Owned::make(api, make)? })
    }

    /// Measures what steps of a model (None: of some 100 operators) take on each device, for placements of
    /// `default: auto`.
    pub fn calibrate(
        &self,
        model: Option<&Model>,
        format: Format,
        cancel: Option<&Cancel>,
        deadline: Option<Instant>,
    ) -> Result<String> {
        let mut options = evn_calibrate_options::INIT;
        options.cancel = Cancel::raw(cancel);
        options.deadline_ns = deadline_ns(deadline)?;
        let model = model.map_or(evn_model::NULL, |model| model.owned.raw);
        let calibrate = self.owned.api.runtime_calibrate;
        read_text(1 << 16, |buffer, capacity, size, error| unsafe {
            calibrate(self.owned.raw, model, &options, format.code(), buffer, capacity, size, error)
        })
    }

    fn reconfigure(&self, config: Config, cancel: Option<&Cancel>, deadline: Option<Instant>) -> Result<()> {
        let path = config.path()?;
        let mut options = evn_reconfigure_options::INIT;
        options.config_path = pointer(&path);
        let (text, size) = config.text();
        options.config_text = text;
        options.config_size = size;
        options.cancel = Cancel::raw(cancel);
        options.deadline_ns = deadline_ns(deadline)?;
        check(|error| unsafe { (self.owned.api.runtime_reconfigure)(self.owned.raw, &options, error) })
    }

    /// Gives the runtime, and every session of it, the configuration of this text. On an error nothing has
    /// changed.
    pub fn reconfigure_text(
        &self,
        text: &str,
        cancel: Option<&Cancel>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        self.reconfigure(Config { path: None, text: Some(text.to_string()) }, cancel, deadline)
    }

    /// Gives it the configuration of a file, as `reconfigure_text` does that of a text.
    pub fn reconfigure_path(
        &self,
        path: impl Into<PathBuf>,
        cancel: Option<&Cancel>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        self.reconfigure(Config { path: Some(path.into()), text: None }, cancel, deadline)
    }

    /// The handle, for functions of [`crate::sys`]. It stays this runtime's.
    pub fn as_raw(&self) -> evn_runtime {
        self.owned.raw
    }
}

/// The library's version, as "0.3.0".
pub fn version() -> Result<String> {
    let api = api()?;
    Ok(unsafe { text_at((api.version)()) })
}

/// What is done to models so that they run faster.
pub fn describe_passes(format: Format) -> Result<String> {
    let describe = api()?.describe_passes;
    read_text(1 << 14, |buffer, capacity, size, error| unsafe {
        describe(format.code(), buffer, capacity, size, error)
    })
}
