//! Evener runs ONNX models on CPU and OpenCL devices.
//!
//! ```no_run
//! use evener::{Model, Runtime, Session, Tensor};
//!
//! fn main() -> evener::Result<()> {
//!     let runtime = Runtime::new()?;
//!     let model = Model::load(&runtime, "model.onnx")?;
//!     let session = Session::new(&runtime, &model)?;
//!     let x = Tensor::from_vec(&runtime, vec![1.0f32, 2.0, 3.0], &[1, 3])?;
//!     let outputs = session.run(&[&x])?;
//!     println!("{:?}", outputs[0].to_vec::<f32>()?);
//!     Ok(())
//! }
//! ```
//!
//! The library is the file that `EVENER_LIBRARY` names, else what the system's loader finds; with the feature
//! `link` the program is linked with it. Nothing is downloaded or built.
//!
//! Objects keep what they are made of, so they may be dropped in any order and on any thread, also while
//! something runs; all of them are Send and Sync. What must not be is not compiled:
//!
//! ```compile_fail,E0515
//! // A view does not outlive its tensor.
//! fn dangling(tensor: evener::Tensor) -> evener::View<'static, f32> {
//!     tensor.view().unwrap()
//! }
//! ```
//! ```compile_fail,E0502
//! // Nothing is written while it is read.
//! fn both(mut tensor: evener::Tensor) {
//!     let read = tensor.view::<f32>().unwrap();
//!     tensor.view_mut::<f32>().unwrap()[0] = read[0];
//! }
//! ```
//! ```compile_fail,E0277
//! // Closures that are called on any thread must be Send and Sync.
//! let local = std::rc::Rc::new(());
//! evener::Runtime::builder().log(evener::LogLevel::Info, move |_| drop(local.clone()));
//! ```
//! ```compile_fail,E0277
//! // Not every type is one of elements: a bool of a tensor may be any byte.
//! fn booleans(tensor: evener::Tensor) {
//!     let _ = tensor.view::<bool>();
//! }
//! ```
//! ```compile_fail,E0515
//! // A state outlives the options that name it.
//! fn options(state: evener::State) -> evener::RunOptions<'static> {
//!     evener::RunOptions { state: Some(&state), ..Default::default() }
//! }
//! ```

mod device;
mod error;
mod executor;
mod handle;
mod model;
mod opencl;
mod operator;
mod quantizer;
mod request;
mod run;
mod runtime;
mod session;
mod state;
mod tensor;
mod trainer;
mod value;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The raw C API, for what this crate does not wrap.
pub use evener_sys as sys;

pub use device::*;
pub use error::{Error, Result, Status};
pub use executor::{Executor, PostedTask};
pub use model::{inspect, Dim, LoadOptions, Model, Source, ValueInfo};
pub use opencl::{OpenClObjects, StoredPrograms};
pub use operator::*;
pub use quantizer::*;
pub use request::{Completion, CompletionQueue, Request};
pub use run::{Outputs, RunOptions};
pub use runtime::*;
pub use session::*;
pub use state::*;
pub use tensor::{DType, Element, PendingCopy, Tensor, TensorInfo, View, ViewMut};
pub use trainer::*;
pub use value::Value;
