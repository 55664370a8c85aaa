//! Training: a model learns where its data is, and comes back as ONNX.

use crate::error::{c_path, c_text, check, read_text, Error, Result, TextArray};
use crate::handle::{told, Lent, Owned};
use crate::model::{Model, Source};
use crate::run::{raw_inputs, Handles};
use crate::runtime::{Format, Runtime};
use crate::session::{in_order, Cancel, Precision};
use crate::sys::*;
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::convert::TryFrom;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr;
use std::slice;
use std::time::Duration;

/// What is made small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Of logits; labels are classes (i64) or probabilities.
    #[default]
    SoftmaxCrossEntropy,
    BceWithLogits,
    Mse,
    L1,
    /// The output is the loss, of one element; there are no labels.
    Output,
}

/// How parameters move: formulas and defaults are those of torch.optim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimizer {
    #[default]
    Sgd,
    Adam,
    AdamW,
    Adagrad,
    Rmsprop,
}

/// How the learning rate goes on, after a linear warm-up where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    #[default]
    Constant,
    Step,
    Exponential,
    Cosine,
    /// Falls when what [`Trainer::note_metric`] is told does not.
    Plateau,
}

/// Parameters that are treated otherwise than the rest; the first group with a name that matches counts.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterGroup {
    /// Globs of names of initializers.
    pub names: Vec<String>,
    /// Times the learning rate; None: 1.
    pub rate_factor: Option<f64>,
    /// None: that of the options.
    pub weight_decay: Option<f64>,
}

/// What is summed over ranks, in place.
#[derive(Debug)]
pub enum Reduced<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
}

/// All-reduce by the host: the numbers become their sums over all ranks, with the same bits in all of them. An
/// error, or a panic, ends the trainer's call. It must not call the trainer.
pub type Reduce = Box<dyn Fn(Reduced) -> Result<()> + Send + Sync>;

/// Options of a trainer. None is the library's default; a zero that is not in an Option stands for none.
#[derive(Default)]
pub struct TrainerOptions {
    pub loss: Loss,
    /// The output that the loss is of; None: the first.
    pub output: Option<String>,
    /// Globs of names of initializers that learn; none: all that can.
    pub trainable: Vec<String>,
    /// Those that stay; also nodes of BatchNormalization.
    pub frozen: Vec<String>,
    pub groups: Vec<ParameterGroup>,
    /// Of products and convolutions in both passes.
    pub precision: Precision,
    pub optimizer: Optimizer,
    pub learning_rate: Option<f64>,
    pub momentum: f64,
    pub dampening: f64,
    pub nesterov: bool,
    pub weight_decay: Option<f64>,
    pub beta1: Option<f64>,
    pub beta2: Option<f64>,
    pub epsilon: Option<f64>,
    /// Of RMSprop.
    pub alpha: Option<f64>,
    /// Of RMSprop.
    pub centered: bool,
    /// Of Adagrad.
    pub rate_decay: f64,
    pub schedule: Schedule,
    pub warmup_steps: u64,
    pub schedule_steps: u64,
    pub schedule_factor: Option<f64>,
    pub least_rate: f64,
    pub plateau_threshold: Option<f64>,
    pub plateau_patience: Option<u32>,
    pub clip_norm: f64,
    pub clip_value: f64,
    /// Steps of which the mean gradient moves the parameters once.
    pub accumulate: u32,
    pub loss_scale: Option<f64>,
    /// Of Dropout.
    pub seed: u64,
    /// Bytes of activations that a step may keep; what does not fit is computed again.
    pub memory_limit: u64,
    pub prune_share: f64,
    pub prune_begin: u64,
    pub prune_steps: u64,
    pub device: Option<String>,
    /// Once it is cancelled, Trainer::new, step and evaluate end with Status::Cancelled.
    pub cancel: Option<Cancel>,
    /// Devices that share each batch.
    pub replicas: Vec<String>,
    pub rank: u32,
    pub rank_count: u32,
    pub collective_timeout: Duration,
    pub reduce: Option<Reduce>,
    /// "mpi" or "gloo": the sum over ranks by a module.
    pub collective: Option<String>,
    pub collective_store: Option<String>,
    pub bucket_bytes: u64,
    /// Ranks compare checksums of their parameters after each step.
    pub check_ranks: bool,
    /// BatchNormalization normalizes by the batches of all ranks together.
    pub sync_norm: bool,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Of this batch, before the parameters moved.
    pub loss: f64,
    /// By which they moved; 0: they did not.
    pub learning_rate: f64,
    /// Before clipping; 0 as above.
    pub gradient_norm: f64,
    pub loss_scale: f64,
    /// The loss or a gradient is not finite, and nothing has changed.
    pub skipped: bool,
    /// How many have moved the parameters.
    pub step: u64,
}

