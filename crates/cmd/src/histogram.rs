//! The histogram of dedup tables, as `zpool status -D` and `zdb -D` show it.

use protocol::words::nicenum::{nicebytes, nicenum};

/// The table: sums by the binary logarithm of references, and their total if it is wanted and there is any.
pub fn dedup_histogram(histogram: &[[u64; 8]], total: Option<&[u64; 8]>) -> String {
    let mut text = format!("bucket   {:>30}   {:>30}\n", "allocated          ", "referenced          ");
    text += &format!("{0:_<6}   {0:_<30}   {0:_<30}\n", "");
    text += &row(["refcnt", "blocks", "LSIZE", "PSIZE", "DSIZE", "blocks", "LSIZE", "PSIZE", "DSIZE"]);
    text += &row(["------", "------", "-----", "-----", "-----", "------", "-----", "-----", "-----"]);
    for (shift, bucket) in histogram.iter().enumerate().take(64).filter(|(_, bucket)| bucket[0] != 0) {
        text += &sums(&nicenum(1 << shift), bucket);
    }
    text + &total.filter(|total| total[0] != 0).map_or(String::new(), |total| sums("Total", total))
}

fn row(cells: [&str; 9]) -> String {
    let [a, b, c, d, e, f, g, h, i] = cells;
    format!("{a:>6}   {b:>6}   {c:>5}   {d:>5}   {e:>5}   {f:>6}   {g:>5}   {h:>5}   {i:>5}\n")
}

fn sums(name: &str, sums: &[u64; 8]) -> String {
    let cell = |i: usize| if i.is_multiple_of(4) { nicenum(sums[i]) } else { nicebytes(sums[i]) };
    let cells: [String; 8] = std::array::from_fn(cell);
    let [b, c, d, e, f, g, h, i] = cells.each_ref().map(String::as_str);
    row([name, b, c, d, e, f, g, h, i])
}
