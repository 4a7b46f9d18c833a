//! Reads from and writes to memory of the caller.

use std::ffi::{CStr, c_char};

use crate::abi::{Config, EngineOptions, PackInfo, Parameter, Problem, WarmUpResult};
use crate::failure::Failure;

/// A struct with a larger size is assumed to be uninitialised.
const MOST_BYTES: usize = 4096;

/// A struct that may grow. Its first field is its size in bytes in the caller's header. Later
/// versions add fields at the end, for which 0 stands for the behaviour of earlier versions.
///
/// # Safety
/// The type must have C layout, a `usize` as its first field, and be valid for all bytes in the
/// other fields.
pub(super) unsafe trait Growing: Copy + Default {
    /// Bytes in the first release.
    const FIRST: usize;
    /// The function that initialises the struct.
    const INITIALISER: &'static str;
}

// SAFETY: C layout, and nothing but numbers and pointers.
unsafe impl Growing for Config {
    const FIRST: usize = 112;
    const INITIALISER: &'static str = "pgemm_config_init(&config, sizeof config)";
}

// SAFETY: C layout, and nothing but numbers and a pointer.
unsafe impl Growing for Problem {
    const FIRST: usize = 136;
    const INITIALISER: &'static str = "pgemm_problem_init(&problem, sizeof problem)";
}

// SAFETY: C layout, and nothing but numbers.
unsafe impl Growing for EngineOptions {
    const FIRST: usize = 32;
    const INITIALISER: &'static str = "pgemm_engine_options_init(&options, sizeof options)";
}

// SAFETY: C layout, and nothing but numbers.
unsafe impl Growing for WarmUpResult {
    const FIRST: usize = 32;
    const INITIALISER: &'static str = "pgemm_warm_up_result_init(&result, sizeof result)";
}

// SAFETY: C layout, and nothing but numbers.
unsafe impl Growing for PackInfo {
    const FIRST: usize = 24;
    const INITIALISER: &'static str = "pgemm_pack_info_init(&info, sizeof info)";
}

// SAFETY: C layout, and nothing but numbers and a pointer.
unsafe impl Growing for Parameter {
    const FIRST: usize = 48;
    const INITIALISER: &'static str = "pgemm_parameter_init(&parameter, sizeof parameter)";
}

/// Fills the caller's struct with defaults, and unknown fields of a later header with zeros.
///
/// # Safety
/// `target` must be null or an address to which `size` bytes can be written.
pub(super) unsafe fn initialise<T: Growing>(
    what: &'static str,
    target: *mut T,
    size: usize,
) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(what));
    }
    check_size::<T>(what, size)?;
    // SAFETY: as the caller vouches.
    unsafe { fill(target, size, &T::default()) };
    Ok(())
}

/// Replaces the caller's struct, which [`initialise`] has filled. Does nothing if it is null.
///
/// # Safety
/// `target` must be null, or the address of as many bytes as its first field says, if
/// [`initialise`] accepts that size.
pub(super) unsafe fn replace<T: Growing>(
    what: &'static str,
    target: *mut T,
    value: &T,
) -> Result<(), Failure> {
    if target.is_null() {
        return Ok(());
    }
    // SAFETY: the size comes first.
    let size = unsafe { target.cast::<usize>().read_unaligned() };
    check_size::<T>(what, size)?;
    // SAFETY: as the caller vouches.
    unsafe { fill(target, size, value) };
    Ok(())
}

/// Writes a value to the caller's struct of `size` bytes, and zeros to unknown fields of a later
/// header.
///
/// # Safety
/// `size` bytes, enough for a `usize`, can be written to `target`.
unsafe fn fill<T: Growing>(target: *mut T, size: usize, value: &T) {
    let known = size.min(size_of::<T>());
    // SAFETY: both ranges lie in `size` bytes that can be written, the source has `known` bytes.
    unsafe {
        target.cast::<u8>().write_bytes(0, size);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), target.cast(), known);
        // The caller's size, which may be smaller or larger than this library's.
        target.cast::<usize>().write_unaligned(size);
    }
}

/// The caller's struct.
///
/// # Safety
/// `source` must be null, or the address of as many bytes as its first field says, if
/// [`initialise`] accepts that size.
pub(super) unsafe fn read<T: Growing>(what: &'static str, source: *const T) -> Result<T, Failure> {
    if source.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the size comes first.
    let size = unsafe { source.cast::<usize>().read_unaligned() };
    check_size::<T>(what, size)?;
    let known = size.min(size_of::<T>());
    let mut value = T::default();
    // SAFETY: the caller has `size` bytes there, of which the first `known` fit the value, which
    // any bytes make valid.
    unsafe {
        std::ptr::copy_nonoverlapping(source.cast::<u8>(), (&raw mut value).cast(), known);
    }
    // SAFETY: the caller has `size` bytes there, which `initialise` has written.
    let later = unsafe { std::slice::from_raw_parts(source.cast::<u8>().add(known), size - known) };
    if later.iter().any(|byte| *byte != 0) {
        return Err(Failure::unsupported(format!(
            "{what} sets a field that this library, version {}, does not know: its header is a \
             later one's. Use the library that came with the header",
            env!("CARGO_PKG_VERSION")
        )));
    }
    Ok(value)
}

