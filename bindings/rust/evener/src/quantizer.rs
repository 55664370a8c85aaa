//! Quantization: a float32 model becomes one that computes with 8-bit numbers.

use crate::error::{c_path, c_text, check, read_text, text_at, Result, TextArray};
use crate::handle::{deadline_ns, guarded, Lent, Owned};
use crate::model::{Model, Source};
use crate::run::{raw_inputs, Handles};
use crate::runtime::{Format, Runtime};
use crate::session::{in_order, Cancel};
use crate::sys::*;
use crate::tensor::Tensor;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr;
use std::time::Instant;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantizeMode {
    #[default]
    Static,
    Dynamic,
    /// Weights alone, in 8 or 4 bits; no calibration, as in the two below.
    Weights,
    Float16,
    Bfloat16,
}

/// How the range of an activation is chosen from what calibration has seen of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calibration {
    #[default]
    MinMax,
    Percentile,
    Entropy,
    Mse,
}

/// What a quantizer tells while it works.
pub type QuantizeProgress = Box<dyn Fn(&str, u64, u64) -> bool + Send + Sync>;

/// How a model is quantized; what is left as it is has the library's defaults.
#[derive(Default)]
pub struct QuantizerOptions {
    pub mode: QuantizeMode,
    pub calibration: Calibration,
    /// Activations are int8, symmetric, in place of uint8.
    pub int8_activations: bool,
    /// How many percent of elements stay with Calibration::Percentile; 0: 99.99.
    pub percentile: f64,
    /// EVN_QUANTIZE_... of the C API.
    pub flags: u32,
    /// Nodes that stay float32: globs of their names, or "type:Softmax".
    pub keep: Vec<String>,
    pub weight_bits: u32,
    pub block_size: u32,
    /// progress(what, done, total): false, or a panic, cancels the call that is under way. It must not call
    /// the quantizer.
    pub progress: Option<QuantizeProgress>,
    pub cancel: Option<Cancel>,
    pub deadline: Option<Instant>,
}

/// What the guard looks at. Zeros are the library's defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuardOptions {
    /// EVN_GUARD_... of the C API; 0: error and speed.
    pub flags: u32,
    pub min_cosine: f64,
    pub min_layer_sqnr_db: f64,
}

/// Quantizes one model.
pub struct Quantizer {
    owned: Owned<evn_quantizer>,
    _cancel: Option<Cancel>,
}

unsafe extern "C" fn report_progress(user: *mut c_void, what: *const c_char, done: u64, total: u64) -> i32 {
    let progress = &*user.cast::<QuantizeProgress>();
    match guarded(|| progress(&text_at(what), done, total)) {
        Some(true) => 0,
        _ => 1,
    }
}

impl Quantizer {
    pub fn new(runtime: &Runtime, source: &Source, options: QuantizerOptions) -> Result<Quantizer> {
        let (path, dir) = source.paths()?;
        let keep = TextArray::new(&options.keep)?;
        let (data, size) = source.bytes();
        let mut raw = evn_quantizer_options::INIT;
        raw.mode = options.mode as evn_quantize_mode;
        raw.calibration = options.calibration as evn_calibration;
        raw.activation = if options.int8_activations { EVN_DTYPE_INT8 } else { EVN_DTYPE_UNDEFINED }; // uint8, where there are activations
        raw.percentile = options.percentile;
        raw.flags = options.flags;
        raw.keep = keep.as_ptr();
        raw.keep_count = keep.len();
        raw.data = data;
        raw.size = size;
        raw.external_dir = dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr());
        raw.weight_bits = options.weight_bits;
        raw.block_size = options.block_size;
        raw.cancel = Cancel::raw(options.cancel.as_ref());
        raw.deadline_ns = deadline_ns(options.deadline)?;
        let lent = options.progress.map(Lent::new);
        if let Some(lent) = &lent {
            raw.progress = Some(report_progress);
            raw.progress_user = lent.user;
            raw.progress_release = Some(Lent::<QuantizeProgress>::take_back);
        }
        let path = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        let api = runtime.owned.api;
        let owned = Owned::make(api, |out, error| unsafe {
            (api.quantizer_create)(runtime.owned.raw, path, &raw, out, error)
        })?;
        if let Some(lent) = lent {
            lent.keep();
        }
        Ok(Quantizer { owned, _cancel: options.cancel })
    }

    pub fn input_count(&self) -> Result<usize> {
        let mut count = 0;
        check(|error| unsafe { (self.owned.api.quantizer_input_count)(self.owned.raw, &mut count, error) })?;
        Ok(count as usize)
    }

    /// The place of an input.
    pub fn find_input(&self, name: &str) -> Result<usize> {
        let (find, name, mut index) = (self.owned.api.quantizer_find_input, c_text(name)?, 0);
        check(|error| unsafe { find(self.owned.raw, name.as_ptr(), &mut index, error) })?;
        Ok(index as usize)
    }

    fn inputs(&self, inputs: &[(&str, &Tensor)]) -> Result<Handles> {
        let mut ordered = in_order(inputs, |name| self.find_input(name))?;
        ordered.resize(self.input_count()?, None);
        Ok(raw_inputs(&ordered))
    }

    /// Runs the float32 model over one calibration batch, `&[("x", &x)]`, and keeps what its activations
    /// show.
    pub fn add_batch(&self, inputs: &[(&str, &Tensor)]) -> Result<()> {
        let inputs = self.inputs(inputs)?;
        let add = self.owned.api.quantizer_add_batch;
        check(|error| unsafe { add(self.owned.raw, inputs.as_ptr(), inputs.len() as u32, error) })
    }

    /// Takes back layers that lose too much over these inputs, or that are slower in 8 bits here; the report
    /// says which and why.
    pub fn guard(&self, inputs: &[(&str, &Tensor)], options: &GuardOptions) -> Result<()> {
        let inputs = self.inputs(inputs)?;
        let mut raw = evn_guard_options::INIT;
        raw.flags = options.flags;
        raw.min_cosine = options.min_cosine;
        raw.min_layer_sqnr_db = options.min_layer_sqnr_db;
        let guard = self.owned.api.quantizer_guard;
        check(|error| unsafe { guard(self.owned.raw, inputs.as_ptr(), inputs.len() as u32, &raw, error) })
    }

    /// Compares both models over these inputs; the report has the figures.
    pub fn verify(&self, inputs: &[(&str, &Tensor)]) -> Result<()> {
        let inputs = self.inputs(inputs)?;
        let verify = self.owned.api.quantizer_verify;
        check(|error| unsafe { verify(self.owned.raw, inputs.as_ptr(), inputs.len() as u32, error) })
    }

    /// The quantized model.
    pub fn finish(&self) -> Result<Model> {
        let api = self.owned.api;
        let make = |out, error| unsafe { (api.quantizer_finish)(self.owned.raw, out, error) };
        Ok(Model { owned: Owned::make(api, make)? })
    }

    /// Writes the quantized model as an ONNX file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|error| unsafe { (self.owned.api.quantizer_save)(self.owned.raw, path.as_ptr(), error) })
    }

    /// What was done.
    pub fn report(&self, format: Format) -> Result<String> {
        let report = self.owned.api.quantizer_report;
        read_text(1 << 14, |buffer, capacity, size, error| unsafe {
            report(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }
}
