//! How the table of functions is found, and that it fits these declarations.

use crate::raw::*;
use std::error::Error;
use std::fmt;
use std::os::raw::c_char;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Mutex;

/// Under which the system's loader is asked for the library.
pub const FILE_NAME: &str = if cfg!(target_os = "macos") {
    "libevener.0.dylib"
} else if cfg!(windows) {
    "evener.dll"
} else {
    "libevener.so.0"
};

/// Why there is no table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The library cannot be opened: there is none, or the loader refuses it.
    Open { library: String, reason: String },
    /// It is no Evener library, or older than 0.2: it has no evn_get_api.
    Symbol { library: String, reason: String },
    /// It does not fit these declarations.
    Version { library: String, expected: u32, found: u32 },
    /// It has a struct that lies otherwise than it is declared here; `place` names the struct, or one of its fields.
    Layout { library: String, place: String, expected: String, found: String },
}

/// A version number as people write it.
fn dotted(version: u32) -> String {
    format!("{}.{}.{}", version >> 16, version >> 8 & 255, version & 255)
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Open { library, reason } => write!(
                f,
                "the Evener library {} cannot be opened: {} (EVENER_LIBRARY may name another)",
                library, reason
            ),
            LoadError::Symbol { library, reason } => {
                write!(f, "{} is no Evener library of version 0.2 or later: {}", library, reason)
            }
            LoadError::Version { library, expected, found } => write!(
                f,
                "{} does not fit this program: expected ABI {}, found {}",
                library,
                dotted(*expected),
                dotted(*found)
            ),
            LoadError::Layout { library, place, expected, found } => write!(
                f,
                "{} does not fit this program: expected {} {}, found it {}",
                library, place, expected, found
            ),
        }
    }
}

impl Error for LoadError {}

type LayoutFunction =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut usize, *mut usize, *mut evn_error) -> evn_status;

/// Looks whether the library has all structs as they are declared here. They may be larger at their end.
///
/// # Safety
/// `layout` must be an evn_abi_layout.
#[cfg_attr(not(any(feature = "load", feature = "link")), allow(dead_code))]
unsafe fn compare_layouts(library: &str, layout: LayoutFunction) -> Result<(), LoadError> {
    each_layout(&mut |name, field, offset, size| {
        let (mut found_offset, mut found_size) = (0, 0);
        let of = if field.is_empty() { ptr::null() } else { field.as_ptr().cast() };
        let status = layout(name.as_ptr().cast(), of, &mut found_offset, &mut found_size, ptr::null_mut());
        let fits =
            if field.is_empty() { found_size >= size } else { (found_offset, found_size) == (offset, size) };
        if status == EVN_OK && fits {
            return Ok(());
        }
        let dot = if field.is_empty() { "" } else { "." };
        let at = |offset, size| format!("at byte {} with {} bytes", offset, size);
        Err(LoadError::Layout {
            library: library.to_string(),
            place: format!("{}{}{}", name, dot, field).replace('\0', ""),
            expected: at(offset, size),
            found: if status == EVN_OK { at(found_offset, found_size) } else { "nowhere".to_string() },
        })
    })
}

/// Gets the table from evn_get_api, and looks whether it has all that is declared here. `found`: the
/// library's version, for the error.
///
/// # Safety
/// `get_api` must be an evn_get_api.
#[cfg_attr(not(any(feature = "load", feature = "link")), allow(dead_code))]
unsafe fn negotiate(
    library: &str,
    get_api: evn_get_api_function,
    found: impl Fn() -> u32,
) -> Result<&'static evn_api, LoadError> {
    let mut table = ptr::null();
    let status = get_api(EVN_VERSION_NUMBER, &mut table);
    let refused =
        |found| LoadError::Version { library: library.to_string(), expected: EVN_VERSION_NUMBER, found };
    if status != EVN_OK || table.is_null() {
        return Err(refused(found()));
    }
    // Only the head may be read before the size is known.
    let size = ptr::read(table.cast::<u32>());
    let version = ptr::read(table.cast::<u32>().add(1));
    if (size as usize) < std::mem::size_of::<evn_api>() {
        return Err(refused(version));
    }
    compare_layouts(library, (*table).abi_layout)?;
    Ok(&*table)
}

#[cfg(feature = "load")]
mod open {
    use super::*;
    use libloading::{Library, Symbol};
    use std::ffi::OsStr;

    type VersionNumber = unsafe extern "C" fn() -> u32;

    /// Opens a library, which then stays open until the process ends: objects and threads of it may be
    /// anywhere.
    ///
    /// # Safety
    /// What is opened runs its initializers, and is believed when it has an evn_get_api.
    pub unsafe fn open(path: &OsStr) -> Result<&'static evn_api, LoadError> {
        let name = path.to_string_lossy().into_owned();
        let library = Library::new(path)
            .map_err(|error| LoadError::Open { library: name.clone(), reason: error.to_string() })?;
        let table = {
            let get_api: Symbol<evn_get_api_function> = library
                .get(b"evn_get_api\0")
                .map_err(|error| LoadError::Symbol { library: name.clone(), reason: error.to_string() })?;
            negotiate(&name, *get_api, || {
                let version: Result<Symbol<VersionNumber>, _> = library.get(b"evn_version_number\0");
                version.map_or(0, |version| version())
            })?
        };
        std::mem::forget(library);
        Ok(table)
    }
}

