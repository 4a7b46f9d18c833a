//! The parts of a chart: axes, marks, lines and a legend, written as SVG.

use std::fmt::Write;

/// Pixels: of the drawing, and of the sides of its axes.
const SIZE: (f64, f64) = (980.0, 620.0);
pub const LEFT: f64 = 76.0;
pub const RIGHT: f64 = 690.0;
pub const TOP: f64 = 44.0;
pub const BOTTOM: f64 = 540.0;

/// A position, pixels.
pub type Place = (f64, f64);

/// An axis from a value to another, at these pixels.
pub struct Axis {
    /// Of the logarithm, if it is a logarithmic axis.
    base: Option<f64>,
    from: f64,
    to: f64,
    step: f64,
    pixels: (f64, f64),
}

impl Axis {
    /// From a power of the base to another around these values. `None` if no value has a logarithm.
    pub fn logarithmic(
        base: f64,
        values: impl Iterator<Item = f64> + Clone,
        pixels: (f64, f64),
    ) -> Option<Axis> {
        let logs = values.filter(|value| *value > 0.0 && value.is_finite());
        let logs = logs.map(|value| value.log(base));
        let (low, high) = (logs.clone().reduce(f64::min)?, logs.reduce(f64::max)?);
        // A power of the base has a logarithm that is whole but for rounding.
        let from = (low + 1e-9).floor();
        let to = (high - 1e-9).ceil().max(from + 1.0);
        Some(Axis { base: Some(base), from, to, step: 1.0, pixels })
    }

    /// From 0 to a round number above these values. `None` if no value is above 0.
    pub fn linear(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Option<Axis> {
        let highest = values.filter(|value| *value > 0.0 && value.is_finite()).reduce(f64::max)?;
        let magnitude = 10f64.powf(highest.log10().floor());
        let steps = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0];
        let step =
            steps.map(|step| step * magnitude).into_iter().find(|step| highest <= 8.0 * step);
        let step = step.unwrap_or(2.0 * magnitude);
        let to = (highest / step).ceil() * step;
        Some(Axis { base: None, from: 0.0, to, step, pixels })
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> f64 {
        let value = self.base.map_or(value, |base| value.log(base));
        let part = (value - self.from) / (self.to - self.from);
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Labels and their pixels.
    pub fn ticks(&self) -> Vec<(String, f64)> {
        let count = ((self.to - self.from) / self.step).round() as i32;
        let tick = |index: i32| {
            let value = self.from + f64::from(index) * self.step;
            let value = self.base.map_or(value, |base| base.powf(value));
            (label(value), self.at(value))
        };
        (0..=count).map(tick).collect()
    }
}

/// A number as a label: powers of ten above a million are written as such.
fn label(value: f64) -> String {
    if value >= 1e6 {
        let power = value.log10().round() as i32;
        let digits: String = power.to_string().chars().map(superscript).collect();
        return format!("10{digits}");
    }
    // Six digits hide what a step such as 0.1 adds up to.
    format!("{}", (value * 1e6).round() / 1e6)
}

fn superscript(digit: char) -> char {
    match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => digit.to_digit(10).and_then(|digit| char::from_u32(0x2070 + digit)).unwrap_or('⁻'),
    }
}

/// The form of a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A filled circle.
    Dot,
    /// An open circle.
    Ring,
    /// An open square.
    Square,
}

/// How a line and its marks look.
#[derive(Clone, Copy)]
pub struct Style {
    pub color: &'static str,
    pub dashed: bool,
    pub mark: Mark,
}

impl Style {
    fn dashes(self) -> &'static str {
        if self.dashed { " stroke-dasharray=\"6 4\"" } else { "" }
    }
}

/// A drawing that is being written. Writing to a string does not fail.
pub struct Chart {
    svg: String,
    legend_lines: u32,
}

impl Chart {
    /// An empty chart on white, with its title.
    pub fn new(title: &str) -> Chart {
        let (width, height) = SIZE;
        let mut chart = Chart { svg: String::new(), legend_lines: 0 };
        let _ = writeln!(
            chart.svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"Noto Sans, sans-serif\" \
             font-size=\"12\" fill=\"#222\">\n<title>{}</title>\n<rect width=\"{width}\" \
             height=\"{height}\" fill=\"white\"/>",
            escaped(title)
        );
        chart.text((RIGHT, TOP - 16.0), "end", title);
        chart
    }

    /// Both axes with a grid and their titles.
    pub fn axes(&mut self, (x, x_title): (&Axis, &str), (y, y_title): (&Axis, &str)) {
        for (label, at) in x.ticks() {
            self.grid_line((at, TOP), (at, BOTTOM));
            self.text((at, BOTTOM + 18.0), "middle", &label);
        }
        for (label, at) in y.ticks() {
            self.grid_line((LEFT, at), (RIGHT, at));
            self.text((LEFT - 8.0, at + 4.0), "end", &label);
        }
        self.text(((LEFT + RIGHT) / 2.0, BOTTOM + 60.0), "middle", x_title);
        self.text((LEFT, TOP - 16.0), "middle", y_title);
    }

