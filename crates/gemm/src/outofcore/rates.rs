//! The rates of the link and of the tensor cores, as expected or as measured.

use pgemm_ir::Element;

/// The rates by which blockings are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes a second from the host to the device.
    pub up_bytes_per_second: f64,
    /// Bytes a second from the device to the host.
    pub down_bytes_per_second: f64,
    /// Operations a second, an addition or a multiplication each.
    pub operations_per_second: f64,
}

impl Rates {
    /// A PCIe 5.0 link and an H200, by order of magnitude.
    pub fn usual(dtype: Element) -> Self {
        let operations_per_second = match dtype {
            Element::F32 => 45e12,
            Element::F64 => 55e12,
            Element::Tf32 => 370e12,
            Element::F16 | Element::Bf16 => 700e12,
            _ => 1.3e15,
        };
        let link = 52e9;
        Rates { up_bytes_per_second: link, down_bytes_per_second: link, operations_per_second }
    }

    /// Seconds to begin a copy or a launch.
    const START: f64 = 5e-6;
    /// Additional seconds for each line of a copy, if lines have gaps between them and are shorter
    /// than [`LONG_LINE`](Self::LONG_LINE). In products of pinned matrices on an H200, 0.08 to 0.13
    /// µs were measured in both directions.
    const LINE: f64 = 0.12e-6;
    /// Bytes of lines that are copied as fast as if there were no gaps between them.
    const LONG_LINE: u64 = 20 << 10;

    pub(crate) fn up(&self, bytes: u64, lines: usize) -> f64 {
        Self::copy(bytes, lines, self.up_bytes_per_second)
    }

    pub(crate) fn down(&self, bytes: u64, lines: usize) -> f64 {
        Self::copy(bytes, lines, self.down_bytes_per_second)
    }

    fn copy(bytes: u64, lines: usize, bytes_per_second: f64) -> f64 {
        let short = bytes < lines as u64 * Self::LONG_LINE;
        let gaps = if short { lines as f64 * Self::LINE } else { 0.0 };
        bytes as f64 / bytes_per_second + gaps + Self::START
    }

    /// Seconds of a product, by waves of tiles of 128×256 on 132 SMs.
    pub(crate) fn product(&self, [m, n, k]: [usize; 3]) -> f64 {
        let tiles = m.div_ceil(128) * n.div_ceil(256);
        let waves = tiles.div_ceil(132);
        let operations = (waves * 132) as f64 * (2 * 128 * 256) as f64 * k as f64;
        operations / self.operations_per_second + Self::START
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates =
        Rates { up_bytes_per_second: 1e9, down_bytes_per_second: 2e9, operations_per_second: 1e12 };

    #[test]
    fn products_take_whole_waves_of_tiles() {
        let wave = (132 * 2 * 128 * 256) as f64 * 64.0 / 1e12;
        for (m, n, waves) in [
            (1, 1, 1.0),
            (128, 256, 1.0),
            (128, 256 * 132, 1.0),
            (128, 256 * 132 + 1, 2.0),
            (129, 256 * 66, 1.0),
            (257, 256 * 66, 2.0),
        ] {
            let seconds = RATES.product([m, n, 64]);
            let expected = waves * wave + Rates::START;
            assert!((seconds / expected - 1.0).abs() < 1e-12, "{m}x{n}: {seconds}, not {expected}");
        }
    }

    #[test]
    fn only_short_lines_cost_time_of_their_own() {
        let bytes = 100 * Rates::LONG_LINE;
        assert_eq!(RATES.up(bytes, 100), bytes as f64 / 1e9 + Rates::START);
        let short = bytes as f64 / 2e9 + 101.0 * Rates::LINE + Rates::START;
        assert_eq!(RATES.down(bytes, 101), short);
    }
}
