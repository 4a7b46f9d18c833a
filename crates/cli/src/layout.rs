//! `pgemm layout`: the layout algebra from the command line.

use std::path::PathBuf;

use pgemm_cute::{AnyLayout, Layout, Tiler, svg};
use serde_json::json;

use crate::output;
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Arguments of `pgemm layout`.
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
    /// Print JSON for programs.
    #[arg(long)]
    json: bool,
}

/// The operation on the layout; at most one.
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
    #[arg(long, value_name = "COSIZE", allow_negative_numbers = true)]
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
    let given = AnyLayout::parse(&args.layout)?;
    let (operation, result) = match args.operation.apply(&given)? {
        Some((operation, result)) => (Some(operation), AnyLayout::Layout(result)),
        None => (None, given.clone()),
    };
    if let Some(path) = &args.svg {
        let drawing = svg::draw(&result, &svg::Options::default())?;
        pgemm_files::write_atomically(path, drawing.as_bytes())?;
    }
    let figures = match &result {
        AnyLayout::Layout(layout) => Some((layout.rank(), layout.size(), layout.cosize())),
        _ => None,
    };
    if args.json {
        output::json(&json!({
            "layout": given.to_string(),
            "operation": operation,
            "result": result.to_string(),
            "rank": figures.map(|(rank, _, _)| rank),
            "size": figures.map(|(_, size, _)| size),
            "cosize": figures.map(|(_, _, cosize)| cosize),
            "svg": args.svg,
        }))?;
        return Ok(Verdict::Fine);
    }
    let mut rows = vec![];
    if let Some(operation) = operation {
        rows.push(("layout", given.to_string()));
        rows.push(("operation", operation));
    }
    if let Some((rank, size, cosize)) = figures {
        rows.push(("result", format!("rank {rank}, size {size}, cosize {cosize}")));
    }
    if let Some(path) = &args.svg {
        rows.push(("drawn to", path.display().to_string()));
    }
    output::properties(&rows)?;
    output::text(&format!("{result}\n"))?;
    Ok(Verdict::Fine)
}

/// The left inverse of a layout. The algebra's left inverse of a layout that maps two coordinates
/// to one index finds only one of them again, and is refused here.
fn left_inverse(layout: &Layout) -> Result<Layout, Failure> {
    let inverse = layout.left_inverse()?;
    let modes = layout.shape().leaves().into_iter().zip(layout.stride().leaves());
    let mut modes: Vec<(i64, i64)> = modes.filter(|(extent, _)| *extent > 1).collect();
    modes.sort_by_key(|(_, stride)| *stride);
    // Each stride divides the next, so modes meet if one begins within the one before.
    let mut reached = 1;
    for (extent, stride) in modes {
        if stride < reached {
            return Err(UsageError::NoLeftInverse { layout: Box::new(layout.clone()) }.into());
        }
        reached = stride.saturating_mul(extent);
    }
    Ok(inverse)
}

impl Operation {
    /// The operation in words and its result, or `None` if none is asked for.
    fn apply(&self, given: &AnyLayout) -> Result<Option<(String, Layout)>, Failure> {
        let plain = || match given {
            AnyLayout::Layout(layout) => Ok(layout),
            swizzled => Err(UsageError::Swizzled { layout: Box::new(swizzled.clone()) }),
        };
        let tiler = |text: &str| -> Result<Tiler, Failure> { Ok(Tiler::parse(text)?) };
        let (operation, result) = if self.coalesce {
            ("coalesce".to_owned(), plain()?.coalesce())
        } else if let Some(other) = &self.compose {
            (format!("compose {other}"), plain()?.compose(tiler(other)?)?)
        } else if let Some(cosize) = self.complement {
            (format!("complement {cosize}"), plain()?.complement(cosize)?)
        } else if let Some(other) = &self.divide {
            (format!("divide {other}"), plain()?.logical_divide(tiler(other)?)?)
        } else if let Some(other) = &self.product {
            (format!("product {other}"), plain()?.logical_product(tiler(other)?)?)
        } else if self.right_inverse {
            ("right-inverse".to_owned(), plain()?.right_inverse())
        } else if self.left_inverse {
            ("left-inverse".to_owned(), left_inverse(plain()?)?)
        } else {
            return Ok(None);
        };
        Ok(Some((operation, result)))
    }
}