    fn grid_line(&mut self, from: Place, to: Place) {
        let _ = writeln!(
            self.svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A text whose place is its start, its middle or its end.
    pub fn text(&mut self, (x, y): Place, anchor: &str, content: &str) {
        let content = escaped(content);
        let _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
        );
    }

    /// A line through these places, if there are several.
    pub fn line(&mut self, places: &[Place], style: Style) {
        if places.len() < 2 {
            return;
        }
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>",
            points.join(" "),
            style.color,
            style.dashes()
        );
    }

    /// A mark that tells its title to those who point at it.
    pub fn mark(&mut self, (x, y): Place, style: Style, title: &str) {
        let (color, title) = (style.color, escaped(title));
        let _ = match style.mark {
            Mark::Dot => writeln!(
                self.svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"><title>{title}\
                 </title></circle>"
            ),
            Mark::Ring => writeln!(
                self.svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"white\" stroke=\"{color}\" \
                 stroke-width=\"1.5\"><title>{title}</title></circle>"
            ),
            Mark::Square => writeln!(
                self.svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"none\" \
                 stroke=\"{color}\" stroke-width=\"2\"><title>{title}</title></rect>",
                x - 4.0,
                y - 4.0
            ),
        };
    }

    /// Adds a line to the legend.
    pub fn legend(&mut self, style: Style, name: &str) {
        let y = TOP + 10.0 + 20.0 * f64::from(self.legend_lines);
        self.legend_lines += 1;
        let from = RIGHT + 20.0;
        let _ = writeln!(
            self.svg,
            "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{}\" \
             stroke-width=\"2\"{}/>",
            from + 30.0,
            style.color,
            style.dashes()
        );
        self.mark((from + 15.0, y), style, name);
        self.text((from + 38.0, y + 4.0), "start", name);
    }

    /// The whole drawing.
    pub fn finish(self) -> String {
        self.svg + "</svg>\n"
    }
}

/// Text as XML takes it. Characters that XML has no form for are left out.
fn escaped(text: &str) -> String {
    let is_text = |letter: &char| !letter.is_control() || matches!(letter, '\t' | '\n');
    let text: String = text.chars().filter(is_text).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_values_are_further_along_an_axis() {
        let values = [0.5, 40.0];
        let y = Axis::logarithmic(10.0, values.into_iter(), (BOTTOM, TOP)).unwrap();
        assert!(y.at(0.5) > y.at(40.0));
        let is_at = |pixel: f64, value: f64| (y.at(value) - pixel).abs() < 1e-6;
        assert!(is_at(BOTTOM, 0.1) && is_at(TOP, 100.0));
        let labels: Vec<_> = y.ticks().into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels, ["0.1", "1", "10", "100"]);
        // The axis of a single value spans a decade.
        let x = Axis::logarithmic(10.0, [1e6].into_iter(), (LEFT, RIGHT)).unwrap();
        assert!((x.at(1e6) - LEFT).abs() < 1e-6);
        let labels: Vec<_> = x.ticks().into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels, ["10⁶", "10⁷"]);
        assert!(Axis::logarithmic(10.0, [0.0, f64::NAN].into_iter(), (LEFT, RIGHT)).is_none());
    }

    #[test]
    fn sizes_have_powers_of_two() {
        let axis = Axis::logarithmic(2.0, [512.0, 8192.0].into_iter(), (LEFT, RIGHT)).unwrap();
        let labels: Vec<_> = axis.ticks().into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels, ["512", "1024", "2048", "4096", "8192"]);
    }

    #[test]
    fn linear_axes_end_at_round_numbers() {
        let labels = |highest: f64| {
            let axis = Axis::linear([highest].into_iter(), (0.0, 1.0)).unwrap();
            axis.ticks().into_iter().map(|(label, _)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(712.0), ["0", "100", "200", "300", "400", "500", "600", "700", "800"]);
        assert_eq!(labels(0.31), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35"]);
        assert_eq!(labels(10.0).last().unwrap(), "10");
        assert!(Axis::linear([0.0].into_iter(), (0.0, 1.0)).is_none());
    }

    #[test]
    fn texts_are_no_markup() {
        let mut chart = Chart::new("a<b");
        let style = Style { color: "#000", dashed: false, mark: Mark::Dot };
        chart.mark((1.0, 2.0), style, "</title><script>\u{1}alert(1)</script>");
        chart.legend(style, "x & \"y\"");
        let svg = chart.finish();
        assert!(!svg.contains("<script") && !svg.contains('\u{1}'), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains("x &amp; &quot;y&quot;"), "{svg}");
    }
}
