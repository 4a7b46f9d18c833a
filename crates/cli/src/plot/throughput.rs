//! Throughput over the size of problems, with a line for each type and library.

use pgemm_bench::ProblemRow;

use super::chart::{Axis, BOTTOM, Chart, LEFT, Mark, RIGHT, Style, TOP};

/// Colours of the types, in the order in which they first appear. They differ in lightness too, for
/// those who cannot tell all hues apart (after Okabe and Ito, <https://jfly.uni-koeln.de/color/>).
const COLORS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];

const OURS: &str = "persistent-gemm";

/// The problems of a type with operands of some majors, computed by a library.
struct Line<'r> {
    types: &'r str,
    majors: &'r str,
    library: &'r str,
    points: Vec<Point<'r>>,
}

struct Point<'r> {
    row: &'r ProblemRow,
    size: f64,
    teraflops: f64,
}

impl Point<'_> {
    fn is_cube(&self) -> bool {
        let row = self.row;
        row.m == row.n && row.n == row.k && row.batch == 1
    }
}

/// The lines in the order in which they first appear, each from the smallest problem to the largest.
fn lines(problems: &[ProblemRow]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in problems {
        let ours = row.us.map(|us| (OURS, us));
        let peers = row.peers.iter().map(|peer| (peer.name.as_str(), peer.us));
        for (library, us) in ours.into_iter().chain(peers) {
            // The edge of the cube that has as many operations.
            let operations = row.operations as f64;
            let size = (operations / 2.0).cbrt();
            let point = Point { row, size, teraflops: operations / us / 1e6 };
            let (types, majors) = (row.types.as_str(), row.majors.as_str());
            let same = |line: &&mut Line<'_>| {
                (line.types, line.majors, line.library) == (types, majors, library)
            };
            match lines.iter_mut().find(same) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { types, majors, library, points: vec![point] }),
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|x, y| x.size.total_cmp(&y.size));
    }
    lines
}

/// The drawing, or `None` if there is nothing to draw. Lines that differ in majors alone look alike.
pub fn draw(problems: &[ProblemRow], source: &str) -> Option<String> {
    let lines = lines(problems);
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::logarithmic(2.0, points().map(|point| point.size), (LEFT, RIGHT))?;
    let y = Axis::linear(points().map(|point| point.teraflops), (BOTTOM, TOP))?;
    let mut chart = Chart::new(&format!("Throughput over size, {source}"));
    let x_title = "size: edge of the cube with as many operations (lines join cubes)";
    chart.axes((&x, x_title), (&y, "TFLOP/s"));
    let mut types: Vec<&str> = lines.iter().map(|line| line.types).collect();
    types.dedup();
    for (index, line) in lines.iter().enumerate() {
        let color = types.iter().position(|types| *types == line.types).unwrap_or_default();
        let ours = line.library == OURS;
        let mark = if ours { Mark::Dot } else { Mark::Ring };
        let style = Style { color: COLORS[color % COLORS.len()], dashed: !ours, mark };
        let place = |point: &Point<'_>| (x.at(point.size), y.at(point.teraflops));
        let cubes = line.points.iter().filter(|point| point.is_cube()).map(place);
        chart.line(&cubes.collect::<Vec<_>>(), style);
        for point in &line.points {
            let Point { row, teraflops, .. } = point;
            let title = format!("{}, {}: {teraflops:.1} TFLOP/s", row.problem, line.library);
            chart.mark(place(point), style, &title);
        }
        let alike = |other: &Line<'_>| (other.types, other.library) == (line.types, line.library);
        if !lines.iter().take(index).any(alike) {
            chart.legend(style, &format!("{}, {}", line.types, line.library));
        }
    }
    Some(chart.finish())
}

#[cfg(test)]
mod tests {
    use pgemm_bench::Collection;

    use super::*;

    #[test]
    fn each_type_and_library_has_a_line_through_its_cubes() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pairs.json");
        let problems = Collection::read([fixture], |_| true).unwrap().problems;
        let svg = draw(&problems, "NVIDIA Example, 2027-01-15").unwrap();
        let count = |part: &str| svg.matches(part).count();
        assert_eq!(count("<polyline "), 2);
        // Two problems by both, and the marks of the legend.
        assert_eq!(count("<circle "), 2 * (2 + 1));
        assert!(svg.contains("Throughput over size, NVIDIA Example, 2027-01-15</text>"), "{svg}");
        for part in ["f16, persistent-gemm", "f16, cuBLASLt", "f16 kk 8192x8192x8192", "TFLOP/s"] {
            assert!(svg.contains(part), "{part} is missing in: {svg}");
        }
    }

    #[test]
    fn nothing_gives_no_drawing() {
        assert!(draw(&[], "").is_none());
    }
}
