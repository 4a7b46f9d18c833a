//! Loads and stores of single elements: rounding, alignment, and races between neighbours, in
//! global and in shared memory. The kernels are written with the builder.

use pgemm_emulator::{Memory, Permission, ReportKind};
use pgemm_ir::{
    Argument, AtomicOp, Element, Kernel, KernelBuilder, Order, RegionKind, Scope, SmemRequest,
    Special, Val, ty,
};

use crate::kernel::{fails_with, passes, role, words};

const ELEMENTS: [Element; 3] = [Element::F32, Element::F16, Element::Bf16];

/// All movable element types, including one-byte types, for which every address is aligned.
const ALL: [Element; 6] =
    [Element::F32, Element::F16, Element::Bf16, Element::E4m3, Element::E5m2, Element::S8];

/// The bits that a binary32 is stored as, and the binary32 that those bits load as.
fn stored(element: Element, value: f32) -> (Vec<u8>, f32) {
    match element {
        Element::F16 => {
            let half = half::f16::from_f32(value);
            (half.to_le_bytes().into(), half.to_f32())
        }
        Element::Bf16 => {
            let half = half::bf16::from_f32(value);
            (half.to_le_bytes().into(), half.to_f32())
        }
        Element::E4m3 | Element::E5m2 | Element::S8 => {
            let byte = nearest_byte(element, value);
            (vec![byte], value_of(element, byte))
        }
        _ => (value.to_le_bytes().into(), value),
    }
}

/// The value of a one-byte element.
fn value_of(element: Element, byte: u8) -> f32 {
    match element {
        Element::E5m2 => half::f16::from_bits(u16::from(byte) << 8).to_f32(),
        Element::S8 => f32::from(byte.cast_signed()),
        // The same bits as a binary16 with a bias that is 8 greater, except for the NaN.
        _ if byte & 0x7f == 0x7f => f32::NAN,
        _ => {
            let bits = (u16::from(byte) & 0x80) << 8 | (u16::from(byte) & 0x7f) << 7;
            half::f16::from_bits(bits).to_f32() * 256.0
        }
    }
}

/// The nearest finite value. Ties go to the even bit pattern, and the sign is kept.
fn nearest_byte(element: Element, value: f32) -> u8 {
    if value.is_nan() {
        return if element == Element::S8 { 0 } else { 0x7f };
    }
    let all = (0..=255).filter(|&byte| value_of(element, byte).is_finite());
    let signed = all.filter(|byte| {
        let zero = element == Element::S8 && *byte == 0;
        zero || (byte & 0x80 != 0) == value.is_sign_negative()
    });
    let far =
        |byte: &u8| (f64::from(value_of(element, *byte)) - f64::from(value).clamp(-1e6, 1e6)).abs();
    let order = |a: &u8, b: &u8| far(a).total_cmp(&far(b)).then((a % 2).cmp(&(b % 2)));
    signed.min_by(order).unwrap()
}

/// Ordinary numbers, ties, overflow, infinities and NaN.
const VALUES: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    // Ties between neighbours of binary16, then of bfloat16. One rounds down and one up.
    1.0 + 1.0 / 2048.0,
    1.0 + 3.0 / 2048.0,
    1.0 + 1.0 / 256.0,
    1.0 + 3.0 / 256.0,
    65_519.0,
    65_520.0,
    1e-7,
    f32::INFINITY,
    f32::NAN,
    // Ties of the 8-bit types, the ends of their ranges, and values beyond.
    1.0625,
    1.1875,
    -1.375,
    2.5,
    464.0,
    -61_440.0,
    f32::NEG_INFINITY,
];

/// Thread `i` of the first 20 copies element `i`. Source and destination start `shift` elements
/// past a multiple of 256 bytes.
fn moves(from: Element, to: Element, shift: u32) -> Kernel {
    role(move |b| {
        let [input, output] = ["input", "output"].map(|name| b.param::<ty::U64>(name));
        let thread = b.special(Special::Thread);
        b.if_(thread.lt(VALUES.len() as u32), || {
            let own = |element: Element| (thread + shift) * element.bytes();
            let value = b.load_element(input.byte_offset(own(from)), from);
            b.store_element(output.byte_offset(own(to)), to, value);
        });
    })
}

