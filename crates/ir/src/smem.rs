//! Shared-memory planning: gives regions offsets such that regions that are alive at the same time
//! do not overlap.

use std::ops::Range;

/// A request for shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmemRequest {
    /// Size in bytes.
    pub bytes: u32,
    /// Alignment in bytes, a power of two up to 1024.
    pub align: u32,
    /// The phases of the kernel in which the region is alive. The kernel numbers its phases itself.
    pub lifetime: Range<u32>,
}

impl SmemRequest {
    /// A region that lives as long as the kernel.
    pub fn whole(bytes: u32, align: u32) -> Self {
        SmemRequest { bytes, align, lifetime: 0..u32::MAX }
    }
}

/// The offset of each request. The most strictly aligned requests come first, each at the lowest
/// offset that no region of an overlapping lifetime takes.
pub fn place(requests: &[SmemRequest]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(requests[i].align), i));
    let mut offsets = vec![0; requests.len()];
    let mut placed: Vec<usize> = vec![];
    for i in order {
        let request = &requests[i];
        let mut taken: Vec<Range<u32>> = placed
            .iter()
            .filter(|&&j| overlap(&requests[j].lifetime, &request.lifetime))
            .map(|&j| offsets[j]..offsets[j] + requests[j].bytes)
            .collect();
        taken.sort_by_key(|range| range.start);
        let mut offset = 0;
        for range in taken {
            if offset + request.bytes > range.start {
                offset = offset.max(range.end.next_multiple_of(request.align));
            } else {
                break;
            }
        }
        offsets[i] = offset;
        placed.push(i);
    }
    offsets
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: u32, align: u32, lifetime: Range<u32>) -> SmemRequest {
        SmemRequest { bytes, align, lifetime }
    }

    #[test]
    fn aligned_regions_come_first_and_small_ones_fill_the_gaps() {
        let offsets = place(&[
            SmemRequest::whole(24, 8),
            SmemRequest::whole(1000, 1024),
            SmemRequest::whole(1024, 1024),
        ]);
        assert_eq!(offsets, [1000, 0, 1024]);
    }

    #[test]
    fn disjoint_lifetimes_share_bytes() {
        let offsets =
            place(&[request(4096, 1024, 0..1), request(2048, 1024, 1..2), request(512, 128, 0..2)]);
        assert_eq!(offsets, [0, 0, 4096]);
    }

    #[test]
    fn no_two_live_regions_overlap() {
        let mut seed = 1u32;
        let mut next = |limit: u32| {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            (seed >> 8) % limit
        };
        for _ in 0..200 {
            let requests: Vec<_> = (0..8)
                .map(|_| {
                    let begin = next(4);
                    request(1 + next(3000), 1 << (3 + next(8)), begin..begin + 1 + next(3))
                })
                .collect();
            let offsets = place(&requests);
            for i in 0..requests.len() {
                assert_eq!(offsets[i] % requests[i].align, 0);
                for j in 0..i {
                    let bytes = |k: usize| offsets[k]..offsets[k] + requests[k].bytes;
                    assert!(
                        !overlap(&requests[i].lifetime, &requests[j].lifetime)
                            || !overlap(&bytes(i), &bytes(j)),
                        "{requests:?} {offsets:?}"
                    );
                }
            }
        }
    }
}
