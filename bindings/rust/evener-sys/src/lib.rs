//! The C API of Evener, an inference library for ONNX models, as raw declarations,
//! and the way to its functions: [`api`] gives the table of all of them.
//!
//! With the feature `load` (default) the library is opened when it is first asked for: the file that
//! `EVENER_LIBRARY` names, else what the system's loader finds under [`FILE_NAME`]. With `link` the program
//! is linked with it, and nothing is opened. Nothing is downloaded or built in either case. What the
//! functions promise is documented where they are declared; the crate `evener` wraps them safely.

#![allow(non_camel_case_types)]

#[allow(clippy::all, rustdoc::all)]
#[rustfmt::skip]
mod raw;
mod table;

pub use raw::*;
pub use table::*;
