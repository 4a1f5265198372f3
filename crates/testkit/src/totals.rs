//! The totals of a walk over every block, as zdb words them.

use crate::manifest::report;

/// The lines that must be alike, by how they begin.
const COMPARED: [&str; 5] = ["bp count:", "ganged count:", "bp logical:", "bp physical:", "bp allocated:"];

/// Where the totals in `found` are not those in `expect`, in words, or `None`.
///
/// Both are outputs of zdb; of a line only the first number is compared, as the rest follows from it.
pub fn differences(expect: &str, found: &str) -> Option<String> {
    let wrong = |label: &&str| match (total(expect, label), total(found, label)) {
        (None, _) => Some(format!("zdb itself tells no {label}")),
        (Some(expect), Some(found)) if expect == found => None,
        (Some(expect), found) => Some(format!("{label} {}, not {expect}", found.unwrap_or("is missing"))),
    };
    report(&COMPARED.iter().filter_map(wrong).collect::<Vec<_>>())
}

fn total<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label)?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\tNo leaks\n\tbp count:       3\n\tganged count:   0\n\tbp logical:   16  avg: 5\n\
                        \tbp physical:   9  avg: 3   compression: 2\n\tbp allocated:  12  avg: 4\n";

    #[test]
    fn numbers_are_compared() {
        assert_eq!(differences(TEXT, TEXT), None);
        assert_eq!(differences(TEXT, &TEXT.replace("avg: 3", "avg: 4")), None);
        let told = differences(TEXT, &TEXT.replace("   16", "   17")).unwrap();
        assert!(told.contains("bp logical: 17, not 16"), "{told}");
        assert!(differences(TEXT, "").unwrap().contains("is missing"));
        assert!(differences("", TEXT).is_some());
    }
}
