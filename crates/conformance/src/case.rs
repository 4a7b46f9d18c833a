//! One kernel with its input, and how its output is compared.

use std::fmt;

use pgemm_ir::{
    Argument, Kernel, KernelBuilder, Launch, Occupancy, Scalar, Special, TensorMapArgument, Type,
    Val, ty,
};

use crate::operands;

/// Threads of a CTA.
const CTA_THREADS: u32 = 128;
/// CTAs of a launch.
const CTAS: u32 = 8;
/// Threads of a launch. Each has operands and results of its own.
const THREADS: usize = (CTA_THREADS * CTAS) as usize;

/// How near a result must be to the expected one. Where both are NaN, they agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closeness {
    /// The same bits.
    Exact,
    /// A relative error of the binary32 result. Zeros of either sign are equal.
    Relative(f64),
    /// An absolute error of the binary32 result.
    Absolute(f64),
}

/// A kernel with its input. Its parameters are the addresses of the input and of the output.
#[derive(Clone, Debug)]
pub struct Case {
    /// The operation and the type of its operands.
    pub name: String,
    /// The kernel, after all passes.
    pub kernel: Kernel,
    /// CTAs of the launch.
    pub grid: [u32; 3],
    /// The bytes of the input.
    pub input: Vec<u8>,
    /// The initial bytes of the output.
    pub output: Vec<u8>,
    /// A tensor map of the input, the parameter `map`. Its address is an offset in the input.
    pub map: Option<TensorMapArgument>,
    /// Type of the results in the output. Each has eight bytes, of which narrower types use the
    /// lower ones.
    pub result: Type,
    /// How near they are to the expected ones.
    pub closeness: Closeness,
}

/// A result that is not what it should be.
#[derive(Clone, Debug)]
pub struct Mismatch {
    name: String,
    thread: usize,
    operands: [u64; 3],
    found: u64,
    expected: u64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { name, thread, operands: [a, b, c], found, expected } = self;
        write!(
            f,
            "{name} of {a:#x}, {b:#x}, {c:#x} in thread {thread} is {found:#x}, not {expected:#x}"
        )
    }
}

impl Case {
    /// A kernel in which every thread computes one result from three operands of a type.
    pub fn new<T: Scalar, R: Scalar>(
        name: &str,
        closeness: Closeness,
        body: impl for<'k> Fn(&'k KernelBuilder, [Val<'k, T>; 3]) -> Val<'k, R>,
    ) -> Case {
        Case::with_addresses::<T, R>(name, closeness, 8, |b, [_, output], operands| {
            b.store_global(output, [body(b, operands)]);
        })
    }

    /// A kernel whose threads get the addresses of their CTA's operands, of which each thread has
    /// 24 bytes, and of their own results of `bytes` bytes, a multiple of eight.
    pub fn with_addresses<T: Scalar, R: Scalar>(
        name: &str,
        closeness: Closeness,
        bytes: u32,
        body: impl for<'k> Fn(&'k KernelBuilder, [Val<'k, ty::U64>; 2], [Val<'k, T>; 3]),
    ) -> Case {
        let b = KernelBuilder::new("conformance", 1);
        let [input, output] = ["input", "output"].map(|name| b.param::<ty::U64>(name));
        b.warp_roles(Occupancy::ONE_CTA, |roles| {
            roles.role("all", 1, 128, |_| {
                let first = b.special(Special::Cta) * CTA_THREADS;
                let index = first + b.special(Special::Thread);
                let operands = [0, 8, 16].map(|at| {
                    let [value] = b.load_global(input.byte_offset(index * 24 + at));
                    value
                });
                let addresses = [input.byte_offset(first * 24), output.byte_offset(index * bytes)];
                body(&b, addresses, operands);
            });
        });
        let kernel = b.finish().expect("a kernel that can be built");
        let kernel = pgemm_ir::optimise(kernel).unwrap_or_else(|error| panic!("{name}: {error}"));
        let words = operands(T::TYPE, THREADS).into_iter().flatten();
        Case {
            name: format!("{name} of {}", T::TYPE),
            kernel,
            grid: [CTAS, 1, 1],
            input: words.flat_map(u64::to_le_bytes).collect(),
            output: vec![0; bytes as usize * THREADS],
            map: None,
            result: R::TYPE,
            closeness,
        }
    }

    /// The launch of the kernel with its buffers at these addresses.
    pub fn launch(&self, input: u64, output: u64) -> Launch {
        let mut arguments = vec![Argument::U64(input), Argument::U64(output)];
        arguments.extend(self.map_at(input).map(Argument::TensorMap));
        Launch { grid: self.grid, arguments }
    }

    /// The tensor map of the input at an address.
    pub fn map_at(&self, input: u64) -> Option<TensorMapArgument> {
        let map = self.map.clone()?;
        Some(TensorMapArgument { address: input + map.address, ..map })
    }

    /// The first result that differs from the expected ones.
    pub fn mismatch(&self, found: &[u8], expected: &[u8]) -> Option<Mismatch> {
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
        };
        let (input, found, expected) = (words(&self.input), words(found), words(expected));
        assert_eq!(found.len(), expected.len(), "the outputs have the same length");
        let wrong = (0..found.len()).find(|&i| !self.agree(found[i], expected[i]))?;
        let thread = wrong / (found.len() / THREADS).max(1);
        Some(Mismatch {
            name: self.name.clone(),
            thread,
            operands: std::array::from_fn(|i| input.get(3 * thread + i).copied().unwrap_or(0)),
            found: found[wrong],
            expected: expected[wrong],
        })
    }

    fn agree(&self, found: u64, expected: u64) -> bool {
        let floats = [found, expected].map(|bits| match self.result {
            Type::F32 => f64::from(f32::from_bits(bits as u32)),
            Type::F64 => f64::from_bits(bits),
            _ => 0.0,
        });
        let [value, reference] = floats;
        if found == expected || value.is_nan() && reference.is_nan() {
            return true;
        }
        match self.closeness {
            Closeness::Exact => false,
            Closeness::Relative(_) | Closeness::Absolute(_) if !value.is_finite() => false,
            Closeness::Relative(error) => (value - reference).abs() <= error * reference.abs(),
            Closeness::Absolute(error) => (value - reference).abs() <= error,
        }
    }
}
