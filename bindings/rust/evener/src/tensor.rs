//! Tensors, typed views of them, and element types.

use crate::device::Device;
use crate::error::{check, read_bytes, text_of, Error, Result, Status};
use crate::handle::{Lent, Owned};
use crate::runtime::Runtime;
use crate::sys::*;
use std::ops::{Deref, DerefMut};
use std::os::raw::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

macro_rules! dtypes {
    ($($name:ident = $value:ident,)*) => {
        /// An element type. Later libraries may have more: those are `Other`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType { $($name,)* Other(i32) }

        impl DType {
            pub(crate) fn of(value: evn_dtype) -> DType {
                match value { $($value => DType::$name,)* other => DType::Other(other) }
            }
            /// The value of the C API, which is ONNX's.
            pub fn code(self) -> i32 {
                match self { $(DType::$name => $value,)* DType::Other(value) => value }
            }
        }
    };
}

dtypes! {
    Undefined = EVN_DTYPE_UNDEFINED, Float32 = EVN_DTYPE_FLOAT32, Uint8 = EVN_DTYPE_UINT8, Int8 = EVN_DTYPE_INT8,
    Uint16 = EVN_DTYPE_UINT16, Int16 = EVN_DTYPE_INT16, Int32 = EVN_DTYPE_INT32, Int64 = EVN_DTYPE_INT64,
    String = EVN_DTYPE_STRING, Bool = EVN_DTYPE_BOOL, Float16 = EVN_DTYPE_FLOAT16, Float64 = EVN_DTYPE_FLOAT64,
    Uint32 = EVN_DTYPE_UINT32, Uint64 = EVN_DTYPE_UINT64, Complex64 = EVN_DTYPE_COMPLEX64,
    Complex128 = EVN_DTYPE_COMPLEX128, Bfloat16 = EVN_DTYPE_BFLOAT16, Float8E4M3Fn = EVN_DTYPE_FLOAT8E4M3FN,
    Float8E4M3Fnuz = EVN_DTYPE_FLOAT8E4M3FNUZ, Float8E5M2 = EVN_DTYPE_FLOAT8E5M2,
    Float8E5M2Fnuz = EVN_DTYPE_FLOAT8E5M2FNUZ, Uint4 = EVN_DTYPE_UINT4, Int4 = EVN_DTYPE_INT4,
    Float4E2M1 = EVN_DTYPE_FLOAT4E2M1, Float8E8M0 = EVN_DTYPE_FLOAT8E8M0, Uint2 = EVN_DTYPE_UINT2, Int2 = EVN_DTYPE_INT2,
}

/// A type of Rust that tensors have elements of.
///
/// `u8` also reads and writes elements of one byte for which Rust has no type (bool, float8) and the bytes of
/// those of less (int4), `u16` the bits of float16 and bfloat16.
///
/// # Safety
/// Every pattern of bits is a value of the type.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// What tensors have that are made of values of this type.
    const DTYPE: DType;
    /// Whether the elements of a tensor of `dtype` can be seen as values of this type.
    fn accepts(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }
}

macro_rules! elements {
    ($($kind:ty: $dtype:ident,)*) => { $(unsafe impl Element for $kind { const DTYPE: DType = DType::$dtype; })* };
}

elements! { f32: Float32, f64: Float64, i8: Int8, i16: Int16, i32: Int32, i64: Int64, u32: Uint32, u64: Uint64, }

unsafe impl Element for u8 {
    const DTYPE: DType = DType::Uint8;
    fn accepts(dtype: DType) -> bool {
        use DType::*;
        matches!(
            dtype,
            Uint8 | Bool | Float8E4M3Fn | Float8E4M3Fnuz | Float8E5M2 | Float8E5M2Fnuz | Float8E8M0
        ) || matches!(dtype, Uint4 | Int4 | Float4E2M1 | Uint2 | Int2)
    }
}

