//! `pgemm kernel emulate FILE`: a launch of a kernel in a file, with arguments of the command line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use persistent_gemm::program::{EmulatedArray, Emulation, Options, Program, Schedule};
use persistent_gemm::{Dtype, Error, HostMatrix, MatrixLayout};
use pgemm_ir::{Argument, Param, ParamKind, TensorMapArgument, Type};

use crate::output;
use crate::{Failure, Verdict};

/// The most bytes of an array.
const MOST_BYTES: usize = 1 << 30;

/// Elements that `--print` shows.
const SHOWN: usize = 64;

/// Arguments of a launch.
#[derive(clap::Args)]
pub struct Args {
    /// The value of a parameter of a kernel in a file: a number, or an array with a type, extents
    /// (outermost first) and a content.
    ///
    /// An array is `TYPE[EXTENT,…]:CONTENT`, such as `x=f32[300]:random` or
    /// `a=bf16[256,64]:@a.bin`. Types are f16, bf16, f32, tf32, f64, e4m3, e5m2, s8, u8 and s32.
    /// Contents are zeros, ones, index (0, 1, 2, …), random or random=SEED (the normal
    /// distribution), unwritten (reads are faults), and @FILE with the bytes of the elements. A
    /// parameter of type u64 gets the array's address, and a tensor map describes the array.
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arguments: Vec<Given>,
    /// CTAs along x, y and z, for a kernel in a file.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = grid)]
    grid: Option<[u32; 3]>,
    /// The order in which a kernel in a file runs: round-robin, or seeded, async-late, async-early,
    /// stores-late or loads-early, each with :SEED behind it if the seed is not 0.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Print the first elements of the array that a parameter was given, after the launch.
    #[arg(long, value_name = "NAME")]
    print: Vec<String>,
    /// Write the bytes of the array that a parameter was given to a file, after the launch.
    #[arg(long, value_name = "NAME=FILE", value_parser = saved)]
    save: Vec<(String, PathBuf)>,
}

impl Args {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
            && self.grid.is_none()
            && self.schedule.is_none()
            && self.print.is_empty()
            && self.save.is_empty()
    }
}

/// The value of a parameter.
#[derive(Clone, Debug)]
struct Given {
    name: String,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    /// A number, read when the parameter's type is known.
    Number(String),
    Array(Array),
}

/// An array in the memory of the emulated device.
#[derive(Clone, Debug)]
struct Array {
    dtype: Dtype,
    /// Outermost first.
    extents: Vec<usize>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Zeros,
    Ones,
    Index,
    Random(u64),
    Unwritten,
    File(PathBuf),
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as n=300")?;
        let value = match value.split_once('[') {
            None => Value::Number(value.to_owned()),
            Some((dtype, rest)) => Value::Array(array(dtype, rest)?),
        };
        Ok(Given { name: name.to_owned(), value })
    }
}

/// Reads an array, of which the type and the bracket are taken.
fn array(dtype: &str, rest: &str) -> Result<Array, String> {
    let dtype = dtype.parse::<Dtype>().map_err(|error| error.to_string())?;
    let (extents, content) = rest.split_once("]:").ok_or_else(|| {
        format!("after the extents come ']:' and the content, as in {dtype}[300]:zeros")
    })?;
    let number = |extent: &str| extent.trim().parse().ok().filter(|extent| *extent > 0);
    let extents: Option<Vec<usize>> = extents.split(',').map(number).collect();
    let extents = extents
        .ok_or_else(|| format!("extents are numbers from 1 on, as in {dtype}[256,64]:zeros"))?;
    let content = match content.split_once('=').unwrap_or((content, "")) {
        ("zeros", "") => Content::Zeros,
        ("ones", "") => Content::Ones,
        ("index", "") => Content::Index,
        ("unwritten", "") => Content::Unwritten,
        ("random", "") => Content::Random(0),
        ("random", seed) => Content::Random(
            seed.parse()
                .map_err(|_| format!("'{seed}' is no seed: write a number, as in random=7"))?,
        ),
        _ => match content.strip_prefix('@') {
            Some(path) => Content::File(path.into()),
            None => {
                return Err(format!(
                    "'{content}' is no content: use zeros, ones, index, random, random=SEED, \
                     unwritten or @FILE"
                ));
            }
        },
    };
    let array = Array { dtype, extents, content };
    match array.bytes() {
        Some(_) => Ok(array),
        None => Err(format!("an array may have {MOST_BYTES} bytes: give smaller extents")),
    }
}

