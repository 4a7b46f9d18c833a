//! `pgemm layout`: the layout algebra from the command line.

use std::path::PathBuf;

use pgemm_cute::{AnyLayout, Layout, Tiler, svg};

use crate::output;
use crate::{Failure, Verdict};

/// Compute with CuTe layouts and draw them. The last line printed is the resulting layout in CuTe's notation.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm layout '((2,4),8):((1,2),16)' --coalesce
  pgemm layout '(8,8):(8,1)' --compose '(4,2):(2,1)'
  pgemm layout '4:2' --complement 24
  pgemm layout '(9,(4,8)):(59,(13,1))' --divide '(3:3,(2,4):(1,8))'
  pgemm layout 'Sw<3,4,3> o 0 o (8,64):(64,1)' --svg swizzled.svg")]
pub struct Args {
    /// A layout: shape:stride, or a shape alone for column-major strides.
    layout: String,
    #[command(flatten)]
    operation: Operation,
    /// Draw the result into this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What to do with the layout; at most one.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Operation {
    /// Merge modes without changing the function.
    #[arg(long)]
    coalesce: bool,
    /// Compose with a layout or a tuple of layouts: R(c) = LAYOUT(OTHER(c)).
    #[arg(long, value_name = "OTHER")]
    compose: Option<String>,
    /// The complement up to a cosize.
    #[arg(long, value_name = "COSIZE")]
    complement: Option<i64>,
    /// Logical divide by a layout or a tuple of layouts.
    #[arg(long, value_name = "TILER")]
    divide: Option<String>,
    /// Logical product with a layout or a tuple of layouts.
    #[arg(long, value_name = "TILER")]
    product: Option<String>,
    /// The right inverse: LAYOUT(R(i)) = i.
    #[arg(long)]
    right_inverse: bool,
    /// The left inverse: R(LAYOUT(i)) = i.
    #[arg(long)]
    left_inverse: bool,
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let given: AnyLayout = AnyLayout::parse(&args.layout)?;
    let result = apply(&given, &args.operation)?;
    if let AnyLayout::Layout(layout) = &result {
        output::properties(&[
            ("layout", given.to_string()),
            ("rank", layout.rank().to_string()),
            ("size", layout.size().to_string()),
            ("cosize", layout.cosize().to_string()),
        ])?;
    }
    if let Some(path) = &args.svg {
        let drawing = svg::draw(&result, &svg::Options::default())?;
        crate::io::write_atomically(path, drawing.as_bytes())?;
        output::text(&format!("drawn to {}\n", path.display()))?;
    }
    output::text(&format!("{result}\n"))?;
    Ok(Verdict::Fine)
}

fn apply(given: &AnyLayout, operation: &Operation) -> Result<AnyLayout, Failure> {
    let nothing_asked = !operation.coalesce
        && operation.compose.is_none()
        && operation.complement.is_none()
        && operation.divide.is_none()
        && operation.product.is_none()
        && !operation.right_inverse
        && !operation.left_inverse;
    let layout = match given {
        _ if nothing_asked => return Ok(given.clone()),
        AnyLayout::Layout(layout) => layout,
        other => {
            return Err(format!(
                "'{other}' is swizzled: operations take plain layouts, shape:stride; leave the swizzle out, or only print or draw it"
            )
            .into());
        }
    };
    let tiler = |text: &str| -> Result<Tiler, Failure> { Ok(Tiler::parse(text)?) };
    let result: Layout = if operation.coalesce {
        layout.coalesce()
    } else if let Some(other) = &operation.compose {
        layout.compose(tiler(other)?)?
    } else if let Some(cosize) = operation.complement {
        layout.complement(cosize)?
    } else if let Some(other) = &operation.divide {
        layout.logical_divide(tiler(other)?)?
    } else if let Some(other) = &operation.product {
        layout.logical_product(tiler(other)?)?
    } else if operation.right_inverse {
        layout.right_inverse()
    } else {
        layout.left_inverse()?
    };
    Ok(AnyLayout::Layout(result))
}