unsafe impl Element for u16 {
    const DTYPE: DType = DType::Uint16;
    fn accepts(dtype: DType) -> bool {
        matches!(dtype, DType::Uint16 | DType::Float16 | DType::Bfloat16)
    }
}

/// What a tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    pub dtype: DType,
    pub dims: Vec<i64>,
    pub size_bytes: u64,
    /// Name of the device that holds it.
    pub device: String,
    pub read_only: bool,
    pub pinned: bool,
}

/// Elements of one type on one device, row-major. What shares its memory (views made by [`Tensor::part`],
/// values, requests that have not ended) makes it read-only for as long as it lives: [`Tensor::view_mut`] is
/// then an error.
pub struct Tensor {
    pub(crate) owned: Owned<evn_tensor>,
    pub(crate) memory: Arc<Memory>,
}

/// Stands for memory that objects share: while there are several of one, or of those that it is made of,
/// nothing is written. The crate does not export the type; the sealed trait of requests needs `pub`.
#[derive(Default)]
pub struct Memory(pub(crate) Vec<Arc<Memory>>);

fn elements_of(dims: &[i64]) -> Result<usize> {
    let mut count = 1usize;
    for dim in dims {
        let dim =
            usize::try_from(*dim).map_err(|_| Error::argument(format!("a dim of {:?} is negative", dims)))?;
        count = count
            .checked_mul(dim)
            .ok_or_else(|| Error::argument(format!("dims {:?} have more elements than memory", dims)))?;
    }
    Ok(count)
}

impl Tensor {
    pub(crate) fn of(owned: Owned<evn_tensor>) -> Tensor {
        Tensor { owned, memory: Arc::default() }
    }

    /// A tensor of zeros (of empty strings) on a device.
    pub fn zeros(device: &Device, dtype: DType, dims: &[i64]) -> Result<Tensor> {
        Tensor::create(device, dtype, dims, 0)
    }

    /// Zeros in pinned host memory, which the device reads and writes without a copy of the library's.
    pub fn pinned(device: &Device, dtype: DType, dims: &[i64]) -> Result<Tensor> {
        Tensor::create(device, dtype, dims, EVN_TENSOR_PINNED)
    }

    fn create(device: &Device, dtype: DType, dims: &[i64], flags: u32) -> Result<Tensor> {
        let api = device.owned.api;
        let create = api.tensor_create;
        let (at, rank) = (dims.as_ptr(), dims.len() as u32);
        let make =
            |out, error| unsafe { create(device.owned.raw, dtype.code(), at, rank, flags, out, error) };
        Ok(Tensor::of(Owned::make(api, make)?))
    }

    /// A tensor of the CPU over the memory of a Vec, which it takes, without a copy.
    pub fn from_vec<T: Element>(runtime: &Runtime, data: Vec<T>, dims: &[i64]) -> Result<Tensor> {
        Tensor::from_vec_as(runtime, T::DTYPE, data, dims)
    }

    /// As `from_vec`, with another dtype than the type's own: `u16` with the bits of float16.
    pub fn from_vec_as<T: Element>(
        runtime: &Runtime,
        dtype: DType,
        mut data: Vec<T>,
        dims: &[i64],
    ) -> Result<Tensor> {
        if !T::accepts(dtype) {
            let kind = std::any::type_name::<T>();
            return Err(Error::argument(format!("a tensor of {:?} has no elements of type {}", dtype, kind)));
        }
        unsafe extern "C" fn end<T>(user: *mut c_void, _data: *mut c_void) {
            Lent::<Vec<T>>::take_back(user);
        }
        let (at, bytes) = (data.as_mut_ptr(), data.len() * std::mem::size_of::<T>());
        let lent = Lent::new(data);
        let api = runtime.owned.api;
        let (deleter, user): (evn_deleter, _) = (Some(end::<T>), lent.user);
        let owned = Owned::make(api, |out, error| unsafe {
            let (dims, rank) = (dims.as_ptr(), dims.len() as u32);
            (api.tensor_wrap)(
                runtime.owned.raw,
                at.cast(),
                bytes,
                dtype.code(),
                dims,
                rank,
                deleter,
                user,
                out,
                error,
            )
        })?;
        lent.keep();
        Ok(Tensor::of(owned))
    }

