use testkit::rng::Rng;

use super::*;
use crate::advise::files::made_folder;

fn answer() -> SpecialAnswer {
    let mut answer = SpecialAnswer::new(12);
    answer.add_metadata(MetadataKind::Indirect, 100.0, 400_000.0, 2.0);
    answer.add_metadata(MetadataKind::Own, 10.0, 40_000.0, 3.0);
    (0..900).for_each(|_| answer.add_data(1.0, 131_072, 131_072.0));
    (0..100).for_each(|_| answer.add_data(1.0, 12_288, 12_288.0));
    answer
}

#[test]
fn thresholds_and_sizes() {
    let answer = answer();
    assert_eq!((answer.metadata_bytes(), answer.once_bytes), (920_000.0, 440_000.0));
    assert_eq!(answer.small.map(|sum| sum.count), [0.0, 0.0, 100.0, 100.0, 100.0, 1000.0]);
    assert_eq!(answer.vdev_bytes(None), 920_000.0);
    assert_eq!(answer.vdev_bytes(Some(0)), 920_000.0);
    assert_eq!(answer.vdev_bytes(Some(2)), (920_000.0 + 1_228_800.0) / 0.75);
    let text = answer.text();
    assert!(text.contains("indirect blocks            100     781K"), "{text}");
    assert!(text.contains("16K                        100    1.17M    10.0 %     1.0 %"), "{text}");
    assert_eq!(answer.json("")["small"][2]["blocks"], 100);
}

#[test]
fn verdicts() {
    let mut answer = answer();
    let fits = answer.verdict(Some(8 << 30)).words;
    assert!(fits.starts_with("Do not buy a special vdev for the metadata: 430K fit into the cache"), "{fits}");
    assert!(
        fits.contains("With special_small_blocks=64K, 10.0 % of the blocks, which are 1.0 % of the bytes"),
        "{fits}"
    );
    let large = answer.verdict(Some(500_000)).words;
    assert!(
        large.starts_with("A special vdev of 898K at least") && large.contains("The pool is lost with it"),
        "{large}"
    );
    // what will be there when the pool is full counts
    answer.growth = 100_000.0;
    assert!(
        answer.verdict(Some(8 << 30)).words.starts_with("A special vdev of 898K at least, 85.7G when the pool is full")
    );
    answer.there_bytes = 4096.0;
    assert!(answer.verdict(None).words.starts_with("There is a special vdev, which holds 4K."));
    assert!(SpecialAnswer::new(12).verdict(None).words.starts_with("There is nothing yet"));
}

#[test]
fn folders_are_estimated() {
    let mut rng = Rng::new(1);
    let mut bytes = |len: usize| (0..len).map(|_| rng.number() as u8).collect::<Vec<u8>>();
    let (large, small) = (bytes(1 << 20), bytes(6000));
    let zeros = vec![0; 1 << 20];
    let (_dir, path) = made_folder(&[("a/large", &large), ("a/small", &small), ("zeros", &zeros), ("none", &[])]);
    let (answer, found) = SpecialAnswer::of_folder(&path, 128 << 10, 12).unwrap();
    assert_eq!((found.files, found.folders, answer.failures), (4, 2, 0));
    // zeros take nothing
    assert_eq!((answer.data.count, answer.data.bytes), (9.0, f64::from((1 << 20) + 8192)));
    assert_eq!(answer.small.map(|sum| sum.count), [0.0, 1.0, 1.0, 1.0, 1.0, 9.0]);
    let of = |kind| answer.metadata[MetadataKind::ALL.iter().position(|other| *other == kind).unwrap()];
    let two = |count| BlockSum { count, bytes: 8192.0 * count };
    assert_eq!((of(MetadataKind::Dnodes), of(MetadataKind::Directories)), (two(1.0), two(2.0)));
    // two files have several records
    assert!(of(MetadataKind::Indirect) == two(2.0) && answer.text().contains("estimated metadata of"));
}
