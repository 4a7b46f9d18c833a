//! Drawings of layouts as SVG, for documentation and debugging.
//!
//! ```
//! use pgemm_cute::{AnyLayout, svg};
//!
//! # fn main() -> Result<(), pgemm_cute::CuteError> {
//! let layout = AnyLayout::parse("Sw<3,0,3> o 0 o (8,8):(8,1)")?;
//! let picture = svg::draw(&layout, &svg::Options::default())?;
//! assert!(picture.starts_with("<svg"));
//! # Ok(())
//! # }
//! ```

use std::fmt::Write;

use crate::{AnyLayout, CuteError, IntTuple, TvLayout};

/// Options for drawing a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The line above the grid. `None` is the layout itself.
    pub title: Option<String>,
    /// Largest number of cells that is drawn; the limit is never above one million. A larger layout
    /// is an error.
    pub max_cells: i64,
    /// Smallest width and height of a cell in pixels. Cells grow to fit their labels.
    pub cell_pixels: u32,
    /// Number of colours, from 1 to 8, through which indices or threads cycle.
    pub colors: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { title: None, max_cells: 16_384, cell_pixels: 32, colors: 8 }
    }
}

/// Light colours on which black text is readable.
const PALETTE: [&str; 8] =
    ["#f7f7f7", "#c6dbef", "#c7e9c0", "#fdd0a2", "#dadaeb", "#fcc5d9", "#fff3b0", "#b8e6e1"];
/// Largest number of cells under any options. It keeps pixel coordinates within 32 bits.
const MAX_CELLS: i64 = 1_000_000;
/// Font size.
const LABEL_PIXELS: u32 = 11;
/// Distance between the lines of a label.
const LINE_PIXELS: u32 = LABEL_PIXELS + 2;
/// Width of a monospaced digit, in tenths of the font size.
const ADVANCE_TENTHS: u32 = 6;

/// Draws a layout as a grid. Mode 0 runs down and mode 1 runs across; a layout of rank 1 is one
/// row.
///
/// A cell shows its index, and its colour is the index modulo [`Options::colors`].
///
/// A thread-value layout is drawn as its tile. A cell then shows the thread and the value that hold
/// the element, and its colour is the thread modulo [`Options::colors`]. If several thread-value
/// pairs hold an element, the cell shows the first pair and the number of further pairs. An element
/// that no thread holds is an empty white cell.
///
/// # Errors
/// Returns [`CuteError::DrawRank`] unless the rank is 1 or 2, and [`CuteError::TooManyCells`] above
/// [`Options::max_cells`].
pub fn draw(layout: &AnyLayout, options: &Options) -> Result<String, CuteError> {
    let title = layout.to_string();
    let grid = match layout {
        AnyLayout::Layout(plain) => {
            let mut grid = Grid::new(&title, plain.shape(), options)?;
            grid.fill(plain.indices());
            grid
        }
        AnyLayout::Composed(composed) => {
            let mut grid = Grid::new(&title, composed.shape(), options)?;
            grid.fill(composed.indices());
            grid
        }
        AnyLayout::ThreadValue(tv) => {
            let mut grid = Grid::new(&title, tv.tile(), options)?;
            // Several thread-value pairs may share a cell, so the number of pairs is limited as
            // well.
            check_cells(&title, tv.layout().size(), options)?;
            grid.fill_thread_values(tv);
            grid
        }
    };
    Ok(grid.render(options.title.as_ref().unwrap_or(&title), options))
}

fn check_cells(title: &str, cells: i64, options: &Options) -> Result<(), CuteError> {
    let limit = options.max_cells.min(MAX_CELLS);
    if cells > limit {
        return Err(CuteError::TooManyCells { layout: title.into(), cells, limit });
    }
    Ok(())
}

#[derive(Clone, Default)]
struct Cell {
    lines: Vec<String>,
    color: Option<i64>,
}

struct Grid {
    rows: usize,
    columns: usize,
    /// The cells in column-major order, the order of linear coordinates.
    cells: Vec<Cell>,
}

