//! Custom operators in Rust.

use crate::error::{c_text, check, read_bytes, read_text, Error, Result, Status};
use crate::handle::{api, told, Api, Lent};
use crate::runtime::Runtime;
use crate::sys::*;
use crate::tensor::{DType, Element};
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::ptr;
use std::slice;

/// What an operator computes. Its functions are called on any thread, also several at a time, and must not
/// call the library but for the node that they get. A panic becomes an error of the run, with
/// Status::Internal.
pub trait Operator: Send + Sync + 'static {
    /// Says what the outputs are for these inputs, one for each output of the node. While a model loads ranks
    /// and dims may not be known, and those of outputs may be left so; before a run all are known.
    fn infer(&self, node: &Node<'_>, inputs: &[Option<TensorRef<'_>>], outputs: usize) -> Result<Vec<Spec>>;

    /// Computes the outputs' elements; their dtypes and dims are those that `infer` gave. None: the model
    /// does not want that one.
    fn run(
        &self,
        node: &Node<'_>,
        inputs: &[Option<TensorRef<'_>>],
        outputs: &mut [Option<TensorMut<'_>>],
    ) -> Result<()>;
}

/// What is known of a tensor before a run: None for a rank or dims that are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub dtype: DType,
    pub dims: Option<Vec<Option<i64>>>,
}

impl Spec {
    /// All is known.
    pub fn new(dtype: DType, dims: &[i64]) -> Spec {
        Spec { dtype, dims: Some(dims.iter().map(|dim| Some(*dim)).collect()) }
    }
}

/// Under which name, and with how many inputs and outputs, models have an operator.
#[derive(Clone, Debug)]
pub struct OperatorInfo<'a> {
    pub domain: &'a str,
    pub name: &'a str,
    pub since_version: i32,
    /// (least, most)
    pub inputs: (u32, u32),
    pub outputs: (u32, u32),
    /// Places of inputs on whose values dims of outputs depend.
    pub value_inputs: &'a [u32],
}

/// As the most inputs or outputs: any number.
pub const VARIADIC: u32 = EVN_VARIADIC;

impl<'a> OperatorInfo<'a> {
    /// One input and one output.
    pub fn new(domain: &'a str, name: &'a str) -> OperatorInfo<'a> {
        OperatorInfo { domain, name, since_version: 1, inputs: (1, 1), outputs: (1, 1), value_inputs: &[] }
    }
}

/// A node of the operator, for as long as the function runs that got it.
///
/// ```compile_fail
/// fn it_cannot_be_kept(node: &evener::Node<'_>) -> &'static evener::Node<'static> {
///     node
/// }
/// ```
/// ```compile_fail,E0277
/// fn it_stays_on_its_thread(node: &evener::Node<'_>) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| node.name());
///     });
/// }
/// ```
pub struct Node<'n> {
    raw: evn_operator_node,
    api: Api,
    // It is this thread's: a callback ends where it began.
    call: PhantomData<(&'n (), *const ())>,
}

