//! The types that kernels sum up in, and of their results before these are rounded to D's: what reductions and epilogues do with
//! a thread's sums.

use pgemm_ir::{AtomicOp, Element, KernelBuilder, Order, Scalar, Scope, Val, ty};

use crate::epilogue::{Sums, WarpgroupStore};
use crate::fusion::Activation;

/// A type of accumulators: binary32, or 32-bit integers, which wrap.
pub trait Sum: Scalar {
    /// Declares a factor, alpha or beta. One of integers is declared as the word of its bits.
    fn factor<'k>(b: &'k KernelBuilder, name: &str) -> Val<'k, Self>;

    /// The factor of these bits.
    fn from_bits(bits: Val<'_, ty::U32>) -> Val<'_, Self>;

    /// Zero.
    fn zero(b: &KernelBuilder) -> Val<'_, Self>;

    /// The neutral element: adding it changes no bit, not even a zero's sign.
    fn neutral(b: &KernelBuilder) -> Val<'_, Self>;

    /// `sum · alpha`, and where there is a C `+ c · beta`; alpha is the first of the factors.
    fn scale<'k>(
        sum: Val<'k, Self>,
        factors: [Val<'k, Self>; 2],
        c: Option<Val<'k, Self>>,
    ) -> Val<'k, Self>;

    /// A sum as [`scale`](Self::scale) has it without C, and with a bias, which only binary32 has.
    fn with_bias<'k>(
        sum: Val<'k, Self>,
        alpha: Val<'k, Self>,
        bias: Val<'k, ty::F32>,
    ) -> Val<'k, Self>;

    /// `result + c · beta`.
    fn add<'k>(result: Val<'k, Self>, c: Val<'k, Self>, beta: Val<'k, Self>) -> Val<'k, Self>;

    /// The activation of a result, for a D of `output`, which only binary32 has.
    fn activate<'k>(
        result: Val<'k, Self>,
        activation: Activation,
        output: Element,
    ) -> Val<'k, Self>;

    /// Adds to four consecutive sums of global memory, each atomically, in no order with others.
    fn reduce_add<'k>(b: &'k KernelBuilder, address: Val<'k, ty::U64>, sums: [Val<'k, Self>; 4]);

    /// Loads one element of C from global memory.
    fn load_element<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        element: Element,
    ) -> Val<'k, Self>;

    /// Stores one element of D to global memory.
    fn store_element<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        element: Element,
        value: Val<'k, Self>,
    );

    /// Writes a staging tile of the spec's output type.
    fn write_staging<'k>(
        store: &WarpgroupStore<'_, 'k, Self>,
        sums: &Sums<'_, 'k, Self>,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    );
}