/// How good a model is on a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    pub loss: f64,
    pub correct: u64,
    pub count: u64,
}

impl Evaluation {
    /// None where the loss has none.
    pub fn accuracy(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        Some(self.correct as f64 / self.count as f64)
    }
}

/// Trains one model. Calls on one trainer wait for each other.
///
/// ```no_run
/// # use evener::*;
/// # fn train(runtime: &Runtime, x: &Tensor, labels: &Tensor) -> Result<()> {
/// let options = TrainerOptions { optimizer: Optimizer::AdamW, learning_rate: Some(1e-3), ..Default::default() };
/// let trainer = Trainer::new(runtime, &Source::File("model.onnx".into()), options)?;
/// let step = trainer.step(&[("x", x)], Some(labels))?;
/// println!("{}", step.loss);
/// trainer.export("trained.onnx")
/// # }
/// ```
pub struct Trainer {
    owned: Owned<evn_trainer>,
    _reduce: Option<Lent<Reduce>>, // after the handle: the library may call it until that has gone
    _cancel: Option<Cancel>,
}

unsafe extern "C" fn reduce(
    context: *mut c_void,
    data: *mut c_void,
    count: u64,
    dtype: evn_dtype,
    error: *mut evn_error,
) -> evn_status {
    let reduce = &*context.cast::<Reduce>();
    told(error, "the sum over ranks", || {
        let count = usize::try_from(count).map_err(|_| Error::argument("more numbers than memory"))?;
        match (dtype, count) {
            (EVN_DTYPE_FLOAT32, 0) => reduce(Reduced::F32(&mut [])),
            (EVN_DTYPE_FLOAT32, _) => reduce(Reduced::F32(slice::from_raw_parts_mut(data.cast(), count))),
            (EVN_DTYPE_FLOAT64, 0) => reduce(Reduced::F64(&mut [])),
            (EVN_DTYPE_FLOAT64, _) => reduce(Reduced::F64(slice::from_raw_parts_mut(data.cast(), count))),
            _ => Err(Error::argument(format!("a sum of dtype {}", dtype))),
        }
    })
}

fn optional(text: &Option<String>) -> Result<Option<std::ffi::CString>> {
    text.as_deref().map(c_text).transpose()
}

fn at(text: &Option<std::ffi::CString>) -> *const std::os::raw::c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

fn flag(given: bool, flag: u32) -> u32 {
    if given {
        flag
    } else {
        0
    }
}

/// A number that may not be given; a NaN, which says so in C, is none.
fn number(what: &str, given: Option<f64>) -> Result<f64> {
    match given {
        Some(value) if value.is_nan() => Err(Error::argument(format!("{} is not a number", what))),
        _ => Ok(given.unwrap_or(EVN_DEFAULT)),
    }
}

