//! The constants that stand for C's INIT macros are what the library's evn_..._init functions make.

use evener_sys::*;
use std::mem::{size_of, MaybeUninit};

fn bytes_of<T>(value: &T) -> &[u8] {
    unsafe { std::slice::from_raw_parts((value as *const T).cast(), size_of::<T>()) }
}

fn made<T: Copy>(init: unsafe extern "C" fn(*mut T, u32)) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    unsafe {
        init(value.as_mut_ptr(), size_of::<T>() as u32);
        value.assume_init()
    }
}

macro_rules! check {
    ($api:ident, $($kind:ident: $init:ident,)*) => {
        $(
            let library = made::<$kind>($api.$init);
            assert_eq!(library.struct_size as usize, size_of::<$kind>(), stringify!($kind));
            let constant = $kind::INIT;
            assert_eq!(bytes_of(&library), bytes_of(&constant), stringify!($kind));
        )*
    };
}

#[test]
fn constants_are_what_the_library_makes() {
    let api = api().expect("a library");
    assert!(api.api_version >= EVN_VERSION_NUMBER && api.struct_size as usize >= size_of::<evn_api>());
    check! { api,
        evn_error: error_init, evn_runtime_options: runtime_options_init, evn_reconfigure_options: reconfigure_options_init,
        evn_operator: operator_init, evn_device_info: device_info_init, evn_memory_stats: memory_stats_init,
        evn_tensor_info: tensor_info_init, evn_model_options: model_options_init, evn_value_info: value_info_init,
        evn_inspect_options: inspect_options_init, evn_batching_options: batching_options_init,
        evn_session_options: session_options_init, evn_session_memory_stats: session_memory_stats_init,
        evn_run_options: run_options_init, evn_calibrate_options: calibrate_options_init,
        evn_quantizer_options: quantizer_options_init, evn_guard_options: guard_options_init,
        evn_submit_options: submit_options_init, evn_state_options: state_options_init,
        evn_opencl_attach_options: opencl_attach_options_init,
    }
}

#[test]
fn a_table_of_the_library_calls_it() {
    let api = api().expect("a library");
    let name = unsafe { std::ffi::CStr::from_ptr((api.status_name)(EVN_ERROR_IO)) };
    assert_eq!(name.to_str(), Ok("EVN_ERROR_IO"));
    assert_eq!(unsafe { (api.version_number)() }, api.api_version);
}
