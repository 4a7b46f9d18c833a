//! Parts of a long test for several processes.

/// This process's part of the items where `PGEMM_SHARD` names one as `I/N`: every Nth, from the Ith
/// on, counting from 0.
pub fn shard<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let Ok(text) = std::env::var("PGEMM_SHARD") else { return items.collect() };
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    let Some((index, of)) = parts.filter(|(index, of)| index < of) else {
        panic!("PGEMM_SHARD={text}: it takes I/N with I below N, as in 0/8")
    };
    items.skip(index).step_by(of).collect()
}
