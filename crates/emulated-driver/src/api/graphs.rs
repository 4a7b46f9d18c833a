//! Graphs and the objects that live as long as they do: `cuGraph*` and `cuUserObject*`. They belong
//! to no context, and are destroyed without one.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUuserObjectRetain_flags as Retain;

use crate::codes::{Code, Outcome};
use crate::enqueue::enqueue_all;
use crate::model::work::{HeldObject, HostCall, HostFunction, UserObject};
use crate::state::{State, in_context, initialised, put, report};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphInstantiateWithFlags(
    launchable: *mut usize,
    graph: usize,
    flags: u64,
) -> c_uint {
    report(|| {
        in_context(|state| {
            if flags != 0 {
                return Err(Code::NOT_SUPPORTED);
            }
            let graph = state.graphs.get(&graph).ok_or(Code::INVALID_VALUE)?.clone();
            let handle = state.new_handle();
            state.launchable.insert(handle, Arc::new(graph));
            // SAFETY: the caller passes a place for the result.
            unsafe { put(launchable, handle) }
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphDestroy(graph: usize) -> c_uint {
    report(|| initialised(|state| state.graphs.remove(&graph).map(drop).ok_or(Code::INVALID_VALUE)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphExecDestroy(launchable: usize) -> c_uint {
    report(|| {
        initialised(|state| {
            state.launchable.remove(&launchable).map(drop).ok_or(Code::INVALID_VALUE)
        })
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGraphLaunch(launchable: usize, stream: usize) -> c_uint {
    report(|| {
        let graph = in_context(|state| {
            state.launchable.get(&launchable).cloned().ok_or(Code::INVALID_VALUE)
        })?;
        // SAFETY: the caller keeps what the captured work uses until the launch is done.
        unsafe { enqueue_all(stream, &graph.ops) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuUserObjectCreate(
    object: *mut usize,
    argument: *mut c_void,
    destructor: Option<HostFunction>,
    references: c_uint,
    _flags: c_uint,
) -> c_uint {
    report(|| {
        in_context(|state| {
            let destructor = HostCall::new(destructor.ok_or(Code::INVALID_VALUE)?, argument);
            if references == 0 || object.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let handle = state.new_handle();
            // SAFETY: the caller gives the destructor to be called once.
            let made = Arc::new(unsafe { UserObject::new(destructor) });
            let held = HeldObject { object: made, references };
            state.objects.insert(handle, held);
            // SAFETY: the caller passes a place for the result.
            unsafe { put(object, handle) }
        })
    })
}

/// Takes references from the caller.
fn release(state: &mut State, object: usize, references: u32) -> Outcome {
    let held = state.objects.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
    held.references = held.references.checked_sub(references).ok_or(Code::INVALID_VALUE)?;
    if held.references == 0 {
        state.objects.remove(&object);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuUserObjectRelease(object: usize, references: c_uint) -> c_uint {
    report(|| initialised(|state| release(state, object, references)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGraphRetainUserObject(
    graph: usize,
    object: usize,
    references: c_uint,
    flags: c_uint,
) -> c_uint {
    report(|| {
        in_context(|state| {
            let held = state.objects.get(&object).ok_or(Code::INVALID_VALUE)?.object.clone();
            let graph = state.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
            graph.objects.extend((0..references).map(|_| held.clone()));
            match flags == Retain::CU_GRAPH_USER_OBJECT_MOVE as c_uint {
                true => release(state, object, references),
                false => Ok(()),
            }
        })
    })
}
