//! What one stream keeps from run to run.

use crate::error::{c_text, check, read_text, Error, Result, Status};
use crate::handle::Owned;
use crate::model::Shapes;
use crate::runtime::Format;
use crate::session::Session;
use crate::sys::*;
use std::ptr;

/// How values of pairs with a capacity are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateStorage {
    #[default]
    AsComputed,
    Float16,
    Int8,
}

/// How a state is made.
#[derive(Clone, Default)]
pub struct StateOptions<'a> {
    /// Memory for positions is taken as they come, and not all at once.
    pub on_demand: bool,
    pub storage: StateStorage,
    /// Inputs of pairs whose dims the model leaves open; 0 for the axis that grows.
    pub dims: Vec<(&'a str, &'a [i64])>,
}

/// Hands outputs of one run on to inputs of the next: [`crate::RunOptions::state`]. One run uses it at a
/// time.
pub struct State {
    pub(crate) owned: Owned<evn_state>,
}

impl State {
    /// `pairs`: (output, input, capacity); 0: the dims stay the same, more: the most positions on the axis on
    /// which it grows.
    pub fn new(session: &Session, pairs: &[(&str, &str, i64)], options: &StateOptions) -> Result<State> {
        let names = pairs
            .iter()
            .map(|(output, input, _)| Ok((c_text(output)?, c_text(input)?)))
            .collect::<Result<Vec<_>>>()?;
        let raw: Vec<evn_state_pair> = names
            .iter()
            .zip(pairs)
            .map(|((output, input), (_, _, capacity))| evn_state_pair {
                output: output.as_ptr(),
                input: input.as_ptr(),
                capacity: *capacity,
            })
            .collect();
        let dims = Shapes::new(&options.dims)?;
        let mut given = evn_state_options::INIT;
        given.flags = if options.on_demand { EVN_STATE_ON_DEMAND } else { 0 };
        given.flags |= match options.storage {
            StateStorage::AsComputed => 0,
            StateStorage::Float16 => EVN_STATE_FLOAT16,
            StateStorage::Int8 => EVN_STATE_INT8,
        };
        given.dims = if dims.raw.is_empty() { ptr::null() } else { dims.raw.as_ptr() };
        given.dim_count = dims.raw.len() as u32;
        let api = session.owned.api;
        let owned = Owned::make(api, |out, error| unsafe {
            (api.state_create)(session.owned.raw, raw.as_ptr(), raw.len() as u32, &given, out, error)
        })?;
        Ok(State { owned })
    }

    /// Makes it as it was when it was made.
    pub fn reset(&self) -> Result<()> {
        check(|error| unsafe { (self.owned.api.state_reset)(self.owned.raw, error) })
    }

    /// Another state of the same contents, which goes its own way: a beam of a search.
    pub fn fork(&self) -> Result<State> {
        let api = self.owned.api;
        let make = |out, error| unsafe { (api.state_fork)(self.owned.raw, out, error) };
        Ok(State { owned: Owned::make(api, make)? })
    }

    /// Positions of the pair at `index`.
    pub fn length(&self, index: u32) -> Result<i64> {
        let mut positions = 0;
        check(|error| unsafe {
            (self.owned.api.state_length)(self.owned.raw, index, &mut positions, error)
        })?;
        Ok(positions)
    }

    /// Cuts pairs with a capacity back to their first `positions`.
    pub fn truncate(&self, positions: i64) -> Result<()> {
        check(|error| unsafe { (self.owned.api.state_truncate)(self.owned.raw, positions, error) })
    }

    /// The contents as bytes.
    pub fn save(&self) -> Result<Vec<u8>> {
        let (save, raw, mut size) = (self.owned.api.state_save, self.owned.raw, 0);
        check(|error| unsafe { save(raw, ptr::null_mut(), 0, &mut size, error) })?;
        loop {
            let mut bytes = vec![0u8; size];
            match check(|error| unsafe {
                save(raw, bytes.as_mut_ptr().cast(), bytes.len(), &mut size, error)
            }) {
                Ok(()) => {
                    bytes.truncate(size);
                    return Ok(bytes);
                }
                // It has grown between the two calls.
                Err(Error { status: Status::BufferTooSmall, bytes_requested, .. })
                    if bytes_requested > bytes.len() as u64 =>
                {
                    size = bytes_requested as usize
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts what `save` gave in the place of the contents.
    pub fn restore(&self, bytes: &[u8]) -> Result<()> {
        let restore = self.owned.api.state_restore;
        check(|error| unsafe { restore(self.owned.raw, bytes.as_ptr().cast(), bytes.len(), error) })
    }

    /// The pairs: names, dims, positions, bytes, how they are held and why.
    pub fn describe(&self, format: Format) -> Result<String> {
        let describe = self.owned.api.state_describe;
        read_text(4096, |buffer, capacity, size, error| unsafe {
            describe(self.owned.raw, format.code(), buffer, capacity, size, error)
        })
    }
}
