//! `pgemm plot`: an SVG plot of microseconds per job over the work of a job. Both axes are
//! logarithmic, with a line for each contestant and method.

use std::fmt::Write;
use std::path::PathBuf;

use persistent_gemm::Problem;
use pgemm_bench::{LAUNCHED, PEER, RESIDENT, Report, StreamMethod, StreamOutcome};

use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Arguments of `pgemm plot`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm bench --stream --against cublaslt --json stream.json
  pgemm plot stream.json --svg stream.svg")]
pub struct Args {
    /// Reports of `pgemm bench --stream --json`.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// The drawing.
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let mut streams = Vec::new();
    for path in &args.reports {
        streams.extend(Report::read(path)?.streams);
    }
    let drawing = draw(&streams).ok_or(UsageError::NothingToDraw)?;
    crate::io::write_atomically(&args.svg, drawing.as_bytes())?;
    Ok(Verdict::Fine)
}

/// Pixels: of the drawing, and of the sides of its axes.
const SIZE: (f64, f64) = (980.0, 620.0);
const LEFT: f64 = 70.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 540.0;

/// Four shades for each of the standard contestants, and for any others.
const SHADES: [(&str, [&str; 4]); 3] = [
    (PEER, ["#a1d99b", "#74c476", "#31a354", "#006d2c"]),
    (LAUNCHED, ["#fdae6b", "#fd8d3c", "#e6550d", "#a63603"]),
    (RESIDENT, ["#3182bd", "#6baed6", "#08519c", "#08306b"]),
];
const OTHERS: [&str; 4] = ["#756bb1", "#9e9ac8", "#54278f", "#3f007d"];

/// The line of one contestant and method.
struct Line {
    contestant: String,
    method: StreamMethod,
    points: Vec<Point>,
}

struct Point {
    operations: f64,
    microseconds: f64,
    problem: Problem,
}

impl Line {
    fn name(&self) -> String {
        format!("{}, {}", self.contestant, self.method.name())
    }

    fn color(&self) -> &'static str {
        let shades = SHADES.iter().find(|(name, _)| *name == self.contestant);
        let shade = match self.method {
            StreamMethod::Eager | StreamMethod::Together => 0,
            StreamMethod::Graph | StreamMethod::OneByOne => 1,
            StreamMethod::Branches | StreamMethod::Chain => 2,
            StreamMethod::Batch => 3,
        };
        shades.map_or(OTHERS, |(_, shades)| *shades)[shade]
    }
}

fn is_cube(problem: &Problem) -> bool {
    problem.m == problem.n && problem.n == problem.k
}

/// The lines in the order in which they first appear, each from the smallest job to the largest.
fn lines(streams: &[StreamOutcome]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for stream in streams {
        for times in &stream.methods {
            let point = Point {
                operations: stream.problem.operations().unwrap_or(1) as f64,
                microseconds: times.microseconds.median,
                problem: stream.problem,
            };
            let of = |line: &&mut Line| {
                line.contestant == times.contestant && line.method == times.method
            };
            match lines.iter_mut().find(of) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    contestant: times.contestant.clone(),
                    method: times.method,
                    points: vec![point],
                }),
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|x, y| x.operations.total_cmp(&y.operations));
    }
    lines
}

/// A logarithmic axis: from a power of ten to another, at these pixels.
struct Axis {
    from: i32,
    to: i32,
    pixels: (f64, f64),
}

impl Axis {
    /// Around these values, or `None` if there is none that has a logarithm.
    fn around(values: impl Iterator<Item = f64> + Clone, pixels: (f64, f64)) -> Option<Axis> {
        let logs = values.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log10);
        let (low, high) = (logs.clone().reduce(f64::min)?, logs.reduce(f64::max)?);
        let from = low.floor() as i32;
        Some(Axis { from, to: (high.ceil() as i32).max(from + 1), pixels })
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Powers of ten.
    fn ticks(&self) -> impl Iterator<Item = (i32, f64)> + '_ {
        (self.from..=self.to).map(|power| (power, self.at(10f64.powi(power))))
    }
}

/// The drawing, or `None` if there is nothing to draw.
fn draw(streams: &[StreamOutcome]) -> Option<String> {
    let lines = lines(streams);
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::around(points().map(|point| point.operations), (LEFT, RIGHT))?;
    let y = Axis::around(points().map(|point| point.microseconds), (BOTTOM, TOP))?;
    let mut svg = String::new();
    let (width, height) = SIZE;
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" \
         fill=\"white\"/>"
    );
    draw_axes(&mut svg, &x, &y, streams);
    for (place, line) in lines.iter().enumerate() {
        draw_line(&mut svg, line, &x, &y);
        draw_legend(&mut svg, line, TOP + 10.0 + 20.0 * place as f64);
    }
    svg += "</svg>\n";
    Some(svg)
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

