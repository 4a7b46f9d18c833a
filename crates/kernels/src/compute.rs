//! The types in which kernels sum and compute results, as marker types of run-time values.

use std::marker::PhantomData;

use pgemm_ir::{AtomicOp, Element, KernelBuilder, Order, Scalar, Scope, Val, ty};

use crate::epilogue::{Activation, Arithmetic};
use crate::params::Params;
use crate::quantity::Quantity;

/// A type of sums. It is binary32, binary64, or 32-bit integers, which wrap.
pub(crate) trait Sum: Scalar + 'static {
    /// Zero.
    fn zero(b: &KernelBuilder) -> Val<'_, Self>;

    /// The neutral element of addition. Adding it changes no bit, not even the sign of a zero.
    fn neutral(b: &KernelBuilder) -> Val<'_, Self>;

    /// `a + b`.
    fn add<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self>;
}

/// A type of sums that several CTAs can add to memory at once.
pub(crate) trait AtomicSum: Sum {
    /// Adds to four consecutive sums in global memory. Each addition is atomic, and the order of
    /// additions is not defined.
    fn reduce_add<'k>(b: &'k KernelBuilder, address: Val<'k, ty::U64>, sums: [Val<'k, Self>; 4]);
}

/// A type in which results are computed.
pub(crate) trait Compute: Sum {
    /// Declares alpha, beta, or a parameter of an activation. Integers are declared as the word of
    /// their bits.
    fn factor<'k>(params: &Params<'k, Quantity>, quantity: Quantity) -> Val<'k, Self>;

    /// The factor with these 32 bits. Only kernels of 32-bit results read factors from words.
    fn from_word(word: Val<'_, ty::U32>) -> Val<'_, Self>;

    /// `a · b`.
    fn multiply<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self>;

    /// `a · b + c`. Floats are rounded once.
    fn multiply_add<'k>(a: Val<'k, Self>, b: Val<'k, Self>, c: Val<'k, Self>) -> Val<'k, Self>;

    /// Applies an activation with these parameters to a result that becomes a D of type `output`.
    /// An integer stays the same, since `Spec::validate` allows integers no activation.
    fn activate<'k>(
        value: Val<'k, Self>,
        activation: Activation,
        parameters: &[Val<'k, Self>],
        output: Element,
    ) -> Val<'k, Self>;

    /// Loads one element of C, or of a vector, from global memory.
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

    /// Stores two neighbouring elements of D to global memory, at a multiple of their size.
    fn store_pair<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        _: Element,
        values: [Val<'k, Self>; 2],
    ) {
        b.store_global(address, values);
    }
}

/// The arithmetic of a kernel whose results are computed in type `R`.
pub(crate) struct InRegisters<'k, R> {
    /// The type of D. Activations are as accurate as it needs.
    output: Element,
    values: PhantomData<Val<'k, R>>,
}

impl<R> InRegisters<'_, R> {
    /// The arithmetic for a D of this type.
    pub(crate) fn new(output: Element) -> Self {
        InRegisters { output, values: PhantomData }
    }
}

impl<'k, R: Compute> Arithmetic for InRegisters<'k, R> {
    type Value = Val<'k, R>;

    fn multiply(&self, a: Val<'k, R>, b: Val<'k, R>) -> Val<'k, R> {
        R::multiply(a, b)
    }

    fn multiply_add(&self, a: Val<'k, R>, b: Val<'k, R>, c: Val<'k, R>) -> Val<'k, R> {
        R::multiply_add(a, b, c)
    }

    fn activate(
        &self,
        activation: Activation,
        x: Val<'k, R>,
        parameters: &[Val<'k, R>],
    ) -> Val<'k, R> {
        R::activate(x, activation, parameters, self.output)
    }
}

/// A type of sums that can become results of type `R`. The result is the same value, or for
/// integers the binary32 nearest to it, rounded to nearest even.
pub(crate) trait ConvertsTo<R: Compute>: Sum {
    /// The result of a sum.
    fn result(sum: Val<'_, Self>) -> Val<'_, R>;
}

impl<S: Compute> ConvertsTo<S> for S {
    fn result(sum: Val<'_, S>) -> Val<'_, S> {
        sum
    }
}

impl ConvertsTo<ty::F32> for ty::S32 {
    fn result(sum: Val<'_, Self>) -> Val<'_, ty::F32> {
        sum.to_f32()
    }
}

impl Sum for ty::F32 {
    fn zero(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(0.0)
    }

