//! Contexts, streams and memory of the device.

use std::thread;

use persistent_gemm::Error;
use persistent_gemm::driver::{ContextRef, Device, DeviceBuffer, Event, Stream, StreamRef, Timing};

use crate::device::device;
use crate::scale::by_device;

#[test]
fn the_current_context_stays_the_callers() {
    let Some(device) = device("the_current_context_stays_the_callers") else { return };
    // A fresh thread has no current context, and has none after calls that need one either.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(ContextRef::current(), Err(Error::NoCurrentContext)));
            let stream = Stream::new(&device).unwrap();
            let event = Event::new(&device, Timing::Enabled).unwrap();
            let mut buffer = DeviceBuffer::new(&device, 4096).unwrap();
            buffer.fill_u8(0, 4096, 1, stream.as_ref()).unwrap();
            event.record(stream.as_ref()).unwrap();
            event.synchronize().unwrap();
            stream.synchronize().unwrap();
            assert!(event.has_happened().unwrap() && stream.as_ref().is_idle().unwrap());
            assert_eq!(event.elapsed_ms(&event).unwrap(), 0.0);
            // SAFETY: null is the legacy default stream, which always lives.
            let legacy = unsafe { StreamRef::from_raw(&device, std::ptr::null_mut()) };
            let mut byte = [0];
            buffer.copy_to_host(4095, &mut byte, legacy).unwrap();
            assert_eq!(byte, [1]);
            drop((buffer, event, stream));
            assert!(matches!(ContextRef::current(), Err(Error::NoCurrentContext)));
        });
    });
}

#[test]
fn a_borrowed_context_is_not_destroyed() {
    let Some(device) = device("a_borrowed_context_is_not_destroyed") else { return };
    // SAFETY: `device` outlives `borrowed` and all that is made from it.
    let borrowed = unsafe { Device::from_context(device.context()) }.unwrap();
    assert!(borrowed.same_context(&device));
    assert_eq!(borrowed.properties(), device.properties());
    let stream = Stream::new(&borrowed).unwrap();
    let buffer = DeviceBuffer::from_host(&borrowed, &[1, 2, 3], stream.as_ref()).unwrap();
    drop((buffer, stream, borrowed));
    device.synchronize().unwrap();
}

#[test]
fn bytes_go_there_and_back() {
    let Some(device) = device("bytes_go_there_and_back") else { return };
    let stream = Stream::new(&device).unwrap();
    let stream = stream.as_ref();
    let data: Vec<u8> = (0..100_003u32).map(|index| (index * 7 % 251) as u8).collect();
    let mut buffer = DeviceBuffer::from_host(&device, &data, stream).unwrap();
    assert!(buffer.address().is_multiple_of(256));
    let mut back = vec![0u8; data.len() - 5];
    buffer.copy_to_host(5, &mut back, stream).unwrap();
    assert_eq!(back, data[5..]);

    buffer.fill_u8(3, 4, 0xab, stream).unwrap();
    buffer.fill_u32(2, 1, 0x0403_0201, stream).unwrap();
    let mut head = [0u8; 13];
    buffer.copy_to_host(0, &mut head, stream).unwrap();
    assert_eq!(head[..3], data[..3]);
    assert_eq!(head[3..], [0xab, 0xab, 0xab, 0xab, data[7], 1, 2, 3, 4, data[12]]);

    let mut copy = DeviceBuffer::new(&device, 16).unwrap();
    copy.fill_u8(0, 16, 0, stream).unwrap();
    copy.copy_from_device(1, &buffer, 3, 4, stream).unwrap();
    let mut bytes = [9u8; 16];
    copy.copy_to_host(0, &mut bytes, stream).unwrap();
    assert_eq!(bytes[..6], [0, 0xab, 0xab, 0xab, 0xab, 0]);

    for result in [
        copy.copy_from_host(13, &[0; 4], stream),
        copy.copy_to_host(17, &mut [], stream),
        copy.fill_u8(usize::MAX, 2, 0, stream),
        copy.fill_u32(4, 1, 0, stream),
        copy.fill_u32(usize::MAX / 2, 8, 0, stream),
        copy.copy_from_device(0, &buffer, buffer.bytes(), 1, stream),
    ] {
        assert!(matches!(result, Err(Error::DeviceRange { .. })));
    }
    let empty = DeviceBuffer::from_host(&device, &[], stream).unwrap();
    assert_eq!((empty.address(), empty.bytes()), (0, 0));
}

#[test]
fn memory_runs_out_with_figures() {
    let Some(device) = device("memory_runs_out_with_figures") else { return };
    let total = device.properties().memory_bytes;
    match DeviceBuffer::new(&device, 4 * total as usize).unwrap_err() {
        Error::OutOfMemory { requested, free, total: found } => {
            assert_eq!(requested, 4 * total);
            assert!(free > 0 && free <= found && found <= total, "{free} of {found} of {total}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn events_order_and_measure() {
    let Some(device) = device("events_order_and_measure") else { return };
    let (first, second) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let (start, end) = (
        Event::new(&device, Timing::Enabled).unwrap(),
        Event::new(&device, Timing::Enabled).unwrap(),
    );
    let order = Event::new(&device, Timing::Disabled).unwrap();
    let bytes = by_device(1 << 30, 1 << 20);
    let mut source = DeviceBuffer::new(&device, bytes).unwrap();
    let mut target = DeviceBuffer::new(&device, bytes).unwrap();
    assert!(end.has_happened().unwrap() && end.elapsed_ms(&start).is_err(), "not recorded yet");
    start.record(first.as_ref()).unwrap();
    source.fill_u8(0, bytes, 0x5a, first.as_ref()).unwrap();
    order.record(first.as_ref()).unwrap();
    second.as_ref().wait(&order).unwrap();
    target.copy_from_device(0, &source, 0, bytes, second.as_ref()).unwrap();
    end.record(second.as_ref()).unwrap();
    end.synchronize().unwrap();
    assert!(end.has_happened().unwrap() && second.as_ref().is_idle().unwrap());
    let milliseconds = end.elapsed_ms(&start).unwrap();
    // Three passes over 1 GiB: an H100 or H200 needs 0.6 ms at least.
    assert!(milliseconds > by_device(0.3, 0.0), "{milliseconds} ms");
    assert!(milliseconds < 1000.0, "{milliseconds} ms");
    assert_eq!(start.elapsed_ms(&end).unwrap(), -milliseconds);
    let mut last = [0u8; 1];
    target.copy_to_host(bytes - 1, &mut last, second.as_ref()).unwrap();
    assert_eq!(last, [0x5a]);
    assert!(order.elapsed_ms(&start).is_err(), "an event without timing");
}
