//! [`read`]: the problems and kernels of a file, for a survey of just these.

use std::fs;
use std::path::Path;

use persistent_gemm::measure::Elements;
use persistent_gemm::{Choice, Error, Major, Problem};
use pgemm_bench::{named_problem, problem_name};

use crate::failure::Failure;
use crate::parse::KernelChoice;
use crate::usage::UsageError;

/// Problems with the kernels to time for each.
pub type Listed = Vec<(Problem, Vec<Choice>)>;

/// Reads a file with a problem and its kernels in each line, all with these types:
/// `bf16 kk 512x512x512 SPEC:SPLIT:RASTER:LAUNCH SPEC:SPLIT:RASTER:LAUNCH`. Empty lines and those
/// that begin with # count for nothing.
pub fn read(path: &Path, elements: Elements) -> Result<Listed, Failure> {
    let text =
        fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let mut listed = Listed::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let failed = |finding| UsageError::KernelList { path: path.to_owned(), line, finding };
        listed.push(parse(text, elements).map_err(failed)?);
    }
    if listed.is_empty() {
        return Err(UsageError::NoKernels { path: path.to_owned() }.into());
    }
    Ok(listed)
}

/// The problem and the kernels of a line, or what is wrong with it.
fn parse(line: &str, elements: Elements) -> Result<(Problem, Vec<Choice>), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let of_problem = words.iter().take_while(|word| !word.contains(':')).count();
    let (name, kernels) = words.split_at(of_problem);
    let name = name.join(" ");
    let problem = named_problem(&name, elements).ok_or_else(|| {
        let example = problem_name(&Problem::new(512, 512, 512, Major::K, Major::K), elements);
        format!(
            "'{name}' is no problem such as '{example}'. All problems of the file have the types \
             of --dtype, --b-dtype, --output-dtype and --precision"
        )
    })?;
    if kernels.is_empty() {
        return Err("no kernel follows the problem: write SPEC:SPLIT:RASTER:LAUNCH".to_owned());
    }
    let choices = kernels.iter().map(|kernel| choice(kernel)).collect::<Result<_, String>>()?;
    Ok((problem, choices))
}

fn choice(text: &str) -> Result<Choice, String> {
    let KernelChoice { spec, split, raster_rows, dependent_launch } = text.parse()?;
    let (Some(split), Some(raster_rows), Some(dependent_launch)) =
        (split, raster_rows, dependent_launch)
    else {
        return Err(format!("'{text}' lacks a part: write SPEC:SPLIT:RASTER:LAUNCH"));
    };
    Ok(Choice { spec, raster_rows, split, dependent_launch })
}

#[cfg(test)]
mod tests {
    use persistent_gemm::{Dtype, Split};

    use super::*;

    const KERNEL: &str = "bf16-kk-bf16-128x128x64-s6-p2-c1x2";

    fn read_text(text: &str) -> Result<Listed, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernels");
        fs::write(&path, text).unwrap();
        read(&path, Elements::new(Dtype::Bf16, Dtype::Bf16))
    }

    #[test]
    fn a_line_has_a_problem_and_its_kernels() {
        let text = format!(
            "# two problems\n\nbf16 kk 512x3072x4096 {KERNEL}:whole:4:serial \
             {KERNEL}:stream-k:1:dependent\n  bf16 mn 8x16x24*3 {KERNEL}:split-2:9:dependent\r\n"
        );
        let listed = read_text(&text).unwrap();
        let problems = [
            Problem::new(512, 3072, 4096, Major::K, Major::K),
            Problem::new(8, 16, 24, Major::M, Major::N).with_batch(3),
        ];
        assert_eq!([listed[0].0, listed[1].0], problems);
        let spec = KERNEL.parse().unwrap();
        let choice = |split, raster_rows, dependent_launch| Choice {
            spec,
            raster_rows,
            split,
            dependent_launch,
        };
        let two = vec![choice(Split::Whole, 4, false), choice(Split::StreamK, 1, true)];
        assert_eq!(listed[0].1, two);
        assert_eq!(listed[1].1, [choice(Split::SplitK(2), 9, true)]);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let kernel = format!("{KERNEL}:whole:4:serial");
        for (text, words) in [
            (format!("\nf16 kk 8x8x8 {kernel}"), &["line 2", "'f16 kk 8x8x8'", "--dtype"][..]),
            (kernel.clone(), &["line 1", "''", "such as 'bf16 kk 512x512x512'"]),
            ("bf16 kk 8x8x8".to_owned(), &["line 1", "no kernel follows"]),
            (format!("bf16 kk 8x8x8 {KERNEL}:whole"), &["lacks a part", "SPEC:SPLIT:RASTER"]),
            (format!("bf16 kk 8x8x8 {kernel}ly"), &["'seriall", "dependent or serial"]),
            (format!("bf16 kk 8x8x8 x{kernel}"), &["line 1", "xbf16"]),
            (String::new(), &["names no problem"]),
        ] {
            let error = read_text(&text).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
    }
}