impl Node<'_> {
    pub fn name(&self) -> Result<String> {
        let name = self.api.operator_node_name;
        read_text(64, |buffer, capacity, size, error| unsafe {
            name(self.raw, buffer, capacity, size, error)
        })
    }

    /// Gives an attribute by a function of C; None where the node does not have it.
    fn attribute<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Self, *const c_char) -> Result<T>,
    ) -> Result<Option<T>> {
        let (name, mut kind) = (c_text(name)?, EVN_ATTRIBUTE_NONE);
        let kind_of = self.api.operator_attribute_type;
        check(|error| unsafe { kind_of(self.raw, name.as_ptr(), &mut kind, error) })?;
        if kind == EVN_ATTRIBUTE_NONE {
            return Ok(None);
        }
        read(self, name.as_ptr()).map(Some)
    }

    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        self.attribute(name, |node, name| {
            let (get, mut value) = (node.api.operator_attribute_int, 0);
            check(|error| unsafe { get(node.raw, name, &mut value, error) })?;
            Ok(value)
        })
    }

    pub fn float(&self, name: &str) -> Result<Option<f32>> {
        self.attribute(name, |node, name| {
            let (get, mut value) = (node.api.operator_attribute_float, 0.0);
            check(|error| unsafe { get(node.raw, name, &mut value, error) })?;
            Ok(value)
        })
    }

    pub fn string(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.attribute(name, |node, name| {
            let get = node.api.operator_attribute_string;
            read_bytes(64, |buffer, capacity, size, error| unsafe {
                get(node.raw, name, buffer, capacity, size, error)
            })
        })
    }

    pub fn strings(&self, name: &str) -> Result<Option<Vec<Vec<u8>>>> {
        self.attribute(name, |node, name| {
            let (count_of, get, mut count) =
                (node.api.operator_attribute_string_count, node.api.operator_attribute_string_at, 0);
            check(|error| unsafe { count_of(node.raw, name, &mut count, error) })?;
            let at = |index| {
                read_bytes(64, |buffer, capacity, size, error| unsafe {
                    get(node.raw, name, index, buffer, capacity, size, error)
                })
            };
            (0..count).map(at).collect()
        })
    }

    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.attribute(name, |node, name| {
            let (get, mut values, mut count) = (node.api.operator_attribute_ints, ptr::null(), 0);
            check(|error| unsafe { get(node.raw, name, &mut values, &mut count, error) })?;
            Ok(unsafe { slice_of(values, count) }.to_vec())
        })
    }

    pub fn floats(&self, name: &str) -> Result<Option<Vec<f32>>> {
        self.attribute(name, |node, name| {
            let (get, mut values, mut count) = (node.api.operator_attribute_floats, ptr::null(), 0);
            check(|error| unsafe { get(node.raw, name, &mut values, &mut count, error) })?;
            Ok(unsafe { slice_of(values, count) }.to_vec())
        })
    }

    /// A tensor, whose elements stay where they are.
    pub fn tensor(&self, name: &str) -> Result<Option<TensorRef<'_>>> {
        self.attribute(name, |node, name| {
            let get = node.api.operator_attribute_tensor;
            let mut view = unsafe { std::mem::zeroed::<evn_tensor_view>() };
            check(|error| unsafe { get(node.raw, name, &mut view, error) })?;
            Ok(TensorRef { view, call: PhantomData })
        })
    }
}

unsafe fn slice_of<'a, T>(values: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        slice::from_raw_parts(values, count)
    }
}

/// An input of a custom operator.
#[derive(Clone, Copy)]
pub struct TensorRef<'n> {
    view: evn_tensor_view,
    call: PhantomData<&'n [u8]>,
}

/// An output of a custom operator.
pub struct TensorMut<'n> {
    view: evn_tensor_view,
    call: PhantomData<&'n mut [u8]>,
}

fn spec_of(view: &evn_tensor_view) -> Spec {
    let known = |dim: &i64| if *dim < 0 { None } else { Some(*dim) };
    let dims = view.dims.get(..view.rank as usize).map(|dims| dims.iter().map(known).collect());
    Spec { dtype: DType::of(view.dtype), dims }
}

fn dims_of(view: &evn_tensor_view) -> &[i64] {
    view.dims.get(..view.rank as usize).unwrap_or(&[])
}

fn count_of<T: Element>(view: &evn_tensor_view) -> Result<usize> {
    let dtype = DType::of(view.dtype);
    let size = std::mem::size_of::<T>();
    if !T::accepts(dtype) || view.size_bytes % size as u64 != 0 {
        let kind = std::any::type_name::<T>();
        return Err(Error::argument(format!("a tensor of {:?} has no elements of type {}", dtype, kind)));
    }
    Ok((view.size_bytes / size as u64) as usize)
}

impl<'n> TensorRef<'n> {
    pub fn spec(&self) -> Spec {
        spec_of(&self.view)
    }
    /// Empty where the rank is not known; -1 for a dim that is not.
    pub fn dims(&self) -> &[i64] {
        dims_of(&self.view)
    }
    /// The elements. In `infer` there are none but those of value inputs that are known: an error, where
    /// there should be some.
    pub fn data<T: Element>(&self) -> Result<&'n [T]> {
        let count = count_of::<T>(&self.view)?;
        if count != 0 && self.view.data.is_null() {
            return Err(Error::new(Status::WrongState, "the value of this input is not known here"));
        }
        Ok(unsafe { slice_of(self.view.data.cast::<T>(), count) })
    }
}