fn check_size<T: Growing>(what: &str, size: usize) -> Result<(), Failure> {
    if (T::FIRST..=MOST_BYTES).contains(&size) {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "{what} says that it has {size} bytes, and it has at least {}: call {} first",
        T::FIRST,
        T::INITIALISER
    )))
}

/// A string of the caller's, or `None` if it is null.
///
/// # Safety
/// `source` must be null or the address of a string that ends in a zero.
pub(super) unsafe fn text(
    what: &'static str,
    source: *const c_char,
) -> Result<Option<String>, Failure> {
    if source.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller vouches.
    let text = unsafe { CStr::from_ptr(source) };
    match text.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Failure::argument(format!("{what} is no UTF-8 text: write it as such"))),
    }
}

/// Writes as much of a text as there is room for, with a zero at the end, and its whole length.
///
/// # Safety
/// `capacity` bytes can be written to `target`, which may be null where that is 0; `length` must be
/// null or the address of a number.
pub(super) unsafe fn write_text(
    text: &str,
    target: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    if target.is_null() && capacity > 0 {
        return Err(Failure::null("text"));
    }
    if !length.is_null() {
        // SAFETY: as the caller vouches.
        unsafe { length.write(text.len()) };
    }
    if capacity > 0 {
        // No letter is cut in two.
        let room = (capacity - 1).min(text.len());
        let bytes = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        // SAFETY: `bytes` and the zero after them are `capacity` at most, and the text has so many.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), target.cast::<u8>(), bytes);
            target.add(bytes).write(0);
        }
    }
    Ok(())
}

/// Sets the caller's pointer to null.
///
/// # Safety
/// `target` must be null or the address of a pointer.
pub(super) unsafe fn clear<T>(what: &'static str, target: *mut *mut T) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller vouches.
    unsafe { target.write(std::ptr::null_mut()) };
    Ok(())
}

/// Drops the object that the caller's pointer owns, if any, and sets the pointer to null.
///
/// # Safety
/// `target` must be null or the address of a pointer. That pointer must be null, or come from
/// `Box::into_raw` and not be used elsewhere.
pub(super) unsafe fn destroy<T>(what: &'static str, target: *mut *mut T) -> Result<(), Failure> {
    if target.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller vouches.
    let taken = unsafe { target.replace(std::ptr::null_mut()) };
    if !taken.is_null() {
        // SAFETY: as the caller vouches.
        drop(unsafe { Box::from_raw(taken) });
    }
    Ok(())
}

/// The caller's array.
///
/// # Safety
/// `source` must be null or the address of `count` values that do not change while the result is
/// used.
pub(super) unsafe fn slice<'s, T>(
    what: &'static str,
    source: *const T,
    count: usize,
) -> Result<&'s [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if source.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller vouches.
    Ok(unsafe { std::slice::from_raw_parts(source, count) })
}

