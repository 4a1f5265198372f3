//! The rows of the table of native properties.
//!
//! A row: property, name, column header, type and default, whether it can be set, what it applies to, where
//! its value comes from, what it reaches of the host, and its values for the usage text (`-` for those that are not shown
//! unasked).

use super::HostReach::*;
use super::Setting::*;
use super::ValueKind::{Choice, Number, Text};
use super::ValueOrigin::*;
use super::{Applies, NumberForm, PropertyInfo, names};

use NumberForm::*;

const FS: Applies = Applies::FILE_SYSTEM;
const VOL: Applies = Applies::VOLUME;
const SNAP: Applies = Applies::SNAPSHOT;
const HEAD: Applies = FS.and(VOL);
const FS_SNAP: Applies = FS.and(SNAP);
const VOL_SNAP: Applies = VOL.and(SNAP);
const DATASET: Applies = HEAD.and(SNAP);
const ALL: Applies = DATASET.and(Applies::BOOKMARK);

macro_rules! values {
    (-) => {
        None
    };
    ($values:literal) => {
        Some($values)
    };
}

macro_rules! properties {
    ($($property:ident $name:literal $column:literal $kind:expr, $setting:ident $applies:ident $from:ident $reach:ident $values:tt;)*) => {
        /// A native property.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // see the rows
        pub enum Property {
            $($property,)*
        }

        pub(super) static TABLE: &[PropertyInfo] = &[$(PropertyInfo {
            property: Property::$property,
            name: $name,
            column: $column,
            kind: $kind,
            setting: $setting,
            applies: $applies,
            from: $from,
            reach: $reach,
            values: values!($values),
        },)*];
    };
}

