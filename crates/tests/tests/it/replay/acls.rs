//! Records that only other systems write: of access control lists of NFSv4, and of files that are made with these or with
//! attributes.

use format::acl::Acl;
use format::ids::ObjectId;
use zil::{AclEntry, Born, Create, Extra, Intent, Itx, ItxBody, LoggedAcl, Made, Scope};
use zpl::{FileKind, NewKind, SetFlags, Zpl};

use super::{FILE_SYSTEM, Logged, new, open};

const OWNER: u16 = 0x1000;
const GROUP: u16 = 0x2040;
const EVERYONE: u16 = 0x4000;
/// Owner and one user may read and write, the group nothing, others read.
const LISTED: &str = "owner@:rw-p--aARWcCos:-------:allow\n\
                      user:1234:rw------------:fd-----:allow\n\
                      group@:r-------------:-------:deny\n\
                      everyone@:r-----a-R-c--s:-------:allow\n";
/// Users with numbers that are of nobody's domain on Linux.
const MANY: std::ops::Range<u32> = 3_000_000_000..3_000_000_300;

fn entry(kind: u16, flags: u16, mask: u32, who: u32) -> AclEntry {
    AclEntry { who, mask, flags, kind, guids: None }
}

fn listed() -> LoggedAcl {
    let entries = vec![
        entry(0, OWNER, 0x1e_019f, u32::MAX),
        entry(0, 0x3, 0x3, 1234),
        entry(1, GROUP, 0x1, u32::MAX),
        entry(0, EVERYONE, 0x12_0089, u32::MAX),
    ];
    LoggedAcl { flags: 0x2, entries, owners: Vec::new() }
}

impl Logged {
    /// Puts records into the log, as another system does.
    fn tell(&self, records: Vec<(u64, Vec<u8>)>) {
        let pool = &self.load.pool;
        let log = pool.log(pool.view().dsl().find(FILE_SYSTEM).unwrap().id).unwrap();
        for (kind, bytes) in records {
            let entry = Itx { scope: Scope::Names, body: ItxBody::Record { kind, bytes } };
            log.push(&pool.txgs().begin().unwrap(), entry);
        }
        self.zpl.sync().unwrap();
    }
}

fn record(intent: &Intent<'_>) -> (u64, Vec<u8>) {
    (intent.kind(), intent.bytes())
}

fn list_of(zpl: &Zpl, ino: ObjectId) -> String {
    zpl.acl(ino).unwrap().unwrap().to_string()
}

#[test]
fn access_control_lists_are_replayed() {
    let logged = Logged::new();
    let root = logged.zpl.root();
    let make = |name: &[u8], kind| logged.zpl.create(root, name, &new(kind)).unwrap().ino;
    let [file, dir] = [make(b"file", NewKind::File), make(b"dir", NewKind::Directory)];
    let [plain, old, long] = [&b"plain"[..], b"old", b"long"].map(|name| make(name, NewKind::File));
    logged.load.pool.sync().unwrap();
    let set = |object, acl| record(&Intent::SetAcl { object, acl, domains: Vec::new() });
    // the mode's own list, in the words of a record
    let trivial = Acl::trivial(0o755, false).entries;
    let trivial = trivial.iter().map(|ace| entry(ace.kind, ace.flags, ace.mask, u32::MAX)).collect();
    let mut first = [old.get(), 2].map(u64::to_le_bytes).concat();
    for (mask, flags) in [(3u32, OWNER), (1, EVERYONE)] {
        let words = [u32::MAX.to_le_bytes(), mask.to_le_bytes()].concat();
        first.extend([words, flags.to_le_bytes().to_vec(), vec![0, 0]].concat());
    }
    logged.tell(vec![
        set(file, listed()),
        set(dir, listed()),
        set(plain, LoggedAcl { entries: trivial, ..LoggedAcl::default() }),
        (12, first),
        set(long, LoggedAcl { entries: MANY.map(|user| entry(0, 0, 1, user)).collect(), ..LoggedAcl::default() }),
        record(&Intent::SetXattr { object: file, name: b"user.colour", value: Some(b"blue") }),
    ]);
    let (pool, zpl, records) = logged.after_cut();
    assert_eq!(records, 6);
    let mode = |ino| zpl.stat(ino).unwrap().mode & 0o7777;
    assert_eq!((list_of(&zpl, file), mode(file)), (LISTED.to_owned(), 0o604));
    assert_eq!((list_of(&zpl, dir), mode(dir)), (LISTED.to_owned(), 0o604));
    assert_eq!((list_of(&zpl, plain), mode(plain)), (Acl::trivial(0o755, false).to_string(), 0o755));
    assert_eq!(mode(old), 0o644);
    let many: String = MANY.map(|user| format!("user:{user}:r-------------:-------:allow\n")).collect();
    assert_eq!((list_of(&zpl, long), mode(long)), (many, 0));
    assert!(list_of(&zpl, old).starts_with("owner@:rw------------:-------:allow\neveryone@:r---"));
    // flags: trivial, nobody is denied to execute; entries are inherited; protected
    let flags = |ino| zpl.stat(ino).unwrap().flags & 0x17f;
    assert_eq!([file, dir, plain, old].map(flags), [0x10, 0x12, 0x104, 0]);
    assert_eq!(zpl.xattr(file, b"user.colour").unwrap(), b"blue");
    pool.sync().unwrap();
    drop((pool, zpl));

    // an entry that is for SMB only
    let acl = LoggedAcl { entries: vec![entry(4, 0, 1, 5)], ..LoggedAcl::default() };
    logged.tell(vec![set(file, acl)]);
    let error = open(&logged.cut(), 5000).replay_log().unwrap_err();
    assert!(error.to_string().contains("of type 13 cannot be replayed"), "{error}");
}