/// # Safety
/// `target` must be null or the address of a value.
pub(super) unsafe fn write<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: as the caller vouches.
        unsafe { target.write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{PGEMM_ERROR_INVALID_ARGUMENT, PGEMM_ERROR_NOT_SUPPORTED, PGEMM_TIGHT};

    /// A problem as a later header has it.
    #[repr(C)]
    struct LaterProblem {
        problem: Problem,
        more: [u64; 3],
    }

    fn later_problem() -> LaterProblem {
        LaterProblem { problem: Problem { struct_size: 7, ..Problem::default() }, more: [9; 3] }
    }

    #[test]
    fn first_sizes_are_those_of_the_first_release() {
        assert_eq!((Config::FIRST, Problem::FIRST, EngineOptions::FIRST), (112, 136, 32));
        assert!(size_of::<EngineOptions>() >= EngineOptions::FIRST);
        assert_eq!((WarmUpResult::FIRST, size_of::<WarmUpResult>()), (32, 32));
        assert_eq!((PackInfo::FIRST, size_of::<PackInfo>()), (24, 24));
        assert_eq!((Parameter::FIRST, size_of::<Parameter>()), (48, 48));
        assert!(size_of::<Config>() >= Config::FIRST && size_of::<Problem>() >= Problem::FIRST);
    }

    #[test]
    fn structs_of_later_headers_are_filled_and_read_where_they_ask_for_nothing_new() {
        let mut later = later_problem();
        let target = &raw mut later.problem;
        // SAFETY: so many bytes are there.
        unsafe { initialise("problem", target, size_of::<LaterProblem>()) }.unwrap();
        assert_eq!((later.problem.struct_size, later.more), (size_of::<LaterProblem>(), [0; 3]));
        later.problem.m = 5;
        let source = (&raw const later).cast::<Problem>();
        // SAFETY: as many bytes are there as the first field says.
        let read_back = unsafe { read("problem", source) }.unwrap();
        assert_eq!((read_back.m, read_back.lda), (5, PGEMM_TIGHT));
        later.more[2] = 1;
        let source = (&raw const later).cast::<Problem>();
        // SAFETY: as above.
        let failure = unsafe { read("problem", source) }.unwrap_err();
        assert_eq!(failure.status, PGEMM_ERROR_NOT_SUPPORTED);
        assert!(failure.message.contains("later one's"), "{failure:?}");
    }

    #[test]
    fn results_are_written_to_structs_of_later_headers_and_to_none() {
        #[repr(C)]
        struct Later {
            result: WarmUpResult,
            more: u64,
        }
        let value = WarmUpResult { problems: 5, assembled: 3, ..WarmUpResult::default() };
        let size = size_of::<Later>();
        let result = WarmUpResult { struct_size: size, ..WarmUpResult::default() };
        let mut later = Later { result, more: 7 };
        let target = (&raw mut later).cast::<WarmUpResult>();
        // SAFETY: as many bytes are there as the first field says.
        unsafe { replace("result", target, &value) }.unwrap();
        let Later { result, more } = later;
        assert_eq!((result.struct_size, result.problems, result.assembled), (size, 5, 3));
        assert_eq!(more, 0);
        // SAFETY: nothing is written.
        unsafe { replace("result", std::ptr::null_mut(), &value) }.unwrap();
        let mut nobodys = WarmUpResult { struct_size: 31, problems: 9, ..value };
        // SAFETY: such a size is refused.
        let failure = unsafe { replace("result", &raw mut nobodys, &value) }.unwrap_err();
        assert!(failure.message.contains("pgemm_warm_up_result_init"), "{failure:?}");
        assert_eq!(nobodys.problems, 9);
    }

    #[test]
    fn structs_that_nobody_filled_are_refused() {
        for size in [0, 8, 135, MOST_BYTES + 1, usize::MAX] {
            let problem = Problem { struct_size: size, ..Problem::default() };
            // SAFETY: such a size is refused, and no more is read.
            let failure = unsafe { read("problem", &raw const problem) }.unwrap_err();
            assert_eq!(failure.status, PGEMM_ERROR_INVALID_ARGUMENT);
            assert!(failure.message.contains("pgemm_problem_init"), "{failure:?}");
        }
        // SAFETY: null is refused.
        let failure = unsafe { read::<Config>("config", std::ptr::null()) }.unwrap_err();
        assert!(failure.message.contains("config is null"), "{failure:?}");
    }

    #[test]
    fn texts_are_cut_to_what_there_is_room_for() {
        let written = |capacity: usize| {
            let mut room = [0x7f as c_char; 8];
            let mut length = 0;
            // SAFETY: the room has 8 bytes, of which no more are offered.
            unsafe { write_text("aé→z", room.as_mut_ptr(), capacity, &raw mut length) }.unwrap();
            assert_eq!(length, 7);
            let end = room.iter().position(|byte| *byte == 0);
            let bytes = room.map(|byte| byte as u8);
            end.map(|end| String::from_utf8(bytes[..end].to_vec()).unwrap())
        };
        assert_eq!(written(0), None);
        for (capacity, text) in [(1, ""), (2, "a"), (3, "a"), (4, "aé"), (6, "aé"), (7, "aé→")]
        {
            assert_eq!(written(capacity).as_deref(), Some(text), "{capacity}");
        }
        assert_eq!(written(8).as_deref(), Some("aé→z"));
        // SAFETY: nothing is written.
        unsafe { write_text("a", std::ptr::null_mut(), 0, std::ptr::null_mut()) }.unwrap();
        // SAFETY: null is refused.
        assert!(unsafe { write_text("a", std::ptr::null_mut(), 1, std::ptr::null_mut()) }.is_err());
    }

    #[test]
    fn strings_are_utf8() {
        // SAFETY: both end in a zero.
        let read = |bytes: &CStr| unsafe { text("kernel", bytes.as_ptr()) };
        assert_eq!(read(c"abc").unwrap().as_deref(), Some("abc"));
        assert!(read(c"\xff").unwrap_err().message.contains("kernel is no UTF-8"));
    }
}
