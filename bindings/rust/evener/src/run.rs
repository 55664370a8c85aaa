//! Runs: their options, inputs and outputs.

use crate::error::{check, Error, Result, Status};
use crate::handle::{deadline_ns, nanoseconds, Owned};
use crate::session::{in_order, Cancel, Session};
use crate::state::State;
use crate::sys::*;
use crate::tensor::{Memory, Tensor};
use crate::value::Value;
use std::ops::{Deref, DerefMut, Index};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a run is made.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// From the begin of the run, or its submission, on.
    pub timeout: Option<Duration>,
    pub deadline: Option<Instant>,
    pub cancel: Option<&'a Cancel>,
    /// -7 to 7: while a run computes, those of lower priorities wait.
    pub priority: i32,
    /// Another one makes operators that draw random numbers draw others.
    pub seed: u64,
    /// Gives and takes the inputs and outputs of its pairs, which are None.
    pub state: Option<&'a State>,
    /// Places of outputs that are not wanted: what only they need is not computed, and they are None.
    pub skip: &'a [usize],
    /// Outputs stay on the devices where they are made.
    pub outputs_on_device: bool,
    /// Tensors may lie on other devices than the plan has them, and are copied.
    pub allow_copies: bool,
}

pub(crate) struct RawOptions {
    pub(crate) raw: evn_run_options,
    _skipped: Vec<u8>,
}

impl RunOptions<'_> {
    pub(crate) fn raw(&self, outputs: usize) -> Result<RawOptions> {
        let mut skipped = Vec::new();
        if !self.skip.is_empty() {
            skipped = vec![0; outputs];
            for index in self.skip {
                match skipped.get_mut(*index) {
                    Some(skipped) => *skipped = 1,
                    None => return Err(Error::argument(format!("there is no output {} to skip", index))),
                }
            }
        }
        let mut raw = evn_run_options::INIT;
        raw.allow_copies = self.allow_copies.into();
        raw.timeout_ns = self.timeout.map_or(0, |timeout| nanoseconds(timeout).max(1));
        raw.deadline_ns = deadline_ns(self.deadline)?;
        raw.random_seed = self.seed;
        raw.cancel = Cancel::raw(self.cancel);
        raw.priority = self.priority;
        raw.flags = if self.outputs_on_device { EVN_RUN_OUTPUTS_ON_DEVICE } else { 0 };
        raw.state = self.state.map_or(evn_state::NULL, |state| state.owned.raw);
        raw.skipped_outputs = if skipped.is_empty() { std::ptr::null() } else { skipped.as_ptr() };
        Ok(RawOptions { raw, _skipped: skipped })
    }
}

/// What a run made, in the model's order. Outputs that were skipped, and those of a state's pairs, are None.
pub struct Outputs<T = Tensor> {
    items: Vec<Option<T>>,
}

impl<T> Outputs<T> {
    pub fn len(&self) -> usize {
        self.items.len()
    }
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    pub fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)?.as_ref()
    }
    /// Takes an output out.
    pub fn take(&mut self, index: usize) -> Result<T> {
        let item = self.items.get_mut(index).and_then(Option::take);
        item.ok_or_else(|| Error::argument(format!("there is no output {} here", index)))
    }
    pub fn into_vec(self) -> Vec<Option<T>> {
        self.items
    }
}

impl<T> Index<usize> for Outputs<T> {
    type Output = T;
    /// Panics where there is none, as that of a slice does; `get` does not.
    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(item) => item,
            None => panic!("there is no output {} here", index),
        }
    }
}

impl Outputs<Tensor> {
    pub(crate) fn of(session: &'static evn_api, raw: Vec<evn_tensor>) -> Outputs {
        let of = |raw: evn_tensor| {
            if raw.is_null() {
                None
            } else {
                Some(Tensor::of(Owned { raw, api: session }))
            }
        };
        Outputs { items: raw.into_iter().map(of).collect() }
    }
}

impl Outputs<Value> {
    /// Outputs share the memory of all inputs, because the library passes parts of sequences on without a copy.
    pub(crate) fn of_values(
        api: &'static evn_api,
        raw: Vec<evn_value>,
        inputs: Vec<Arc<Memory>>,
    ) -> Outputs<Value> {
        let memory = Arc::new(Memory(inputs));
        let of = |raw: evn_value| {
            if raw.is_null() {
                None
            } else {
                Some(Value { owned: Owned { raw, api }, memory: memory.clone() })
            }
        };
        Outputs { items: raw.into_iter().map(of).collect() }
    }
}

/// The handles of tensors; NULL where there is none.
pub(crate) fn raw_inputs<'t, I: Copy + Into<Option<&'t Tensor>>>(inputs: &[I]) -> Handles {
    Handles::of(
        inputs.iter().map(|input| (*input).into().map_or(evn_tensor::NULL, |tensor| tensor.owned.raw)),
    )
}

/// Handles of tensors one after the other: a few of them without memory of their own.
pub(crate) struct Handles {
    few: [evn_tensor; 8],
    many: Vec<evn_tensor>,
    count: usize,
}

impl Handles {
    fn of(handles: impl ExactSizeIterator<Item = evn_tensor>) -> Handles {
        let mut made = Handles { few: [evn_tensor::NULL; 8], many: Vec::new(), count: handles.len() };
        if made.count > made.few.len() {
            made.many = handles.collect();
        } else {
            made.few.iter_mut().zip(handles).for_each(|(slot, handle)| *slot = handle);
        }
        made
    }
}

