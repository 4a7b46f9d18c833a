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

/// The problem that [`problem_name`] gives this name. `None` if the name has other types or is none,
/// and for problems with leading dimensions, strides or scalars that are not the default.
pub fn named_problem(name: &str, elements: Elements) -> Option<Problem> {
    let mut words = name.rsplit(' ');
    let (size, majors) = (words.next()?, words.next()?);
    let (extents, count) = match size.split_once('*') {
        Some((extents, count)) => (extents, Some(count.parse().ok()?)),
        None => (size, None),
    };
    let extents = extents.split('x').map(|extent| extent.parse().ok().filter(|&extent| extent > 0));
    let [m, n, k] = extents.collect::<Option<Vec<usize>>>()?[..] else { return None };
    let (a, b, d) = match majors.strip_suffix('m').filter(|rest| rest.len() == 2) {
        Some(operands) => (operands.get(..1)?, operands.get(1..)?, Major::M),
        None => (majors.get(..1)?, majors.get(1..)?, Major::N),
    };
    let a = if a == "m" { Major::M } else { Major::K };
    let b = if b == "n" { Major::N } else { Major::K };
    let problem = Problem::new(m, n, k, a, b).with_d_major(d);
    let problem = count.map_or(problem, |count| problem.with_batch(count));
    let same = problem_name(&problem, elements) == name;
    (same && problem.validate().is_ok() && !problem.is_empty()).then_some(problem)
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
    fn plain_problems_are_found_again_by_their_names() {
        let bf16 = Elements::new(Element::Bf16, Element::Bf16);
        let fast = Elements { b: Element::E5m2, ..Elements::new(Element::E4m3, Element::F32) };
        let fast = Elements { precision: Precision::Fast, ..fast };
        for elements in [bf16, fast] {
            for (a, b) in [(Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)] {
                let plain = Problem::new(48, 2112, 7, a, b);
                for problem in [plain, plain.with_d_major(Major::M), plain.with_batch(30)] {
                    let name = problem_name(&problem, elements);
                    assert_eq!(named_problem(&name, elements), Some(problem), "{name}");
                }
            }
        }
        let damaged = ["", "bf16", "bf16 kk", "bf16 kk 8x8", "bf16 kk 8x8x8x8", "bf16 kk 0x8x8"];
        let foreign = ["f16 kk 8x8x8", "bf16 kx 8x8x8", "bf16 kk 8x8x8*0", "bf16 kk 8x8x8 lda=9"];
        let huge = ["bf16 kk 9999999999999x9999999999999x8", "bf16 é 8x8x8", "bf16 ké 8x8x8"];
        for name in [&damaged[..], &foreign, &huge].concat() {
            assert_eq!(named_problem(name, bf16), None, "{name}");
        }
    }

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