    /// A tensor of the CPU with a copy of a slice.
    pub fn from_slice<T: Element>(runtime: &Runtime, data: &[T], dims: &[i64]) -> Result<Tensor> {
        Tensor::from_vec(runtime, data.to_vec(), dims)
    }

    /// A tensor of strings, which are bytes; those of models are UTF-8.
    pub fn from_strings<S: AsRef<[u8]>>(runtime: &Runtime, strings: &[S], dims: &[i64]) -> Result<Tensor> {
        let tensor = Tensor::zeros(&runtime.cpu()?, DType::String, dims)?;
        let pointers: Vec<_> = strings.iter().map(|text| text.as_ref().as_ptr().cast()).collect();
        let sizes: Vec<usize> = strings.iter().map(|text| text.as_ref().len()).collect();
        let (api, raw) = (tensor.owned.api, tensor.owned.raw);
        check(|error| unsafe {
            (api.tensor_set_strings)(raw, pointers.as_ptr(), sizes.as_ptr(), pointers.len(), error)
        })?;
        Ok(tensor)
    }

    /// The elements of a tensor of strings.
    pub fn strings(&self) -> Result<Vec<Vec<u8>>> {
        let count = elements_of(&self.info()?.dims)?;
        let mut offsets = vec![0usize; count + 1];
        let (api, raw) = (self.owned.api, self.owned.raw);
        let text = read_bytes(1024, |buffer, capacity, size, error| unsafe {
            (api.tensor_get_strings)(raw, buffer, capacity, offsets.as_mut_ptr(), count, size, error)
        })?;
        Ok(offsets.windows(2).map(|ends| text[ends[0]..ends[1] - 1].to_vec()).collect())
    }

    /// The element at a place, in row-major order, of a tensor of strings.
    pub fn string(&self, index: usize) -> Result<Vec<u8>> {
        let (api, raw) = (self.owned.api, self.owned.raw);
        read_bytes(256, |buffer, capacity, size, error| unsafe {
            (api.tensor_get_string)(raw, index, buffer, capacity, size, error)
        })
    }

    pub fn info(&self) -> Result<TensorInfo> {
        let info = self.raw_info()?;
        Ok(TensorInfo {
            dtype: DType::of(info.dtype),
            dims: info.dims[..(info.rank as usize).min(info.dims.len())].to_vec(),
            size_bytes: info.size_bytes,
            device: text_of(&info.device),
            read_only: info.flags & EVN_TENSOR_READ_ONLY != 0,
            pinned: info.flags & EVN_TENSOR_PINNED != 0,
        })
    }

    fn raw_info(&self) -> Result<evn_tensor_info> {
        let mut info = evn_tensor_info::INIT;
        check(|error| unsafe { (self.owned.api.tensor_get_info)(self.owned.raw, &mut info, error) })?;
        Ok(info)
    }

    pub fn dims(&self) -> Result<Vec<i64>> {
        Ok(self.info()?.dims)
    }

    pub fn dtype(&self) -> Result<DType> {
        Ok(DType::of(self.raw_info()?.dtype))
    }

