//! What the tests on a GPU share.

#[path = "../../../gemm/tests/hw/device.rs"]
mod device;

use std::time::Duration;

use bytemuck::Pod;
use persistent_gemm::driver::{Event, Stream, Timing};
use persistent_gemm::program::DeviceArray;

pub use device::device;

/// Launches that are timed together.
const LAUNCHES: u32 = 10;
/// How long a test waits for its launches.
pub const LIMIT: Duration = Duration::from_secs(20);

/// An array whose bytes are all ones, which is NaN in floats, so that elements that a kernel does
/// not write are noticed.
pub fn poisoned<T: Pod>(stream: &Stream, len: usize) -> DeviceArray<T> {
    let value: T = bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()]);
    upload(stream, &vec![value; len])
}

/// An array with these values.
pub fn upload<T: Pod>(stream: &Stream, values: &[T]) -> DeviceArray<T> {
    DeviceArray::from_slice(stream.device(), values, stream.as_ref()).unwrap()
}

/// Seconds of one of `LAUNCHES` calls, of which one before does not count.
pub fn time(stream: &Stream, call: impl Fn()) -> f64 {
    let device = stream.device();
    let [start, end] = [(); 2].map(|()| Event::new(device, Timing::Enabled).unwrap());
    call();
    start.record(stream.as_ref()).unwrap();
    (0..LAUNCHES).for_each(|_| call());
    end.record(stream.as_ref()).unwrap();
    stream.as_ref().synchronize_within(LIMIT).unwrap();
    f64::from(end.elapsed_ms(&start).unwrap()) / 1e3 / f64::from(LAUNCHES)
}

/// Median seconds of each of two calls, which are timed in the order first, second, second, first.
pub fn compare(stream: &Stream, calls: [&dyn Fn(); 2]) -> [f64; 2] {
    let mut seconds = [vec![], vec![]];
    for _ in 0..3 {
        for which in [0, 1, 1, 0] {
            seconds[which].push(time(stream, calls[which]));
        }
    }
    seconds.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    })
}
