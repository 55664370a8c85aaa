//! Devices of a runtime, what their memory is used for, and events.

use crate::error::{check, read_text, text_of, Error, Result, Status};
use crate::handle::{wait_ns, Owned};
use crate::sys::*;
use std::time::Duration;

/// A view of one device of a runtime.
pub struct Device {
    pub(crate) owned: Owned<evn_device>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    Cpu,
    OpenCl,
    Other(i32),
}

/// Whether a device can be used; [`Device::condition`] says why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceState {
    Ready,
    Quarantined,
    Lost,
    Other(i32),
}

/// What a device is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    pub kind: DeviceKind,
    /// EVN_DEVICE_CLASS_... of the C API.
    pub class: i32,
    pub name: String,
    pub description: String,
    pub driver: String,
    /// Tells it apart from other devices of this machine.
    pub identity: String,
    pub compute_units: u32,
    pub memory_bytes: u64,
    pub largest_allocation: u64,
    /// EVN_DEVICE_FP16, ... of the C API.
    pub features: u32,
    pub state: DeviceState,
    pub quarantines: u32,
}

/// When blocks that nobody uses go back to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    Never,
    Idle,
    Always,
}

/// One device's memory in bytes, as the library's own ledger counts it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryStats {
    pub current: u64,
    pub peak: u64,
    pub reserved: u64,
    /// None: no cap.
    pub limit: Option<u64>,
    pub tensors: u64,
    pub weights: u64,
    pub packed: u64,
    pub arenas: u64,
    pub scratch: u64,
    pub loading: u64,
    pub states: u64,
    pub heap: u64,
    pub allocations: u64,
    pub cache_hits: u64,
    pub cached: u64,
    pub unused: u64,
    pub free_blocks: u64,
    pub largest_free_block: u64,
    pub fragmentation: f64,
    pub weights_dropped: u64,
    pub weights_restored: u64,
    /// None: as much as the limit has room for.
    pub cache_limit: Option<u64>,
}

fn limit_of(bytes: u64) -> Option<u64> {
    if bytes == u64::MAX {
        None
    } else {
        Some(bytes)
    }
}

impl Device {
    pub fn info(&self) -> Result<DeviceInfo> {
        let mut info = evn_device_info::INIT;
        let (api, raw) = (self.owned.api, self.owned.raw);
        check(|error| unsafe { (api.device_get_info)(raw, &mut info, error) })?;
        Ok(DeviceInfo {
            kind: match info.kind {
                EVN_DEVICE_CPU => DeviceKind::Cpu,
                EVN_DEVICE_OPENCL => DeviceKind::OpenCl,
                other => DeviceKind::Other(other),
            },
            class: info.device_class,
            name: text_of(&info.name),
            description: read_text(256, |buffer, capacity, size, error| unsafe {
                (api.device_description)(raw, buffer, capacity, size, error)
            })?,
            driver: read_text(256, |buffer, capacity, size, error| unsafe {
                (api.device_driver)(raw, buffer, capacity, size, error)
            })?,
            identity: text_of(&info.identity),
            compute_units: info.compute_units,
            memory_bytes: info.memory_bytes,
            largest_allocation: info.largest_allocation,
            features: info.features,
            state: match info.state {
                EVN_DEVICE_READY => DeviceState::Ready,
                EVN_DEVICE_QUARANTINED => DeviceState::Quarantined,
                EVN_DEVICE_LOST => DeviceState::Lost,
                other => DeviceState::Other(other),
            },
            quarantines: info.quarantines,
        })
    }

    /// Why the device is not ready; "" where it is.
    pub fn condition(&self) -> Result<String> {
        let (api, raw) = (self.owned.api, self.owned.raw);
        read_text(256, |buffer, capacity, size, error| unsafe {
            (api.device_condition)(raw, buffer, capacity, size, error)
        })
    }

    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let mut stats = evn_memory_stats::INIT;
        check(|error| unsafe {
            (self.owned.api.device_get_memory_stats)(self.owned.raw, &mut stats, error)
        })?;
        let class = |class: u32| stats.by_class[class as usize];
        Ok(MemoryStats {
            current: stats.current,
            peak: stats.peak,
            reserved: stats.reserved,
            limit: limit_of(stats.limit),
            tensors: class(EVN_MEMORY_TENSORS),
            weights: class(EVN_MEMORY_WEIGHTS),
            packed: class(EVN_MEMORY_PACKED),
            arenas: class(EVN_MEMORY_ARENAS),
            scratch: class(EVN_MEMORY_SCRATCH),
            loading: class(EVN_MEMORY_LOADING),
            states: class(EVN_MEMORY_STATES),
            heap: class(EVN_MEMORY_HEAP),
            allocations: stats.allocations,
            cache_hits: stats.cache_hits,
            cached: stats.cached,
            unused: stats.unused,
            free_blocks: stats.free_blocks,
            largest_free_block: stats.largest_free_block,
            fragmentation: stats.fragmentation,
            weights_dropped: stats.weights_dropped,
            weights_restored: stats.weights_restored,
            cache_limit: limit_of(stats.cache_limit),
        })
    }

    /// Changes the cap on what the library holds on the device; None: no cap.
    pub fn set_memory_limit(&self, bytes: Option<u64>) -> Result<()> {
        let bytes = bytes.unwrap_or(u64::MAX);
        check(|error| unsafe { (self.owned.api.device_set_memory_limit)(self.owned.raw, bytes, error) })
    }

    /// Changes what is kept of blocks that nobody uses; None: all that the memory limit has room for.
    pub fn set_cache_policy(&self, bytes: Option<u64>, trim: Trim) -> Result<()> {
        let bytes = bytes.unwrap_or(u64::MAX);
        let trim = match trim {
            Trim::Never => EVN_TRIM_NEVER,
            Trim::Idle => EVN_TRIM_IDLE,
            Trim::Always => EVN_TRIM_ALWAYS,
        };
        check(|error| unsafe { (self.owned.api.device_set_cache_policy)(self.owned.raw, bytes, trim, error) })
    }

    /// Gives cached blocks, and what sessions keep there for runs to come, back to the system.
    pub fn trim_memory(&self) -> Result<()> {
        check(|error| unsafe { (self.owned.api.device_trim_memory)(self.owned.raw, error) })
    }

    /// Sets the peak to what is in use now.
    pub fn reset_memory_peak(&self) -> Result<()> {
        check(|error| unsafe { (self.owned.api.device_reset_memory_peak)(self.owned.raw, error) })
    }

    /// An event of all that the device has been given so far.
    pub fn record_event(&self) -> Result<Event> {
        let api = self.owned.api;
        let make = |out, error| unsafe { (api.device_record_event)(self.owned.raw, out, error) };
        Ok(Event { owned: Owned::make(api, make)? })
    }

    /// Has what the device is given from now on begin after the event, and returns at once.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        check(|error| unsafe { (self.owned.api.device_wait_event)(self.owned.raw, event.owned.raw, error) })
    }

    /// The handle, for functions of [`crate::sys`]. It stays this device's.
    pub fn as_raw(&self) -> evn_device {
        self.owned.raw
    }
}

/// The end of something that a device does.
pub struct Event {
    pub(crate) owned: Owned<evn_event>,
}

impl Event {
    /// Whether it has happened; waits so long for it, None: as long as it takes. The error is the one with
    /// which it ended.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let wait = self.owned.api.event_wait;
        match check(|error| unsafe { wait(self.owned.raw, wait_ns(timeout), error) }) {
            Ok(()) => Ok(true),
            Err(Error { status: Status::Timeout, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
