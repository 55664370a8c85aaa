//! OpenCL objects that are shared with the host program, as the pointers that its own OpenCL library gives:
//! cl_context, cl_device_id, cl_command_queue, cl_mem and cl_event. Nobody can check them, so that what takes
//! them is unsafe.

use crate::device::{Device, Event};
use crate::error::{c_path, c_text, check, Result};
use crate::handle::{Lent, Owned};
use crate::runtime::Runtime;
use crate::sys::*;
use crate::tensor::{DType, Tensor};
use std::os::raw::c_void;
use std::path::Path;
use std::ptr;

/// What an OpenCL device is made of; the device's own, valid as long as its runtime.
#[derive(Clone, Copy, Debug)]
pub struct OpenClObjects {
    pub context: *mut c_void,
    pub device: *mut c_void,
    pub queue: *mut c_void,
}

/// How many programs a folder has now, and how many the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPrograms {
    pub stored: u32,
    pub refused: u32,
}

impl Runtime {
    /// Makes a device of the host's context, which is retained. `queue` may be NULL; a limit of 0 is that of
    /// the configuration.
    ///
    /// # Safety
    /// The objects must be live ones of the OpenCL library of this process.
    pub unsafe fn attach_opencl(
        &self,
        name: &str,
        objects: OpenClObjects,
        memory_limit: u64,
    ) -> Result<Device> {
        let name = c_text(name)?;
        let mut options = evn_opencl_attach_options::INIT;
        options.name = name.as_ptr();
        options.context = objects.context;
        options.device = objects.device;
        options.queue = objects.queue;
        options.memory_limit_bytes = memory_limit;
        let api = self.owned.api;
        let make = |out, error| (api.opencl_attach)(self.owned.raw, &options, out, error);
        Ok(Device { owned: Owned::make(api, make)? })
    }
}

impl Device {
    /// The objects of an OpenCL device.
    pub fn opencl_objects(&self) -> Result<OpenClObjects> {
        let none = ptr::null_mut();
        let mut objects = OpenClObjects { context: none, device: none, queue: none };
        let get = self.owned.api.opencl_device_objects;
        check(|error| unsafe {
            get(self.owned.raw, &mut objects.context, &mut objects.device, &mut objects.queue, error)
        })?;
        Ok(objects)
    }

    /// Makes a tensor over a cl_mem from a byte on, without a copy. `ended` is called when it is gone, on any
    /// thread.
    ///
    /// # Safety
    /// `mem` must be a live buffer of the device's context. The host sees to the order of its own commands.
    pub unsafe fn wrap_opencl_buffer(
        &self,
        mem: *mut c_void,
        offset: u64,
        dtype: DType,
        dims: &[i64],
        read_only: bool,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Tensor> {
        type Ended = Option<Box<dyn FnOnce() + Send>>;
        unsafe extern "C" fn end(user: *mut c_void, _mem: *mut c_void) {
            let ended = (*user.cast::<Ended>()).take();
            crate::handle::guarded(|| {
                if let Some(ended) = ended {
                    ended();
                }
            });
            Lent::<Ended>::take_back(user);
        }
        let lent: Lent<Ended> = Lent::new(Some(Box::new(ended)));
        let flags = if read_only { EVN_TENSOR_READ_ONLY } else { 0 };
        let (api, user, deleter): (_, _, evn_deleter) = (self.owned.api, lent.user, Some(end));
        let (code, at, rank) = (dtype.code(), dims.as_ptr(), dims.len() as u32);
        let owned = Owned::make(api, |out, error| {
            let wrap = api.opencl_wrap_buffer;
            wrap(self.owned.raw, mem, offset, code, at, rank, flags, deleter, user, out, error)
        })?;
        lent.keep();
        Ok(Tensor::of(owned))
    }

    /// An event of the host's cl_event, which is retained.
    ///
    /// # Safety
    /// It must be a live event of the device's context, which the driver has been told to begin.
    pub unsafe fn import_opencl_event(&self, native: *mut c_void) -> Result<Event> {
        let api = self.owned.api;
        let make = |out, error| (api.opencl_import_event)(self.owned.raw, native, out, error);
        Ok(Event { owned: Owned::make(api, make)? })
    }

    /// Builds every program that the library has for this device into a folder, for devices without a
    /// compiler. `sources`: texts in OpenCL C instead of binaries.
    pub fn store_opencl_programs(&self, folder: impl AsRef<Path>, sources: bool) -> Result<StoredPrograms> {
        let folder = c_path(folder.as_ref())?;
        let flags = if sources { EVN_PROGRAMS_SOURCES } else { 0 };
        let (store, mut done) =
            (self.owned.api.opencl_store_programs, StoredPrograms { stored: 0, refused: 0 });
        check(|error| unsafe {
            store(self.owned.raw, folder.as_ptr(), flags, &mut done.stored, &mut done.refused, error)
        })?;
        Ok(done)
    }
}

impl Tensor {
    /// The cl_mem under a tensor on an OpenCL device, and the byte at which the tensor begins; valid as long
    /// as the tensor.
    pub fn opencl_buffer(&self) -> Result<(*mut c_void, u64)> {
        let (get, mut mem, mut offset) = (self.owned.api.opencl_get_buffer, ptr::null_mut(), 0);
        check(|error| unsafe { get(self.owned.raw, &mut mem, &mut offset, error) })?;
        Ok((mem, offset))
    }

    /// The memory as a DLManagedTensorVersioned of DLPack 1.0, without a copy; whoever consumes it calls its
    /// deleter, and keeps the memory until then. What others write through it is theirs to order.
    pub fn to_dlpack(&self) -> Result<*mut c_void> {
        let (to, mut managed) = (self.owned.api.tensor_to_dlpack, ptr::null_mut());
        check(|error| unsafe { to(self.owned.raw, 0, &mut managed, error) })?;
        Ok(managed)
    }

    /// A tensor over the memory of a DLManagedTensorVersioned, which is taken over unless this fails.
    ///
    /// # Safety
    /// It must be a live one that nobody has consumed, and nobody may write its memory while this crate reads
    /// it, or read it while this crate writes it.
    pub unsafe fn from_dlpack(runtime: &Runtime, managed: *mut c_void) -> Result<Tensor> {
        let api = runtime.owned.api;
        let make = |out, error| (api.tensor_from_dlpack)(runtime.owned.raw, managed, 0, out, error);
        Ok(Tensor::of(Owned::make(api, make)?))
    }
}

impl Event {
    /// A cl_event of the device's context that ends as this does; the caller releases it.
    pub fn export_opencl(&self, device: &Device) -> Result<*mut c_void> {
        let (export, mut native) = (self.owned.api.opencl_export_event, ptr::null_mut());
        check(|error| unsafe { export(self.owned.raw, device.owned.raw, &mut native, error) })?;
        Ok(native)
    }
}
