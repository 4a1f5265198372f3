//! The fuzzer of pools, for a moment: `./x fuzz-pools` goes on.

use testkit::rng::Rng;
use tests::pools;

const CASES: usize = 100;

#[test]
fn hostile_pools_do_no_harm() {
    let bases = pools::bases(true);
    let mut rng = Rng::new(1);
    let mut writable = 0;
    for _ in 0..CASES {
        let number = rng.number() >> 16;
        let outcome = pools::run(&bases, number);
        let found = outcome.findings;
        assert!(found.is_empty(), "./x fuzz-pools case {number}: {}: {found:#?}", outcome.story);
        writable += usize::from(outcome.was_writable);
    }
    assert!(writable > CASES / 4, "only {writable} of {CASES} pools could be written to");
    println!("{CASES} hostile pools, {writable} of them written to");
}