    /// The elements, on the CPU without a copy. On other devices they are copied to the host now; see
    /// [`Tensor::pinned`].
    pub fn view<T: Element>(&self) -> Result<View<'_, T>> {
        let (data, len) = self.map(EVN_MAP_READ)?;
        Ok(View { tensor: self, data, len })
    }

    /// The elements for writing. On other devices than the CPU they are copied there when the view goes:
    /// [`ViewMut::end`] says whether they have come there.
    ///
    /// Status::WrongState where something shares the memory: a part of the tensor, a value, a request that
    /// has not ended.
    pub fn view_mut<T: Element>(&mut self) -> Result<ViewMut<'_, T>> {
        self.be_alone("written")?;
        let (data, len) = self.map(EVN_MAP_READ | EVN_MAP_WRITE)?;
        Ok(ViewMut { tensor: self, data, len })
    }

    pub(crate) fn be_alone(&mut self, what: &str) -> Result<()> {
        if !Arc::get_mut(&mut self.memory).map_or(false, |memory| memory.0.is_empty()) {
            let message = format!(
                "the tensor cannot be {}: a part of it, a value or a request under way shares its memory",
                what
            );
            return Err(Error::new(Status::WrongState, message));
        }
        Ok(())
    }

    fn map<T: Element>(&self, flags: u32) -> Result<(NonNull<T>, usize)> {
        let dtype = DType::of(self.raw_info()?.dtype);
        if !T::accepts(dtype) {
            let kind = std::any::type_name::<T>();
            return Err(Error::argument(format!(
                "a tensor of {:?} cannot be seen as elements of type {}",
                dtype, kind
            )));
        }
        let (mut data, mut bytes) = (ptr::null_mut::<c_void>(), 0);
        let (api, raw) = (self.owned.api, self.owned.raw);
        check(|error| unsafe { (api.tensor_map)(raw, flags, &mut data, &mut bytes, error) })?;
        let at = NonNull::new(data.cast::<T>()).unwrap_or_else(NonNull::dangling);
        let size = std::mem::size_of::<T>();
        if bytes % size != 0 || at.as_ptr() as usize % std::mem::align_of::<T>() != 0 {
            self.unmap()?;
            return Err(Error::argument("the tensor's memory is not aligned for its elements"));
        }
        Ok((at, bytes / size))
    }

    fn unmap(&self) -> Result<()> {
        check(|error| unsafe { (self.owned.api.tensor_unmap)(self.owned.raw, error) })
    }

    /// A copy of the elements.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.view::<T>()?.to_vec())
    }

    /// A tensor over a part of this one's memory, without a copy: elements from number `first` on, in
    /// row-major order, as `dims`.
    pub fn part(&self, first: u64, dims: &[i64]) -> Result<Tensor> {
        let (api, raw) = (self.owned.api, self.owned.raw);
        let owned = Owned::make(api, |out, error| unsafe {
            (api.tensor_create_view)(raw, first, dims.as_ptr(), dims.len() as u32, out, error)
        })?;
        Ok(Tensor { owned, memory: self.memory.clone() })
    }

    /// Copies all bytes into a tensor of the same dtype and dims; they may lie on different devices.
    pub fn copy_into(&self, target: &mut Tensor) -> Result<()> {
        target.be_alone("a target of a copy")?;
        check(|error| unsafe { (self.owned.api.tensor_copy)(self.owned.raw, target.owned.raw, error) })
    }

    /// A copy on a device.
    pub fn copy_to(&self, device: &Device) -> Result<Tensor> {
        let api = self.owned.api;
        let make = |out, error| unsafe { (api.tensor_copy_to)(self.owned.raw, device.owned.raw, out, error) };
        Ok(Tensor::of(Owned::make(api, make)?))
    }

    /// The handle, for functions of [`crate::sys`]. It stays this tensor's.
    pub fn as_raw(&self) -> evn_tensor {
        self.owned.raw
    }
}

