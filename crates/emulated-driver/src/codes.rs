//! Result codes of the CUDA driver API, with the names that `cuda.h` gives them.

use std::ffi::CStr;

/// A result code other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// The result of what can fail.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: u32 = 0;

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $(pub(crate) const $name: Code = Code($number);)*

            /// The name of a code of [`Code`], or of success.
            pub(crate) fn name(number: u32) -> Option<&'static CStr> {
                match number {
                    SUCCESS => Some(c"CUDA_SUCCESS"),
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT";
    NO_BINARY_FOR_GPU = 209, c"CUDA_ERROR_NO_BINARY_FOR_GPU";
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS";
    HOST_MEMORY_ALREADY_REGISTERED = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    HOST_MEMORY_NOT_REGISTERED = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED";
    STREAM_CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    STREAM_CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    STREAM_CAPTURE_MERGE = 902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE";
    STREAM_CAPTURE_UNMATCHED = 903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    STREAM_CAPTURE_UNJOINED = 904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    STREAM_CAPTURE_ISOLATION = 905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    STREAM_CAPTURE_IMPLICIT = 906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    CAPTURED_EVENT = 907, c"CUDA_ERROR_CAPTURED_EVENT";
    STREAM_CAPTURE_WRONG_THREAD = 908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    INVALID_CLUSTER_SIZE = 912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN";
}