impl Array {
    fn len(&self) -> Option<usize> {
        self.extents.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent))
    }

    /// Its bytes, `None` if there are too many.
    fn bytes(&self) -> Option<usize> {
        let bytes = self.len()?.checked_mul(self.dtype.bytes() as usize)?;
        (bytes <= MOST_BYTES).then_some(bytes)
    }

    /// Puts it into the memory of an emulation.
    fn place(&self, name: &str, emulation: &mut Emulation) -> Result<EmulatedArray<u8>, Failure> {
        let (len, bytes) = (self.len().unwrap_or(0), self.bytes().unwrap_or(0));
        let layout = MatrixLayout::row_major(1, len);
        let of = |values: Vec<f64>| HostMatrix::from_f64(layout, self.dtype, &values);
        let matrix = match &self.content {
            Content::Unwritten => return Ok(emulation.unwritten(name, bytes)),
            Content::Zeros => HostMatrix::zeros(layout, self.dtype)?,
            Content::Ones => of(vec![1.0; len])?,
            Content::Index => of((0..len).map(|index| index as f64).collect())?,
            Content::Random(seed) => {
                let mut matrix = HostMatrix::zeros(layout, self.dtype)?;
                matrix.fill_random(*seed);
                matrix
            }
            Content::File(path) => {
                let content = read(path, bytes, self)?;
                HostMatrix::from_bytes(layout, self.dtype, &content)?
            }
        };
        Ok(emulation.array(name, matrix.bytes()))
    }
}

fn read(path: &Path, bytes: usize, array: &Array) -> Result<Vec<u8>, Failure> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let there = fs::metadata(path).map_err(io)?.len();
    if there != bytes as u64 {
        let (path, extents) = (path.display(), &array.extents);
        return Err(format!(
            "{path} has {there} bytes, and {}{extents:?} has {bytes}: give other extents, or another \
             file",
            array.dtype
        )
        .into());
    }
    Ok(fs::read(path).map_err(io)?)
}

fn grid(text: &str) -> Result<[u32; 3], String> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[x]) => Ok([x, 1, 1]),
        Some(&[x, y]) => Ok([x, y, 1]),
        Some(&[x, y, z]) => Ok([x, y, z]),
        _ => Err("write the CTAs along x, y and z, such as 3 or 3,2,1".to_owned()),
    }
}

fn saved(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("write NAME=FILE, such as y=y.bin")?;
    Ok((name.to_owned(), path.into()))
}

/// Runs a kernel in a file.
pub fn emulate(path: &Path, args: &Args) -> Result<Verdict, Failure> {
    let program = Program::load_file(path)?;
    let mut options = Options::default();
    if let Some(schedule) = &args.schedule {
        options.schedule = schedule.clone();
    }
    let mut emulation = Emulation::with_options(options);
    let (mut arguments, mut arrays) = (program.arguments(), BTreeMap::new());
    for Given { name, value } in &args.arguments {
        let known = program.parameters().iter().find(|parameter| parameter.name == *name);
        let argument = match value {
            Value::Number(text) => number(name, text, known.map(|parameter| &parameter.kind))?,
            Value::Array(array) => {
                let placed = array.place(name, &mut emulation)?;
                arrays.insert(name.as_str(), (array, placed));
                of_array(name, array, placed.address(), known.map(|parameter| &parameter.kind))?
            }
        };
        arguments.set(name, argument)?;
    }
    for name in args.print.iter().chain(args.save.iter().map(|(name, _)| name)) {
        if !arrays.contains_key(name.as_str()) {
            return Err(format!(
                "no array was given as '{name}', which is to be printed or saved: add \
                 --arg {name}=f32[300]:unwritten, say"
            )
            .into());
        }
    }
    let given =
        |parameter: &&Param| args.arguments.iter().all(|given| given.name != parameter.name);
    let missing: Vec<&Param> = program.parameters().iter().filter(given).collect();
    if !missing.is_empty() {
        return Err(missing_arguments(&program, path, args, &missing).into());
    }
    let grid = args.grid.unwrap_or([1, 1, 1]);
    let statistics = output::while_showing(format!("emulating {}", program.name()), || {
        emulation.run(&program, grid, &arguments)
    })?;
    let [x, y, z] = grid;
    output::properties(&[
        ("kernel", program.signature()),
        ("grid", format!("{x}x{y}x{z} CTAs of {} threads", program.kernel().threads())),
        ("schedule", "no race, no deadlock, no misuse found".to_owned()),
        ("operations", statistics.steps.to_string()),
    ])?;
    for (name, path) in &args.save {
        if let Some((_, placed)) = arrays.get(name.as_str()) {
            pgemm_files::write_atomically(path, &emulation.read(placed)?)?;
        }
    }
    for name in &args.print {
        if let Some((array, placed)) = arrays.get(name.as_str()) {
            print(name, array, &emulation.read(placed)?)?;
        }
    }
    Ok(Verdict::Fine)
}

