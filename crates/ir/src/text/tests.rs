//! Tests of the text form: every kernel survives a round trip, and no text makes the parser panic.

use proptest::prelude::*;

use super::{TextOptions, parse, to_text};
use crate::named::Named;
use crate::op::{Source, TEXTS, readers};
use crate::types::EntityId;
use crate::*;

/// Random decisions from a list of numbers, then zeros. Shrinking the list thus shrinks the kernel
/// that is generated from it.
pub(crate) struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    pub(crate) fn new(choices: Vec<u32>) -> Self {
        Choices(choices.into_iter())
    }

    /// The number of any value.
    pub(crate) fn any(&mut self) -> u32 {
        self.0.next().unwrap_or(0)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.any() as usize % limit
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.any() % 2 == 1
    }

    pub(crate) fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

const NAMES: [&str; 6] =
    ["gemm", "", "a \"quoted\" \\ name", "line\nbreak\t\u{7f}", "größe 核", "/*"];
/// Random attributes, valid or not.
impl Source for Choices {
    fn word<T: Named>(&mut self) -> Option<T> {
        Some(self.of(T::VALUES))
    }

    fn identifier(&mut self) -> Option<String> {
        Some(format!("own_{}", self.below(9)))
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        Some(match key {
            "ptx" => self.of(&["lop3.b32 $r0, $0, 1", "a \"quoted\" \\ text\n", ""]).to_owned(),
            _ => {
                (0..self.below(3)).map(|_| self.of(&Type::ALL).name()).collect::<Vec<_>>().join(" ")
            }
        })
    }

    fn flag(&mut self, _: &'static str) -> bool {
        Choices::flag(self)
    }

    fn key(&mut self, _: &'static str) -> Option<u32> {
        Some(self.any())
    }

    fn number(&mut self) -> Option<u32> {
        Some(self.any())
    }

    fn entity<E: EntityId>(&mut self) -> Option<E> {
        // Bounds the length of the list.
        let more = self.below(4) > 0;
        more.then(|| E::of_number(self.any()))
    }
}

/// A random operation of a row of the table.
fn op(row: usize, c: &mut Choices) -> Op {
    readers()[row](c).unwrap_or_else(|| {
        Op::Const(match c.below(7) {
            0 => Constant::Bool(c.flag()),
            1 => Constant::U32(c.any()),
            2 => Constant::S32(c.any() as i32),
            3 => Constant::U64(u64::from(c.any()) << 32 | u64::from(c.any())),
            4 => Constant::F32(f32::from_bits(c.any())),
            5 => Constant::F64(f64::from_bits(u64::from(c.any()) << 32 | u64::from(c.any()))),
            _ => Constant::B32(c.any()),
        })
    })
}

fn im2col_axis(c: &mut Choices) -> Im2colAxis {
    let [lower, upper] = [c.any(), c.any()].map(u32::cast_signed);
    Im2colAxis { lower, upper, stride: c.any() }
}

/// Any kernel, valid or not: the text form does not depend on the verifier's rules.
fn kernel(c: &mut Choices) -> Kernel {
    let name = |c: &mut Choices| c.of(&NAMES).to_owned();
    let mut kernel = Kernel {
        name: name(c),
        params: vec![],
        cluster: c.any(),
        ctas_per_sm: if c.flag() { c.any() } else { 1 },
        roles: vec![],
        regions: vec![],
        accumulators: vec![],
        values: vec![],
        body: Block::default(),
        locations: vec![],
    };
    for _ in 0..c.below(3) {
        let kind = if c.flag() {
            ParamKind::Scalar(c.of(&Type::ALL))
        } else {
            ParamKind::TensorMap(TensorMapSpec {
                element: c.of(&Element::ALL),
                box_extents: (0..c.below(4)).map(|_| c.any()).collect(),
                swizzle: c.of(&SwizzleMode::ALL),
                im2col: c.flag().then(|| (0..c.below(4)).map(|_| im2col_axis(c)).collect()),
            })
        };
        kernel.params.push(Param { name: name(c), kind });
    }
    for _ in 0..c.below(3) {
        kernel.roles.push(Role { name: name(c), warpgroups: c.any(), registers: c.any() });
    }
    for _ in 0..c.below(3) {
        let kind =
            if c.flag() { RegionKind::Mbarrier } else { RegionKind::Data(c.of(&Element::ALL)) };
        let (offset, bytes, align) = (c.any(), c.any(), c.any());
        kernel.regions.push(Region { name: name(c), kind, offset, bytes, align });
    }
    for _ in 0..c.below(3) {
        kernel.accumulators.push(Accumulator { ty: c.of(&Type::ALL), registers: c.any() });
    }
    for _ in 0..1 + c.below(3) {
        kernel.locations.push(Location {
            file: name(c),
            line: c.any(),
            column: c.any(),
            scopes: (0..c.below(3)).map(|_| name(c)).collect(),
        });
    }
    for _ in 0..c.below(3) {
        kernel.values.push(c.of(&Type::ALL));
    }
    kernel.body = block(c, &mut kernel.values, kernel.locations.len(), 0);
    kernel
}