impl Grid {
    fn new(title: &str, shape: &IntTuple, options: &Options) -> Result<Self, CuteError> {
        let (rows, columns) = match shape.modes() {
            // A layout of rank 1 is drawn as one row.
            [mode] => (1, mode.size()?),
            [rows, columns] => (rows.size()?, columns.size()?),
            modes => {
                return Err(CuteError::DrawRank { layout: title.into(), rank: modes.len() });
            }
        };
        check_cells(title, shape.size()?, options)?;
        // Both are at least 1 and at most the number of cells.
        let (rows, columns) = (rows.unsigned_abs() as usize, columns.unsigned_abs() as usize);
        Ok(Self { rows, columns, cells: vec![Cell::default(); rows * columns] })
    }

    fn fill(&mut self, indices: impl Iterator<Item = i64>) {
        for (cell, index) in self.cells.iter_mut().zip(indices) {
            *cell = Cell { lines: vec![index.to_string()], color: Some(index) };
        }
    }

    fn fill_thread_values(&mut self, tv: &TvLayout) {
        let threads = tv.threads();
        let mut holders = vec![0usize; self.cells.len()];
        for (number, element) in (0i64..).zip(tv.layout().indices()) {
            let position = element.unsigned_abs() as usize;
            let (Some(cell), Some(holders)) =
                (self.cells.get_mut(position), holders.get_mut(position))
            else {
                continue;
            };
            *holders += 1;
            if *holders == 1 {
                let thread = number % threads;
                cell.lines = vec![format!("T{thread}"), format!("V{}", number / threads)];
                cell.color = Some(thread);
            } else {
                cell.lines.truncate(2);
                cell.lines.push(format!("+{}", *holders - 1));
            }
        }
    }

    fn render(&self, title: &str, options: &Options) -> String {
        let geometry = self.geometry(title, options);
        let Geometry { page_width, page_height, .. } = geometry;
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{page_width}\" \
             height=\"{page_height}\" viewBox=\"0 0 {page_width} {page_height}\" \
             font-family=\"monospace\" font-size=\"{LABEL_PIXELS}\" text-anchor=\"middle\">"
        );
        let _ = writeln!(svg, "<title>{}</title>", escape(title));
        let _ = writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>");
        let baseline = LABEL_PIXELS + 3;
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{baseline}\" text-anchor=\"start\" font-weight=\"bold\">{}</text>",
            escape(title)
        );
        self.render_axes(&mut svg, &geometry);
        let colors = i64::from(options.colors.clamp(1, PALETTE.len() as u32));
        self.render_cells(&mut svg, &geometry, colors);
        svg.push_str("</svg>\n");
        svg
    }

    fn geometry(&self, title: &str, options: &Options) -> Geometry {
        let longest = self.cells.iter().flat_map(|cell| &cell.lines).map(String::len).max();
        let axis_digits = (self.rows.max(self.columns) - 1).to_string().len();
        let characters = longest.unwrap_or(1).max(axis_digits) as u32;
        let lines = self.cells.iter().map(|cell| cell.lines.len()).max().unwrap_or(1) as u32;
        let smallest = options.cell_pixels.clamp(1, 1000);
        let cell_width = smallest.max(text_width(characters) + 8);
        let cell_height = smallest.max(lines * LINE_PIXELS + 6);
        let (left, top) = (text_width(axis_digits as u32) + 14, 2 * (LABEL_PIXELS + 9));
        let page_width = (left + self.columns as u32 * cell_width + 2)
            .max(text_width(title.chars().count() as u32) + 16);
        let page_height = top + self.rows as u32 * cell_height + 2;
        Geometry { cell_width, cell_height, left, top, page_width, page_height }
    }

    /// Writes the column numbers above the grid and the row numbers to its left.
    fn render_axes(&self, svg: &mut String, geometry: &Geometry) {
        let &Geometry { cell_width, cell_height, left, top, .. } = geometry;
        for column in 0..self.columns as u32 {
            let (x, y) = (left + column * cell_width + cell_width / 2, top - 5);
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#666666\">{column}</text>");
        }
        for row in 0..self.rows as u32 {
            let (x, y) = (left - 6, top + row * cell_height + cell_height / 2 + LABEL_PIXELS / 3);
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"#666666\">{row}</text>"
            );
        }
    }

    fn render_cells(&self, svg: &mut String, geometry: &Geometry, colors: i64) {
        let &Geometry { cell_width, cell_height, left, top, .. } = geometry;
        for (position, cell) in self.cells.iter().enumerate() {
            let (row, column) = ((position % self.rows) as u32, (position / self.rows) as u32);
            let (x, y) = (left + column * cell_width, top + row * cell_height);
            let fill = cell
                .color
                .and_then(|color| PALETTE.get(color.rem_euclid(colors).unsigned_abs() as usize))
                .unwrap_or(&"#ffffff");
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{cell_width}\" height=\"{cell_height}\" \
                 fill=\"{fill}\" stroke=\"#444444\"/>"
            );
            let text_height = cell.lines.len() as u32 * LINE_PIXELS;
            for (line, text) in (0u32..).zip(&cell.lines) {
                let x = x + cell_width / 2;
                let y = y + (cell_height - text_height) / 2 + (line + 1) * LINE_PIXELS - 3;
                let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape(text));
            }
        }
    }
}