impl TrainerOptions {
    /// All but what points to memory.
    fn numbers(&self) -> Result<evn_trainer_options> {
        let mut raw = evn_trainer_options::INIT;
        raw.loss = self.loss as evn_loss;
        raw.optimizer = self.optimizer as evn_optimizer;
        raw.schedule = self.schedule as evn_schedule;
        raw.flags = flag(self.nesterov, EVN_TRAIN_NESTEROV)
            | flag(self.centered, EVN_TRAIN_CENTERED)
            | flag(self.check_ranks, EVN_TRAIN_CHECK_RANKS)
            | flag(self.sync_norm, EVN_TRAIN_SYNC_NORM);
        raw.precision = self.precision as evn_precision;
        raw.accumulate = self.accumulate;
        raw.learning_rate = number("learning_rate", self.learning_rate)?;
        raw.momentum = self.momentum;
        raw.dampening = self.dampening;
        raw.weight_decay = number("weight_decay", self.weight_decay)?;
        raw.beta1 = number("beta1", self.beta1)?;
        raw.beta2 = number("beta2", self.beta2)?;
        raw.epsilon = number("epsilon", self.epsilon)?;
        raw.alpha = number("alpha", self.alpha)?;
        raw.rate_decay = self.rate_decay;
        raw.clip_norm = self.clip_norm;
        raw.clip_value = self.clip_value;
        raw.warmup_steps = self.warmup_steps;
        raw.schedule_steps = self.schedule_steps;
        raw.schedule_factor = number("schedule_factor", self.schedule_factor)?;
        raw.least_rate = self.least_rate;
        raw.plateau_threshold = number("plateau_threshold", self.plateau_threshold)?;
        if self.plateau_patience == Some(EVN_DEFAULT_COUNT) {
            return Err(Error::argument(format!("plateau_patience is {}", EVN_DEFAULT_COUNT)));
        }
        raw.plateau_patience = self.plateau_patience.unwrap_or(EVN_DEFAULT_COUNT);
        raw.seed = self.seed;
        raw.loss_scale = number("loss_scale", self.loss_scale)?;
        raw.memory_limit = self.memory_limit;
        raw.prune_share = self.prune_share;
        raw.prune_begin = self.prune_begin;
        raw.prune_steps = self.prune_steps;
        raw.rank = self.rank;
        raw.rank_count = self.rank_count;
        raw.collective_timeout_ms = u32::try_from((self.collective_timeout.as_nanos() + 999_999) / 1_000_000)
            .map_err(|_| Error::argument(format!("collective_timeout is {:?}", self.collective_timeout)))?;
        raw.bucket_bytes = self.bucket_bytes;
        Ok(raw)
    }
}

impl Trainer {
    pub fn new(runtime: &Runtime, source: &Source, options: TrainerOptions) -> Result<Trainer> {
        let mut raw = options.numbers()?;
        let (path, dir) = source.paths()?;
        let trainable = TextArray::new(&options.trainable)?;
        let frozen = TextArray::new(&options.frozen)?;
        let replicas = TextArray::new(&options.replicas)?;
        let names =
            options.groups.iter().map(|group| TextArray::new(&group.names)).collect::<Result<Vec<_>>>()?;
        let groups: Vec<evn_parameter_group> = names
            .iter()
            .zip(&options.groups)
            .map(|(names, group)| {
                Ok(evn_parameter_group {
                    names: names.as_ptr(),
                    name_count: names.len(),
                    reserved: 0,
                    rate_factor: number("rate_factor", group.rate_factor)?,
                    weight_decay: number("weight_decay", group.weight_decay)?,
                })
            })
            .collect::<Result<_>>()?;
        let (output, device) = (optional(&options.output)?, optional(&options.device)?);
        let (collective, store) = (optional(&options.collective)?, optional(&options.collective_store)?);
        raw.output = at(&output);
        raw.trainable = trainable.as_ptr();
        raw.trainable_count = trainable.len();
        raw.frozen = frozen.as_ptr();
        raw.frozen_count = frozen.len();
        raw.groups = if groups.is_empty() { ptr::null() } else { groups.as_ptr() };
        raw.group_count = groups.len() as u32;
        raw.replicas = replicas.as_ptr();
        raw.replica_count = replicas.len();
        raw.device = at(&device);
        let (data, size) = source.bytes();
        raw.data = data;
        raw.size = size;
        raw.external_dir = at(&dir);
        raw.cancel = Cancel::raw(options.cancel.as_ref());
        raw.collective = at(&collective);
        raw.collective_store = at(&store);
        let lent = options.reduce.map(Lent::new);
        if let Some(lent) = &lent {
            raw.reduce = Some(reduce);
            raw.reduce_context = lent.user;
        }
        let api = runtime.owned.api;
        let path = at(&path);
        let owned = Owned::make(api, |out, error| unsafe {
            (api.trainer_create)(runtime.owned.raw, path, &raw, out, error)
        })?;
        Ok(Trainer { owned, _reduce: lent, _cancel: options.cancel })
    }