#[test]
fn elements_are_widened_exactly_and_rounded_to_nearest_even() {
    for from in ALL {
        for to in ALL {
            for shift in [0, 1, 3] {
                let (input, values): (Vec<_>, Vec<_>) =
                    VALUES.iter().map(|&value| stored(from, value)).unzip();
                let expected: Vec<u8> =
                    values.iter().flat_map(|&value| stored(to, value).0).collect();
                let before = (shift * to.bytes()) as usize;
                passes(
                    &moves(from, to, shift),
                    1,
                    |memory| {
                        let mut data = vec![0xaa; (shift * from.bytes()) as usize];
                        data.extend(input.concat());
                        let input = memory.upload("input", &data, Permission::ReadOnly);
                        let around = vec![0x55; before + expected.len() + 2];
                        let output = memory.upload("output", &around, Permission::ReadWrite);
                        (vec![Argument::U64(input), Argument::U64(output)], output)
                    },
                    |memory, output| {
                        let written = memory.read(output, before + expected.len() + 2).unwrap();
                        let (head, rest) = written.split_at(before);
                        let (middle, tail) = rest.split_at(expected.len());
                        assert_eq!(middle, expected, "{from} to {to}, {shift}");
                        assert!(head.iter().chain(tail).all(|&byte| byte == 0x55));
                    },
                );
            }
        }
    }
}

/// Thread `i` of the first 21 copies `bytes` bytes through shared memory. The addresses are any
/// multiple of `bytes`.
#[test]
fn narrow_accesses_touch_no_neighbour_and_fill_with_zeros() {
    for bytes in [1, 2] {
        let kernel = role(move |b| {
            let [input, output] = ["input", "output"].map(|name| b.param::<ty::U64>(name));
            let request = SmemRequest::whole(128 * 4, 16);
            let region = b.region("words", RegionKind::Data(Element::S32), request);
            let thread = b.special(Special::Thread);
            b.if_(thread.lt(21), || {
                let value = b.load_narrow(input.byte_offset(thread * bytes + bytes), bytes);
                let place = b.smem_address(region).offset(thread * 4);
                b.store_shared(place, [value | 0xffff_0000]);
                b.store_narrow_shared(place, bytes, value + 1);
                let back = b.load_narrow_shared(place, bytes);
                let [word] = b.load_shared::<ty::U32, 1>(place);
                let kept = (word >> 16).eq(0xffff).select::<ty::U32>(back, 0);
                b.store_narrow(output.byte_offset(thread * bytes + 3 * bytes), bytes, kept);
            });
        });
        let size = bytes as usize;
        let values: Vec<u32> =
            (0..21).map(|i| (i * 0x1234 + 0xff) & ((1 << (8 * bytes)) - 1)).collect();
        let data: Vec<u8> =
            values.iter().flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect();
        passes(
            &kernel,
            1,
            |memory| {
                let data = [vec![0xaa; size], data.clone()].concat();
                let input = memory.upload("input", &data, Permission::ReadOnly);
                let output = memory.upload("output", &vec![0x55; 26 * size], Permission::ReadWrite);
                (vec![Argument::U64(input), Argument::U64(output)], output)
            },
            |memory, output| {
                let written = memory.read(output, 26 * size).unwrap();
                let (head, rest) = written.split_at(3 * size);
                let (middle, tail) = rest.split_at(21 * size);
                let expected: Vec<u8> = values
                    .iter()
                    .flat_map(|value| (value + 1).to_le_bytes()[..size].to_vec())
                    .collect();
                assert_eq!(middle, expected, "{bytes} bytes");
                assert!(head.iter().chain(tail).all(|&byte| byte == 0x55));
            },
        );
    }
}

#[test]
fn ties_go_to_even() {
    for (element, first, expected) in
        [(Element::F16, 4, [0x3c00u16, 0x3c02]), (Element::Bf16, 6, [0x3f80, 0x3f82])]
    {
        passes(
            &moves(Element::F32, element, 0),
            1,
            |memory| {
                let data: Vec<u8> = VALUES.iter().flat_map(|value| value.to_le_bytes()).collect();
                let input = memory.upload("input", &data, Permission::ReadOnly);
                let output = memory.allocate("output", 2 * VALUES.len());
                (vec![Argument::U64(input), Argument::U64(output)], output)
            },
            |memory, output| {
                for (i, expected) in expected.iter().enumerate() {
                    let written = memory.read(output + 2 * (first + i as u64), 2).unwrap();
                    assert_eq!(written, expected.to_le_bytes(), "{element}");
                }
            },
        );
    }
}

/// Thread 0 loads or stores an element at byte `offset` of the allocation.
fn one_access(element: Element, store: bool, offset: u32) -> Kernel {
    role(move |b| {
        let address = b.param::<ty::U64>("data").byte_offset(offset);
        b.if_(b.special(Special::Thread).eq(0), || {
            b.scope("here", || match store {
                true => b.store_element(address, element, b.constant(1.0)),
                false => {
                    b.load_element(address, element);
                }
            });
        });
    })
}

