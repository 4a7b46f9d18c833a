//! Captures: what may not be done during one, and streams that join one.

use persistent_gemm::driver::{DeviceBuffer, Event, Graph, Stream, StreamRef, Timing};
use persistent_gemm::{Config, Dtype, Error, Gemm, Major, Problem, Result, Split};

use crate::device::device;
use crate::operands::{Fill, MatrixSet};

fn code(error: &Error) -> u32 {
    match error {
        Error::Driver { code, what_to_do, .. } => {
            assert!(what_to_do.contains("while a stream is captured"), "{what_to_do}");
            *code
        }
        other => panic!("{other:?}"),
    }
}

/// Captures what must not be captured: the call fails, and so does the capture. The stream is
/// usable afterwards.
fn refused(stream: &Stream, call: impl FnOnce() -> Result<()>) {
    let mut of_call = None;
    // SAFETY: nothing is recorded that could outlive a buffer.
    let captured = unsafe {
        Graph::capture(stream.device(), stream.as_ref(), |_| {
            of_call = call().err();
            Ok(())
        })
    };
    assert_eq!(of_call.as_ref().map(code), Some(900));
    assert_eq!(captured.err().as_ref().map(code), Some(901));
    assert!(!stream.as_ref().is_capturing().unwrap());
    stream.synchronize().unwrap();
}

#[test]
fn calls_that_wait_or_allocate_fail_a_capture() {
    let device = device("calls_that_wait_or_allocate").unwrap();
    let stream = Stream::new(&device).unwrap();
    refused(&stream, || DeviceBuffer::new(&device, 16).map(drop));
    refused(&stream, || stream.synchronize());
    refused(&stream, || stream.as_ref().is_idle().map(drop));
    refused(&stream, || device.synchronize());
}

#[test]
fn problems_are_prepared_before_a_capture() {
    let device = device("problems_are_prepared_before_a_capture").unwrap();
    let stream = Stream::new(&device).unwrap();
    let config = Config::new(Dtype::Bf16).with_split(Split::SplitK(2));
    let problem = Problem::new(64, 72, 256, Major::K, Major::K);
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let mut operands = MatrixSet::new(&config, &problem, Fill::Integers, 1, &stream);
    let pointers = operands.pointers();
    // SAFETY: the operands outlive the graph's last launch, which is waited for.
    let record = |stream: StreamRef<'_>| unsafe { gemm.run_at(&problem, &pointers, stream) };
    // SAFETY: as above.
    let unprepared = unsafe { Graph::capture(&device, stream.as_ref(), record) };
    assert!(matches!(unprepared.err(), Some(Error::CaptureUnprepared)));
    // The workspace of a prepared problem is allocated during the capture, if the caller's stream
    // does not have it yet.
    gemm.prepare(&problem).unwrap();
    operands.poison(stream.as_ref());
    // SAFETY: as above.
    unsafe { gemm.run_at(&problem, &pointers, stream.as_ref()) }.unwrap();
    // SAFETY: as above.
    let mut graph = unsafe { Graph::capture(&device, stream.as_ref(), record) }.unwrap();
    for _ in 0..2 {
        operands.poison(stream.as_ref());
        graph.launch(stream.as_ref()).unwrap();
        operands.check(stream.as_ref());
    }
}

/// A fork and a join by events, as PyTorch's captures have them.
#[test]
fn a_stream_that_waits_for_a_captured_one_is_captured_too() {
    let device = device("a_stream_that_waits_for_a_captured_one").unwrap();
    let (first, second) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let config = Config::new(Dtype::Bf16);
    let problem = Problem::new(64, 72, 64, Major::K, Major::N);
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    gemm.prepare(&problem).unwrap();
    let mut sets =
        [1, 2].map(|seed| MatrixSet::new(&config, &problem, Fill::Integers, seed, &first));
    let [fork, join] = [(); 2].map(|()| Event::new(&device, Timing::Disabled).unwrap());
    let record = |stream: StreamRef<'_>, joins: bool| {
        fork.record(stream)?;
        second.as_ref().wait(&fork)?;
        assert!(second.as_ref().is_capturing().unwrap());
        for (set, stream) in sets.iter().zip([stream, second.as_ref()]) {
            // SAFETY: the operands outlive the graph's last launch, which is waited for.
            unsafe { gemm.run_at(&problem, &set.pointers(), stream) }?;
        }
        join.record(second.as_ref())?;
        if joins { stream.wait(&join) } else { Ok(()) }
    };
    // SAFETY: as above.
    let unjoined =
        unsafe { Graph::capture(&device, first.as_ref(), |stream| record(stream, false)) };
    assert_eq!(unjoined.err().as_ref().map(code), Some(904));
    // SAFETY: as above.
    let graph = unsafe { Graph::capture(&device, first.as_ref(), |stream| record(stream, true)) };
    let mut graph = graph.unwrap();
    assert!(!second.as_ref().is_capturing().unwrap());
    for set in &mut sets {
        set.poison(first.as_ref());
    }
    graph.launch(second.as_ref()).unwrap();
    sets.iter().for_each(|set| set.check(second.as_ref()));
    // An event of a capture says nothing outside of it.
    assert_eq!(join.synchronize().err().as_ref().map(code), Some(907));
}
