//! The names of problems in reports.

use persistent_gemm::measure::Elements;
use pgemm_ir::Element;
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

/// The parts of a name: types and mode, the majors, and what follows them. `None` if it has none.
pub(crate) fn split_name(name: &str) -> Option<(&str, &str, &str)> {
    let mut begin = 0;
    for word in name.split(' ') {
        let end = begin + word.len();
        if begin > 0 && parsed_majors(word).is_some() {
            return Some((name.get(..begin - 1)?, word, name.get(end + 1..)?));
        }
        begin = end + 1;
    }
    None
}

/// The majors of A, B and D in a name.
fn parsed_majors(word: &str) -> Option<[Major; 3]> {
    let (operands, d) = match word.len() {
        2 => (word, Major::N),
        3 => (word.strip_suffix('m')?, Major::M),
        _ => return None,
    };
    let (a, b) = match operands {
        "kk" => (Major::K, Major::K),
        "kn" => (Major::K, Major::N),
        "mk" => (Major::M, Major::K),
        "mn" => (Major::M, Major::N),
        _ => return None,
    };
    Some([a, b, d])
}

/// The problem and the types of which [`problem_name`] returns this name. `None` if there are none.
pub fn parsed_name(name: &str) -> Option<(Problem, Elements)> {
    let (types, majors, rest) = split_name(name)?;
    let mut words = types.split(' ');
    let first = words.next()?;
    let (inputs, d) = match first.split_once("->") {
        Some((inputs, d)) => (inputs, Some(d.parse::<Element>().ok()?)),
        None => (first, None),
    };
    let (a, b) = match inputs.split_once('*') {
        Some((a, b)) => (a.parse::<Element>().ok()?, b.parse::<Element>().ok()?),
        None => inputs.parse::<Element>().map(|element| (element, element)).ok()?,
    };
    let mut elements = Elements { b, ..Elements::new(a, d.unwrap_or(a)) };
    for word in words {
        match word.parse::<Precision>() {
            Ok(precision) => elements.precision = precision,
            Err(_) => elements.epilogue = word.parse().ok()?,
        }
    }
    let [a, b, d] = parsed_majors(majors)?;
    let mut words = rest.split(' ');
    let size = words.next()?;
    let (extents, count) = match size.split_once('*') {
        Some((extents, count)) => (extents, Some(count.parse().ok()?)),
        None => (size, None),
    };
    let extents = extents.split('x').map(|extent| extent.parse().ok().filter(|&extent| extent > 0));
    let [m, n, k] = extents.collect::<Option<Vec<usize>>>()?[..] else { return None };
    let problem = Problem::new(m, n, k, a, b).with_d_major(d);
    let mut problem = count.map_or(problem, |count| problem.with_batch(count));
    for word in words {
        let (symbol, value) = word.split_once('=')?;
        let elements = || value.parse().ok();
        problem = match symbol {
            "lda" => problem.with_a_leading_dimension(elements()?),
            "ldb" => problem.with_b_leading_dimension(elements()?),
            "ldc" => problem.with_c_leading_dimension(elements()?),
            "ldd" => problem.with_d_leading_dimension(elements()?),
            "batch-stride-a" => problem.with_a_batch_stride(elements()?),
            "batch-stride-b" => problem.with_b_batch_stride(elements()?),
            "batch-stride-c" => problem.with_c_batch_stride(elements()?),
            "batch-stride-d" => problem.with_d_batch_stride(elements()?),
            "alpha" => problem.with_alpha(value.parse().ok()?),
            "beta" => problem.with_beta(value.parse().ok()?),
            _ => return None,
        };
    }
    let same = problem_name(&problem, elements) == name;
    (same && problem.validate().is_ok() && !problem.is_empty()).then_some((problem, elements))
}

/// The problem that [`problem_name`] gives this name. `None` if the name has other types or is
/// none, and for problems with leading dimensions, strides or scalars that are not the default.
pub fn named_problem(name: &str, elements: Elements) -> Option<Problem> {
    let (problem, found) = parsed_name(name)?;
    (found == elements && !name.contains('=')).then_some(problem)
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
    fn names_tell_all_of_a_problem() {
        let named = [
            "bf16 kk 8x16x24",
            "e4m3*e5m2->f32 fast kn 4096x2112x7168",
            "f16 f16 knm 4096x2112x7168*30",
            "bf16 bias_n|gelu kk 8192x8192x8192",
            "f32 bf16x9 kk 8x8x8",
            "bf16 mn 64x128x72 lda=72 ldd=136 alpha=0.5 beta=-2",
            "s8->s32 kk 64x64x64*3 batch-stride-a=8192",
        ];
        for name in named {
            let (problem, elements) = parsed_name(name).expect(name);
            assert_eq!(problem_name(&problem, elements), name);
            let (types, majors, rest) = split_name(name).unwrap();
            assert_eq!(format!("{types} {majors} {rest}"), name);
        }
        for name in
            ["kk 8x8x8", "bf16 kk", "bf17 kk 8x8x8", "bf16 slow kk 8x8x8", "bf16 kk 8x8x8 lda=8"]
        {
            assert_eq!(parsed_name(name), None, "{name}");
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
