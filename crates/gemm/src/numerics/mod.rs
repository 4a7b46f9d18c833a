//! Checks whether a result is correct. The module has a higher-precision [`Reference`], error
//! bounds that are derived from k and from the number formats, and the [`Comparison`] of a computed
//! D with the reference within the bound.
//!
//! # The bound
//!
//! Let `s = Σ aᵢbᵢ` over k products, `p = Σ |aᵢ||bᵢ|`, `v = alpha·s + beta·c` the exact result and
//! `d` the computed result. Computed values have a hat: ŝ is the computed sum, v̂ the computed
//! result of the epilogue. Let `γₙ(u) = n·u / (1 − n·u)`. The bound has four parts:
//!
//! 1. **Accumulation.** A product of two 16-bit floats is exact in binary32. Let k products be
//!    added in *any* order, and let each addition have an error factor of `1 + δ` with `|δ| ≤ u`.
//!    Then `|ŝ − s| ≤ γₖ(u)·p` (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
//!    edition, 2002, §4.2). Split-K, stream-K and every tile shape only change the order of the
//!    additions.
//!
//!    If additions round to nearest, `u` is 2⁻²⁴. Tensor cores do not round to nearest. They align
//!    the products of a block and the accumulator to the largest of them, cut off the lower bits,
//!    add, and truncate the sum (Fasi, Higham, Mikaitis and Pranesh, *Numerical behavior of NVIDIA
//!    tensor cores*, PeerJ CS 7:e330, 2021; for Hopper Li et al., *FTTN*, arXiv:2403.00232, 2024,
//!    and Khattak and Mikaitis, *Accurate Models of NVIDIA Tensor Cores*, arXiv:2512.07004, 2025).
//!    Truncation has `u = 2⁻²³`. The same γₖ covers the alignment. A block of L products has at
//!    most L shortened addends. With at least one extra bit, each of them loses less than u/2 times
//!    the largest addend. A block therefore costs at most `L/2 + 1` units of `u` relative to the
//!    magnitudes in it, and `L/2 + 1 ≤ L` for `L ≥ 2`. A last block of a single product costs 1.5
//!    units. The slack of the full blocks before it covers this cost, and a single product without
//!    such blocks is exact. Each addition may also lose one unit of the smallest subnormal number.
//!    A product of two tf32 numbers has 22 significant bits and is exact in binary32 as well, so
//!    tf32 inputs have the same bound.
//!
//!    **8-bit floats.** Hopper's tensor cores keep fewer bits for 8-bit floats. They cut off the
//!    bits of a product or of the accumulator that are more than 13 places below the leading bit of
//!    the largest addend. (DeepSeek-AI, *DeepSeek-V3 Technical Report*, arXiv:2412.19437, 2024,
//!    §3.5.2, reports about 14 bits. This module counts 13 of them as fraction bits.) There is no
//!    extra bit, so a block of L products costs up to `L + 2` units of 2⁻¹³. For `L ≥ 2` this is at
//!    most L units of `u = 2⁻¹²`: `|ŝ − s| ≤ ((1 + u)ᵏ − 1)·p`. This bound holds for all inputs,
//!    but it is very wide if k reaches 4096.
//!
//!    If the signs of the products are independent of each other, there is also a statistical bound
//!    ([`Accumulation::TensorCore8Random`]). The roundings of the products are a random walk of k
//!    steps, and the bound allows four standard deviations of it. Only the truncations of the block
//!    sums add up, and a block has at least 16 products. Each truncation is at most 2⁻¹³ of the
//!    largest partial sum, for which the bound uses `|s| + 6p/√k`. The result is
//!    `|ŝ − s| ≤ 2⁻¹³·(k/16 + 4√k)·(|s| + 6p/√k)`, or the bound for all inputs if that is smaller.
//!
//!    **Sums in f16.** Each rounding is to 11 bits. The position and the direction of the roundings
//!    are not documented. For warp-level MMAs the PTX ISA ("mma") only guarantees at least half
//!    precision. This module assumes at most one rounding for each product, to nearest or by
//!    truncation, so `u = 2⁻¹⁰`: `|ŝ − s| ≤ ((1 + u)ᵏ − 1)·p + k·2⁻²⁴`. The second term is the loss
//!    below f16's normal numbers. This bound is useless if k reaches some hundreds. For products
//!    with random signs there is the statistical bound of 8-bit floats with 2⁻¹¹ in place of 2⁻¹³
//!    ([`Accumulation::TensorCore16Random`]). A rounding to nearest costs at most 2⁻¹¹, and a
//!    truncation costs 2⁻¹¹ on average. If a partial sum can exceed 65504, an element may be
//!    infinite or NaN. The limit of a partial sum is p, or `|s| + 6p/√k` with random signs.
//!
//!    **Promoted sums.** A kernel may take the tensor core's sums out after each L products (128 of
//!    8-bit floats) and add them in binary32, rounding to nearest. Let `e` be the cost of L
//!    products as above, `γ_L(2⁻²³)` or `(1 + 2⁻¹²)ᴸ − 1`. Let `g = ⌈k/L⌉` be the number of sums,
//!    which are added in any order (the first is added to zero). Then
//!    `|ŝ − s| ≤ (e + (1 + e)·γ_g(2⁻²⁴))·p`. For 8-bit floats this is about 3.2 % of p for every k.
//!    For products with random signs the walk has k steps, as without promotion. A step is now
//!    relative to the partial sums of one group, for which the bound uses `6p√L/k`. The truncations
//!    add up within a group only, and the signs of the groups are random:
//!    `|ŝ − s| ≤ 4·2⁻¹³·(√k + √g·L/16)·6p√L/k + γ_g(2⁻²⁴)·p`, or the bound for all inputs.
//!
//!    **Terms.** A kernel may split a binary32 number `a` into terms, `a₀ + a₁ (+ a₂)`. Each term
//!    is the nearest number of a shorter format to the remainder after the previous terms:
//!    `|aᵢ| ≤ uⁱ(1 + u)|a|`. The unit roundoff u of the format is 2⁻¹¹ for tf32 and f16, and 2⁻⁸
//!    for bf16. The remainder after the last term is at most `ρ|a|`. With two terms of 11 bits
//!    `ρ = u²`, or the remainder is half the smallest subnormal of the format if that is more.
//!    With three terms of 8 bits `ρ = 0`. A kernel may leave out the products aᵢbⱼ with `i + j`
//!    beyond a limit. It then leaves out `d = Σ uⁱ⁺ʲ` of |ab|, with a factor `(1 − u)⁻⁴` for the
//!    roundings. The magnitudes of the products that it computes add up to at most `(1 − u)⁻⁴` of
//!    |ab|. Sums are promoted after each span of L elements, which is N·L products. `|ŝ − s|` is
//!    at most p times the sum of the last three columns and of second-order terms:
//!
//!    | precision | terms, products N | L | 2ρ + ρ² | d | sums |
//!    |---|---|---|---|---|---|
//!    | `tf32x3` | 2, 3 | 32 | 2⁻²¹ | 2⁻²² | `(1 − 2⁻¹¹)⁻⁴ (γ₉₆(2⁻²³) + γ_g(2⁻²⁴))` |
//!    | `f16x3` | 2, 3 | 64 | 2⁻²¹ | 2⁻²² | `(1 − 2⁻¹¹)⁻⁴ (γ₁₉₂(2⁻²³) + γ_g(2⁻²⁴))` |
//!    | `bf16x6` | 3, 6 | 64 | 0 | 2⁻²³ + 2⁻³² | `(1 − 2⁻⁸)⁻⁴ (γ₃₈₄(2⁻²³) + γ_g(2⁻²⁴))` |
//!    | `bf16x9` | 3, 9 | 64 | 0 | 0 | `(1 − 2⁻⁸)⁻⁴ (γ₅₇₆(2⁻²³) + γ_g(2⁻²⁴))` |
//!
//!    The column `sums` is a worst case in which all products have the same magnitude. Products of
//!    small terms are added first, so only the last L of the N·L products are added to a sum of
//!    full magnitude.
//!
//!    With **f16** terms, rows of A and columns of B are scaled by powers of two that bring their
//!    largest element to at least 2¹³. A small element can then lose 2⁻²⁵ to f16's subnormal
//!    numbers. This is at most 2⁻³⁸ of the largest element in its line, and so at most 2⁻³⁸ of the
//!    sum of the line's magnitudes. The loss adds 2⁻³⁷ of the product of the two sums, or 2⁻³⁶ with
//!    all second-order terms. Scales and results must not overflow or underflow.
//!
//!    **Integers.** Sums of 8-bit integers are computed in 32 bits and have no errors. They wrap.
//!    Results in a D of s32 must be equal modulo 2³². For other types of D, `s` is the wrapped sum,
//!    which is rounded to binary32: `|ŝ − s| ≤ 2⁻²⁴·|s|`.
//! 2. **Epilogue.** The epilogue is a [graph](pgemm_kernels::Graph) of values. It is evaluated on
//!    the reference's numbers, each with a bound `e` for the distance of the computed number from
//!    it. The epilogue computes in binary32 and rounds to nearest: a product of x and y has
//!    `e = |x|·e_y + |y|·e_x + e_x·e_y`, and a sum `e = e_x + e_y`. Rounding adds `u` times the
//!    magnitude of the result, for products also half the smallest subnormal number. A
//!    multiplication by 0 or ±1 is not rounded. Products and sums are counted as rounded
//!    separately, which covers multiply-adds. A conversion of the inputs A, B or C contributes
//!    `|δ| ≤ u` of the target format, and half the smallest subnormal number of this format. A
//!    number of the launch (alpha, beta, a parameter of an activation) is rounded to binary32. The
//!    number is known, and so is this error. An **activation** f turns an error e of its input into
//!    at most `L·e`, where L is its steepest slope (1.129 for gelu, 1.1 for silu). It also adds an
//!    error of its own: a part of its result, and a constant
//!    ([`Activation::error`](pgemm_kernels::Activation::error)).
//! 3. **Output.** The rounding to D's type contributes `u_out·|v̂|` and half the smallest subnormal
//!    number of the type. It contributes nothing for binary32, the type of v̂, and 1/2 for s8. If
//!    D's type saturates (e4m3, e5m2, s8), v̂ is first clamped to the range of the type. Clamping
//!    does not increase the distance of two numbers. D is therefore compared with the clamped v,
//!    and its rounding error is at most `u_out` of the largest number.
//! 4. **The reference.** The reference is computed in binary64. Its sums add their own `γₖ(2⁻⁵³)·p`,
//!    and each operation of the epilogue adds 2⁻⁵³ of its result.
//!
//! **f64.** Every backend multiplies and adds in binary64 and rounds to nearest, so `u = 2⁻⁵³`. The
//! multiplication is the first of the k roundings of a product, so `|ŝ − s| ≤ γₖ(u)·p` holds again.
//! The epilogue computes in binary64 too, and its sum is D. The reference uses compensated
//! summation. The error of a sum is `γ₁(u)` for its last rounding, and `γₖ(u)² + k·2⁻⁷⁵`.
//!
//! **f32.** Kernels multiply and add in binary32, either by multiply-adds that round once, or by
//! multiplications and additions that round separately: `u = 2⁻²⁴`. In both cases a product has at
//! most k error factors, so `|ŝ − s| ≤ γₖ(u)·p` holds too. Each rounding may lose half the smallest
//! subnormal number. In the reference, a product of two binary32 numbers is exact.
//!
//! The bound includes all second-order terms. The worst case grows with k·p while typical errors
//! grow with √k, so the bound is wide at large k. It cannot detect a single missing product there.
//! The [exact check](Reference::compare_exact) with integer values detects it.

mod accumulation;
mod bound;
mod comparison;
mod compensated;
mod format;
mod reference;
#[cfg(test)]
mod tests;

pub use accumulation::Accumulation;
pub use bound::ErrorModel;
pub use comparison::{Check, Comparison, WorstElement};
pub use reference::Reference;

pub use crate::error::NumericsError;