#[test]
fn files_made_with_lists_and_attributes_are_replayed() {
    let logged = Logged::new();
    let root = logged.zpl.root();
    logged.load.pool.sync().unwrap();
    let extra = Extra {
        which: Extra::CRTIME | Extra::HIDDEN | Extra::NODUMP | Extra::ARCHIVE,
        values: u64::from(Extra::HIDDEN | Extra::NODUMP),
        crtime: [55, 6],
        ..Extra::default()
    };
    let cases = [(false, true), (true, false), (true, true)];
    let all = [Made::File, Made::Directory].into_iter().flat_map(|made| cases.map(|case| (made, case)));
    let all: Vec<_> = all.enumerate().map(|(number, (made, case))| (1000 + number as u64 * 8, made, case)).collect();
    let names: Vec<String> = all.iter().map(|(number, ..)| format!("of number {number}")).collect();
    let records = all.iter().zip(&names).map(|(&(number, made, (has_list, has_extra)), name)| {
        let mode = if made == Made::Directory { 0o040750 } else { 0o100640 };
        let object = ObjectId::new(number);
        record(&Intent::Create(Create {
            made,
            dir: root,
            born: Born { object, slots: 1, mode, uid: 3, gid: 4, generation: 9, crtime: [77, 5], rdev: 0 },
            name: name.as_bytes(),
            extra: has_extra.then(|| extra.clone()),
            acl: has_list.then(listed),
            domains: Vec::new(),
        }))
    });
    let records: Vec<_> = records.collect();
    assert_eq!(records.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [15, 14, 16, 18, 17, 19]);
    logged.tell(records);
    let (_pool, zpl, records) = logged.after_cut();
    assert_eq!(records, 6);
    for (&(number, made, (has_list, has_extra)), name) in all.iter().zip(&names) {
        let ino = zpl.lookup(root, name.as_bytes()).unwrap();
        let stat = zpl.stat(ino).unwrap();
        let is_directory = stat.kind == FileKind::Directory;
        assert_eq!((ino.get(), is_directory), (number, made == Made::Directory));
        let mode = if has_list {
            0o604
        } else if is_directory {
            0o750
        } else {
            0o640
        };
        assert_eq!((stat.mode & 0o7777, stat.uid, stat.gid), (mode, 3, 4), "{name}");
        assert_eq!(stat.btime, if has_extra { (55, 6) } else { (77, 5) }, "{name}");
        assert_eq!(list_of(&zpl, ino) == LISTED, has_list, "{name}");
        assert_eq!(stat.flags & SetFlags::ALL != 0, has_extra, "{name}");
        // hidden, and not to be archived
        assert_eq!((stat.flags >> 33 & 1 == 1, stat.flags >> 35 & 1 == 0), (has_extra, has_extra), "{name}");
    }
}
