//! [`LinkSpeed`]: how fast pinned memory is copied between the host and a device, as measured.

use serde::Serialize;

use crate::driver::{
    Device, DeviceBuffer, Direction, Event, Lines, PinnedBuffer, Stream, Timing, copy_lines,
};
use crate::error::Result;

/// Bytes of each copy by which the link is measured.
const COPY_BYTES: usize = 256 << 20;
/// Number of copies in each direction.
const COPIES: usize = 8;

/// Rates of copies of pinned memory, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkSpeed {
    /// From the host to the device.
    pub up: f64,
    /// From the device to the host.
    pub down: f64,
    /// From the host to the device, while the same amount is copied in the other direction.
    pub up_with_down: f64,
    /// From the device to the host, while the same amount is copied in the other direction.
    pub down_with_up: f64,
}

impl LinkSpeed {
    /// Measures copies of pinned memory, in each direction alone and in both directions at once.
    ///
    /// # Errors
    /// Memory is lacking, or a call of the driver fails.
    pub fn measure(device: &Device) -> Result<LinkSpeed> {
        let on_device =
            [DeviceBuffer::new(device, COPY_BYTES)?, DeviceBuffer::new(device, COPY_BYTES)?];
        let mut on_host =
            [PinnedBuffer::new(device, COPY_BYTES)?, PinnedBuffer::new(device, COPY_BYTES)?];
        let streams = [Stream::new(device)?, Stream::new(device)?];
        let lines = Lines {
            lines: 1,
            line_bytes: COPY_BYTES,
            device_pitch: COPY_BYTES,
            host_pitch: COPY_BYTES,
        };
        let mut copy = |way: usize| -> Result<()> {
            let direction = [Direction::ToDevice, Direction::ToHost][way];
            let host = on_host[way].as_mut_slice().as_mut_ptr();
            let stream = streams[way].as_ref();
            // SAFETY: both buffers are as long, have nothing else to do, and are waited for.
            unsafe { copy_lines(direction, on_device[way].address(), host, lines, stream) }
        };
        let mut speeds = |ways: &[usize]| -> Result<[f64; 2]> {
            let mut speeds = [0.0; 2];
            ways.iter().try_for_each(|&way| copy(way))?;
            streams.iter().try_for_each(Stream::synchronize)?;
            let event = || Event::new(device, Timing::Enabled);
            let events = [[event()?, event()?], [event()?, event()?]];
            for &way in ways {
                events[way][0].record(streams[way].as_ref())?;
            }
            for _ in 0..COPIES {
                ways.iter().try_for_each(|&way| copy(way))?;
            }
            for &way in ways {
                events[way][1].record(streams[way].as_ref())?;
            }
            streams.iter().try_for_each(Stream::synchronize)?;
            for &way in ways {
                let seconds = f64::from(events[way][1].elapsed_ms(&events[way][0])?) / 1e3;
                speeds[way] = (COPIES * COPY_BYTES) as f64 / seconds;
            }
            Ok(speeds)
        };
        let ([up, _], [_, down]) = (speeds(&[0])?, speeds(&[1])?);
        let [up_with_down, down_with_up] = speeds(&[0, 1])?;
        Ok(LinkSpeed { up, down, up_with_down, down_with_up })
    }
}