    pub fn input_count(&self) -> Result<usize> {
        let mut count = 0;
        check(|error| unsafe { (self.owned.api.trainer_input_count)(self.owned.raw, &mut count, error) })?;
        Ok(count as usize)
    }

    /// The place of an input.
    pub fn find_input(&self, name: &str) -> Result<usize> {
        let (find, name, mut index) = (self.owned.api.trainer_find_input, c_text(name)?, 0);
        check(|error| unsafe { find(self.owned.raw, name.as_ptr(), &mut index, error) })?;
        Ok(index as usize)
    }

    fn inputs(&self, inputs: &[(&str, &Tensor)]) -> Result<Handles> {
        let mut ordered = in_order(inputs, |name| self.find_input(name))?;
        ordered.resize(self.input_count()?, None);
        Ok(raw_inputs(&ordered))
    }

    /// Learns from one batch: `trainer.step(&[("x", &x)], Some(&labels))`. Labels are as the loss says; with
    /// [`Loss::Output`] there are none.
    pub fn step(&self, inputs: &[(&str, &Tensor)], labels: Option<&Tensor>) -> Result<Step> {
        let inputs = self.inputs(inputs)?;
        let labels = labels.map_or(evn_tensor::NULL, |labels| labels.owned.raw);
        let (step, mut info) = (self.owned.api.trainer_step, evn_step_info::INIT);
        check(|error| unsafe {
            step(self.owned.raw, inputs.as_ptr(), inputs.len() as u32, labels, &mut info, error)
        })?;
        Ok(Step {
            loss: info.loss,
            learning_rate: info.learning_rate,
            gradient_norm: info.gradient_norm,
            loss_scale: info.loss_scale,
            skipped: info.skipped != 0,
            step: info.step,
        })
    }

    /// Compares the model as it is in use with labels; nothing is learned.
    pub fn evaluate(&self, inputs: &[(&str, &Tensor)], labels: Option<&Tensor>) -> Result<Evaluation> {
        let inputs = self.inputs(inputs)?;
        let labels = labels.map_or(evn_tensor::NULL, |labels| labels.owned.raw);
        let (evaluate, mut info) = (self.owned.api.trainer_evaluate, evn_evaluation::INIT);
        check(|error| unsafe {
            evaluate(self.owned.raw, inputs.as_ptr(), inputs.len() as u32, labels, &mut info, error)
        })?;
        Ok(Evaluation { loss: info.loss, correct: info.correct, count: info.count })
    }

    /// Tells [`Schedule::Plateau`] what is to fall.
    pub fn note_metric(&self, value: f64) -> Result<()> {
        check(|error| unsafe { (self.owned.api.trainer_note_metric)(self.owned.raw, value, error) })
    }

    /// Another rate in the place of the options', from the next step on.
    pub fn set_learning_rate(&self, rate: f64) -> Result<()> {
        check(|error| unsafe { (self.owned.api.trainer_set_learning_rate)(self.owned.raw, rate, error) })
    }

