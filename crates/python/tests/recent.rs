//! What an `Engine` remembers of its jobs.

#[path = "../src/engine/recent.rs"]
mod recent;

use recent::Recent;

#[test]
fn what_was_not_used_for_longest_is_forgotten() {
    let recent = Recent::new(4);
    for key in 0..4 {
        recent.add(key, key * 10);
    }
    assert_eq!((recent.len(), recent.get(&0), recent.get(&7)), (4, Some(0), None));
    recent.add(4, 40);
    // 1 and 2 go; 0 was used since.
    assert_eq!(
        [0, 1, 2, 3, 4].map(|key| recent.get(&key)),
        [Some(0), None, None, Some(30), Some(40)]
    );
    recent.add(4, 41);
    assert_eq!((recent.len(), recent.get(&4)), (3, Some(41)));
}

#[test]
fn there_are_never_more_than_the_limit() {
    for most in [1, 2, 3, 10] {
        let recent = Recent::new(most);
        for key in 0..100 {
            recent.add(key, ());
            assert!(recent.len() <= most && recent.get(&key).is_some(), "{most}, {key}");
        }
    }
}