/// Sizes and positions of the drawing, in pixels.
struct Geometry {
    cell_width: u32,
    cell_height: u32,
    /// Left edge of the grid.
    left: u32,
    /// Top edge of the grid.
    top: u32,
    page_width: u32,
    page_height: u32,
}

fn text_width(characters: u32) -> u32 {
    characters * LABEL_PIXELS * ADVANCE_TENTHS / 10 + 1
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    fn drawn(layout: impl Into<AnyLayout>) -> String {
        draw(&layout.into(), &Options::default()).unwrap()
    }

    /// Counts the cells: rectangles with a border. The background rectangle has none.
    fn cells(svg: &str) -> usize {
        svg.matches("stroke=").count()
    }

    /// Returns the text elements in document order.
    fn texts(svg: &str) -> Vec<&str> {
        svg.split("<text ")
            .skip(1)
            .filter_map(|part| part.split_once('>')?.1.split_once('<').map(|(text, _)| text))
            .collect()
    }

    /// The whole text of drawings: places, sizes and colours. `PGEMM_UPDATE_RECORDS=1` writes it.
    #[test]
    fn drawings_are_those_that_were_recorded() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/drawings.svg");
        let layouts = [
            "(2,3):(3,1)",
            "(3,12):(100,1)",
            "Sw<1,0,2> o 0 o (4,4):(4,1)",
            "8:1",
            "((2,2),2):((1,4),2)",
        ];
        let drawn: String = layouts.map(|layout| drawn(AnyLayout::parse(layout).unwrap())).concat();
        if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
            return std::fs::write(path, drawn).unwrap();
        }
        let recorded = std::fs::read_to_string(path).unwrap();
        let differing = recorded.lines().zip(drawn.lines()).find(|(then, now)| then != now);
        assert!(differing.is_none() && recorded.len() == drawn.len(), "{differing:?}");
    }

    #[test]
    fn a_matrix_has_axes_and_indices() {
        let svg = drawn(Layout::parse("(2,3):(3,1)").unwrap());
        assert_eq!(cells(&svg), 6);
        let expected = ["(2,3):(3,1)", "0", "1", "2", "0", "1", "0", "3", "1", "4", "2", "5"];
        assert_eq!(texts(&svg), expected);
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_layout_of_rank_1_is_one_row() {
        let svg = drawn(Layout::parse("((4,2)):((2,1))").unwrap());
        let texts = texts(&svg);
        assert_eq!(texts[1..9], ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(texts[9], "0");
        assert_eq!(texts[10..], ["0", "2", "4", "6", "1", "3", "5", "7"]);
    }

    #[test]
    fn a_swizzle_is_applied_and_escaped_in_the_title() {
        let svg = drawn(AnyLayout::parse("Sw<1,0,1> o 0 o (2,2):(2,1)").unwrap());
        assert!(svg.contains("Sw&lt;1,0,1&gt; o 0 o (2,2):(2,1)") && !svg.contains("Sw<"));
        assert_eq!(texts(&svg)[5..], ["0", "3", "1", "2"]);
    }

    #[test]
    fn a_title_takes_the_place_of_the_layout() {
        let options = Options { title: Some("a < b".to_owned()), ..Options::default() };
        let svg = draw(&AnyLayout::parse("2:1").unwrap(), &options).unwrap();
        assert_eq!(texts(&svg)[0], "a &lt; b");
        assert!(svg.contains("<title>a &lt; b</title>") && !svg.contains("2:1"));
    }

    #[test]
    fn colors_cycle_over_indices_and_threads() {
        let svg = drawn(Layout::parse("16:1").unwrap());
        assert!(PALETTE.iter().all(|color| svg.matches(color).count() == 2));
        let negative = drawn(Layout::parse("2:-1").unwrap());
        assert!(negative.contains(PALETTE[7]));
        let tv = TvLayout::new(Layout::parse("(2,2):(1,2)").unwrap(), 4).unwrap();
        let svg = drawn(tv);
        assert_eq!((svg.matches(PALETTE[0]).count(), svg.matches(PALETTE[1]).count()), (2, 2));
    }

    #[test]
    fn shared_and_empty_cells_are_marked() {
        // Three threads hold each of elements 0 and 1, and no thread holds elements 2 and 3.
        let tv = TvLayout::new(Layout::parse("(3,2):(0,1)").unwrap(), (2, 2)).unwrap();
        let svg = drawn(tv);
        assert_eq!(cells(&svg), 4);
        assert_eq!(texts(&svg)[5..], ["T0", "V0", "+2", "T0", "V1", "+2"]);
    }

    #[test]
    fn text_stands_in_the_middle_of_its_cell() {
        let options = Options { cell_pixels: 100, ..Options::default() };
        let svg = draw(&AnyLayout::parse("1:0").unwrap(), &options).unwrap();
        let of = |tag: &str, attribute: &str| {
            let line = svg.lines().rfind(|line| line.starts_with(tag)).unwrap();
            let (_, value) = line.split_once(&format!("{attribute}=\"")).unwrap();
            value.split('"').next().unwrap().parse::<u32>().unwrap()
        };
        let middle = of("<rect", " y") + of("<rect", " height") / 2;
        assert_eq!(of("<rect", " height"), 100);
        assert!(of("<text", " y").abs_diff(middle) < LINE_PIXELS);
    }

    /// The numbers of rows stand beside their rows, and the margin has room for the longest.
    #[test]
    fn rows_have_their_numbers_beside_them() {
        let options = Options { cell_pixels: 100, ..Options::default() };
        let lefts: Vec<u32> = [10, 11]
            .map(|rows| {
                let layout = AnyLayout::parse(&format!("({rows},1)")).unwrap();
                let svg = draw(&layout, &options).unwrap();
                let numbers: Vec<[u32; 2]> = svg
                    .lines()
                    .filter(|line| line.contains("text-anchor=\"end\""))
                    .map(|line| {
                        ["x=\"", "y=\""].map(|attribute| {
                            let (_, value) = line.split_once(attribute).unwrap();
                            value.split('"').next().unwrap().parse().unwrap()
                        })
                    })
                    .collect();
                assert_eq!(numbers.len(), rows);
                let evenly = |pair: &[[u32; 2]]| pair[1][1] == pair[0][1] + 100;
                assert!(numbers.windows(2).all(evenly), "{numbers:?}");
                numbers[0][0]
            })
            .into();
        assert!(lefts[0] < lefts[1], "{lefts:?}");
    }

    #[test]
    fn exceeded_limits_are_errors() {
        let options = Options { max_cells: 63, ..Options::default() };
        let layout = AnyLayout::parse("(8,8)").unwrap();
        assert_eq!(
            draw(&layout, &options).unwrap_err().to_string(),
            "drawing (8,8):(1,8): it has 64 cells, the limit is 63; draw one tile of it, or raise \
             the limit"
        );
        let cube = AnyLayout::parse("(2,2,2)").unwrap();
        assert!(matches!(draw(&cube, &options), Err(CuteError::DrawRank { rank: 3, .. })));
        let replicated = TvLayout::new(Layout::parse("(64,1):(0,0)").unwrap(), 4).unwrap();
        assert!(draw(&replicated.into(), &options).is_err());
        let endless =
            Options { max_cells: i64::MAX, cell_pixels: u32::MAX, colors: 0, ..Options::default() };
        let huge = AnyLayout::parse("(3000000000,3000000000):(0,0)");
        assert!(huge.is_ok_and(|huge| draw(&huge, &endless).is_err()));
        assert!(draw(&AnyLayout::parse("4").unwrap(), &endless).is_ok());
    }
}