    /// Copies of the parameters that learn, by their names.
    pub fn parameters(&self) -> Result<BTreeMap<String, Tensor>> {
        self.copies(EVN_PARAMETER_VALUE)
    }

    /// Copies of their gradients in the last step, before clipping.
    pub fn gradients(&self) -> Result<BTreeMap<String, Tensor>> {
        self.copies(EVN_PARAMETER_GRADIENT)
    }

    fn copies(&self, part: evn_parameter_part) -> Result<BTreeMap<String, Tensor>> {
        let (api, raw, mut count) = (self.owned.api, self.owned.raw, 0);
        check(|error| unsafe { (api.trainer_parameter_count)(raw, &mut count, error) })?;
        let copy = |index| {
            let name = read_text(64, |buffer, capacity, size, error| unsafe {
                (api.trainer_parameter_name)(raw, index, buffer, capacity, size, error)
            })?;
            let get = |out, error| unsafe { (api.trainer_get_parameter)(raw, index, part, out, error) };
            Ok((name, Tensor::of(Owned::make(api, get)?)))
        };
        (0..count).map(copy).collect()
    }

    /// Writes all that training needs to go on with the same bits, in one step (safetensors).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|error| unsafe { (self.owned.api.trainer_save)(self.owned.raw, path.as_ptr(), error) })
    }

    /// Takes what `save` wrote.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|error| unsafe { (self.owned.api.trainer_restore)(self.owned.raw, path.as_ptr(), error) })
    }

    /// The trained model, with the parameters of now.
    pub fn finish(&self) -> Result<Model> {
        let api = self.owned.api;
        let make = |out, error| unsafe { (api.trainer_finish)(self.owned.raw, out, error) };
        Ok(Model { owned: Owned::make(api, make)? })
    }

    /// Writes the trained model as an ONNX file, in one step.
    pub fn export(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        check(|error| unsafe { (self.owned.api.trainer_export)(self.owned.raw, path.as_ptr(), error) })
    }

    /// What is trained, and how it went.
    pub fn describe(&self, format: Format) -> Result<String> {
        let describe = self.owned.api.trainer_describe;
        read_text(4096, |buffer, capacity, size, error| unsafe {
            describe(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{text_of, Status};

    fn call(of: Reduce, data: &mut [f64], dtype: evn_dtype) -> (evn_status, String) {
        let (lent, mut error) = (Lent::new(of), evn_error::INIT);
        let (at, count) = (data.as_mut_ptr().cast(), data.len() as u64);
        let status = unsafe { reduce(lent.user, at, count, dtype, &mut error) };
        (status, text_of(&error.message))
    }

    #[test]
    fn the_hosts_sum_gets_the_numbers_and_its_errors_are_statuses() {
        let double = Box::new(|numbers: Reduced| match numbers {
            Reduced::F64(numbers) => {
                numbers.iter_mut().for_each(|number| *number *= 2.0);
                Ok(())
            }
            Reduced::F32(_) => Err(Error::new(Status::Timeout, "rank 1 is gone")),
        });
        let mut data = [1.0, 2.5];
        assert_eq!(call(double.clone(), &mut data, EVN_DTYPE_FLOAT64).0, EVN_OK);
        assert_eq!(data, [2.0, 5.0]);
        let lost = call(double.clone(), &mut data, EVN_DTYPE_FLOAT32);
        assert_eq!(lost, (EVN_ERROR_TIMEOUT, "rank 1 is gone".to_string()));
        assert_eq!(call(double, &mut data, EVN_DTYPE_INT8).0, EVN_ERROR_INVALID_ARGUMENT);
        let (status, text) = call(Box::new(|_| panic!("at the disco")), &mut data, EVN_DTYPE_FLOAT64);
        assert_eq!(status, EVN_ERROR_INTERNAL);
        assert!(text.contains("at the disco"), "{}", text);
    }
}
