//! What a call came to, and how texts come out of C.

use crate::sys::*;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::path::Path;

macro_rules! statuses {
    ($($name:ident = $value:ident,)*) => {
        /// Why a call failed. Later libraries may have more: those are `Other`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status { $($name,)* Other(i32) }

        impl Status {
            pub(crate) fn of(value: evn_status) -> Status {
                match value { $($value => Status::$name,)* other => Status::Other(other) }
            }
            /// The value of the C API.
            pub fn code(self) -> i32 {
                match self { $(Status::$name => $value,)* Status::Other(value) => value }
            }
        }
    };
}

statuses! {
    InvalidArgument = EVN_ERROR_INVALID_ARGUMENT,
    InvalidHandle = EVN_ERROR_INVALID_HANDLE,
    InvalidModel = EVN_ERROR_INVALID_MODEL,
    Unsupported = EVN_ERROR_UNSUPPORTED,
    Limit = EVN_ERROR_LIMIT,
    OutOfMemory = EVN_ERROR_OUT_OF_MEMORY,
    Io = EVN_ERROR_IO,
    Config = EVN_ERROR_CONFIG,
    DeviceUnavailable = EVN_ERROR_DEVICE_UNAVAILABLE,
    DeviceLost = EVN_ERROR_DEVICE_LOST,
    Timeout = EVN_ERROR_TIMEOUT,
    Cancelled = EVN_ERROR_CANCELLED,
    NoThreads = EVN_ERROR_NO_THREADS,
    WrongState = EVN_ERROR_WRONG_STATE,
    Version = EVN_ERROR_VERSION,
    BufferTooSmall = EVN_ERROR_BUFFER_TOO_SMALL,
    Internal = EVN_ERROR_INTERNAL,
    Busy = EVN_ERROR_BUSY,
    Forked = EVN_ERROR_FORKED,
}

/// Where and why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    pub status: Status,
    /// One line.
    pub message: String,
    /// The graph node concerned, or "".
    pub node: String,
    /// The device concerned, or "".
    pub device: String,
    /// For memory, limits and buffers: bytes asked for, else 0.
    pub bytes_requested: u64,
    /// For memory and limits: bytes that were left, else 0.
    pub bytes_available: u64,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a custom operator, or of this crate.
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        let (message, node, device) = (message.into(), String::new(), String::new());
        Error { status, message, node, device, bytes_requested: 0, bytes_available: 0 }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Error {
        Error::new(Status::InvalidArgument, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.status, self.message)?;
        if !self.node.is_empty() {
            write!(f, " [node {}]", self.node)?;
        }
        if !self.device.is_empty() {
            write!(f, " [device {}]", self.device)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        let status = match error {
            LoadError::Version { .. } => Status::Version,
            _ => Status::Io,
        };
        Error::new(status, error.to_string())
    }
}

/// Calls a function that takes an error, and gives that where it fails.
pub(crate) fn check(call: impl FnOnce(*mut evn_error) -> evn_status) -> Result<()> {
    let mut error = evn_error::INIT;
    match call(&mut error) {
        EVN_OK => Ok(()),
        status => Err(Error {
            status: Status::of(status),
            message: text_of(&error.message),
            node: text_of(&error.node),
            device: text_of(&error.device),
            bytes_requested: error.bytes_requested,
            bytes_available: error.bytes_available,
        }),
    }
}

/// The text of an array that ends in NUL, or at its end; what is cut within a character ends in U+FFFD.
pub(crate) fn text_of(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// # Safety
/// `text` is NULL, or ends in NUL.
pub(crate) unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// Calls a function that writes bytes and a NUL behind them, first with room for `first`, until they fit:
/// what is written may grow, and costs more than memory to be made. Gives the bytes without the NUL.
pub(crate) fn read_bytes(
    first: usize,
    mut call: impl FnMut(*mut c_char, usize, *mut usize, *mut evn_error) -> evn_status,
) -> Result<Vec<u8>> {
    let mut buffer = vec![0u8; first];
    loop {
        let mut size = 0;
        let failed = check(|error| call(buffer.as_mut_ptr().cast(), buffer.len(), &mut size, error)).err();
        match failed {
            None => {
                buffer.truncate(size.saturating_sub(1));
                return Ok(buffer);
            }
            Some(error)
                if error.status == Status::BufferTooSmall && error.bytes_requested > buffer.len() as u64 =>
            {
                let wanted = usize::try_from(error.bytes_requested)
                    .map_err(|_| Error::new(Status::OutOfMemory, "a text that is larger than memory"))?;
                buffer.resize(wanted, 0);
            }
            Some(error) => return Err(error),
        }
    }
}

pub(crate) fn read_text(
    first: usize,
    call: impl FnMut(*mut c_char, usize, *mut usize, *mut evn_error) -> evn_status,
) -> Result<String> {
    Ok(String::from_utf8_lossy(&read_bytes(first, call)?).into_owned())
}

pub(crate) fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::argument(format!("there is a NUL in {:?}", text)))
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    #[cfg(unix)]
    let bytes = {
        use std::os::unix::ffi::OsStrExt;
        path.as_os_str().as_bytes().to_vec()
    };
    #[cfg(not(unix))]
    let bytes = path.to_string_lossy().into_owned().into_bytes();
    CString::new(bytes).map_err(|_| Error::argument(format!("there is a NUL in the path {:?}", path)))
}

/// Strings, and the array of pointers to them that C takes.
pub(crate) struct TextArray {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl TextArray {
    pub(crate) fn new(texts: &[String]) -> Result<TextArray> {
        let texts = texts.iter().map(|text| c_text(text)).collect::<Result<Vec<_>>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(TextArray { _texts: texts, pointers })
    }
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        if self.pointers.is_empty() {
            std::ptr::null()
        } else {
            self.pointers.as_ptr()
        }
    }
    pub(crate) fn len(&self) -> u32 {
        self.pointers.len() as u32
    }
}