/// Sums that become results of type `R`, which alpha multiplies: the same ones, or of integers binary32, rounded to nearest even.
pub trait Gives<R: Sum>: Sum {
    /// The result of a sum.
    fn result(sum: Val<'_, Self>) -> Val<'_, R>;
}

impl<S: Sum> Gives<S> for S {
    fn result(sum: Val<'_, S>) -> Val<'_, S> {
        sum
    }
}

impl Gives<ty::F32> for ty::S32 {
    fn result(sum: Val<'_, Self>) -> Val<'_, ty::F32> {
        sum.to_f32()
    }
}

/// The results of a thread's quads.
pub fn results<'k, S: Gives<R>, R: Sum>(quads: Vec<[Val<'k, S>; 4]>) -> Vec<[Val<'k, R>; 4]> {
    quads.into_iter().map(|quad| quad.map(S::result)).collect()
}

impl Sum for ty::F32 {
    fn factor<'k>(b: &'k KernelBuilder, name: &str) -> Val<'k, Self> {
        b.param(name)
    }

    fn from_bits(bits: Val<'_, ty::U32>) -> Val<'_, Self> {
        bits.as_f32()
    }

    fn zero(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(0.0)
    }

    fn neutral(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(-0.0)
    }

    fn scale<'k>(
        sum: Val<'k, Self>,
        [alpha, beta]: [Val<'k, Self>; 2],
        c: Option<Val<'k, Self>>,
    ) -> Val<'k, Self> {
        let scaled = sum * alpha;
        match c {
            None => scaled,
            Some(c) => Self::add(scaled, c, beta),
        }
    }

    fn with_bias<'k>(
        sum: Val<'k, Self>,
        alpha: Val<'k, Self>,
        bias: Val<'k, ty::F32>,
    ) -> Val<'k, Self> {
        sum.mul_add(alpha, bias)
    }

    fn add<'k>(result: Val<'k, Self>, c: Val<'k, Self>, beta: Val<'k, Self>) -> Val<'k, Self> {
        c.mul_add(beta, result)
    }

    fn activate<'k>(
        result: Val<'k, Self>,
        activation: Activation,
        output: Element,
    ) -> Val<'k, Self> {
        activation.in_binary32(result, output)
    }

    fn reduce_add<'k>(b: &'k KernelBuilder, address: Val<'k, ty::U64>, sums: [Val<'k, Self>; 4]) {
        b.reduce_add(address, sums);
    }

    fn load_element<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        element: Element,
    ) -> Val<'k, Self> {
        b.load_element(address, element)
    }

    fn store_element<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        element: Element,
        value: Val<'k, Self>,
    ) {
        b.store_element(address, element, value);
    }

    fn write_staging<'k>(
        store: &WarpgroupStore<'_, 'k, Self>,
        sums: &Sums<'_, 'k, Self>,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        match store.output().bytes() {
            4 => store.write_words(sums, buffer, with_c),
            2 => store.write_16bit(sums, buffer, with_c),
            _ => store.write_bytes(sums, buffer, with_c),
        }
    }
}

impl Sum for ty::S32 {
    fn factor<'k>(b: &'k KernelBuilder, name: &str) -> Val<'k, Self> {
        b.param::<ty::U32>(name).as_s32()
    }

    fn from_bits(bits: Val<'_, ty::U32>) -> Val<'_, Self> {
        bits.as_s32()
    }

    fn zero(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(0)
    }

    fn neutral(b: &KernelBuilder) -> Val<'_, Self> {
        Self::zero(b)
    }

    fn scale<'k>(
        sum: Val<'k, Self>,
        [alpha, beta]: [Val<'k, Self>; 2],
        c: Option<Val<'k, Self>>,
    ) -> Val<'k, Self> {
        let scaled = sum * alpha;
        match c {
            None => scaled,
            Some(c) => Self::add(scaled, c, beta),
        }
    }

    fn with_bias<'k>(_: Val<'k, Self>, _: Val<'k, Self>, _: Val<'k, ty::F32>) -> Val<'k, Self> {
        unreachable!("KernelSpec::validate lets results in integers have no epilogue")
    }

    fn add<'k>(result: Val<'k, Self>, c: Val<'k, Self>, beta: Val<'k, Self>) -> Val<'k, Self> {
        result + c * beta
    }

    fn activate<'k>(_: Val<'k, Self>, _: Activation, _: Element) -> Val<'k, Self> {
        unreachable!("KernelSpec::validate lets results in integers have no epilogue")
    }

    fn reduce_add<'k>(b: &'k KernelBuilder, address: Val<'k, ty::U64>, sums: [Val<'k, Self>; 4]) {
        for (word, sum) in (0..).zip(sums) {
            let address = address.byte_offset(word * 4);
            b.atomic(AtomicOp::Add, address, sum.as_u32(), Order::Relaxed, Scope::Gpu);
        }
    }

    fn load_element<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        _: Element,
    ) -> Val<'k, Self> {
        let [value] = b.load_global(address);
        value
    }

    fn store_element<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        _: Element,
        value: Val<'k, Self>,
    ) {
        b.store_global(address, [value]);
    }

    fn write_staging<'k>(
        store: &WarpgroupStore<'_, 'k, Self>,
        sums: &Sums<'_, 'k, Self>,
        buffer: Val<'k, ty::Smem>,
        with_c: bool,
    ) {
        store.write_words(sums, buffer, with_c);
    }
}