fn define(c: &mut Choices, values: &mut Vec<Type>, count: usize) -> Vec<ValueId> {
    (0..count)
        .map(|_| {
            values.push(c.of(&Type::ALL));
            ValueId(values.len() as u32 - 1)
        })
        .collect()
}

fn block(c: &mut Choices, values: &mut Vec<Type>, locations: usize, depth: usize) -> Block {
    let count = c.below(3);
    let params = define(c, values, count);
    let mut insts = vec![];
    for _ in 0..c.below(6) {
        let row = c.below(TEXTS.len());
        let op = op(row, c);
        let args = (0..c.below(4)).map(|_| ValueId(c.any())).collect();
        let nested = if depth < 3 { c.below(5).saturating_sub(2) } else { 0 };
        let blocks = (0..nested).map(|_| block(c, values, locations, depth + 1)).collect();
        let count = c.below(3);
        let results = define(c, values, count);
        insts.push(Inst { op, args, results, blocks, loc: LocId(c.below(locations) as u32) });
    }
    Block { params, insts }
}

#[test]
fn every_operation_parses_back() {
    for (row, text) in TEXTS.iter().enumerate() {
        let mut found = 0;
        for seed in 0..64u32 {
            let numbers = (0..12).map(|i| seed.wrapping_mul(2_654_435_761).rotate_left(i * 5) + i);
            let op = op(row, &mut Choices::new(numbers.collect()));
            found += u32::from(text.is_empty() || op.mnemonic() == *text);
            let inst = Inst { op, args: vec![], results: vec![], blocks: vec![], loc: LocId(0) };
            let mut kernel = kernel(&mut Choices::new(vec![]));
            kernel.body.insts = vec![inst];
            let text = to_text(&kernel, TextOptions { locations: true });
            assert_eq!(parse(&text).as_ref(), Ok(&kernel), "{text}");
        }
        assert!(found > 10, "row {row} ({text}) gave only {found} operations");
    }
}

#[test]
fn texts_tell_operations_apart() {
    let mut words = Op::mnemonics();
    let count = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), count);
}

#[test]
fn floats_keep_their_bits() {
    for bits in [0, 0x8000_0000, 0x3f80_0000, 0x7fc0_0001, 0xffff_ffff, 0x7f80_0000, 1] {
        let text = format!("kernel \"k\", cluster 1\n{{ %0: f32 = const.f32 {bits:#x} }}");
        let kernel = parse(&text).unwrap();
        let Op::Const(Constant::F32(value)) = kernel.body.insts[0].op else { panic!("{kernel:?}") };
        assert_eq!(value.to_bits(), bits);
        assert_eq!(parse(&to_text(&kernel, TextOptions::default())).unwrap(), kernel);
    }
}

#[test]
fn comments_are_blank() {
    let plain = "kernel \"k\", cluster 1\n{ %0: f32 = const.f32 0x3f800000 }";
    let commented = "// A kernel, // and its CTA\nkernel \"k\", // cluster 2\ncluster 1\n{ \
                     /* } * / */ %0: f32 = const.f32 0x3f800000 } // the end";
    let text = |text| to_text(&parse(text).unwrap(), TextOptions { locations: false });
    assert_eq!(text(commented), text(plain));
}

#[test]
fn doubles_keep_their_bits() {
    for bits in [0, 1 << 63, 0x3ff0_0000_0000_0000, 0x7ff8_0000_0000_0001, u64::MAX, 1] {
        let text = format!("kernel \"k\", cluster 1\n{{ %0: f64 = const.f64 {bits:#x} }}");
        let kernel = parse(&text).unwrap();
        let Op::Const(Constant::F64(value)) = kernel.body.insts[0].op else { panic!("{kernel:?}") };
        assert_eq!(value.to_bits(), bits);
        assert_eq!(parse(&to_text(&kernel, TextOptions::default())).unwrap(), kernel);
    }
}

const EXAMPLE: &str = r#"kernel "copy", cluster 2
param0 = "m": u32
param1 = "a": tensor_map bf16 [64, 128] b128
role0 = "producer": 1 warpgroups, 40 registers
role1 = "consumer": 2 warpgroups, 232 registers
region0 = "stages": bf16 offset 0, bytes 49152, align 1024
region1 = "full": mbarrier offset 49152, bytes 24, align 8
acc0 = f32, 64 registers
undefined %0: u32
{
  %1: u32 = const.u32 0 !loc0
  %2: f32 = const.f32 0x3f800000 /* 1.0 */ !loc0
  roles[role0, role1] {
    %3: bool = elect !loc1
    if %3 {
      %4: smem = smem_address[region0] !loc1
      %5: smem = smem_address[region1] !loc1
      %6: map = map_param[param1] !loc1
      mbarrier_arrive_expect[bytes=16384] %5 !loc1
      tma_load.multicast[rank=2] %6, %4, %5, %1, %1, %1 !loc1
      yield !loc1
    } {
      yield !loc1
    } !loc1
    yield !loc0
  } {
    %7: u32 = param[param0] !loc2
    %8: f32 = for %1, %7, %7, %2 (%9: u32, %10: f32) {
      %11: f32 = add %10, %2 !loc2
      yield %11 !loc2
    } !loc2
    yield !loc0
  } !loc0
}
loc0 = "kernel.rs":10:5
loc1 = "kernel.rs":20:9 in "producer" > "load"
loc2 = "kernel.rs":30:9 in "consumer"
"#;