#[rustfmt::skip]
properties! {
    Type "type" "TYPE" Text(None), ReadOnly ALL Contents Inside "filesystem | volume | snapshot | bookmark";
    Creation "creation" "CREATION" Number(0, Date), ReadOnly ALL Dataset Inside "<date>";
    Used "used" "USED" Number(0, Bytes), ReadOnly DATASET Dataset Inside "<size>";
    Available "available" "AVAIL" Number(0, Bytes), ReadOnly HEAD Available Inside "<size>";
    Referenced "referenced" "REFER" Number(0, Bytes), ReadOnly ALL Dataset Inside "<size>";
    CompressRatio "compressratio" "RATIO" Number(0, Ratio), ReadOnly ALL Dataset Inside "<1.00x or higher if compressed>";
    Mounted "mounted" "MOUNTED" Choice(0, names::SWITCH), ReadOnly FS System Inside "yes | no";
    Origin "origin" "ORIGIN" Text(None), ReadOnly HEAD Dir Inside "<snapshot>";
    Quota "quota" "QUOTA" Number(0, Quota), Own FS Dir Inside "<size> | none";
    Reservation "reservation" "RESERV" Number(0, Quota), Own HEAD Dir Inside "<size> | none";
    Volsize "volsize" "VOLSIZE" Number(0, Count), Own VOL_SNAP Contents Inside "<size>";
    Volblocksize "volblocksize" "VOLBLOCK" Number(16 << 10, Count), Once VOL Contents Inside "512 to 16M, power of 2";
    Recordsize "recordsize" "RECSIZE" Number(128 << 10, Count), Inherited FS Stored Inside "512 to 16M, power of 2";
    Mountpoint "mountpoint" "MOUNTPOINT" Text(Some("/")), Inherited FS Stored Place "<path> | legacy | none";
    Sharenfs "sharenfs" "SHARENFS" Text(Some("off")), Inherited FS Stored Door "on | off | NFS share options";
    Checksum "checksum" "CHECKSUM" Choice(1, names::CHECKSUM), Inherited HEAD Stored Inside
        "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3";
    Compression "compression" "COMPRESS" Choice(1, names::COMPRESSION), Inherited HEAD Stored Inside
        "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]";
    Atime "atime" "ATIME" Choice(1, names::SWITCH), Inherited FS Stored Inside "on | off";
    Devices "devices" "DEVICES" Choice(1, names::SWITCH), Inherited FS_SNAP Stored Door "on | off";
    Exec "exec" "EXEC" Choice(1, names::SWITCH), Inherited FS_SNAP Stored Inside "on | off";
    Setuid "setuid" "SETUID" Choice(1, names::SWITCH), Inherited FS_SNAP Stored Door "on | off";
    Readonly "readonly" "RDONLY" Choice(0, names::SWITCH), Inherited HEAD Stored Inside "on | off";
    Zoned "zoned" "ZONED" Choice(0, names::SWITCH), Inherited FS Stored Inside "on | off";
    Snapdir "snapdir" "SNAPDIR" Choice(0, names::SNAPDIR), Inherited FS Stored Inside "disabled | hidden | visible";
    Aclmode "aclmode" "ACLMODE" Choice(0, names::ACLMODE), Inherited FS Stored Inside "discard | groupmask | passthrough | restricted";
    Aclinherit "aclinherit" "ACLINHERIT" Choice(4, names::ACLINHERIT), Inherited FS Stored Inside
        "discard | noallow | restricted | passthrough | passthrough-x";
    Createtxg "createtxg" "CREATETXG" Number(0, Exact), ReadOnly ALL Dataset Inside "<uint64>";
    Name "name" "NAME" Text(None), ReadOnly ALL Dataset Inside -;
    Canmount "canmount" "CANMOUNT" Choice(1, names::CANMOUNT), Own FS Stored Inside "on | off | noauto";
    Iscsioptions "iscsioptions" "ISCSIOPTIONS" Text(None), Inherited VOL Stored Door -;
    Xattr "xattr" "XATTR" Choice(2, names::XATTR), Inherited FS_SNAP Stored Inside "on | off | dir | sa";
    Numclones "numclones" "NUMCLONES" Number(0, Count), ReadOnly SNAP Dataset Inside -;
    Copies "copies" "COPIES" Choice(1, names::COPIES), Inherited HEAD Stored Inside "1 | 2 | 3";
    Version "version" "VERSION" Choice(0, names::VERSION), Own FS_SNAP Contents Inside "1 | 2 | 3 | 4 | 5 | current";
    Utf8only "utf8only" "UTF8ONLY" Choice(0, names::SWITCH), Once FS_SNAP Contents Inside "on | off";
    Normalization "normalization" "NORMALIZATION" Choice(0, names::NORMALIZATION), Once FS_SNAP Contents Inside "none | formC | formD | formKC | formKD";
    Casesensitivity "casesensitivity" "CASE" Choice(0, names::CASE), Once FS_SNAP Contents Inside "sensitive | insensitive | mixed";
    Vscan "vscan" "VSCAN" Choice(0, names::SWITCH), Inherited FS Stored Inside "on | off";
    Nbmand "nbmand" "NBMAND" Choice(0, names::SWITCH), Inherited FS_SNAP Stored Inside "on | off";
    Sharesmb "sharesmb" "SHARESMB" Text(Some("off")), Inherited FS Stored Door "on | off | SMB share options";
    Refquota "refquota" "REFQUOTA" Number(0, Quota), Own FS Stored Inside "<size> | none";
    Refreservation "refreservation" "REFRESERV" Number(0, Quota), Own HEAD Stored Inside "<size> | none";
    Guid "guid" "GUID" Number(0, Exact), ReadOnly ALL Dataset Inside "<uint64>";
    Primarycache "primarycache" "PRIMARYCACHE" Choice(2, names::CACHE), Inherited DATASET Stored Inside "all | none | metadata";
    Secondarycache "secondarycache" "SECONDARYCACHE" Choice(2, names::CACHE), Inherited DATASET Stored Inside "all | none | metadata";
    Usedbysnapshots "usedbysnapshots" "USEDSNAP" Number(0, Bytes), ReadOnly HEAD Dir Inside "<size>";
    Usedbydataset "usedbydataset" "USEDDS" Number(0, Bytes), ReadOnly HEAD Dir Inside "<size>";
    Usedbychildren "usedbychildren" "USEDCHILD" Number(0, Bytes), ReadOnly HEAD Dir Inside "<size>";
    Usedbyrefreservation "usedbyrefreservation" "USEDREFRESERV" Number(0, Bytes), ReadOnly HEAD Dir Inside "<size>";
    Useraccounting "useraccounting" "USERACCOUNTING" Number(0, Count), ReadOnly DATASET Contents Inside -;
    StmfShareinfo "stmf_sbd_lu" "STMF_SBD_LU" Text(None), Inherited VOL Stored Door -;
    DeferDestroy "defer_destroy" "DEFER_DESTROY" Choice(0, names::SWITCH), ReadOnly SNAP Dataset Inside "yes | no";
    Userrefs "userrefs" "USERREFS" Number(0, Count), ReadOnly SNAP Dataset Inside "<count>";
    Logbias "logbias" "LOGBIAS" Choice(0, names::LOGBIAS), Inherited HEAD Stored Inside "latency | throughput";
    Unique "unique" "UNIQUE" Number(0, Count), ReadOnly DATASET Dataset Inside -;
    Objsetid "objsetid" "OBJSETID" Number(0, Exact), ReadOnly DATASET Dataset Inside "<uint64>";
    Dedup "dedup" "DEDUP" Choice(2, names::DEDUP), Inherited HEAD Stored Inside
        "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]";
    Mlslabel "mlslabel" "MLSLABEL" Text(Some("none")), Inherited DATASET Stored Door "<sensitivity label>";
    Sync "sync" "SYNC" Choice(0, names::SYNC), Inherited HEAD Stored Inside "standard | always | disabled";
    Dnodesize "dnodesize" "DNSIZE" Choice(0, names::DNODE_SIZE), Inherited FS Stored Inside "legacy | auto | 1k | 2k | 4k | 8k | 16k";
    RefCompressRatio "refcompressratio" "REFRATIO" Number(0, Ratio), ReadOnly DATASET Dataset Inside "<1.00x or higher if compressed>";
    Written "written" "WRITTEN" Number(0, Count), ReadOnly DATASET Dataset Inside "<size>";
    Clones "clones" "CLONES" Text(None), ReadOnly SNAP Dataset Inside "<dataset>[,...]";
    Logicalused "logicalused" "LUSED" Number(0, Count), ReadOnly HEAD Dir Inside "<size>";
    Logicalreferenced "logicalreferenced" "LREFER" Number(0, Count), ReadOnly ALL Dataset Inside "<size>";
    Inconsistent "inconsistent" "INCONSISTENT" Number(0, Count), ReadOnly DATASET Dataset Inside -;
    Volmode "volmode" "VOLMODE" Choice(0, names::VOLMODE), Inherited HEAD Stored Inside "default | full | geom | dev | none";
    FilesystemLimit "filesystem_limit" "FSLIMIT" Number(u64::MAX, Limit), Own FS Stored Inside "<count> | none";
    SnapshotLimit "snapshot_limit" "SSLIMIT" Number(u64::MAX, Limit), Own HEAD Stored Inside "<count> | none";
    FilesystemCount "filesystem_count" "FSCOUNT" Number(u64::MAX, Limit), ReadOnly FS Dir Inside "<count>";
    SnapshotCount "snapshot_count" "SSCOUNT" Number(u64::MAX, Limit), ReadOnly HEAD Dir Inside "<count>";
    Snapdev "snapdev" "SNAPDEV" Choice(0, names::SNAPDEV), Inherited HEAD Stored Inside "hidden | visible";
    Acltype "acltype" "ACLTYPE" Choice(0, names::ACLTYPE), Inherited FS_SNAP Stored Inside "off | nfsv4 | posix";
    Context "context" "CONTEXT" Text(Some("none")), Own DATASET Stored Door "<selinux context>";
    Fscontext "fscontext" "FSCONTEXT" Text(Some("none")), Own DATASET Stored Door "<selinux fscontext>";
    Defcontext "defcontext" "DEFCONTEXT" Text(Some("none")), Own DATASET Stored Door "<selinux defcontext>";
    Rootcontext "rootcontext" "ROOTCONTEXT" Text(Some("none")), Own DATASET Stored Door "<selinux rootcontext>";
    Relatime "relatime" "RELATIME" Choice(1, names::SWITCH), Inherited FS Stored Inside "on | off";
    RedundantMetadata "redundant_metadata" "REDUND_MD" Choice(0, names::REDUNDANT_METADATA), Inherited HEAD Stored Inside "all | most | some | none";
    Overlay "overlay" "OVERLAY" Choice(1, names::SWITCH), Inherited FS Stored Door "on | off";
    Prevsnap "prevsnap" "PREVSNAP" Text(None), ReadOnly HEAD Dataset Inside -;
    ReceiveResumeToken "receive_resume_token" "RESUMETOK" Text(None), ReadOnly HEAD Dataset Inside "<string token>";
    Encryption "encryption" "ENCRYPTION" Choice(2, names::ENCRYPTION), Once DATASET Key Inside
        "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm";
    Keylocation "keylocation" "KEYLOCATION" Text(Some("none")), Own HEAD Stored Door "prompt | <file URI> | <https URL> | <http URL>";
    Keyformat "keyformat" "KEYFORMAT" Choice(0, names::KEY_FORMAT), OnceOwn HEAD Key Inside "none | raw | hex | passphrase";
    Pbkdf2salt "pbkdf2salt" "PBKDF2SALT" Number(0, Count), OnceOwn HEAD Key Inside -;
    Pbkdf2iters "pbkdf2iters" "PBKDF2ITERS" Number(0, Exact), OnceOwn HEAD Key Inside "<iters>";
    Encryptionroot "encryptionroot" "ENCROOT" Text(None), ReadOnly DATASET Key Inside "<filesystem | volume>";
    Keyguid "keyguid" "KEYGUID" Number(0, Exact), ReadOnly DATASET Key Inside -;
    Keystatus "keystatus" "KEYSTATUS" Choice(0, names::KEY_STATUS), ReadOnly DATASET Key Inside "none | unavailable | available";
    Remaptxg "remaptxg" "REMAPTXG" Number(0, Count), ReadOnly DATASET Dataset Inside -;
    SpecialSmallBlocks "special_small_blocks" "SPECIAL_SMALL_BLOCKS" Number(0, Count), Inherited HEAD Stored Inside "0 to 16M";
    Ivsetguid "ivsetguid" "IVSETGUID" Number(0, Exact), ReadOnly ALL Dataset Inside -;
    Redacted "redacted" "REDACTED" Number(0, Count), ReadOnly DATASET Dataset Inside -;
    RedactSnaps "redact_snaps" "RSNAPS" Text(None), ReadOnly ALL Dataset Inside "<snapshot>[,...]";
    SnapshotsChanged "snapshots_changed" "SNAPSHOTS_CHANGED" Number(0, DateOrNothing), ReadOnly HEAD Dir Inside "<date>";
    Prefetch "prefetch" "PREFETCH" Choice(2, names::CACHE), Inherited DATASET Stored Inside "none | metadata | all";
    Volthreading "volthreading" "VOLTHREAD" Choice(1, names::SWITCH), Own VOL Stored Inside "on | off";
    Direct "direct" "DIRECT" Choice(1, names::DIRECT), Inherited FS Stored Inside "disabled | standard | always";
    Longname "longname" "LONGNAME" Choice(0, names::SWITCH), Inherited FS Stored Inside "on | off";
    Defaultuserquota "defaultuserquota" "DEFAULTUSERQUOTA" Number(0, Count), Own FS_SNAP Contents Inside "<size> | none";
    Defaultgroupquota "defaultgroupquota" "DEFAULTGROUPQUOTA" Number(0, Count), Own FS_SNAP Contents Inside "<size> | none";
    Defaultprojectquota "defaultprojectquota" "DEFAULTPROJECTQUOTA" Number(0, Count), Own FS_SNAP Contents Inside "<size> | none";
    Defaultuserobjquota "defaultuserobjquota" "DEFAULTUSEROBJQUOTA" Number(0, Count), Own FS_SNAP Contents Inside "<size> | none";
    Defaultgroupobjquota "defaultgroupobjquota" "DEFAULTGROUPOBJQUOTA" Number(0, Count), Own FS_SNAP Contents Inside "<size> | none";
    Defaultprojectobjquota "defaultprojectobjquota" "DEFAULTPROJECTOBJQUOTA" Number(0, Count), Own FS_SNAP Contents Inside "<size> | none";
}
