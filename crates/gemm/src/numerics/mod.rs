//! Is a result right? A higher-precision [`Reference`], error bounds derived from k and the number
//! formats, and the [`Comparison`] of a computed D with both.
//!
//! # The bound
//!
//! Let `s = Σ aᵢbᵢ` over k products, `p = Σ |aᵢ||bᵢ|`, `v = alpha·s + beta·c` the exact result and
//! `d` the computed one. With `γₙ(u) = n·u / (1 − n·u)`:
//!
//! 1. **Accumulation.** Products of two 16-bit floats are exact in binary32. Adding k of them in
//!    *any* order, with each addition off by a factor `1 + δ`, `|δ| ≤ u`, gives `|ŝ − s| ≤ γₖ(u)·p`
//!    (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition, 2002, §4.2). Split-K,
//!    stream-K and every tile shape are just other orders. `u` is 2⁻²⁴ where additions round to
//!    nearest. Tensor cores do not: they align the products of a block and the accumulator to the
//!    largest of them, cut off what falls below, add, and truncate the sum (Fasi, Higham, Mikaitis
//!    and Pranesh, *Numerical behavior of NVIDIA tensor cores*, PeerJ CS 7:e330, 2021; for Hopper
//!    Li et al., *FTTN*, arXiv:2403.00232, 2024, and Khattak and Mikaitis, *Accurate Models of
//!    NVIDIA Tensor Cores*, arXiv:2512.07004, 2025). Truncation is `u = 2⁻²³`. The alignment is
//!    covered by the same γₖ: with at least one extra bit kept, each of the at most L shortened
//!    addends of a block of L products loses less than u/2 times the largest, so a block costs at
//!    most `L/2 + 1` units of `u` relative to the magnitudes in it, and `L/2 + 1 ≤ L` for `L ≥ 2`.
//!    A last block of a single product (1.5 units) is paid for by the full blocks before it, and on
//!    its own it is exact. Each addition may also lose one unit of the smallest subnormal. Products
//!    of two tf32 have 22 significant bits and are exact in binary32 as well: tf32 inputs have the
//!    same bound.
//!
//!    With **8-bit floats** Hopper's tensor cores keep fewer bits: what of a product or of the
//!    accumulator lies more than 13 places below the leading bit of the largest is cut off (about
//!    14 bits are reported by DeepSeek-AI, *DeepSeek-V3 Technical Report*, arXiv:2412.19437, 2024,
//!    §3.5.2; 13 of them are taken for fraction here). No extra bit is kept, so a block of L
//!    products costs up to `L + 2` units of 2⁻¹³, at most `L` of `u = 2⁻¹²` for `L ≥ 2`:
//!    `|ŝ − s| ≤ ((1 + u)ᵏ − 1)·p`. That holds for all inputs and says little where k reaches 4096.
//!    For products whose signs are independent of each other there is a statistical bound beside it
//!    ([`Accumulation::TensorCore8Random`]): roundings of products are a random walk of k steps, of
//!    which four standard deviations are allowed, and only the truncation of each block's sum (of
//!    at least 16 products) adds up; each is at most 2⁻¹³ of the largest partial sum, for which
//!    `|s| + 6p/√k` is taken. So `|ŝ − s| ≤ 2⁻¹³·(k/16 + 4√k)·(|s| + 6p/√k)`, or the first bound
//!    where that is less.
//!
//!    With **sums in f16** each rounding is to 11 bits, and where and how is not documented (of
//!    warp-level MMAs the PTX ISA, "mma", says: at least half precision). At most one rounding for
//!    each product, to the nearest or truncated, is `u = 2⁻¹⁰`: `|ŝ − s| ≤ ((1 + u)ᵏ − 1)·p +
//!    k·2⁻²⁴`, the second for what is lost below f16's normal numbers. That says nothing where k
//!    reaches some hundreds, so for products with random signs there is the statistical bound of
//!    8-bit floats with 2⁻¹¹ in place of 2⁻¹³, which a rounding to the nearest costs at most and a
//!    truncation on average ([`Accumulation::TensorCore16Random`]). If a partial sum may be beyond
//!    65504, which p tells, or with random signs `|s| + 6p/√k`, an element may be infinite or NaN.
//!
//!    **Promoted sums.** A kernel may take the tensor core's sums out after each L products (128 of
//!    8-bit floats) and add them in binary32, to nearest. With `e` for what L products cost as
//!    above, `γ_L(2⁻²³)` or `(1 + 2⁻¹²)ᴸ − 1`, and `g = ⌈k/L⌉` sums in any order (the first is
//!    added to zero): `|ŝ − s| ≤ (e + (1 + e)·γ_g(2⁻²⁴))·p`. For 8-bit floats that is some 3.2 % of
//!    p, whatever k. For products with random signs the walk is the same k steps long as without
//!    promotion, but a step is a part of what one group reaches, for which `6p√L/k` is taken, and
//!    the truncations add up inside of a group only, while groups have random signs:
//!    `|ŝ − s| ≤ 4·2⁻¹³·(√k + √g·L/16)·6p√L/k + γ_g(2⁻²⁴)·p`, or the bound for all inputs.
//!
//!    **Terms.** A binary32 `a` may be multiplied as `a₀ + a₁ (+ a₂)`, each the nearest number of a
//!    shorter format to what the ones before it leave: `|aᵢ| ≤ uⁱ(1 + u)|a|` for its unit roundoff
//!    u, 2⁻¹¹ of tf32 and f16 and 2⁻⁸ of bf16. What no term has is at most `ρ = u²` of |a| with two
//!    terms of 11 bits (half the smallest subnormal of the format if that is more), and nothing
//!    with three of 8. A kernel that leaves out the products aᵢbⱼ with `i + j` beyond a limit,
//!    leaves out `d = Σ uⁱ⁺ʲ` of |ab| (and `(1 − u)⁻⁴` for the roundings), and the magnitudes of
//!    the products that it takes come to at most `(1 − u)⁻⁴` of |ab|. They are promoted after each
//!    span of L elements, that is N·L products. So `|ŝ − s|` is at most p times
//!
//!    | precision | terms, products N | L | 2ρ + ρ² | d | sums |
//!    |---|---|---|---|---|---|
//!    | `tf32x3` | 2, 3 | 32 | 2⁻²¹ | 2⁻²² | `(1 − 2⁻¹¹)⁻⁴ (γ₉₆(2⁻²³) + γ_g(2⁻²⁴))` |
//!    | `f16x3` | 2, 3 | 64 | 2⁻²¹ | 2⁻²² | `(1 − 2⁻¹¹)⁻⁴ (γ₁₉₂(2⁻²³) + γ_g(2⁻²⁴))` |
//!    | `bf16x6` | 3, 6 | 64 | 0 | 2⁻²³ + 2⁻³² | `(1 − 2⁻⁸)⁻⁴ (γ₃₈₄(2⁻²³) + γ_g(2⁻²⁴))` |
//!    | `bf16x9` | 3, 9 | 64 | 0 | 0 | `(1 − 2⁻⁸)⁻⁴ (γ₅₇₆(2⁻²³) + γ_g(2⁻²⁴))` |
//!
//!    and terms of second order. That of `sums` is a worst case in which all products are of one
//!    size; small terms come first, so that of the N·L products only the last L meet a sum of full
//!    size. With **f16** rows of A and columns of B are scaled by powers of two that bring their
//!    largest element to 2¹³ at least. What a small element then loses to f16's subnormals, 2⁻²⁵,
//!    is at most 2⁻³⁸ of the largest in its line, which is at most the sum of the line's
//!    magnitudes: that adds 2⁻³⁷ of the product of the two sums, 2⁻³⁶ with all of second order.
//!    Scales and results must not overflow or underflow.
//!
//!    **Integers** (8 bits, added up in 32) have no errors: sums wrap, and results in a D of s32
//!    must be equal modulo 2³². For others `s` is the sum as it wrapped, which is rounded to
//!    binary32: `|ŝ − s| ≤ 2⁻²⁴·|s|`.
//! 2. **Epilogue.** binary32, to nearest: one factor for a multiplication by alpha and one by beta
//!    (neither by ±1), one for the addition. An input conversion of A, B or C contributes `|δ| ≤ u`
//!    of the format it was converted to, and half its smallest subnormal. A bias is one addition
//!    more. An **activation** f makes of an error e before it at most `L·e`, with its steepest
//!    slope L (1.129 of gelu, 1.1 of silu), and adds its own: a part of what it gives, and a
//!    constant ([`Activation::error`](pgemm_kernels::Activation::error)). Its parameters are those
//!    that the kernel has, rounded to binary32; what the rounding of others makes of a result is
//!    added.
//! 3. **Output.** `u_out·|v̂|` plus half the smallest subnormal of D's type; nothing for binary32,
//!    which v̂ already is; 1/2 for s8. Where D's type saturates (e4m3, e5m2, s8), v̂ is moved into
//!    its range first. That brings no two numbers further apart: so D is compared with v moved
//!    there as well, and its roundings are at most `u_out` of the largest number.
//! 4. **The reference** is computed in binary64, whose own `γ(2⁻⁵³)` is added.
//!
//! **f64** is multiplied and added up in binary64, to nearest, by everybody: `u = 2⁻⁵³`, and since
//! the first of the k roundings of a product is that of the multiplication, `|ŝ − s| ≤ γₖ(u)·p`
//! again. The epilogue is binary64 as well, and its sum is D. The reference adds up with
//! compensation: it is off by `γ₅(u)` for its last roundings, and by `γₖ(u)² + k·2⁻⁷⁵`. Other types
//! take alpha and beta as the nearest binary32, another factor where they are none.
//!
//! **f32** is multiplied and added up in binary32, by multiply-adds that round once or by
//! multiplications and additions that round each: `u = 2⁻²⁴`, and either way at most k factors fall
//! to a product, so `|ŝ − s| ≤ γₖ(u)·p` too. Each rounding may lose half of the smallest subnormal.
//! In the reference products of two binary32 are exact.
//!
//! All second-order terms are kept. The worst case grows with k·p while typical errors grow with
//! √k, so at large k the bound is wide; what it cannot see there (a product too few) the
//! integer-valued [exact check](Reference::compare_exact) does.

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
