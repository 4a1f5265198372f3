//! Pools that machines of the other byte order made: what is written anew is little-endian, the rest stays.

use super::{Lifted, live_with};

#[test]
fn blocks_of_both_orders() {
    for case in ["be-single", "be-mirror", "be-raidz1", "be-raidz2", "be-raidz3", "be-blocks"] {
        println!("{case}");
        live_with(&Lifted::of(case));
    }
}

#[test]
fn files_of_both_orders() {
    for case in ["be-files", "be-attrs", "be-dirs", "be-mixed"] {
        println!("{case}");
        live_with(&Lifted::of(case));
    }
}

#[test]
fn an_old_pool_of_the_other_order() {
    live_with(&Lifted::of("be-v28"));
}
