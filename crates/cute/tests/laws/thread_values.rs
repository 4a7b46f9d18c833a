//! Thread-value layouts.

use pgemm_cute::{CuteError, IntTuple, Layout, TvLayout};
use proptest::prelude::*;

use crate::support::{any_strides, config, indices, power_of_two_layout};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn thread_value_layouts_from_threads_and_values_are_bijections(
        threads in power_of_two_layout(), value in power_of_two_layout(), data_order in any::<bool>(),
    ) {
        let tv = TvLayout::from_threads_and_values(&threads, &value).unwrap();
        prop_assert!(tv.is_bijection());
        prop_assert_eq!((tv.threads(), tv.values()), (threads.size(), value.size()));
        let inverse = tv.inverse().unwrap();
        let tile = tv.tile().clone();
        let data = if data_order { Layout::row_major(&tile) } else { Layout::col_major(&tile) }.unwrap();
        let partitioned = tv.over(&data).unwrap();
        for t in 0..tv.threads() {
            for v in 0..tv.values() {
                let coordinate = tv.coordinate(t, v).unwrap();
                prop_assert_eq!(tv.owner(&coordinate), Ok((t, v)));
                prop_assert_eq!(inverse.index(&coordinate), Ok(t + tv.threads() * v));
                prop_assert_eq!(partitioned.index([t, v]), data.index(&coordinate));
            }
        }
    }

    #[test]
    fn threads_and_values_have_the_requested_arrangement(
        threads in (1i64..=4, 1i64..=4), values in (1i64..=4, 1i64..=3),
    ) {
        // Thread (p,q) holds block (p,q), and its value (i,j) is element (i,j) of that block.
        let (t, v) = (Layout::row_major(threads).unwrap(), Layout::row_major(values).unwrap());
        let tv = TvLayout::from_threads_and_values(&t, &v).unwrap();
        prop_assert_eq!(tv.tile(), &(threads.0 * values.0, threads.1 * values.1).into());
        for p in 0..threads.0 {
            for q in 0..threads.1 {
                for i in 0..values.0 {
                    for j in 0..values.1 {
                        let at = (p * values.0 + i, q * values.1 + j);
                        let owner = (t.index((p, q)).unwrap(), v.index((i, j)).unwrap());
                        prop_assert_eq!(tv.owner(at), Ok(owner));
                    }
                }
            }
        }
    }

    #[test]
    fn check_bijection_agrees_with_counting(a in any_strides(0..=8), tile in 1i64..40) {
        let a = Layout::concat([&a, &Layout::parse("1:0").unwrap()]).unwrap();
        if let Ok(tv) = TvLayout::new(a.clone(), tile) {
            let mut counts = vec![0usize; tile as usize];
            indices(&a).into_iter().for_each(|index| counts[index as usize] += 1);
            match (tv.check_bijection(), counts.iter().position(|&count| count != 1)) {
                (Ok(()), None) => {}
                (Err(CuteError::NotABijection { coord, held, .. }), Some(first)) => {
                    prop_assert_eq!(*coord, IntTuple::from(first as i64));
                    prop_assert_eq!(held == "by no thread", counts[first] == 0);
                }
                (result, expected) => prop_assert!(false, "{result:?} but {expected:?}"),
            }
        }
    }
}
