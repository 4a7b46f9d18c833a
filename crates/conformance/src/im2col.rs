//! Im2col loads: pixels of images for a filter of a convolution. Each is also computed by
//! [`Images::expected`], without a walk.

use pgemm_ir::{
    Element, Im2colAxis, KernelBuilder, Occupancy, RegionKind, SmemRequest, Special, SwizzleMode,
    TensorMapArgument, TensorMapSpec, Type, Val, ty,
};

use crate::case::{Case, Closeness};

/// Bytes of a place in the input: eight words, for five coordinates and three offsets.
const PLACE_BYTES: usize = 32;

/// Images, an im2col map of them, and the places of loads.
#[derive(Clone, Debug)]
pub struct Images {
    /// What is special about it.
    pub name: &'static str,
    /// The map.
    pub spec: TensorMapSpec,
    /// Extents of the tensor: channels, the axes, and images.
    pub extents: Vec<u64>,
    /// The coordinates at which each load begins, and its offsets.
    pub places: Vec<(Vec<i32>, Vec<u32>)>,
    /// Whether a CTA loads for itself and for a second one.
    pub multicast: bool,
}

impl Images {
    /// The bytes of the tensor. None of them is 0, so that they differ from pixels outside.
    pub fn tensor(&self) -> Vec<u8> {
        let bytes = self.extents.iter().product::<u64>() * u64::from(self.spec.element.bytes());
        (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8 | 1).collect()
    }

    /// The places and the tensor behind them.
    fn input(&self) -> Vec<u8> {
        let mut input = vec![];
        for (coordinates, offsets) in &self.places {
            let words = coordinates.iter().copied().chain(offsets.iter().map(|&o| o as i32));
            let end = input.len() + PLACE_BYTES;
            input.extend(words.flat_map(i32::to_le_bytes));
            input.resize(end, 0);
        }
        input.extend(self.tensor());
        input
    }

    /// A kernel in which each CTA loads one box and stores its bytes as they are in shared memory.
    pub fn case(&self) -> Case {
        let cluster = if self.multicast { 2 } else { 1 };
        let b = KernelBuilder::new("im2col", cluster);
        let [input, output] = ["input", "output"].map(|name| b.param::<ty::U64>(name));
        let map = b.tensor_map("map", self.spec.clone());
        let (rank, bytes) = (self.spec.rank(), self.spec.box_bytes());
        let kind = RegionKind::Data(self.spec.element);
        let tile = b.smem_address(b.region("tile", kind, SmemRequest::whole(bytes, 1024)));
        let full = b.smem_address(b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8)));
        b.warp_roles(Occupancy::ONE_CTA, |roles| {
            roles.role("all", 1, 64, |_| {
                let (thread, cta) = (b.special(Special::Thread), b.special(Special::Cta));
                b.if_(thread.eq(0), || {
                    full.mbarrier_init(1);
                    b.fence_mbarrier_init();
                });
                b.sync_cta();
                if self.multicast {
                    b.cluster_arrive(false);
                    b.cluster_wait();
                }
                b.if_(thread.eq(0), || {
                    let place = input.byte_offset(cta / cluster * PLACE_BYTES as u32);
                    let words: [[Val<'_, ty::U32>; 4]; 2] =
                        [0, 16].map(|at| b.load_global(place.byte_offset(at)));
                    let (coordinates, rest) = words.as_flattened().split_at(rank);
                    let map = map.at_offsets(&rest[..rank - 2]);
                    full.mbarrier_expect_copies(|copies| {
                        if self.multicast {
                            let first = b.special(Special::CtaRank).eq(0);
                            copies.in_turn(first, b.constant(3), |copies| {
                                copies.load(&map, tile, coordinates);
                            });
                        } else {
                            copies.load(&map, tile, coordinates);
                        }
                    });
                });
                full.mbarrier_wait(0);
                let own = output.byte_offset(cta * bytes);
                b.for_range(thread * 8, bytes, 128 * 8, |at| {
                    let words = b.load_shared::<ty::U32, 2>(tile.offset(at));
                    b.store_global(own.byte_offset(at), words);
                });
            });
        });
        let kernel = b.finish().expect("a kernel that can be built");
        let name = format!("im2col load, {}", self.name);
        let kernel = pgemm_ir::optimise(kernel).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ctas = self.places.len() as u32 * cluster;
        let tensor = (self.places.len() * PLACE_BYTES) as u64;
        Case {
            name,
            kernel,
            grid: [ctas, 1, 1],
            input: self.input(),
            output: vec![0; (bytes * ctas) as usize],
            map: Some(TensorMapArgument::packed(tensor, self.spec.element, &self.extents)),
            result: Type::U64,
            closeness: Closeness::Exact,
        }
    }

    /// What the kernel stores. A pixel's number among the positions of all images gives its
    /// coordinates by division.
    pub fn expected(&self) -> Vec<u8> {
        let tensor = self.tensor();
        let axes = self.spec.im2col.as_deref().unwrap_or_default();
        let element = self.spec.element.bytes() as usize;
        let [channels, pixels] = [0, 1].map(|at| self.spec.box_extents[at] as usize);
        let positions: Vec<i64> = axes
            .iter()
            .zip(&self.extents[1..])
            .map(|(axis, &extent)| {
                let last = extent as i64 - 1 + i64::from(axis.upper);
                (last - i64::from(axis.lower)) / i64::from(axis.stride) + 1
            })
            .collect();
        let mut output = vec![];
        for (coordinates, offsets) in &self.places {
            let image = coordinates[axes.len() + 1];
            let mut begin = i64::from(image);
            for (at, axis) in axes.iter().enumerate().rev() {
                let number = (coordinates[at + 1] - axis.lower) / axis.stride as i32;
                begin = begin * positions[at] + i64::from(number);
            }
            let mut tile = vec![0; channels * element * pixels];
            for (pixel, channel) in (0..pixels).flat_map(|p| (0..channels).map(move |c| (p, c))) {
                let mut left = begin + pixel as i64;
                let mut at = vec![i64::from(coordinates[0]) + channel as i64];
                for (axis, (own, count)) in axes.iter().zip(&positions).enumerate() {
                    let position =
                        i64::from(own.lower) + left.rem_euclid(*count) * i64::from(own.stride);
                    at.push(position + i64::from(offsets[axis]));
                    left = left.div_euclid(*count);
                }
                at.push(left);
                let inside =
                    at.iter().zip(&self.extents).all(|(at, &e)| (0..e as i64).contains(at));
                if !inside {
                    continue;
                }
                let extents = at.iter().zip(&self.extents).rev();
                let index = extents.fold(0, |index, (at, &e)| index * e as usize + *at as usize);
                let to = (pixel * channels + channel) * element;
                let to = self.spec.swizzle.apply(to as u32) as usize;
                let from = index * element;
                tile[to..to + element].copy_from_slice(&tensor[from..from + element]);
            }
            output.extend(tile.repeat(if self.multicast { 2 } else { 1 }));
        }
        output
    }
}