fn memory_of(bytes: usize) -> impl Fn(&mut Memory) -> Vec<Argument> {
    move |memory| vec![Argument::U64(memory.upload("data", &vec![0; bytes], Permission::ReadWrite))]
}

#[test]
fn addresses_are_multiples_of_one_element_inside_of_memory() {
    for element in ELEMENTS {
        let size = element.bytes();
        // The last bytes of an allocation whose size is not a multiple of four.
        let bytes = 10;
        let last = (bytes - size) / size * size;
        for store in [false, true] {
            let arguments = memory_of(bytes as usize);
            passes(&one_access(element, store, last), 1, |m| (arguments(m), ()), |_, ()| ());
            let fails = |offset, kind| {
                fails_with(&one_access(element, store, offset), 1, &arguments, kind, &["here"])
            };
            fails(1, ReportKind::Misaligned);
            let report = fails(size + size / 2, ReportKind::Misaligned);
            assert!(report.message.contains(&format!("multiple of {size} bytes")), "{report}");
            let report = fails(last + size, ReportKind::OutOfBounds);
            assert!(report.message.contains("'data'"), "{report}");
        }
    }
}

#[test]
fn elements_need_memory_that_may_be_accessed_so() {
    for element in ALL {
        let read_only = |memory: &mut Memory| {
            vec![Argument::U64(memory.upload("data", &[0; 16], Permission::ReadOnly))]
        };
        let kernel = one_access(element, true, 4);
        fails_with(&kernel, 1, read_only, ReportKind::ReadOnlyWrite, &["here"]);
        // Only the bytes beside the element were written.
        let unwritten = |memory: &mut Memory| {
            let address = memory.allocate("data", 16);
            memory.write(address, &[0; 4]).unwrap();
            memory.write(address + 4 + u64::from(element.bytes()), &[0; 4]).unwrap();
            vec![Argument::U64(address)]
        };
        let kernel = one_access(element, false, 4);
        fails_with(&kernel, 1, unwritten, ReportKind::UninitialisedRead, &["here"]);
    }
}

