//! `pgemm kernel show NAME --svg FILE`: a drawing of how a wgmma kernel divides D. From the left:
//! the CTA tiles of a cluster, the MMA atoms of a CTA tile, the ring in shared memory, the first
//! lines of a swizzled stage, and the registers of the accumulators. All numbers and places come
//! from the kernel's spec, its resources and the layouts of its tiles.

use std::fmt::Write;

use pgemm_cute::{CuteError, Layout, TvLayout};
use pgemm_ir::OperandMajor;
use pgemm_kernels::{OperandTile, Schedule, Spec, WgmmaSpec};

use crate::Failure;
use crate::usage::UsageError;

/// (thread, register) → (row, column) of 64 rows and 8 columns of sums (PTX ISA, "Register
/// Fragments for wgmma.mma_async", matrix D).
const FRAGMENT: &str = "((4,8,4),(2,2)):((128,1,16),(64,8))";

/// Rows of the fragment that are drawn: those of the first warp.
const WARP_ROWS: i64 = 16;

/// Lines of a stage that are drawn. After them the swizzle begins again.
const LINES: u32 = 8;

/// Bytes that a swizzle moves together.
const CHUNK_BYTES: u32 = 16;

/// Depth of an MMA in bytes (PTX ISA, "wgmma.mma_async": k16 for elements of 16 bits).
const MMA_BYTES: u32 = 32;

/// Fill colours on which black text is readable.
const FILLS: [&str; 8] =
    ["#c6dbef", "#c7e9c0", "#fdd0a2", "#dadaeb", "#fcc5d9", "#fff3b0", "#b8e6e1", "#e3e3e3"];

const WIDTH: u32 = 1000;
const HEIGHT: u32 = 760;

/// Draws the tiling of a kernel.
///
/// # Errors
/// [`UsageError::NoTiling`] if the kernel does not keep its sums in the accumulators of wgmma as
/// they are drawn.
pub fn draw(spec: &Spec) -> Result<String, Failure> {
    let wgmma = spec.wgmma().filter(|_| !spec.reads_a_from_registers());
    let wgmma = wgmma.ok_or(UsageError::NoTiling { spec: *spec })?;
    let mut canvas = Canvas::new(&spec.to_string());
    cluster(&mut canvas, spec);
    cta_tile(&mut canvas, spec, wgmma);
    ring(&mut canvas, spec);
    stage(&mut canvas, &spec.a_tile())?;
    registers(&mut canvas)?;
    Ok(canvas.finish())
}

/// A part of the drawing, with its upper left corner.
struct Canvas {
    svg: String,
}

