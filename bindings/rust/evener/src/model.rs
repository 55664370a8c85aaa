//! Loaded models, and their inputs and outputs.

use crate::error::{c_path, c_text, check, read_text, text_of, Error, Result, Status};
use crate::handle::{deadline_ns, Owned};
use crate::runtime::{Format, Runtime};
use crate::session::Cancel;
use crate::sys::*;
use crate::tensor::DType;
use std::ffi::CString;
use std::os::raw::c_char;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

/// An immutable graph and its weights; sessions made of one Model share them.
pub struct Model {
    pub(crate) owned: Owned<evn_model>,
}

/// A dim of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    Known(i64),
    /// Known only when it runs; the model's name of it, or "".
    Open(String),
}

/// An input or output of a model or session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueInfo {
    pub name: String,
    pub dtype: DType,
    /// None: even the rank is unknown, or it is no tensor.
    pub dims: Option<Vec<Dim>>,
    /// "tensor(float32)", "seq(tensor(int64))", ...
    pub kind: String,
}

/// How a model is loaded.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// Folder of the external data of a model from bytes; None: it may have none.
    pub external_dir: Option<&'a Path>,
    /// Folders beneath which files of external data may lie that are reached through links.
    pub allowed_roots: &'a [&'a Path],
    /// Large tensors are used where they lie in mapped files, which nobody truncates.
    pub map_files: bool,
    pub cancel: Option<&'a Cancel>,
    pub deadline: Option<Instant>,
}

type CountFunction<H> = unsafe extern "C" fn(H, *mut u32, *mut evn_error) -> evn_status;
type InfoFunction<H> = unsafe extern "C" fn(H, u32, *mut evn_value_info, *mut evn_error) -> evn_status;
type NameFunction<H> =
    unsafe extern "C" fn(H, u32, *mut c_char, usize, *mut usize, *mut evn_error) -> evn_status;
type SymbolFunction<H> =
    unsafe extern "C" fn(H, u32, u32, *mut c_char, usize, *mut usize, *mut evn_error) -> evn_status;

/// The inputs or outputs of a model or session. `symbol`: a function for names that are longer than an info
/// has room for. `first`: the index of the first.
pub(crate) fn values_of<H: Copy>(
    handle: H,
    first: u32,
    count: CountFunction<H>,
    info_at: InfoFunction<H>,
    name_at: NameFunction<H>,
    symbol_at: Option<SymbolFunction<H>>,
) -> Result<Vec<ValueInfo>> {
    let mut number = 0;
    check(|error| unsafe { count(handle, &mut number, error) })?;
    let mut values = Vec::with_capacity(number as usize);
    for index in first..first + number {
        let mut info = evn_value_info::INIT;
        check(|error| unsafe { info_at(handle, index, &mut info, error) })?;
        let symbol = |axis: usize| match symbol_at {
            Some(symbol_at) => read_text(64, |buffer, capacity, size, error| unsafe {
                symbol_at(handle, index, axis as u32, buffer, capacity, size, error)
            }),
            None => Ok(text_of(&info.symbols[axis])),
        };
        let dims = if info.rank as usize <= info.dims.len() {
            let dim = |axis: usize| match info.dims[axis] {
                known if known >= 0 => Ok(Dim::Known(known)),
                _ => Ok(Dim::Open(symbol(axis)?)),
            };
            Some((0..info.rank as usize).map(dim).collect::<Result<Vec<_>>>()?)
        } else {
            None
        };
        let name = read_text(64, |buffer, capacity, size, error| unsafe {
            name_at(handle, index, buffer, capacity, size, error)
        })?;
        values.push(ValueInfo { name, dtype: DType::of(info.dtype), dims, kind: text_of(&info.type_) });
    }
    Ok(values)
}

/// Paths as the library takes them.
struct Paths {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Paths {
    fn new(paths: &[&Path]) -> Result<Paths> {
        let texts = paths.iter().map(|path| c_path(path)).collect::<Result<Vec<_>>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Paths { _texts: texts, pointers })
    }
}

fn raw_options(
    options: &LoadOptions,
    external_dir: &Option<CString>,
    roots: &Paths,
) -> Result<evn_model_options> {
    let mut raw = evn_model_options::INIT;
    raw.external_dir = external_dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr());
    raw.cancel = Cancel::raw(options.cancel);
    raw.deadline_ns = deadline_ns(options.deadline)?;
    raw.allowed_roots = roots.pointers.as_ptr();
    raw.allowed_root_count = roots.pointers.len() as u32;
    raw.flags = if options.map_files { EVN_MODEL_MAP } else { 0 };
    Ok(raw)
}

impl Model {
    /// Reads and checks an ONNX file.
    pub fn load(runtime: &Runtime, path: impl AsRef<Path>) -> Result<Model> {
        Model::load_with(runtime, path, &LoadOptions::default())
    }

