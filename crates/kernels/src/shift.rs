//! Reads of lines at addresses that are not multiples of 16 bytes, and transposition in registers.
//! Threads load two neighbouring 16-byte units and shift the bytes between them into place. At the
//! ends of a matrix they load element by element.

use pgemm_ir::{KernelBuilder, Val, ty};

/// A 16-byte unit.
pub(crate) type Words<'k> = [Val<'k, ty::U32>; 4];

/// A number of bytes by which chunks are shifted, below 16.
#[derive(Clone, Copy)]
pub(crate) struct Shift<'k> {
    by_8: Val<'k, ty::Bool>,
    /// `None` for elements of 8 bytes.
    by_4: Option<Val<'k, ty::Bool>>,
    /// Selects the bytes of two words. `None` for elements of 4 bytes and more.
    selector: Option<Val<'k, ty::U32>>,
}

impl<'k> Shift<'k> {
    /// A shift by `bytes`, which is a multiple of `unit`.
    pub(crate) fn new(bytes: Val<'k, ty::U32>, unit: u32) -> Self {
        Shift {
            by_8: (bytes & 8).ne(0),
            by_4: (unit < 8).then(|| (bytes & 4).ne(0)),
            selector: (unit < 4).then(|| (bytes & 3) * 0x1111 + 0x3210),
        }
    }

    /// Extracts 16 of 32 bytes, from the byte of the shift on.
    pub(crate) fn down(&self, low: &Words<'k>, high: &Words<'k>) -> Words<'k> {
        let words = [*low, *high].concat();
        let by = |words: &[Val<'k, ty::U32>], moves: Val<'k, ty::Bool>, count: usize| {
            let pairs = words.iter().zip(&words[count..]);
            pairs.map(|(stays, moved)| moves.select(*moved, *stays)).collect::<Vec<_>>()
        };
        let words = by(&words, self.by_8, 2);
        let words = self.by_4.map(|moves| by(&words, moves, 1)).unwrap_or(words);
        std::array::from_fn(|i| match self.selector {
            Some(selector) => words[i].permute_bytes(words[i + 1], selector),
            None => words[i],
        })
    }
}

/// Extracts 16 of 32 bytes, from byte `shift` on. `shift` is a multiple of `unit` and below 16.
pub(crate) fn shift_down<'k>(
    low: &Words<'k>,
    high: &Words<'k>,
    shift: Val<'k, ty::U32>,
    unit: u32,
) -> Words<'k> {
    Shift::new(shift, unit).down(low, high)
}

/// Loads a chunk of elements of `size` bytes one by one. They are `step` bytes apart, and the first
/// is at `first`. Elements after number `last` are copies of that element.
pub(crate) fn gather<'k>(
    b: &'k KernelBuilder,
    first: Val<'k, ty::U64>,
    step: Val<'k, ty::U64>,
    last: Val<'k, ty::U32>,
    size: u32,
) -> Words<'k> {
    let address = |i: u32| first + last.min(i).to_u64() * step;
    match size {
        1 | 2 => std::array::from_fn(|word| {
            let in_word = 4 / size;
            (0..in_word)
                .map(|i| {
                    let element = b.load_narrow(address(word as u32 * in_word + i), size);
                    element << (8 * size * i)
                })
                .reduce(|word, element| word | element)
                .unwrap_or_else(|| b.constant(0))
        }),
        4 => std::array::from_fn(|i| b.load_global::<ty::U32, 1>(address(i as u32))[0]),
        _ => {
            let pairs = [0, 1].map(|i| b.load_global::<ty::U32, 2>(address(i)));
            std::array::from_fn(|i| pairs[i / 2][i % 2])
        }
    }
}

/// Masks that keep the first `bytes` bytes of a chunk, which are at most all of them.
pub(crate) fn masks<'k>(b: &'k KernelBuilder, bytes: Val<'k, ty::U32>) -> Words<'k> {
    std::array::from_fn(|i| {
        let of_word = bytes - bytes.min(4 * i as u32);
        // A shift beyond the word leaves zero, and one less than that has all bits set.
        (b.constant::<ty::U32>(1) << (of_word * 8)) - 1
    })
}

/// For each element of a chunk, the word or words that it forms with the elements of the
/// neighbouring lines.
pub(crate) fn across<'k>(lines: &[Words<'k>], size: u32) -> Vec<Vec<Val<'k, ty::U32>>> {
    match (size, lines) {
        (1, [a, b, c, d]) => (0..4)
            .flat_map(|word| {
                // Bytes 0, 1 and 2, 3 of both lines, alternately.
                let pairs = |x: &Words<'k>, y: &Words<'k>| {
                    [0x5140, 0x7362].map(|selector| x[word].permute_bytes(y[word], selector))
                };
                let (above, below) = (pairs(a, b), pairs(c, d));
                [0, 1].into_iter().flat_map(move |half| {
                    [0x5410, 0x7632]
                        .map(|selector| vec![above[half].permute_bytes(below[half], selector)])
                })
            })
            .collect(),
        (2, [a, b]) => (0..4)
            .flat_map(|word| {
                [0x5410, 0x7632].map(|selector| vec![a[word].permute_bytes(b[word], selector)])
            })
            .collect(),
        (8, [words]) => words.chunks(2).map(<[_]>::to_vec).collect(),
        (_, lines) => lines.iter().flatten().map(|word| vec![*word]).collect(),
    }
}