impl Canvas {
    fn new(title: &str) -> Canvas {
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n"
        );
        let mut canvas = Canvas { svg };
        canvas.text(20, 28, "start", &format!("<tspan font-weight=\"bold\">{title}</tspan>"));
        canvas
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    // Writing to a string cannot fail.
    fn text(&mut self, x: u32, y: u32, anchor: &str, text: &str) {
        let _ =
            writeln!(self.svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    fn small(&mut self, x: u32, y: u32, text: &str) {
        let _ = writeln!(
            self.svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"10\">{text}</text>"
        );
    }

    fn heading(&mut self, x: u32, y: u32, lines: &[&str]) {
        self.text(x, y, "start", &format!("<tspan font-weight=\"bold\">{}</tspan>", lines[0]));
        for (line, text) in (1..).zip(&lines[1..]) {
            self.text(x, y + line * 17, "start", text);
        }
    }

    fn cell(&mut self, [x, y]: [u32; 2], [width, height]: [u32; 2], fill: &str) {
        let _ = writeln!(
            self.svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" \
             stroke=\"#444444\"/>"
        );
    }
}

/// The sides of a drawing of so many rows and columns within a square, and of at least some pixels.
fn scaled(rows: u32, columns: u32, side: u32) -> [u32; 2] {
    let longest = rows.max(columns);
    [columns, rows].map(|extent| (extent * side / longest).max(24))
}

/// The CTA tiles of a cluster in D.
fn cluster(canvas: &mut Canvas, spec: &Spec) {
    let (tile, cluster) = (spec.tile, spec.cluster);
    let shares = match cluster.size() {
        1 => "each CTA loads its own operands".to_owned(),
        _ => format!("each part of A is loaded for {}, of B for {} CTAs", cluster.n, cluster.m),
    };
    let ctas = format!("{} CTA tile(s) of {}x{}", cluster.size(), tile.m, tile.n);
    canvas.heading(20, 62, &["D: the tile of a cluster", &ctas, &shares]);
    let [width, height] = scaled(tile.m * cluster.m, tile.n * cluster.n, 230);
    let size = [width / cluster.n, height / cluster.m];
    for row in 0..cluster.m {
        for column in 0..cluster.n {
            let place = [20 + column * size[0], 112 + row * size[1]];
            let first = (row, column) == (0, 0);
            canvas.cell(place, size, if first { FILLS[0] } else { FILLS[7] });
            canvas.small(
                place[0] + size[0] / 2,
                place[1] + size[1] / 2 + 4,
                &format!("CTA {row},{column}"),
            );
        }
    }
}

/// The blocks of 64 rows of a CTA tile, each an MMA wide, and the warpgroups that compute them.
fn cta_tile(canvas: &mut Canvas, spec: &Spec, wgmma: &WgmmaSpec) {
    let (tile, blocks) = (spec.tile, spec.blocks());
    let depth = MMA_BYTES / spec.a.bytes();
    let atom = format!("{} MMA atom(s) of 64x{}x{depth}", tile.m / 64, tile.n);
    let steps = format!("{} steps of {depth} along k in each stage", tile.k / depth);
    canvas.heading(360, 62, &["A CTA tile: warpgroups and MMAs", &atom, &steps]);
    let [width, height] = scaled(tile.m, tile.n, 230);
    let rows = tile.m / 64;
    let size = [width, height / rows];
    for row in 0..rows {
        let place = [360, 112 + row * size[1]];
        let owner = match wgmma.schedule {
            Schedule::Cooperative => format!("consumer {}", row / blocks),
            Schedule::PingPong => "either consumer, in turn".to_owned(),
        };
        let colour = match wgmma.schedule {
            Schedule::Cooperative => row / blocks,
            Schedule::PingPong => 0,
        };
        canvas.cell(place, size, FILLS[colour as usize % FILLS.len()]);
        canvas.small(place[0] + size[0] / 2, place[1] + size[1] / 2 + 4, &owner);
    }
}

/// Shared memory of a CTA, to scale.
fn ring(canvas: &mut Canvas, spec: &Spec) {
    let smem = spec.resources().smem;
    let (a, b) = (spec.a_tile().bytes(), smem.stage - spec.a_tile().bytes());
    let stages = format!("{} stages of {} KiB", spec.stages, smem.stage / 1024);
    let total = format!("{} of {} bytes in use", smem.total(), smem.limit);
    canvas.heading(700, 62, &["Shared memory of a CTA", &stages, &total]);
    let pixels = |bytes: u32| (u64::from(bytes) * 280 / u64::from(smem.limit)).max(3) as u32;
    let mut x = 700;
    for stage in 0..spec.stages {
        let parts = [(a, FILLS[1]), (b, FILLS[2])];
        let begin = x;
        for (bytes, fill) in parts {
            canvas.cell([x, 112], [pixels(bytes), 60], fill);
            x += pixels(bytes);
        }
        canvas.small((begin + x) / 2, 188, &stage.to_string());
    }
    let others = [(smem.staging, FILLS[4]), (smem.barriers + smem.queue, FILLS[7])];
    for (bytes, fill) in others.into_iter().filter(|(bytes, _)| *bytes > 0) {
        canvas.cell([x, 112], [pixels(bytes), 60], fill);
        x += pixels(bytes);
    }
    let legend = [
        (FILLS[1], format!("A: {} KiB of a stage", a / 1024)),
        (FILLS[2], format!("B: {} KiB of a stage", b / 1024)),
        (FILLS[4], format!("staging of D: {} KiB", smem.staging / 1024)),
        (FILLS[7], "barriers".to_owned()),
    ];
    for (line, (fill, text)) in (0..).zip(&legend) {
        canvas.cell([700, 210 + line * 24], [16, 16], fill);
        canvas.text(726, 223 + line * 24, "start", text);
    }
}

/// The chunks of 16 bytes of the first lines of a stage of A, where the swizzle puts them.
fn stage(canvas: &mut Canvas, tile: &OperandTile) -> Result<(), CuteError> {
    let swizzle = tile.swizzle();
    let span = swizzle.span_bytes().unwrap_or(CHUNK_BYTES);
    let (chunks, elements) = (span / CHUNK_BYTES, CHUNK_BYTES / tile.element().bytes());
    let per_chunk =
        format!("line/chunk; chunk c is elements {elements}c to {elements}c+{}", elements - 1);
    let swizzled = format!("placed by a swizzle of {span} bytes");
    canvas.heading(20, 402, &["A stage of A: its first 8 lines", &per_chunk, &swizzled]);
    let layout = tile.layout()?;
    let size = [54, 30];
    let along_k = tile.staged()?.major == OperandMajor::K;
    for line in 0..LINES {
        canvas.text(44, 476 + line * size[1], "end", &line.to_string());
        for chunk in 0..chunks {
            let coordinate = match along_k {
                true => (line, chunk * elements),
                false => (chunk * elements, line),
            };
            let (mn, k) = (i64::from(coordinate.0), i64::from(coordinate.1));
            let bytes = layout.index((mn, k))? as u32 * tile.element().bytes();
            let place = swizzle.apply(bytes);
            // Lines of one span follow each other in memory.
            let (row, column) = (place / span, place % span / CHUNK_BYTES);
            let corner = [52 + column * size[0], 456 + row * size[1]];
            canvas.cell(corner, size, FILLS[chunk as usize % FILLS.len()]);
            canvas.small(corner[0] + size[0] / 2, corner[1] + 19, &format!("{line}/{chunk}"));
        }
    }
    Ok(())
}

/// The registers that hold the sums of the first warp's rows and of 8 columns.
fn registers(canvas: &mut Canvas) -> Result<(), CuteError> {
    canvas.heading(
        530,
        402,
        &[
            "Registers: sums of warp 0, 8 columns of an MMA",
            "thread:register; warps 1 to 3 hold the 48 rows below,",
            "registers 4 to 7 the next 8 columns, and so on",
        ],
    );
    let fragment = TvLayout::new(Layout::parse(FRAGMENT)?, [64, 8])?;
    let size = [52, 17];
    for row in 0..WARP_ROWS {
        let y = 456 + row as u32 * size[1];
        canvas.text(548, y + 13, "end", &row.to_string());
        for column in 0..8 {
            let (thread, register) = fragment.owner((row, column))?;
            let corner = [556 + column as u32 * size[0], y];
            canvas.cell(corner, size, FILLS[(thread % 4) as usize]);
            canvas.small(corner[0] + size[0] / 2, y + 12, &format!("{thread}:{register}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(name: &str) -> Result<String, Failure> {
        draw(&name.parse().unwrap())
    }

    fn count(svg: &str, text: &str) -> usize {
        svg.matches(text).count()
    }

    /// Every thread of a warp holds four of the 16x8 sums, as in the figure of the PTX ISA.
    #[test]
    fn registers_are_those_of_the_figure() {
        let svg = drawn("bf16-kn-bf16-256x192x64-s3-w2-c2x1").unwrap();
        for thread in 0..32 {
            for register in 0..4 {
                assert_eq!(count(&svg, &format!(">{thread}:{register}</text>")), 1);
            }
        }
    }

    #[test]
    fn warpgroups_share_blocks_or_take_turns() {
        let shared = drawn("bf16-kn-bf16-256x192x64-s3-w2-c2x1").unwrap();
        assert_eq!([">consumer 0<", ">consumer 1<"].map(|text| count(&shared, text)), [2, 2]);
        assert_eq!(count(&shared, ">CTA "), 2);
        assert!(shared.contains("4 MMA atom(s) of 64x192x16"));
        let turns = drawn("e4m3-kk-bf16-128x128x128-s4-p2-c1x1").unwrap();
        assert_eq!(count(&turns, ">either consumer, in turn<"), 2);
        assert!(turns.contains("2 MMA atom(s) of 64x128x32"));
    }

    /// A swizzle of 128 bytes puts the chunks of eight lines into different columns.
    #[test]
    fn chunks_are_where_the_swizzle_puts_them() {
        let svg = drawn("bf16-kk-bf16-128x128x64-s4-w2-c1x1").unwrap();
        let place = |chunk: &str| {
            let before = svg.split(&format!(">{chunk}</text>")).next().unwrap();
            let text = before.rsplit("<text x=\"").next().unwrap();
            text.split('"').next().unwrap().parse::<u32>().unwrap()
        };
        let columns: std::collections::BTreeSet<u32> =
            (0..8).map(|line| place(&format!("{line}/5"))).collect();
        assert_eq!(columns.len(), 8);
    }

    /// The tile of a cluster is drawn in a square of 230 pixels, of which each CTA has its part.
    #[test]
    fn the_tiles_of_a_cluster_fit_into_their_square() {
        for (cluster, sides) in [("1x1", [230, 230]), ("2x1", [115, 115]), ("1x2", [115, 115])] {
            let svg = drawn(&format!("bf16-kk-bf16-128x128x64-s4-w2-c{cluster}")).unwrap();
            let part = svg.split("<rect ").find(|part| part.contains("y=\"112\"")).unwrap();
            let number = |name: &str| {
                let text = part.split(&format!("{name}=\"")).nth(1).unwrap();
                text.split('"').next().unwrap().parse::<u32>().unwrap()
            };
            assert_eq!([number("width"), number("height")], sides, "{cluster}");
        }
    }

    #[test]
    fn kernels_without_this_tiling_are_refused() {
        for name in ["f64-kn-f64-128x128x16-s6-w2x4-k8", "bf16-mk-bf16-32x24x32-s0-direct1x4"] {
            let Err(error) = drawn(name) else { panic!("{name} was drawn") };
            assert!(error.to_string().contains("cannot be drawn"), "{name}");
        }
    }
}
