//! Work for several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use crate::error::Error;

/// Does something with every item, on some threads, which take the items in their order. Returns
/// the results in that order. The function is given the number of its thread.
///
/// # Errors
/// The first error of the function; no item is begun after it.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(usize, &T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Ok(Vec::<(usize, R)>::new())));
    scope(|scope| {
        for thread in 0..threads {
            let (next, results, work) = (&next, &results, &work);
            scope.spawn(move || {
                while let Some((index, item)) = take(next, items) {
                    let result = work(thread, item);
                    let mut results = results.lock().expect("no thread panics");
                    match (&mut *results, result) {
                        (Ok(done), Ok(result)) => done.push((index, result)),
                        (results, Err(error)) => *results = Err(error),
                        (Err(_), _) => {}
                    }
                    if results.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics")?;
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

fn take<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let squares = each(&items, 3, |_, item| Ok(item * item)).unwrap();
        assert_eq!(squares, items.iter().map(|item| item * item).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_the_work() {
        let done = AtomicUsize::new(0);
        let result = each(&[0; 100], 1, |_, _| {
            done.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::Pack { why: "no".to_owned() })
        });
        assert!(matches!(result, Err(Error::Pack { .. })));
        assert_eq!(done.into_inner(), 1);
    }
}