#[test]
fn the_printed_form_is_the_parsed_one() {
    let kernel = parse(EXAMPLE).unwrap();
    assert_eq!(to_text(&kernel, TextOptions { locations: true }), EXAMPLE);
    let location = Location {
        file: "kernel.rs".into(),
        line: 20,
        column: 9,
        scopes: vec!["producer".into(), "load".into()],
    };
    assert_eq!(kernel.locations[1], location);

    let several = EXAMPLE.replace("cluster 2", "cluster 2, ctas_per_sm 3");
    let kernel = parse(&several).unwrap();
    assert_eq!(kernel.ctas_per_sm, 3);
    assert_eq!(to_text(&kernel, TextOptions { locations: true }), several);
}

#[test]
fn without_locations_instructions_are_where_the_text_is() {
    let kernel = parse(EXAMPLE).unwrap();
    let text = to_text(&kernel, TextOptions { locations: false });
    assert!(!text.contains("loc"));
    let parsed = parse(&text).unwrap();
    assert_eq!(to_text(&parsed, TextOptions { locations: false }), text);
    let mut lines = vec![];
    parsed.visit(&mut |inst| lines.push(parsed.location(inst.loc).line));
    assert_eq!(lines, [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 25, 27, 28, 29, 30, 32]);
}

#[test]
fn errors_name_place_and_expectation() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    let body = |body: &str| error(&format!("kernel \"k\", cluster 1\n{{\n{body}\n}}"));
    assert_eq!(error(""), "1:1: found the end of the text, expected 'kernel'");
    assert_eq!(error("kernel k"), "1:8: found 'k', expected a name in quotes");
    assert_eq!(error("kernel \"k"), "1:8: a quoted text is not closed: add '\"'");
    assert_eq!(error("kernel \"\\n\""), "1:8: '\\n' is no escape: use \\\", \\\\ or \\u{hex}");
    assert_eq!(
        error("kernel \"k\", cluster 1\nparam1 = \"a\": u32"),
        "2:1: found 'param1', expected 'param0'"
    );
    assert_eq!(body("frobnicate"), "3:1: 'frobnicate' with these attributes is not an operation");
    assert_eq!(
        body("bulk_wait[rank=1]"),
        "3:1: 'bulk_wait' with these attributes is not an operation"
    );
    assert_eq!(
        body("%0: u32 = const.u32 4294967296"),
        "3:21: found '4294967296', expected a constant of type u32"
    );
    assert_eq!(
        body("%0: s32 = const.s32 -2147483649"),
        "3:21: found '-2147483649', expected a constant of type s32"
    );
    assert_eq!(body("%0: u32, %0: f32 = elect"), "3:10: %0 is f32 here and u32 before");
    assert_eq!(
        body("%1: bool = elect"),
        "3:1: %1 is defined and %0 is not: number values without gaps, or declare \
         'undefined %0: type'"
    );
    assert_eq!(body("elect !loc0"), "3:8: loc0 is not in the table of 0 locations");
    assert_eq!(body("elect !there"), "3:8: 'there' is not a location: locations are 'loc0', …");
    assert_eq!(body("/* open"), "3:1: a comment is not closed: add '*/'");
    assert_eq!(body("%99999999999: u32"), "3:1: no value has number 99999999999");
    let deep = "if {\n".repeat(100);
    assert_eq!(body(&deep), "67:4: blocks are nested deeper than 64");
}

proptest! {
    #[test]
    fn kernels_survive_the_round_trip(choices in prop::collection::vec(any::<u32>(), 0..400)) {
        let kernel = kernel(&mut Choices::new(choices));
        let text = to_text(&kernel, TextOptions { locations: true });
        let parsed = parse(&text);
        prop_assert_eq!(parsed.as_ref(), Ok(&kernel), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_mutation_panics_parser_or_verifier(
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), "[ -~\n]{0,8}", 0usize..12), 1..5
        )
    ) {
        let mut text = EXAMPLE.to_owned();
        for (at, insert, remove) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.replace_range(at..end, &insert);
        }
        if let Ok(kernel) = parse(&text) {
            let _ = verify(&kernel);
        }
    }

    #[test]
    fn no_kernel_panics_the_verifier(choices in prop::collection::vec(any::<u32>(), 0..400)) {
        let _ = verify(&kernel(&mut Choices::new(choices)));
    }
}

#[test]
fn the_documented_example_is_valid() {
    let document = include_str!("../../../../docs/language.md");
    let start = document.find("kernel \"copy\"").expect("docs/language.md shows the text form");
    let example = document[start..].split("```").next().unwrap_or_default();
    let kernel = parse(example).unwrap();
    assert_eq!(verify(&kernel), Ok(()));
    assert_eq!(to_text(&kernel, TextOptions::default()), example);
}
