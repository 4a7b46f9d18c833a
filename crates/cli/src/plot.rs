//! `pgemm plot`: results as a drawing.

mod chart;
mod streams;
mod throughput;

use std::path::{Path, PathBuf};

use pgemm_bench::{Collection, Run};
use resvg::{tiny_skia, usvg};

use crate::report::Inputs;
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// The font of texts in PNG files: every machine has the same, or none.
const FONT: &[u8] = include_bytes!("plot/font/NotoSans.ttf");

/// Pixels of a PNG for each pixel of the drawing.
const SCALE: f32 = 2.0;

/// Arguments of `pgemm plot`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pgemm bench --suite square --dtype f16 --against cublaslt --json f16.json
  pgemm bench --suite square --dtype tf32 --against cublaslt --json tf32.json
  pgemm plot f16.json tf32.json -o throughput.svg
  pgemm bench --stream --against cublaslt --json stream.json
  pgemm plot stream.json -o stream.png")]
pub struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// The drawing, .svg or .png.
    #[arg(short, long = "out", alias = "svg", value_name = "FILE", value_parser = drawing)]
    out: PathBuf,
}

/// A path whose ending names a format.
fn drawing(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match Format::of(&path) {
        Some(_) => Ok(path),
        None => Err("drawings are .svg or .png files".to_owned()),
    }
}

/// The format of a drawing.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "svg" => Some(Format::Svg),
            "png" => Some(Format::Png),
            _ => None,
        }
    }
}

pub fn run(args: &Args) -> Result<Verdict, Failure> {
    persistent_gemm::files::check_path(&args.out)?;
    let Collection { runs, problems, streams, .. } = args.inputs.read()?;
    let source = source(&runs);
    let drawing = throughput::draw(&problems, &source).or_else(|| streams::draw(&streams, &source));
    let drawing = drawing.ok_or(UsageError::NothingToDraw)?;
    let bytes = match Format::of(&args.out) {
        Some(Format::Png) => png(&drawing)?,
        _ => drawing.into_bytes(),
    };
    persistent_gemm::files::write(&args.out, &bytes)?;
    Ok(Verdict::Fine)
}

/// The devices and the days of runs, as a title has them.
fn source(runs: &[Run]) -> String {
    let mut devices: Vec<&str> = runs.iter().filter_map(|run| run.device.as_deref()).collect();
    devices.sort_unstable();
    devices.dedup();
    let days = runs.iter().filter_map(|run| run.date.get(..10));
    let (first, last) = (days.clone().min(), days.max());
    let days = first.zip(last).map(|(first, last)| match first == last {
        true => first.to_owned(),
        false => format!("{first} to {last}"),
    });
    let parts = devices.into_iter().map(str::to_owned).chain(days);
    parts.collect::<Vec<_>>().join(", ")
}

/// A drawing as PNG.
fn png(svg: &str) -> Result<Vec<u8>, Failure> {
    let mut options = usvg::Options::default();
    options.fontdb_mut().load_font_data(FONT.to_vec());
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("the drawing has no size")?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height()).ok_or("no such size")?;
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn plot(fixture: &str, out: &Path) -> Result<Verdict, Failure> {
        let fixture = format!("{}/tests/fixtures/{fixture}", env!("CARGO_MANIFEST_DIR"));
        let line = Line::try_parse_from(["plot".as_ref(), fixture.as_ref(), "-o".as_ref(), out]);
        run(&line.unwrap().args)
    }

    #[test]
    fn files_go_in_and_a_drawing_comes_out() {
        let folder = tempfile::tempdir().unwrap();
        let svg = folder.path().join("stream.svg");
        for (fixture, title) in [("stream.json", "per job"), ("pairs.json", "Throughput")] {
            assert!(plot(fixture, &svg).is_ok());
            let drawing = std::fs::read_to_string(&svg).unwrap();
            assert!(drawing.contains("<polyline") && drawing.contains(title), "{drawing}");
        }
        let numbers = Line::try_parse_from(["plot", "x.json", "-o", "x.pdf"]);
        assert!(numbers.err().unwrap().to_string().contains(".svg or .png"));
    }

    #[test]
    fn titles_name_devices_and_days() {
        let run = |device: &str, date: &str| Run {
            device: Some(device.into()),
            date: date.into(),
            ..Run::default()
        };
        let day = run("X", "2027-01-15T08:00:00Z");
        assert_eq!(source(&[day.clone(), day.clone()]), "X, 2027-01-15");
        assert_eq!(source(&[day, run("A", "2027-01-17")]), "A, X, 2027-01-15 to 2027-01-17");
        assert_eq!(source(&[]), "");
    }

    /// Without a font there would be no texts, which leave dark pixels beside the axes.
    #[test]
    fn pictures_have_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.png");
        assert!(plot("pairs.json", &path).is_ok());
        let picture = tiny_skia::Pixmap::load_png(&path).unwrap();
        assert_eq!((picture.width(), picture.height()), (1960, 1240));
        let labels = |x: std::ops::Range<u32>| {
            let places = x.flat_map(|x| (0..1240).map(move |y| (x, y)));
            let dark = |pixel: tiny_skia::PremultipliedColorU8| pixel.red() < 100;
            places.filter(|&(x, y)| picture.pixel(x, y).is_some_and(dark)).count()
        };
        // Labels of the vertical axis, and the legend.
        assert!(labels(0..140) > 100 && labels(1460..1960) > 300);
    }
}
