//! What models take and give besides tensors: sequences, optionals and maps.

use crate::error::{c_text, check, read_text, Result};
use crate::handle::Owned;
use crate::runtime::Runtime;
use crate::sys::*;
use crate::tensor::{Memory, Tensor};
use std::sync::Arc;

/// A tensor, or a sequence, optional or map. It never changes; what it holds is shared, so that tensors in it
/// cannot be written.
pub struct Value {
    pub(crate) owned: Owned<evn_value>,
    pub(crate) memory: Arc<Memory>,
}

impl Value {
    pub fn from_tensor(tensor: &Tensor) -> Result<Value> {
        let api = tensor.owned.api;
        let make = |out, error| unsafe { (api.value_from_tensor)(tensor.owned.raw, out, error) };
        Ok(Value { owned: Owned::make(api, make)?, memory: Arc::new(Memory(vec![tensor.memory.clone()])) })
    }

    /// A sequence, optional or map of `kind`: "seq(tensor(int64))", "optional(...)",
    /// "map(string,tensor(float32))". Parts are a sequence's elements, an optional's one or none, a map's
    /// keys and values.
    pub fn new(runtime: &Runtime, kind: &str, parts: &[&Value]) -> Result<Value> {
        let (api, kind) = (runtime.owned.api, c_text(kind)?);
        let raw: Vec<evn_value> = parts.iter().map(|part| part.owned.raw).collect();
        let owned = Owned::make(api, |out, error| unsafe {
            (api.value_create)(runtime.owned.raw, kind.as_ptr(), raw.as_ptr(), raw.len() as u32, out, error)
        })?;
        Ok(Value { owned, memory: Arc::new(Memory(parts.iter().map(|part| part.memory.clone()).collect())) })
    }

    /// "tensor(float32)", "seq(tensor(int64))", ...
    pub fn kind(&self) -> Result<String> {
        let get = self.owned.api.value_get_type;
        read_text(64, |buffer, capacity, size, error| unsafe {
            get(self.owned.raw, buffer, capacity, size, error)
        })
    }

    /// The elements of a sequence; what an optional holds, if anything; the keys and values of a map.
    pub fn parts(&self) -> Result<Vec<Value>> {
        let (api, raw, mut count) = (self.owned.api, self.owned.raw, 0);
        check(|error| unsafe { (api.value_part_count)(raw, &mut count, error) })?;
        let part = |index| {
            let make = |out, error| unsafe { (api.value_part_at)(raw, index, out, error) };
            Ok(Value { owned: Owned::make(api, make)?, memory: self.memory.clone() })
        };
        (0..count).map(part).collect()
    }

    /// The tensor that the value is, without a copy; it shares the value's memory, and can be written by
    /// nobody meanwhile.
    pub fn tensor(&self) -> Result<Tensor> {
        let api = self.owned.api;
        let make = |out, error| unsafe { (api.value_get_tensor)(self.owned.raw, out, error) };
        let owned = Owned::make(api, make)?;
        Ok(Tensor { owned, memory: self.memory.clone() })
    }
}
