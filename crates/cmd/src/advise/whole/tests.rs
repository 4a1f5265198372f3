use super::*;

const GIB: f64 = (1u64 << 30) as f64;

fn proposal(what: &str, frees: f64, needs: &[(PricedKind, f64)], is_advised: bool) -> Proposal {
    Proposal {
        what: what.to_owned(),
        frees: frees * GIB,
        error: 0.0,
        needs: needs.iter().map(|(need, gib)| (*need, gib * GIB)).collect(),
        is_advised,
        is_for_speed: frees == 0.0,
        verdict: "Words.\n".to_owned(),
    }
}

fn sorted(prices: &str) -> (Vec<Proposal>, Prices) {
    let prices = Prices::parse(prices).unwrap();
    let mut proposals = vec![
        proposal("log", 0.0, &[(PricedKind::Ssd, 32.0)], false),
        proposal("records", 100.0, &[], true),
        proposal("dedup", 400.0, &[(PricedKind::Ram, 10.0)], true),
        proposal("worse", -5.0, &[], false),
    ];
    proposals.sort_by(|a, b| a.order(b, &prices));
    (proposals, prices)
}

#[test]
fn the_best_for_the_money_comes_first() {
    let names = |prices: &str| sorted(prices).0.into_iter().map(|proposal| proposal.what).collect::<Vec<_>>();
    assert_eq!(names("{}"), ["dedup", "records", "log", "worse"]);
    // memory for 30 frees disks for 8
    let dear = r#"{"disk": 0.02, "ram": 3, "ssd": 0.1}"#;
    assert_eq!(names(dear), ["records", "dedup", "worse", "log"]);
    assert_eq!(names(r#"{"disk": 0.2, "ram": 3}"#), ["dedup", "records", "worse", "log"]);
    let (proposals, prices) = sorted(dear);
    assert_eq!(
        proposals.iter().map(|proposal| money(proposal.net(&prices))).collect::<Vec<_>>(),
        ["2.00", "-22.00", "-0.10", "-3.20"]
    );
    let text = text(&proposals, &prices, GIB);
    assert!(text.contains("the best for the money first") && text.contains("2. dedup: Words."), "{text}");
    assert!(text.lines().nth(3).is_some_and(|line| line.starts_with("records") && line.contains(" 100G ")), "{text}");
    assert_eq!(json_of(&proposals, &prices)[1]["needs"][0]["kind"], "ram");
}

#[test]
fn prices_are_checked() {
    for wrong in ["", "[]", r#"{"disk": -1}"#, r#"{"disk": "dear"}"#, r#"{"tape": 1}"#, r#"{"ssd": 1e999}"#] {
        assert!(Prices::parse(wrong).is_err(), "{wrong}");
    }
    assert!(Prices::read(std::path::Path::new("/dev/zero")).is_err());
    assert!(Prices::read(std::path::Path::new("/no/such")).is_err());
    let (_dir, path) = super::super::files::made_folder(&[("prices", br#"{"ssd": 0.5}"#)]);
    assert_eq!(Prices::read(&path.join("prices")).unwrap(), Prices::parse(r#"{"ssd": 0.5}"#).unwrap());
}

#[test]
fn a_pool_that_logs_little_needs_no_log_device() {
    let mut demand = LogDemand {
        pool: "tank".to_owned(),
        bytes_a_day: 1e6,
        seconds: 3600.0,
        heaviest_group: Some(1 << 20),
        folder: None,
        loads: Vec::new(),
    };
    let little = of_log(&demand);
    assert!(!little.is_advised && little.verdict.starts_with("Do not buy a log device"), "{}", little.verdict);
    demand.bytes_a_day = 1e12;
    assert!(of_log(&demand).verdict.contains("cenote advise slog DEVICE --for tank"));
}
