//! The names of problems in reports.

use persistent_gemm::measure::Elements;
use pgemm_plan::{Major, Plan, Precision, Problem};

/// The name of a problem in reports, such as `bf16->f32 kn 4096x2112x7168`: types, majors of A and
/// B, and m×n×k. Precision, epilogue, leading dimensions, batch strides and scalars are added if
/// they differ from the defaults. If D is column-major, an `m` is added to the majors. A batch of
/// 64 is written `512x512x512*64`.
pub fn problem_name(problem: &Problem, elements: Elements) -> String {
    let Elements { a, b, d, precision, epilogue } = elements;
    let mut name = a.name().to_owned();
    if b != a {
        name += &format!("*{b}");
    }
    if [b, d] != [a; 2] {
        name += &format!("->{d}");
    }
    if precision != Precision::default() {
        name += &format!(" {precision}");
    }
    if !epilogue.is_none() {
        name += &format!(" {epilogue}");
    }
    let Problem { m, n, k, .. } = problem;
    let d_major = if problem.d_major == Major::M { "m" } else { "" };
    name += &format!(" {}{}{d_major} {m}x{n}x{k}", problem.a.major, problem.b.major);
    let batch = problem.batch;
    if !batch.is_one() {
        name += &format!("*{}", batch.count);
    }
    let tight = Problem::new(*m, *n, *k, problem.a.major, problem.b.major);
    let tight = tight.with_d_major(problem.d_major);
    let packed = tight.with_batch(batch.count).batch;
    for (symbol, leading_dimension, usual) in [
        ("lda", problem.a.leading_dimension, tight.a.leading_dimension),
        ("ldb", problem.b.leading_dimension, tight.b.leading_dimension),
        ("ldc", problem.c_leading_dimension, tight.c_leading_dimension),
        ("ldd", problem.d_leading_dimension, tight.d_leading_dimension),
        ("batch-stride-a", batch.a, packed.a),
        ("batch-stride-b", batch.b, packed.b),
        ("batch-stride-c", batch.c, packed.c),
        ("batch-stride-d", batch.d, packed.d),
    ] {
        if leading_dimension != usual {
            name += &format!(" {symbol}={leading_dimension}");
        }
    }
    if problem.alpha != 1.0 {
        name += &format!(" alpha={}", problem.alpha);
    }
    if problem.beta != 0.0 {
        name += &format!(" beta={}", problem.beta);
    }
    name
}

/// The kernel and launch of a plan, `SPEC:SPLIT:RASTER:LAUNCH`, as `--also` of `pgemm bench` takes
/// them.
pub fn choice_name(plan: &Plan) -> String {
    let Plan { spec, split, raster_rows, dependent_launch, .. } = plan;
    let launch = if *dependent_launch { "dependent" } else { "serial" };
    format!("{spec}:{split}:{raster_rows}:{launch}")
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::*;

    #[test]
    fn names_say_what_is_unusual() {
        let problem = Problem::new(4096, 2112, 7168, Major::K, Major::N);
        let name = |problem: &Problem, elements| problem_name(problem, elements);
        let bf16 = Elements::new(Element::Bf16, Element::Bf16);
        assert_eq!(name(&problem, bf16), "bf16 kn 4096x2112x7168");
        let mixed = Elements { b: Element::E5m2, ..Elements::new(Element::E4m3, Element::F32) };
        assert_eq!(name(&problem, mixed), "e4m3*e5m2->f32 kn 4096x2112x7168");
        let to_a = Elements { d: Element::E4m3, ..mixed };
        assert_eq!(name(&problem, to_a), "e4m3*e5m2->e4m3 kn 4096x2112x7168");
        let column_major = problem.with_d_major(Major::M);
        assert_eq!(name(&column_major, bf16), "bf16 knm 4096x2112x7168");
        let in_f16 =
            Elements { precision: Precision::F16, ..Elements::new(Element::F16, Element::F16) };
        assert_eq!(name(&problem, in_f16), "f16 f16 kn 4096x2112x7168");
        let unusual = problem.with_beta(0.5).with_a_leading_dimension(7200);
        assert_eq!(name(&unusual, bf16), "bf16 kn 4096x2112x7168 lda=7200 beta=0.5");
    }
}