/// Every kind of map and of place.
pub fn images() -> Vec<Images> {
    let filter = Im2colAxis::of_filter;
    let axis = |lower, upper, stride| Im2colAxis { lower, upper, stride };
    let map = |element, box_extents, axes: &[Im2colAxis], swizzle| {
        TensorMapSpec::im2col(element, box_extents, axes.to_vec(), swizzle)
    };
    let place = |at: &[i32], offsets: &[u32]| (at.to_vec(), offsets.to_vec());
    vec![
        Images {
            name: "3-D with ragged channels",
            spec: map(Element::Bf16, [32, 24], &[filter(3, 1, 1, 1)], SwizzleMode::B64),
            extents: vec![40, 9, 3],
            places: vec![
                place(&[0, -1, 0], &[0]),
                place(&[32, 3, 1], &[2]),
                // The last pixels are beyond the last image.
                place(&[0, 7, 1], &[1]),
                // These begin before the first channel and before the first image.
                place(&[-8, 0, -1], &[1]),
            ],
            multicast: false,
        },
        Images {
            name: "4-D as in the PTX ISA",
            spec: map(Element::Bf16, [64, 64], &[filter(3, 1, 1, 1); 2], SwizzleMode::B128),
            extents: vec![64, 9, 14, 3],
            places: vec![
                place(&[0, 4, 7, 1], &[0, 0]),
                place(&[0, -1, -1, 0], &[2, 1]),
                place(&[0, 7, 12, 2], &[1, 2]),
            ],
            multicast: false,
        },
        Images {
            name: "4-D with strides and dilation",
            spec: map(
                Element::F32,
                [8, 36],
                &[filter(3, 2, 2, 2), filter(3, 2, 2, 3)],
                SwizzleMode::B32,
            ),
            extents: vec![12, 8, 11, 4],
            places: vec![
                place(&[0, -2, -2, 0], &[0, 2]),
                place(&[4, 4, 1, 1], &[4, 0]),
                place(&[0, 2, 7, 3], &[2, 4]),
            ],
            multicast: false,
        },
        Images {
            name: "4-D of few positions",
            spec: map(
                Element::F16,
                [16, 70],
                &[axis(2, -3, 1), axis(-3, -9, 2)],
                SwizzleMode::None,
            ),
            extents: vec![16, 7, 8, 40],
            places: vec![place(&[0, 2, -3, 0], &[255, 3]), place(&[0, 3, -3, 5], &[0, 4])],
            multicast: false,
        },
        Images {
            name: "4-D with positions beyond the image",
            spec: map(Element::S32, [8, 132], &[axis(-4, 5, 8), axis(1, 2, 1)], SwizzleMode::B32),
            extents: vec![8, 6, 3, 30],
            places: vec![place(&[0, -4, 1, 0], &[0, 0]), place(&[4, 4, 4, 3], &[3, 1])],
            multicast: false,
        },
        Images {
            name: "5-D of bytes",
            spec: map(
                Element::U8,
                [16, 100],
                &[axis(-1, 0, 1), axis(0, -1, 2), axis(-1, 1, 1)],
                SwizzleMode::None,
            ),
            extents: vec![48, 5, 4, 3, 3],
            places: vec![
                place(&[16, -1, 0, -1, 0], &[0, 0, 0]),
                place(&[32, 4, 2, 1, 1], &[0, 1, 2]),
                place(&[0, 2, 0, 3, 1], &[31, 0, 0]),
            ],
            multicast: false,
        },
        Images {
            name: "5-D for two CTAs",
            spec: map(Element::Bf16, [16, 40], &[filter(3, 1, 1, 2); 3], SwizzleMode::B32),
            extents: vec![24, 6, 5, 4, 2],
            places: vec![
                place(&[0, 1, 3, -1, 0], &[0, 1, 2]),
                place(&[16, 3, -1, 1, 1], &[2, 0, 1]),
            ],
            multicast: true,
        },
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    images().iter().map(Images::case).collect()
}
