//! The labels of real pools: what we would have written in their place.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use format::ids::Guid;
use format::nvlist::{NvList, Value};

use super::*;
use crate::geometry;
use crate::label::read_label;

/// A device of which only the size matters.
#[derive(Debug)]
struct Sized(u64);

impl Device for Sized {
    fn path(&self) -> &str {
        "sized"
    }

    fn size(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        unreachable!("nobody reads it")
    }
}

/// An image: its size, and the configuration in its first label.
struct Image {
    case: String,
    maker: String,
    size: u64,
    config: NvList,
}

/// What stands behind `name` in a JSON text without spaces, up to the next comma, brace or quote.
fn json<'a>(text: &'a str, name: &str) -> &'a str {
    let at = text.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {text}")) + name.len() + 3;
    text[at..].trim_start_matches('"').split(['"', ',', '}']).next().unwrap()
}

/// All images whose first label belongs to a pool; reading them takes seconds.
static IMAGES: LazyLock<Vec<Image>> = LazyLock::new(images);

fn images() -> Vec<Image> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut dirs: Vec<PathBuf> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    dirs.sort();
    let mut images = Vec::new();
    for dir in dirs {
        let Ok(case) = fs::read_to_string(dir.join("case.json")) else { continue };
        for image in case.split("{\"file\"").skip(1).map(|rest| format!("\"file\"{rest}")) {
            let mut decoder = zstd::Decoder::new(File::open(dir.join(json(&image, "file"))).unwrap()).unwrap();
            decoder.window_log_max(27).unwrap();
            let mut front = vec![0; 1 << 20];
            decoder.read_exact(&mut front[..256 << 10]).unwrap();
            let label = read_label(&MemDevice::new("front", front), 0).unwrap();
            // partitioned disks, spares and caches are others' matter
            let Some(config) = label.config().ok().map(|config| NvList::unpack(config).unwrap()) else { continue };
            if !config.has("vdev_tree") {
                continue;
            }
            let size = json(&image, "size").parse().unwrap();
            images.push(Image { case: json(&case, "case").into(), maker: json(&case, "maker").into(), size, config });
        }
    }
    assert!(images.len() > 60, "only {} images", images.len());
    images
}

/// Takes out what [`VdevSpec`] does not know.
fn known(list: &NvList) -> NvList {
    let skip = ["vdev_enc_sysfs_path", "min_alloc", "rotational", "top_guid", "msgid", "fru", "expansion_time"];
    let pairs = list.iter().filter(|(name, _)| !skip.contains(name));
    let value = |value: &Value| match value {
        Value::Lists(lists) => Value::Lists(lists.iter().map(known).collect()),
        other => other.clone(),
    };
    pairs.map(|(name, old)| (name.to_owned(), value(old))).collect()
}

#[test]
fn configurations_come_back_as_they_were() {
    for image in IMAGES.iter() {
        let tree = image.config.list("vdev_tree").unwrap();
        let Ok(spec) = VdevSpec::parse_top(tree) else { continue };
        let ours = spec.to_nvlist();
        assert_eq!(VdevSpec::parse_top(&ours).unwrap(), spec, "{}", image.case);
        // those of other byte order were made by the library
        // without its tools, which leaves whole_disk out; a removed disk keeps its own to no purpose
        if image.maker == "openzfs" && !image.case.starts_with("be-") && spec.kind != VdevKind::Indirect {
            assert_eq!(ours, known(tree), "{}", image.case);
        }
    }
}

#[test]
fn measures_are_those_of_real_pools() {
    let images = &*IMAGES;
    let mut compared = 0;
    for image in images {
        let Ok(spec) = VdevSpec::parse_top(image.config.list("vdev_tree").unwrap()) else { continue };
        // the space of a child that is being added comes when it is filled
        if spec.top.as_ref().is_some_and(|top| top.expansion.as_ref().is_some_and(|expansion| expansion.is_running)) {
            continue;
        }
        let same = images.iter().filter(|other| other.case == image.case);
        let device =
            |other: &Image| (other.config.guid("guid").unwrap(), Arc::new(Sized(other.size)) as Arc<dyn Device>);
        let devices: HashMap<Guid, Arc<dyn Device>> = same.map(device).collect();
        let top = spec.top.as_ref().unwrap();
        let Ok(plan) = geometry::plan(&base::Env::fixed(0), &spec, &devices, top.ashift) else { continue };
        assert_eq!((plan.ashift, plan.asize), (top.ashift, top.asize), "{}", image.case);
        // older software has smaller metaslabs
        if image.maker == "openzfs" {
            assert_eq!(plan.metaslab_shift, top.metaslab_shift, "{}", image.case);
        }
        compared += 1;
    }
    assert!(compared > 50, "only {compared} compared");
}
