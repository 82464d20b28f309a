//! Records of two streams, index by index.

use super::{Job, Place};
use crate::dataset::Stream;
use crate::error::Result;
use crate::format::Kind;
use crate::in_order::{BATCH_BYTES, BATCH_RECORDS};
use crate::pool::pool;
use crate::store::Store;

/// The two streams that are compared.
#[derive(Clone, Copy)]
pub(super) struct Pair<'s> {
    pub(super) a: &'s Stream,
    pub(super) b: &'s Stream,
}

/// Compares two streams of the name `name`.
pub(super) fn compare_records(job: &mut Job<'_>, name: &str, pair: Pair<'_>) -> Result<()> {
    let Pair { a, b } = pair;
    let stream = || Place::Stream(name.to_string());
    let dtype = |stream: &Stream| stream.schema().map_or("none".into(), |s| s.dtype.to_string());
    let (one, two) = (dtype(a), dtype(b));
    if one != two {
        job.differ(stream(), format!("the dtype is {one} in the first and {two} in the second"));
    }
    let (len_a, len_b) = (a.len(), b.len());
    if len_a != len_b {
        job.differ(stream(), format!("the first has {len_a} records, the second {len_b}"));
    }
    let common = len_a.min(len_b);
    for start in (0..common).step_by(BATCH_RECORDS) {
        job.progress.check()?;
        let end = common.min(start + BATCH_RECORDS as u64);
        let indices: Vec<u64> = (start..end).collect();
        let both: Vec<(u64, u64)> = indices.iter().map(|&i| (i, i)).collect();
        let (bytes, mut found) = differences(a.store(), b.store(), &both)?;
        // A record is named once: its bytes are of interest where its shape is the same.
        for (k, what) in shapes(pair, &indices)? {
            found.retain(|(other, _)| *other != k);
            found.push((k, what));
        }
        found.sort_unstable_by_key(|(k, _)| *k);
        for (k, what) in found {
            job.differ(Place::Record(name.to_string(), start + k as u64), what);
        }
        job.done.records += end - start;
        job.done.bytes += bytes;
        job.progress.add(end - start, bytes);
    }
    Ok(())
}

/// The records among `indices` whose shapes differ, by their position.
fn shapes(pair: Pair<'_>, indices: &[u64]) -> Result<Vec<(usize, String)>> {
    let (Some(a), Some(b)) = (pair.a.schema(), pair.b.schema()) else { return Ok(Vec::new()) };
    if let (Kind::Dense { item_shape: one }, Kind::Dense { item_shape: two }) = (&a.kind, &b.kind)
        && one == two
    {
        return Ok(Vec::new());
    }
    let differ = |&index: &u64| -> Result<Option<String>> {
        let (one, two) = (pair.a.shape(index)?.unwrap_or_default(), pair.b.shape(index)?.unwrap_or_default());
        Ok((one != two).then(|| format!("the shape is {one:?} in the first and {two:?} in the second")))
    };
    let found = pool().map(indices, differ).into_iter().enumerate();
    found.filter_map(|(k, differs)| differs.map(|what| Some((k, what?))).transpose()).collect()
}

/// Compares the bytes of pairs of records, an index of `a` and one of `b` each, at most [`BATCH_RECORDS`] of them.
/// Returns how many bytes were compared, and the pairs that differ by their position, in no particular order.
pub(super) fn differences(a: &Store, b: &Store, pairs: &[(u64, u64)]) -> Result<(u64, Vec<(usize, String)>)> {
    let (of_a, of_b): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
    let (lengths_a, lengths_b) = (a.lengths(&of_a)?, b.lengths(&of_b)?);
    let mut found = Vec::new();
    let mut same = Vec::with_capacity(pairs.len());
    let mut compared = 0;
    for (k, (&one, &two)) in lengths_a.iter().zip(&lengths_b).enumerate() {
        if one == two {
            same.push((k, u64::from(one)));
            compared += u64::from(one);
        } else {
            found.push((k, format!("it has {one} bytes in the first and {two} in the second")));
        }
    }
    let mut rest = &same[..];
    while !rest.is_empty() {
        let mut bytes = 0u64;
        let fits = rest.iter().take_while(|(_, length)| {
            bytes = bytes.saturating_add(*length);
            bytes <= BATCH_BYTES
        });
        let n = fits.count().max(1);
        let (now, later) = rest.split_at(n);
        let pick = |of: &[u64]| -> Vec<u64> { now.iter().filter_map(|&(k, _)| of.get(k).copied()).collect() };
        let (one, offsets) = a.gather_packed(&pick(&of_a))?;
        let (two, _) = b.gather_packed(&pick(&of_b))?;
        // Both have the same lengths in the same order, so the offsets hold for both.
        for (&(k, length), &offset) in now.iter().zip(&offsets) {
            let range = offset as usize..(offset + length) as usize;
            let (one, two) = (one.get(range.clone()).unwrap_or_default(), two.get(range).unwrap_or_default());
            if one != two {
                let at = one.iter().zip(two).position(|(x, y)| x != y).unwrap_or_default();
                found.push((k, format!("byte {at} differs")));
            }
        }
        rest = later;
    }
    Ok((compared, found))
}