impl TensorMut<'_> {
    pub fn dims(&self) -> &[i64] {
        dims_of(&self.view)
    }
    pub fn dtype(&self) -> DType {
        DType::of(self.view.dtype)
    }
    pub fn data<T: Element>(&mut self) -> Result<&mut [T]> {
        let count = count_of::<T>(&self.view)?;
        if count == 0 {
            return Ok(&mut []);
        }
        Ok(unsafe { slice::from_raw_parts_mut(self.view.data.cast(), count) })
    }
}

fn declare(view: &mut evn_tensor_view, spec: &Spec) -> Result<()> {
    view.dtype = spec.dtype.code();
    match &spec.dims {
        None => view.rank = EVN_UNKNOWN_RANK,
        Some(dims) if dims.len() > view.dims.len() => {
            return Err(Error::argument(format!("infer gave a shape of rank {}", dims.len())));
        }
        Some(dims) => {
            view.rank = dims.len() as u32;
            for (place, dim) in view.dims.iter_mut().zip(dims) {
                *place = dim.unwrap_or(-1);
            }
        }
    }
    Ok(())
}

struct Registered {
    operator: Box<dyn Operator>,
    api: Api,
}

unsafe fn inputs_of<'n>(views: *const evn_tensor_view, count: u32) -> Vec<Option<TensorRef<'n>>> {
    let of = |view: &evn_tensor_view| match view.dtype {
        EVN_DTYPE_UNDEFINED => None,
        _ => Some(TensorRef { view: *view, call: PhantomData }),
    };
    slice_of(views, count as usize).iter().map(of).collect()
}

unsafe extern "C" fn infer(
    user: *mut c_void,
    node: evn_operator_node,
    inputs: *const evn_tensor_view,
    input_count: u32,
    outputs: *mut evn_tensor_view,
    output_count: u32,
    error: *mut evn_error,
) -> evn_status {
    let registered = &*user.cast::<Registered>();
    told(error, "the operator", || {
        let node = Node { raw: node, api: registered.api, call: PhantomData };
        let count = output_count as usize;
        let specs = registered.operator.infer(&node, &inputs_of(inputs, input_count), count)?;
        if specs.len() != count {
            let message = format!("infer gave {} outputs, the node has {}", specs.len(), count);
            return Err(Error::argument(message));
        }
        for (index, spec) in specs.iter().enumerate() {
            declare(&mut *outputs.add(index), spec)?;
        }
        Ok(())
    })
}

unsafe extern "C" fn run(
    user: *mut c_void,
    node: evn_operator_node,
    inputs: *const evn_tensor_view,
    input_count: u32,
    outputs: *const evn_tensor_view,
    output_count: u32,
    error: *mut evn_error,
) -> evn_status {
    let registered = &*user.cast::<Registered>();
    told(error, "the operator", || {
        let node = Node { raw: node, api: registered.api, call: PhantomData };
        let of = |view: &evn_tensor_view| match view.dtype {
            EVN_DTYPE_UNDEFINED => None,
            _ => Some(TensorMut { view: *view, call: PhantomData }),
        };
        let mut outputs: Vec<_> = slice_of(outputs, output_count as usize).iter().map(of).collect();
        registered.operator.run(&node, &inputs_of(inputs, input_count), &mut outputs)
    })
}

impl Runtime {
    /// Adds an operator to those that models which this runtime loads from now on may use. It runs on the
    /// CPU.
    pub fn register_operator(&self, info: &OperatorInfo, operator: impl Operator) -> Result<()> {
        let (domain, name) = (c_text(info.domain)?, c_text(info.name)?);
        let mut raw = evn_operator::INIT;
        raw.since_version = info.since_version;
        raw.domain = domain.as_ptr();
        raw.name = name.as_ptr();
        raw.min_inputs = info.inputs.0;
        raw.max_inputs = info.inputs.1;
        raw.min_outputs = info.outputs.0;
        raw.max_outputs = info.outputs.1;
        for index in info.value_inputs {
            let bit = 1u32.checked_shl(*index);
            raw.value_inputs |= bit.ok_or_else(|| Error::argument("a value input beyond the 32nd"))?;
        }
        let lent = Lent::new(Registered { operator: Box::new(operator), api: api()? });
        raw.user = lent.user;
        raw.infer = Some(infer);
        raw.run = Some(run);
        raw.release = Some(Lent::<Registered>::take_back);
        let register = self.owned.api.runtime_register_operator;
        check(|error| unsafe { register(self.owned.raw, &raw, error) })?;
        lent.keep();
        Ok(())
    }
}