/// A number as an argument of the parameter's type.
fn number(name: &str, text: &str, kind: Option<&ParamKind>) -> Result<Argument, Failure> {
    let wrong = |what: &str| format!("{name}={text}: '{text}' is not {what}");
    let integer = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    Ok(match kind {
        Some(ParamKind::Scalar(Type::U64)) => integer(text)
            .map(Argument::U64)
            .ok_or_else(|| wrong("a number of 64 bits, nor an array such as f32[300]:zeros"))?,
        Some(ParamKind::Scalar(Type::F32)) => {
            Argument::F32(text.parse().map_err(|_| wrong("an f32, such as 2.0"))?)
        }
        Some(ParamKind::Scalar(Type::F64)) => {
            Argument::F64(text.parse().map_err(|_| wrong("an f64, such as 2.0"))?)
        }
        Some(ParamKind::Scalar(_)) => integer(text)
            .and_then(|number| u32::try_from(number).ok())
            .map(Argument::U32)
            .ok_or_else(|| wrong("a number of 32 bits"))?,
        Some(ParamKind::TensorMap(spec)) => {
            let rank = vec!["64"; spec.rank()].join(",");
            let example = format!("an array such as {}[{rank}]:random", spec.element);
            return Err(wrong(&example).into());
        }
        // The arguments refuse a parameter that there is not.
        None => Argument::U32(0),
    })
}

/// An array as an argument: its address, or a tensor map of it.
fn of_array(
    name: &str,
    array: &Array,
    address: u64,
    kind: Option<&ParamKind>,
) -> Result<Argument, Failure> {
    let Some(ParamKind::TensorMap(spec)) = kind else { return Ok(Argument::U64(address)) };
    if array.dtype != spec.element {
        let (found, needed) = (array.dtype, spec.element);
        return Err(
            format!("{name} has elements of {found}, and its tensor map of {needed}").into()
        );
    }
    let extents: Vec<u64> = array.extents.iter().rev().map(|extent| *extent as u64).collect();
    Ok(TensorMapArgument::packed(address, spec.element, &extents).into())
}

/// What is missing, and a command that has it.
fn missing_arguments(program: &Program, path: &Path, args: &Args, missing: &[&Param]) -> String {
    let names: Vec<&str> = missing.iter().map(|parameter| parameter.name.as_str()).collect();
    let given = args.arguments.len();
    let examples: Vec<String> = missing
        .iter()
        .map(|Param { name, kind }| match kind {
            ParamKind::Scalar(Type::U64) => format!("--arg {name}=f32[1024]:random"),
            ParamKind::Scalar(Type::F32 | Type::F64) => format!("--arg {name}=1.0"),
            ParamKind::Scalar(_) => format!("--arg {name}=1024"),
            ParamKind::TensorMap(spec) => {
                // An image is larger than a box of channels and pixels has extents.
                let extents: Vec<String> = match &spec.im2col {
                    None => spec.box_extents.iter().rev().map(u32::to_string).collect(),
                    Some(_) => vec!["64".to_owned(); spec.rank()],
                };
                format!("--arg {name}={}[{}]:random", spec.element, extents.join(","))
            }
        })
        .collect();
    let more = if given == 0 { "" } else { " … " };
    format!(
        "no argument for {}: the kernel is {}. Add, with your own sizes:\n  pgemm kernel emulate \
         {}{more} {}",
        names.join(", "),
        program.signature(),
        path.display(),
        examples.join(" ")
    )
}

/// Prints the first elements of an array.
fn print(name: &str, array: &Array, bytes: &[u8]) -> Result<(), Failure> {
    let shown = bytes.len().min(SHOWN * array.dtype.bytes() as usize);
    let len = shown / array.dtype.bytes() as usize;
    let layout = MatrixLayout::row_major(1, len);
    let matrix = HostMatrix::from_bytes(layout, array.dtype, &bytes[..shown])?;
    let extents: Vec<String> = array.extents.iter().map(usize::to_string).collect();
    let mut text = format!("{name}: {}[{}]\n", array.dtype, extents.join(","));
    for values in matrix.to_f64_vec().chunks(8) {
        let words: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        text += &format!("  {}\n", words.join(" "));
    }
    let all = array.len().unwrap_or(len);
    if all > len {
        text += &format!("  … {} more: --save {name}=FILE writes all\n", all - len);
    }
    output::text(&text)
}