macro_rules! views {
    ($name:ident, $reference:ty, $what:literal) => {
        #[doc = $what]
        pub struct $name<'t, T: Element> {
            tensor: $reference,
            data: NonNull<T>,
            len: usize,
        }

        // The memory is the tensor's, which is borrowed; a map may be ended on any thread.
        unsafe impl<T: Element> Send for $name<'_, T> {}
        unsafe impl<T: Element> Sync for $name<'_, T> {}

        impl<T: Element> Deref for $name<'_, T> {
            type Target = [T];
            fn deref(&self) -> &[T] {
                unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
            }
        }

        impl<T: Element> Drop for $name<'_, T> {
            fn drop(&mut self) {
                let _ = self.tensor.unmap(); // `end` tells what went wrong
            }
        }

        #[cfg(feature = "ndarray")]
        impl<T: Element> $name<'_, T> {
            fn shape(&self) -> Result<ndarray::IxDyn> {
                let dims: Vec<usize> = self.tensor.dims()?.iter().map(|dim| *dim as usize).collect();
                Ok(ndarray::IxDyn(&dims))
            }

            /// An array over this memory.
            pub fn array(&self) -> Result<ndarray::ArrayViewD<'_, T>> {
                let shape = self.shape()?;
                ndarray::ArrayView::from_shape(shape, self)
                    .map_err(|error| Error::argument(error.to_string()))
            }
        }
    };
}

views!(View, &'t Tensor, "The elements of a tensor, for reading.");
views!(ViewMut, &'t mut Tensor, "The elements of a tensor, for writing.");

impl<T: Element> ViewMut<'_, T> {
    /// Ends the view, as dropping it does, and says whether what was written has come to the tensor's device.
    pub fn end(self) -> Result<()> {
        let view = std::mem::ManuallyDrop::new(self);
        view.tensor.unmap()
    }
}

impl<T: Element> DerefMut for ViewMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

#[cfg(feature = "ndarray")]
impl<T: Element> ViewMut<'_, T> {
    /// An array over this memory that can be written.
    pub fn array_mut(&mut self) -> Result<ndarray::ArrayViewMutD<'_, T>> {
        let shape = self.shape()?;
        ndarray::ArrayViewMut::from_shape(shape, self).map_err(|error| Error::argument(error.to_string()))
    }
}

#[cfg(feature = "ndarray")]
impl Tensor {
    /// A tensor of the CPU over the memory of an array, without a copy where that is in standard layout.
    pub fn from_array<T: Element, D: ndarray::Dimension>(
        runtime: &Runtime,
        array: ndarray::Array<T, D>,
    ) -> Result<Tensor> {
        let dims: Vec<i64> = array.shape().iter().map(|dim| *dim as i64).collect();
        let count = array.len();
        let data =
            if array.is_standard_layout() { array.into_raw_vec() } else { array.iter().copied().collect() };
        if data.len() != count {
            // The array is a part of a larger Vec, at a place that it does not tell.
            return Err(Error::argument("the array is a part of its memory: make a copy of it first"));
        }
        Tensor::from_vec(runtime, data, &dims)
    }
}

/// The end of a copy that a device does while the caller goes on. It has both tensors until then; where it
/// goes, it waits.
pub struct PendingCopy {
    event: crate::Event,
    target: Option<Tensor>,
    _source: Arc<Memory>,
}

impl Tensor {
    /// Has a device copy all bytes into `target`, of the same dtype and dims, behind the events of `after`,
    /// and returns at once.
    pub fn copy_async(&self, mut target: Tensor, after: &[&crate::Event]) -> Result<PendingCopy> {
        target.be_alone("a target of a copy")?;
        let api = self.owned.api;
        let after: Vec<evn_event> = after.iter().map(|event| event.owned.raw).collect();
        let owned = Owned::make(api, |out, error| unsafe {
            let (source, target) = (self.owned.raw, target.owned.raw);
            (api.tensor_copy_async)(source, target, after.as_ptr(), after.len() as u32, out, error)
        })?;
        Ok(PendingCopy { event: crate::Event { owned }, target: Some(target), _source: self.memory.clone() })
    }
}

impl PendingCopy {
    pub fn event(&self) -> &crate::Event {
        &self.event
    }

    /// Waits for the end, and gives the target.
    pub fn wait(mut self) -> Result<Tensor> {
        self.event.wait(None)?;
        self.target.take().ok_or_else(|| Error::new(Status::WrongState, "the target has been taken"))
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        if self.target.is_some() {
            let _ = self.event.wait(None); // the memory must stay until then; what went wrong nobody asked
        }
    }
}
