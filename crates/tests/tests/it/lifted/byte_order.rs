//! Pools that machines of the other byte order made: what is written anew is little-endian, the rest stays.

use super::live_with_all;

#[test]
fn blocks_of_both_orders() {
    live_with_all(&["be-raidz2", "be-single", "be-mirror", "be-raidz1", "be-raidz3", "be-blocks"]);
}

#[test]
fn files_of_both_orders() {
    live_with_all(&["be-mixed", "be-files", "be-attrs", "be-dirs"]);
}

#[test]
fn an_old_pool_of_the_other_order() {
    live_with_all(&["be-v28"]);
}