type Act = fn(&KernelBuilder, Val<'_, ty::U64>);

/// Two CTAs access the same memory, and nothing orders them.
fn two(first: Act, second: Act) -> Kernel {
    role(move |b| {
        let data = b.param::<ty::U64>("data");
        b.if_(b.special(Special::Thread).eq(5), || {
            let cta = b.special(Special::Cta);
            b.if_(cta.eq(0), || b.scope("first", || first(b, data)));
            b.if_(cta.eq(1), || b.scope("second", || second(b, data)));
        });
    })
}

fn store_low(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.store_element(data.byte_offset(4u32), Element::Bf16, b.constant(1.0));
}

fn store_high(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.store_element(data.byte_offset(6u32), Element::F16, b.constant(2.0));
}

fn store_last_byte(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.store_element(data.byte_offset(7u32), Element::S8, b.constant(-3.0));
}

fn store_byte_before(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.store_element(data.byte_offset(6u32), Element::E4m3, b.constant(1.0));
}

fn load_high(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.load_element(data.byte_offset(6u32), Element::F16);
}

fn store_word(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.store_element(data.byte_offset(4u32), Element::F32, b.constant(3.0));
}

fn load_pair(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.load_global::<ty::U32, 2>(data);
}

fn count(b: &KernelBuilder, data: Val<'_, ty::U64>) {
    b.atomic(AtomicOp::Add, data.byte_offset(4u32), 1, Order::Relaxed, Scope::Gpu);
}

#[test]
fn neighbours_in_one_word_do_not_race() {
    let prepare = |memory: &mut Memory| {
        let address = memory.upload("data", &[0; 16], Permission::ReadWrite);
        (vec![Argument::U64(address)], address)
    };
    passes(&two(store_low, store_high), 2, prepare, |memory, data| {
        assert_eq!(words(memory, data, 4), [0, 0x4000_3f80, 0, 0]);
    });
    passes(&two(load_high, store_low), 2, prepare, |_, _| ());
    passes(&two(store_byte_before, store_last_byte), 2, prepare, |memory, data| {
        assert_eq!(words(memory, data, 4), [0, 0xfd38_0000, 0, 0]);
    });
}

#[test]
fn accesses_that_share_bytes_race() {
    let pairs: [(Act, Act); 10] = [
        (store_high, store_high),
        (store_high, load_high),
        (store_low, store_word),
        (store_high, store_word),
        (load_high, store_word),
        (store_high, load_pair),
        (store_low, count),
        (store_high, count),
        (store_last_byte, store_high),
        (load_high, store_byte_before),
    ];
    for (first, second) in pairs {
        let kernel = two(first, second);
        fails_with(&kernel, 2, memory_of(16), ReportKind::Race, &["first", "second"]);
    }
    let report = fails_with(
        &two(store_high, store_high),
        2,
        memory_of(16),
        ReportKind::Race,
        &["first", "second"],
    );
    assert!(report.message.contains("'data' + 6"), "{report}");
}

#[test]
fn what_was_written_by_words_is_known_by_halves() {
    // CTA 0 writes a word and then half of the next word, which splits the shadow cells. CTA 1
    // reads a half of the first word.
    let first: Act = |b, data| {
        b.store_global(data, [b.constant::<ty::U32>(7)]);
        store_low(b, data);
    };
    let second: Act = |b, data| {
        b.load_element(data.byte_offset(2u32), Element::Bf16);
    };
    let kernel = two(first, second);
    fails_with(&kernel, 2, memory_of(16), ReportKind::Race, &["first", "second"]);
}

#[test]
fn lanes_must_not_store_different_elements_to_one_place() {
    let kernel = |divisor: u32, element: Element| {
        role(move |b| {
            let lane = b.special(Special::Lane);
            let address = b.param::<ty::U64>("data").byte_offset(lane / divisor * element.bytes());
            let value = (lane % 2).eq(0).select::<ty::F32>(1.0, 2.0);
            b.if_(b.special(Special::Warp).eq(0), || {
                b.scope("here", || b.store_element(address, element, value));
            });
        })
    };
    for element in ALL {
        passes(&kernel(1, element), 1, |m| (memory_of(128)(m), ()), |_, ()| ());
        fails_with(&kernel(2, element), 1, memory_of(128), ReportKind::Race, &["here"]);
    }
}

#[test]
fn lanes_that_write_up_and_down_are_compared_with_all_before() {
    let kernel = |odd_one: u32| {
        role(move |b| {
            let lane = b.special(Special::Lane);
            let address = b.param::<ty::U64>("data").byte_offset((lane + 1) % 2 * 4);
            let value = lane.eq(odd_one).select::<ty::F32>(1.0, 2.0);
            b.if_(b.special(Special::Warp).eq(0), || {
                b.scope("here", || b.store_global(address, [value]));
            });
        })
    };
    passes(&kernel(32), 1, |m| (memory_of(8)(m), ()), |_, ()| ());
    // Lane 1's range ends where lane 0's begins.
    fails_with(&kernel(2), 1, memory_of(8), ReportKind::Race, &["here"]);
}

/// Warps store to shared memory, `apart` bytes from each other, `bytes` bytes each.
fn warps_beside_each_other(apart: u32, bytes: u32) -> Kernel {
    role(move |b| {
        let region = RegionKind::Data(Element::U8);
        let smem = b.smem_address(b.region("tile", region, SmemRequest::whole(64, 16)));
        let own = smem.offset(b.special(Special::Warp) * apart);
        b.if_(b.special(Special::Lane).eq(0), || {
            b.scope("store", || b.store_narrow_shared(own, bytes, b.constant(7)));
        });
    })
}

#[test]
fn neighbours_in_one_word_of_shared_memory_do_not_race() {
    for bytes in [1, 2] {
        let kernel = warps_beside_each_other(bytes, bytes);
        passes(&kernel, 1, |_| (vec![], ()), |_, ()| ());
    }
    let kernel = warps_beside_each_other(0, 1);
    fails_with(&kernel, 1, |_| vec![], ReportKind::Race, &["store"]);
}

#[test]
fn half_a_word_of_shared_memory_is_unwritten() {
    let kernel = |offset: u32| {
        role(move |b| {
            let region = RegionKind::Data(Element::Bf16);
            let smem = b.smem_address(b.region("tile", region, SmemRequest::whole(64, 16)));
            b.if_(b.special(Special::Thread).eq(0), || {
                b.store_narrow_shared(smem, 2, b.constant(7));
                b.scope("load", || b.load_narrow_shared(smem.offset(offset), 2));
            });
        })
    };
    passes(&kernel(0), 1, |_| (vec![], ()), |_, ()| ());
    fails_with(&kernel(2), 1, |_| vec![], ReportKind::UninitialisedRead, &["load"]);
}