impl Deref for Handles {
    type Target = [evn_tensor];
    fn deref(&self) -> &[evn_tensor] {
        if self.count > self.few.len() {
            &self.many
        } else {
            &self.few[..self.count]
        }
    }
}

impl DerefMut for Handles {
    fn deref_mut(&mut self) -> &mut [evn_tensor] {
        if self.count > self.few.len() {
            &mut self.many
        } else {
            &mut self.few[..self.count]
        }
    }
}

/// Memory of tensors, which cannot be written while this exists.
pub(crate) fn memory_of<'t, I: Copy + Into<Option<&'t Tensor>>>(inputs: &[I]) -> Vec<Arc<Memory>> {
    inputs.iter().filter_map(|input| (*input).into()).map(|tensor| tensor.memory.clone()).collect()
}

/// The handles of values; NULL where there is none.
pub(crate) fn raw_values(inputs: &[Option<&Value>]) -> Vec<evn_value> {
    inputs.iter().map(|value| value.map_or(evn_value::NULL, |value| value.owned.raw)).collect()
}

/// Memory of values, which cannot be written while this exists.
pub(crate) fn memory_of_values(inputs: &[Option<&Value>]) -> Vec<Arc<Memory>> {
    inputs.iter().flatten().map(|value| value.memory.clone()).collect()
}

impl Session {
    /// Runs the model once: tensors in the model's order, `&[&x, &y]`, or `&[Some(&x), None]` where a state
    /// gives the second.
    pub fn run<'t, I: Copy + Into<Option<&'t Tensor>>>(&self, inputs: &[I]) -> Result<Outputs> {
        self.run_with(inputs, &RunOptions::default())
    }

    pub fn run_with<'t, I>(&self, inputs: &[I], options: &RunOptions) -> Result<Outputs>
    where
        I: Copy + Into<Option<&'t Tensor>>,
    {
        let inputs = raw_inputs(inputs);
        let mut outputs = vec![evn_tensor::NULL; self.output_count()?];
        self.run_raw(&inputs, &mut outputs, options)?;
        Ok(Outputs::of(self.owned.api, outputs))
    }

    /// Runs the model with inputs by their names: `session.run_named(&[("x", &x)], &options)`.
    pub fn run_named(&self, inputs: &[(&str, &Tensor)], options: &RunOptions) -> Result<Outputs> {
        let mut ordered = in_order(inputs, |name| self.find_input(name))?;
        let mut count = 0;
        check(|error| unsafe { (self.owned.api.session_input_count)(self.owned.raw, &mut count, error) })?;
        let required = count as usize;
        if ordered.len() < required {
            ordered.resize(required, None);
        }
        if options.state.is_none() && ordered[..required].iter().any(Option::is_none) {
            let missing = ordered.iter().position(Option::is_none).unwrap_or(0);
            let name = self.inputs()?.get(missing).map_or(String::new(), |input| input.name.clone());
            return Err(Error::argument(format!("input '{}' is missing", name)));
        }
        self.run_with(&ordered, options)
    }

    /// Runs into tensors that there are, of the outputs' dtypes and dims. After an error their bytes are
    /// undefined.
    pub fn run_into<'t, I>(
        &self,
        inputs: &[I],
        outputs: &mut [&mut Tensor],
        options: &RunOptions,
    ) -> Result<()>
    where
        I: Copy + Into<Option<&'t Tensor>>,
    {
        for output in outputs.iter_mut() {
            output.be_alone("an output")?;
        }
        let inputs = raw_inputs(inputs);
        let mut slots = Handles::of(outputs.iter().map(|output| output.owned.raw));
        self.run_raw(&inputs, &mut slots, options)
    }

    fn run_raw(&self, inputs: &[evn_tensor], outputs: &mut [evn_tensor], options: &RunOptions) -> Result<()> {
        let options = options.raw(outputs.len())?;
        let (run, raw) = (self.owned.api.session_run, self.owned.raw);
        let (count, slots) = (inputs.len() as u32, outputs.len() as u32);
        check(|error| unsafe {
            run(raw, inputs.as_ptr(), count, outputs.as_mut_ptr(), slots, &options.raw, error)
        })
    }

    /// Runs a model that takes or gives more than tensors.
    pub fn run_values(&self, inputs: &[Option<&Value>], options: &RunOptions) -> Result<Outputs<Value>> {
        let given = memory_of_values(inputs);
        let inputs = raw_values(inputs);
        let mut outputs = vec![evn_value::NULL; self.output_count()?];
        let options = options.raw(outputs.len())?;
        let (run, raw) = (self.owned.api.session_run_values, self.owned.raw);
        let (count, slots) = (inputs.len() as u32, outputs.len() as u32);
        check(|error| unsafe {
            run(raw, inputs.as_ptr(), count, outputs.as_mut_ptr(), slots, &options.raw, error)
        })?;
        Ok(Outputs::of_values(self.owned.api, outputs, given))
    }
}

/// The error of a request that has been taken already.
pub(crate) fn taken() -> Error {
    Error::new(Status::WrongState, "the outputs of the request have been taken")
}
