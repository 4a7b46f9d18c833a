//! Microseconds per job over the work of a job, with a line for each contestant and method.

use persistent_gemm::Problem;
use pgemm_bench::{LAUNCHED, MethodRow, PEER, RESIDENT, StreamMethod, StreamRow, parsed_name};

use super::chart::{Axis, BOTTOM, Chart, LEFT, Mark, RIGHT, Style, TOP};

/// Four shades for each of the standard contestants, and for any others.
const SHADES: [(&str, [&str; 4]); 3] = [
    (PEER, ["#a1d99b", "#74c476", "#31a354", "#006d2c"]),
    (LAUNCHED, ["#fdae6b", "#fd8d3c", "#e6550d", "#a63603"]),
    (RESIDENT, ["#3182bd", "#6baed6", "#08519c", "#08306b"]),
];
const OTHERS: [&str; 4] = ["#756bb1", "#9e9ac8", "#54278f", "#3f007d"];

/// The line of one contestant and method.
struct Line<'s> {
    method: &'s MethodRow,
    points: Vec<Point>,
}

struct Point {
    operations: f64,
    microseconds: f64,
    problem: Problem,
}

impl Line<'_> {
    fn name(&self) -> String {
        format!("{}, {}", self.method.contestant, self.method.method.name())
    }

    /// Methods that keep the order of jobs have dashed lines.
    fn style(&self) -> Style {
        let shades = SHADES.iter().find(|(name, _)| *name == self.method.contestant);
        let shade = match self.method.method {
            StreamMethod::Eager | StreamMethod::Together => 0,
            StreamMethod::Graph | StreamMethod::OneByOne => 1,
            StreamMethod::Branches | StreamMethod::Chain => 2,
            StreamMethod::Batch => 3,
        };
        let color = shades.map_or(OTHERS, |(_, shades)| *shades)[shade];
        Style { color, dashed: self.method.method.keeps_order(), mark: Mark::Dot }
    }
}

fn is_cube(problem: &Problem) -> bool {
    problem.m == problem.n && problem.n == problem.k
}

/// The lines in the order in which they first appear, each from the smallest job to the largest.
fn lines(streams: &[StreamRow]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for stream in streams {
        let Some((problem, _)) = parsed_name(&stream.problem) else { continue };
        for method in &stream.methods {
            let [_, microseconds, _] = method.us;
            let point = Point { operations: stream.operations as f64, microseconds, problem };
            let same = |line: &&mut Line<'_>| {
                (&line.method.contestant, line.method.method) == (&method.contestant, method.method)
            };
            match lines.iter_mut().find(same) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { method, points: vec![point] }),
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|x, y| x.operations.total_cmp(&y.operations));
    }
    lines
}

/// The drawing, or `None` if there is nothing to draw.
pub fn draw(streams: &[StreamRow], source: &str) -> Option<String> {
    let lines = lines(streams);
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::logarithmic(10.0, points().map(|point| point.operations), (LEFT, RIGHT))?;
    let y = Axis::logarithmic(10.0, points().map(|point| point.microseconds), (BOTTOM, TOP))?;
    let mut chart = Chart::new(&format!("Microseconds per job, {source}"));
    let x_title = "operations of a job, 2·m·n·k (lines join cubes; squares are other shapes)";
    chart.axes((&x, x_title), (&y, "µs per job"));
    let mut cubes: Vec<&Point> = points().filter(|point| is_cube(&point.problem)).collect();
    cubes.sort_by_key(|point| point.problem.m);
    cubes.dedup_by_key(|point| point.problem.m);
    for point in cubes {
        let place = (x.at(point.operations), BOTTOM + 36.0);
        chart.text(place, "middle", &format!("{}³", point.problem.m));
    }
    for line in &lines {
        let style = line.style();
        let place = |point: &Point| (x.at(point.operations), y.at(point.microseconds));
        let cubes = line.points.iter().filter(|point| is_cube(&point.problem));
        chart.line(&cubes.map(place).collect::<Vec<_>>(), style);
        for point in &line.points {
            let Problem { m, n, k, .. } = point.problem;
            let title = format!("{}: {m}x{n}x{k}, {:.3} µs", line.name(), point.microseconds);
            let mark = if is_cube(&point.problem) { style.mark } else { Mark::Square };
            chart.mark(place(point), Style { mark, ..style }, &title);
        }
        chart.legend(style, &line.name());
    }
    Some(chart.finish())
}

#[cfg(test)]
mod tests {
    use pgemm_bench::Collection;

    use super::*;

    pub fn streams() -> Vec<StreamRow> {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stream.json");
        Collection::read([fixture], |_| true).unwrap().streams
    }

    #[test]
    fn each_method_has_a_line_through_the_cubes_and_a_mark_for_the_rest() {
        let streams = streams();
        let svg = draw(&streams, "NVIDIA Example").unwrap();
        let count = |part: &str| svg.matches(part).count();
        let methods = streams[0].methods.len();
        assert_eq!(count("<polyline "), methods);
        // Three cubes each, and the mark of the legend.
        assert_eq!(count("<circle "), (3 + 1) * methods);
        // The background is a rectangle too.
        assert_eq!(count("<rect "), 1 + methods);
        for part in
            ["128³", "512³", "resident, one by one", "cuBLASLt, graph, 8 branches", "µs per job"]
        {
            assert!(svg.contains(part), "{part} is missing in: {svg}");
        }
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_gives_no_drawing() {
        assert!(draw(&[], "").is_none());
        let mut streams = streams();
        streams.iter_mut().for_each(|stream| stream.methods.clear());
        assert!(draw(&streams, "").is_none());
    }
}
