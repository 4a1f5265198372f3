//! Pools by ztest: random histories, made for the occasion.
//!
//! `tests/oracle/ztest-pools` makes them, with zdb's totals beside each; `CENOTE_ZTEST_POOLS` is the
//! folder that it filled (`./x interop` does all of it).

use std::fs;
use std::path::PathBuf;

use testkit::{program, totals};

#[test]
fn every_block_of_ztest_pools() {
    let Some(dir) = std::env::var_os("CENOTE_ZTEST_POOLS").map(PathBuf::from) else {
        eprintln!("SKIPPED ztest: CENOTE_ZTEST_POOLS names no folder of pools (see ./x interop)");
        return;
    };
    let mut checked = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&dir).expect("the folder can be listed") {
        let pool = entry.expect("the folder can be listed").path();
        let Ok(expect) = fs::read_to_string(pool.join("zdb-bcc")) else { continue };
        let ran = program::run([
            "zdb".as_ref(),
            "-e".as_ref(),
            "-p".as_ref(),
            pool.as_os_str(),
            "-c".as_ref(),
            "ztest".as_ref(),
        ]);
        let differences = match ran.code() {
            Some(0) => totals::differences(&expect, &ran.out()),
            code => Some(format!("{code:?}: {}{}", ran.complaints(), ran.out())),
        };
        let options = fs::read_to_string(pool.join("options")).unwrap_or_default();
        wrong.extend(differences.map(|text| format!("{}: {options}{text}", pool.display())));
        checked += 1;
    }
    assert!(checked > 0, "no pools in {}", dir.display());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("interop: every block of {checked} ztest pools has its checksum, and the totals are zdb's");
}