fn draw_axes(svg: &mut String, x: &Axis, y: &Axis, streams: &[StreamOutcome]) {
    let mut grid = |from: (f64, f64), to: (f64, f64)| {
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
            from.0, from.1, to.0, to.1
        );
    };
    x.ticks().for_each(|(_, at)| grid((at, TOP), (at, BOTTOM)));
    y.ticks().for_each(|(_, at)| grid((LEFT, at), (RIGHT, at)));
    for (power, at) in x.ticks() {
        text(svg, (at, BOTTOM + 18.0), "middle", &format!("1e{power}"));
    }
    for (power, at) in y.ticks() {
        text(svg, (LEFT - 8.0, at + 4.0), "end", &format!("{}", 10f64.powi(power)));
    }
    let mut cubes: Vec<&Problem> =
        streams.iter().map(|stream| &stream.problem).filter(|problem| is_cube(problem)).collect();
    cubes.sort_by_key(|problem| problem.m);
    cubes.dedup_by_key(|problem| problem.m);
    for problem in cubes {
        let at = x.at(problem.operations().unwrap_or(1) as f64);
        text(svg, (at, BOTTOM + 36.0), "middle", &format!("{}³", problem.m));
    }
    let middle = (LEFT + RIGHT) / 2.0;
    let of = "operations of a job, 2·m·n·k (lines join cubes; other shapes are single marks)";
    text(svg, (middle, BOTTOM + 58.0), "middle", of);
    text(svg, (LEFT, TOP - 12.0), "middle", "µs per job");
}

fn draw_line(svg: &mut String, line: &Line, x: &Axis, y: &Axis) {
    let color = line.color();
    let dashes = dashes(line.method);
    let place = |point: &Point| (x.at(point.operations), y.at(point.microseconds));
    let cubes: Vec<String> = line
        .points
        .iter()
        .filter(|point| is_cube(&point.problem))
        .map(|point| format!("{:.1},{:.1}", place(point).0, place(point).1))
        .collect();
    if cubes.len() > 1 {
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dashes}/>",
            cubes.join(" ")
        );
    }
    for point in &line.points {
        let (at_x, at_y) = place(point);
        let Problem { m, n, k, .. } = point.problem;
        let title = format!("{}: {m}x{n}x{k}, {:.3} µs", line.name(), point.microseconds);
        let _ = if is_cube(&point.problem) {
            writeln!(
                svg,
                "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"3\" \
                 fill=\"{color}\"><title>{title}</title></circle>"
            )
        } else {
            let (left, top) = (at_x - 4.0, at_y - 4.0);
            writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"8\" height=\"8\" fill=\"none\" \
                 stroke=\"{color}\" stroke-width=\"2\"><title>{title}</title></rect>"
            )
        };
    }
}

/// Methods that keep the order of jobs have dashed lines.
fn dashes(method: StreamMethod) -> &'static str {
    if method.keeps_order() { " stroke-dasharray=\"6 4\"" } else { "" }
}

fn draw_legend(svg: &mut String, line: &Line, y: f64) {
    let from = RIGHT + 20.0;
    let _ = writeln!(
        svg,
        "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{}\" \
         stroke-width=\"2\"{}/>",
        from + 30.0,
        line.color(),
        dashes(line.method)
    );
    text(svg, (from + 38.0, y + 4.0), "start", &line.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::tests::report;

    #[test]
    fn each_way_has_a_line_through_the_cubes_and_a_mark_for_the_rest() {
        let streams = report().streams;
        let svg = draw(&streams).unwrap();
        let count = |part: &str| svg.matches(part).count();
        let methods = streams[0].methods.len();
        assert_eq!(count("<polyline "), methods);
        assert_eq!(count("<circle "), 3 * methods);
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
    fn smaller_times_are_lower_and_larger_jobs_further_right() {
        let values = [0.5, 40.0];
        let y = Axis::around(values.into_iter(), (BOTTOM, TOP)).unwrap();
        assert_eq!((y.from, y.to), (-1, 2));
        assert!(y.at(0.5) > y.at(40.0));
        assert_eq!((y.at(0.1), y.at(100.0)), (BOTTOM, TOP));
        // The axis of a single value spans a decade.
        let x = Axis::around([1e6].into_iter(), (LEFT, RIGHT)).unwrap();
        assert_eq!((x.from, x.to, x.at(1e6)), (6, 7, LEFT));
        assert!(Axis::around([0.0, f64::NAN].into_iter(), (LEFT, RIGHT)).is_none());
    }

    #[test]
    fn nothing_gives_no_drawing() {
        assert!(draw(&[]).is_none());
        let mut reports = report();
        reports.streams.iter_mut().for_each(|stream| stream.methods.clear());
        assert!(draw(&reports.streams).is_none());
    }

    #[test]
    fn files_go_in_and_a_drawing_comes_out() {
        let folder = tempfile::tempdir().unwrap();
        let svg = folder.path().join("stream.svg");
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stream.json");
        let args = |report: &str| Args { reports: vec![report.into()], svg: svg.clone() };
        assert!(run(&args(fixture)).is_ok());
        assert!(std::fs::read_to_string(&svg).unwrap().contains("<polyline"));
        let pairs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pairs.json");
        let message = run(&args(pairs)).err().unwrap().to_string();
        assert!(message.contains("nothing to draw"), "{message}");
    }
}