    fn neutral(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(-0.0)
    }

    fn add<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self> {
        a + b
    }
}

impl AtomicSum for ty::F32 {
    fn reduce_add<'k>(b: &'k KernelBuilder, address: Val<'k, ty::U64>, sums: [Val<'k, Self>; 4]) {
        b.reduce_add(address, sums);
    }
}

impl Compute for ty::F32 {
    fn factor<'k>(params: &Params<'k, Quantity>, quantity: Quantity) -> Val<'k, Self> {
        params.scalar(quantity)
    }

    fn from_word(word: Val<'_, ty::U32>) -> Val<'_, Self> {
        word.as_f32()
    }

    fn multiply<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self> {
        a * b
    }

    fn multiply_add<'k>(a: Val<'k, Self>, b: Val<'k, Self>, c: Val<'k, Self>) -> Val<'k, Self> {
        a.mul_add(b, c)
    }

    fn activate<'k>(
        value: Val<'k, Self>,
        activation: Activation,
        parameters: &[Val<'k, Self>],
        output: Element,
    ) -> Val<'k, Self> {
        activation.in_binary32(value, parameters, output)
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

    fn store_pair<'k>(
        b: &'k KernelBuilder,
        address: Val<'k, ty::U64>,
        element: Element,
        [low, high]: [Val<'k, Self>; 2],
    ) {
        match element {
            Element::F32 => b.store_global(address, [low, high]),
            _ => b.store_global(address, [low.pack(high, element).bits()]),
        }
    }
}

impl Sum for ty::F64 {
    fn zero(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(0.0)
    }

    fn neutral(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(-0.0)
    }

    fn add<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self> {
        a + b
    }
}

impl Compute for ty::F64 {
    fn factor<'k>(params: &Params<'k, Quantity>, quantity: Quantity) -> Val<'k, Self> {
        params.scalar(quantity)
    }

    fn from_word(word: Val<'_, ty::U32>) -> Val<'_, Self> {
        word.to_u64().as_f64()
    }

    fn multiply<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self> {
        a * b
    }

    fn multiply_add<'k>(a: Val<'k, Self>, b: Val<'k, Self>, c: Val<'k, Self>) -> Val<'k, Self> {
        a.mul_add(b, c)
    }

    fn activate<'k>(
        value: Val<'k, Self>,
        activation: Activation,
        parameters: &[Val<'k, Self>],
        _: Element,
    ) -> Val<'k, Self> {
        activation.in_binary64(value, parameters)
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
}

impl Sum for ty::S32 {
    fn zero(b: &KernelBuilder) -> Val<'_, Self> {
        b.constant(0)
    }

    fn neutral(b: &KernelBuilder) -> Val<'_, Self> {
        Self::zero(b)
    }

    fn add<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self> {
        a + b
    }
}

impl AtomicSum for ty::S32 {
    fn reduce_add<'k>(b: &'k KernelBuilder, address: Val<'k, ty::U64>, sums: [Val<'k, Self>; 4]) {
        for (word, sum) in (0..).zip(sums) {
            let address = address.byte_offset(word * 4);
            b.atomic(AtomicOp::Add, address, sum.as_u32(), Order::Relaxed, Scope::Gpu);
        }
    }
}

impl Compute for ty::S32 {
    fn factor<'k>(params: &Params<'k, Quantity>, quantity: Quantity) -> Val<'k, Self> {
        params.scalar::<ty::U32>(quantity).as_s32()
    }

    fn from_word(word: Val<'_, ty::U32>) -> Val<'_, Self> {
        word.as_s32()
    }

    fn multiply<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self> {
        a * b
    }

    fn multiply_add<'k>(a: Val<'k, Self>, b: Val<'k, Self>, c: Val<'k, Self>) -> Val<'k, Self> {
        c + a * b
    }

    fn activate<'k>(
        value: Val<'k, Self>,
        _: Activation,
        _: &[Val<'k, Self>],
        _: Element,
    ) -> Val<'k, Self> {
        value
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
}