    pub fn load_with(runtime: &Runtime, path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model> {
        let (api, path) = (runtime.owned.api, c_path(path.as_ref())?);
        let dir = options.external_dir.map(c_path).transpose()?;
        let roots = Paths::new(options.allowed_roots)?;
        let raw = raw_options(options, &dir, &roots)?;
        let owned = Owned::make(api, |out, error| unsafe {
            (api.model_load_file)(runtime.owned.raw, path.as_ptr(), &raw, out, error)
        })?;
        Ok(Model { owned })
    }

    /// Reads and checks a model's bytes, which are copied.
    pub fn from_bytes(runtime: &Runtime, bytes: &[u8]) -> Result<Model> {
        Model::from_bytes_with(runtime, bytes, &LoadOptions::default())
    }

    pub fn from_bytes_with(runtime: &Runtime, bytes: &[u8], options: &LoadOptions) -> Result<Model> {
        let api = runtime.owned.api;
        let dir = options.external_dir.map(c_path).transpose()?;
        let roots = Paths::new(options.allowed_roots)?;
        let raw = raw_options(options, &dir, &roots)?;
        let owned = Owned::make(api, |out, error| unsafe {
            (api.model_load_buffer)(runtime.owned.raw, bytes.as_ptr().cast(), bytes.len(), &raw, out, error)
        })?;
        Ok(Model { owned })
    }

    /// Inputs that need not be given, since they have a default.
    pub fn defaults(&self) -> Result<Vec<ValueInfo>> {
        let api = self.owned.api;
        let mut first = 0;
        check(|error| unsafe { (api.model_input_count)(self.owned.raw, &mut first, error) })?;
        values_of(
            self.owned.raw,
            first,
            api.model_default_count,
            api.model_get_input_info,
            api.model_input_name,
            Some(api.model_input_symbol as SymbolFunction<evn_model>),
        )
    }

    pub fn inputs(&self) -> Result<Vec<ValueInfo>> {
        let api = self.owned.api;
        let symbol = Some(api.model_input_symbol as SymbolFunction<evn_model>);
        values_of(
            self.owned.raw,
            0,
            api.model_input_count,
            api.model_get_input_info,
            api.model_input_name,
            symbol,
        )
    }

    pub fn outputs(&self) -> Result<Vec<ValueInfo>> {
        let api = self.owned.api;
        let symbol = Some(api.model_output_symbol as SymbolFunction<evn_model>);
        values_of(
            self.owned.raw,
            0,
            api.model_output_count,
            api.model_get_output_info,
            api.model_output_name,
            symbol,
        )
    }

    /// What the model is: inputs, outputs, operators, parameters.
    pub fn describe(&self, format: Format) -> Result<String> {
        let describe = self.owned.api.model_describe;
        read_text(4096, |buffer, capacity, size, error| unsafe {
            describe(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }

    /// The keys of the model's metadata, in the order of the file.
    pub fn metadata_keys(&self) -> Result<Vec<String>> {
        let (api, mut count) = (self.owned.api, 0);
        check(|error| unsafe { (api.model_metadata_count)(self.owned.raw, &mut count, error) })?;
        let key = |index| {
            read_text(64, |buffer, capacity, size, error| unsafe {
                (api.model_metadata_key)(self.owned.raw, index, buffer, capacity, size, error)
            })
        };
        (0..count).map(key).collect()
    }

    /// The value of a metadata entry; None when there is none.
    pub fn metadata(&self, key: &str) -> Result<Option<String>> {
        let (get, key) = (self.owned.api.model_get_metadata, c_text(key)?);
        let read = read_text(1024, |buffer, capacity, size, error| unsafe {
            get(self.owned.raw, key.as_ptr(), buffer, capacity, size, error)
        });
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Error { status: Status::InvalidArgument, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The handle, for functions of [`crate::sys`]. It stays this model's.
    pub fn as_raw(&self) -> evn_model {
        self.owned.raw
    }
}

/// A model for [`inspect`] and [`crate::Quantizer`]: a file, or bytes with the folder of their external data.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    File(PathBuf),
    Bytes(&'a [u8], Option<PathBuf>),
}

impl Source<'_> {
    /// (path, folder of external data) for C.
    pub(crate) fn paths(&self) -> Result<(Option<CString>, Option<CString>)> {
        Ok(match self {
            Source::File(path) => (Some(c_path(path)?), None),
            Source::Bytes(_, dir) => (None, dir.as_deref().map(c_path).transpose()?),
        })
    }
    pub(crate) fn bytes(&self) -> (*const std::os::raw::c_void, usize) {
        match self {
            Source::File(_) => (ptr::null(), 0),
            Source::Bytes(bytes, _) => (bytes.as_ptr().cast(), bytes.len()),
        }
    }
}

/// Names of inputs with their dims, as C takes them.
pub(crate) struct Shapes<'a> {
    _names: Vec<CString>,
    pub(crate) raw: Vec<evn_input_shape>,
    _dims: std::marker::PhantomData<&'a [i64]>,
}

impl<'a> Shapes<'a> {
    pub(crate) fn new(shapes: &[(&str, &'a [i64])]) -> Result<Shapes<'a>> {
        let names = shapes.iter().map(|(name, _)| c_text(name)).collect::<Result<Vec<_>>>()?;
        let made = names.iter().zip(shapes).map(|(name, (_, dims))| evn_input_shape {
            name: name.as_ptr(),
            dims: dims.as_ptr(),
            rank: dims.len() as u32,
            reserved: 0,
        });
        let raw = made.collect();
        Ok(Shapes { _names: names, raw, _dims: std::marker::PhantomData })
    }
}

/// What a model needs, also when it cannot be loaded; `shapes` of inputs whose dims it leaves open, for
/// estimates of work and memory.
pub fn inspect(
    runtime: &Runtime,
    source: &Source,
    shapes: &[(&str, &[i64])],
    format: Format,
) -> Result<String> {
    let (path, dir) = source.paths()?;
    let shapes = Shapes::new(shapes)?;
    let mut options = evn_inspect_options::INIT;
    options.shapes = if shapes.raw.is_empty() { ptr::null() } else { shapes.raw.as_ptr() };
    options.shape_count = shapes.raw.len() as u32;
    let (data, size) = source.bytes();
    options.data = data;
    options.size = size;
    options.external_dir = dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr());
    let path = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
    let inspect = runtime.owned.api.model_inspect;
    read_text(1 << 16, |buffer, capacity, size, error| unsafe {
        inspect(runtime.owned.raw, path, &options, format.code(), buffer, capacity, size, error)
    })
}