#[cfg(feature = "load")]
pub use open::open;

#[cfg(feature = "link")]
mod linked {
    use super::*;

    #[link(name = "evener")]
    extern "C" {
        fn evn_get_api(version: u32, api: *mut *const evn_api) -> evn_status;
        fn evn_version_number() -> u32;
    }

    pub(super) fn table() -> Result<&'static evn_api, LoadError> {
        unsafe { negotiate("libevener", evn_get_api, || evn_version_number()) }
    }
}

#[cfg(feature = "link")]
fn find() -> Result<&'static evn_api, LoadError> {
    linked::table()
}

#[cfg(all(feature = "load", not(feature = "link")))]
fn find() -> Result<&'static evn_api, LoadError> {
    let named = std::env::var_os("EVENER_LIBRARY").filter(|path| !path.is_empty());
    unsafe { open(named.as_deref().unwrap_or_else(|| FILE_NAME.as_ref())) }
}

#[cfg(not(any(feature = "load", feature = "link")))]
fn find() -> Result<&'static evn_api, LoadError> {
    Err(LoadError::Open {
        library: "libevener".to_string(),
        reason: "evener-sys was built with neither of its features load and link".to_string(),
    })
}

static TABLE: AtomicPtr<evn_api> = AtomicPtr::new(ptr::null_mut());
static FINDING: Mutex<()> = Mutex::new(());

/// The library's functions. The first call that succeeds decides which library it is; one that fails may be
/// tried again.
pub fn api() -> Result<&'static evn_api, LoadError> {
    let known = TABLE.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(unsafe { &*known });
    }
    let _lock = FINDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let known = TABLE.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(unsafe { &*known });
    }
    let table = find()?;
    TABLE.store(table as *const evn_api as *mut evn_api, Ordering::Release);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn refuses(_version: u32, _api: *mut *const evn_api) -> evn_status {
        EVN_ERROR_VERSION
    }

    #[repr(C)]
    struct Short {
        struct_size: u32,
        api_version: u32,
    }
    static SHORT: Short = Short { struct_size: 8, api_version: 0x000200 };

    unsafe extern "C" fn is_short(_version: u32, api: *mut *const evn_api) -> evn_status {
        *api = (&SHORT as *const Short).cast();
        EVN_OK
    }

    #[test]
    fn a_library_that_refuses_is_an_error_with_both_versions() {
        let error = unsafe { negotiate("lib", refuses, || 0x000100) }.err().expect("it is refused");
        let expected = EVN_VERSION_NUMBER;
        assert_eq!(error, LoadError::Version { library: "lib".into(), expected, found: 0x000100 });
        assert!(error.to_string().contains("found 0.1.0"), "{}", error);
        assert!(error.to_string().contains(&format!("expected ABI {}", dotted(expected))));
    }

    unsafe extern "C" fn knows_nothing(
        _: *const c_char,
        _: *const c_char,
        _: *mut usize,
        _: *mut usize,
        _: *mut evn_error,
    ) -> evn_status {
        EVN_ERROR_INVALID_ARGUMENT
    }

    // Every struct of 16 bytes, whose fields lie at its beginning.
    unsafe extern "C" fn is_otherwise(
        _: *const c_char,
        _: *const c_char,
        offset: *mut usize,
        size: *mut usize,
        _: *mut evn_error,
    ) -> evn_status {
        *offset = 0;
        *size = 16;
        EVN_OK
    }

    #[test]
    fn a_library_with_other_structs_is_an_error() {
        let error = unsafe { compare_layouts("lib", knows_nothing) }.expect_err("it has no structs");
        assert!(error
            .to_string()
            .contains("lib does not fit this program: expected evn_error at byte 0 with"));
        assert!(error.to_string().ends_with("found it nowhere"), "{}", error);
        let error = unsafe { compare_layouts("lib", is_otherwise) }.expect_err("they lie otherwise");
        assert!(error.to_string().ends_with("found it at byte 0 with 16 bytes"), "{}", error);
        let mut count = 0;
        let all: Result<(), ()> = each_layout(&mut |name, field, offset, size| {
            count += 1;
            assert!(size > 0 && name.ends_with('\0') && (field.is_empty() || field.ends_with('\0')));
            if field == "struct_size\0" {
                assert_eq!((offset, size), (0, 4));
            }
            Ok(())
        });
        assert!(all.is_ok() && count > 200);
    }

    #[test]
    fn a_table_that_is_too_short_is_an_error() {
        let error = unsafe { negotiate("lib", is_short, || 0) }.err().expect("it is too short");
        assert!(matches!(error, LoadError::Version { found: 0x000200, .. }), "{}", error);
    }

    #[cfg(feature = "load")]
    #[test]
    fn what_is_no_library_is_an_error() {
        let missing = unsafe { open("/nowhere/libevener.so".as_ref()) }.err().expect("no file");
        assert!(missing.to_string().contains("/nowhere/libevener.so"), "{}", missing);
        assert!(matches!(missing, LoadError::Open { .. }));
    }

    #[cfg(target_os = "linux")]
    #[cfg(feature = "load")]
    #[test]
    fn another_library_is_an_error() {
        let other = unsafe { open("libc.so.6".as_ref()) }.err().expect("libc is another");
        assert!(matches!(other, LoadError::Symbol { .. }), "{}", other);
    }
}
