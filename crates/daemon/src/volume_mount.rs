//! Where the volumes of a pool are files: one mount, made when there is the first one.
//!
//! It is an export that serves all volumes of the pool. That it cannot be made, as there is no `/dev/fuse` for instance,
//! keeps nobody from using the pool: it is logged.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Env, Error, Kind, Mutex, Result};
use export::Export;
use format::ids::DatasetId;
use fuse::{Helper, Mount, MountOptions, SnapDir, Unmount};

use crate::descriptors;
use crate::exports::Exports;
use crate::leftovers::volumes_source;
use crate::live::ServedPool;
use crate::volume_tree::{VolumeSource, VolumeTree, has_volumes};
use crate::volumes::OpenVolumes;

/// How long a file may take to be closed by the kernel, after the last program did so, and between looks.
const CLOSE_TIME: Duration = Duration::from_millis(500);
const CLOSE_PAUSE: Duration = Duration::from_millis(10);

/// The mount of a pool's volumes, if there is one.
pub struct VolumeMount {
    helper: Helper,
    exports: Arc<Exports>,
    pool: Arc<ServedPool>,
    volumes: Arc<OpenVolumes>,
    env: Env,
    /// The folder of all pools' volumes.
    folder: PathBuf,
    mounted: Mutex<Weak<MountedVolumes>>,
}

struct MountedVolumes {
    mount: Mount,
    tree: Arc<VolumeTree>,
    helper: Helper,
    options: MountOptions,
    made: usize,
}

impl VolumeMount {
    /// Nothing is mounted yet; `helper` will do it, in a folder below `folder`.
    pub fn new(
        helper: Helper,
        exports: Arc<Exports>,
        (pool, volumes): (Arc<ServedPool>, Arc<OpenVolumes>),
        env: Env,
        folder: PathBuf,
    ) -> VolumeMount {
        VolumeMount { helper, exports, pool, volumes, env, folder, mounted: Mutex::default() }
    }

    /// Volumes may have come or gone, or have other names or sizes.
    pub fn changed(&self) {
        if let Some(mounted) = self.mounted.lock().upgrade() {
            mounted.changed();
        }
    }

    /// The same, and there may be the first one: then they are mounted. This looks through all datasets.
    pub fn renew(&self) {
        let mut mounted = self.mounted.lock();
        if let Some(mounted) = mounted.upgrade().filter(|mounted| mounted.is_served()) {
            mounted.changed();
            return;
        }
        match self.mount() {
            Ok(Some(new)) => {
                *mounted = Arc::downgrade(&new);
                self.exports.add(new);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!("volumes are no files: {error}"),
        }
    }

    /// Errors: `Busy` if programs use the file of a dataset.
    pub fn check_unused(&self, dataset: DatasetId) -> Result<()> {
        let Some(mounted) = self.mounted.lock().upgrade() else { return Ok(()) };
        let began = self.env.ticks_ns();
        while mounted.tree.is_in_use(dataset) {
            if self.env.ticks_ns().saturating_sub(began) > CLOSE_TIME.as_nanos() as u64 {
                return Err(Error::new(Kind::Busy, "dataset is busy"));
            }
            self.env.pause(CLOSE_PAUSE);
        }
        Ok(())
    }

    fn mount(&self) -> Result<Option<Arc<MountedVolumes>>> {
        let view = self.pool.view();
        if !has_volumes(&view, &view.dsl().root_subject()?)? {
            return Ok(None);
        }
        let options = MountOptions {
            page_cache: false,
            snapdir: SnapDir::Disabled,
            xattrs: false,
            atime: false,
            setuid: false,
            devices: false,
            exec: false,
            ..MountOptions::new(volumes_source(view.name()), self.folder.join(view.name()))
        };
        descriptors::check_room(options.descriptors())?;
        let tree = Arc::new(VolumeTree::new(self.pool.clone(), self.volumes.clone(), self.env.clone()));
        let made = self.helper.make_folders(&options)?;
        match fuse::mount(Arc::new(VolumeSource(tree.clone())), &options, &self.env, &self.helper) {
            Ok(mount) => {
                tracing::info!(point = %options.mountpoint.display(), "volumes are files");
                Ok(Some(Arc::new(MountedVolumes { mount, tree, helper: self.helper.clone(), options, made })))
            }
            Err(e) => {
                self.helper.remove_folders(&options, made);
                Err(e)
            }
        }
    }
}

impl MountedVolumes {
    /// What the kernel keeps of folders may not be true any more.
    fn changed(&self) {
        for (folder, names) in self.tree.take_listed() {
            let told = names.iter().try_for_each(|name| self.mount.invalidate_name(folder, name));
            if let Err(error) = told.and_then(|()| self.mount.invalidate(folder)) {
                tracing::debug!("a folder of volumes: {error}");
            }
        }
    }
}

impl Export for MountedVolumes {
    fn dataset(&self) -> String {
        self.options.fs_name.clone()
    }

    fn place(&self) -> String {
        self.mount.point().to_string_lossy().into_owned()
    }

    fn is_served(&self) -> bool {
        self.mount.is_mounted()
    }

    fn serves(&self, dataset: &str) -> bool {
        self.tree.has_volume(dataset)
    }

    fn stop(&self, force: bool) -> Result<()> {
        self.mount.take_away(if force { Unmount::Force } else { Unmount::IfUnused })?;
        self.helper.remove_folders(&self.options, self.made);
        Ok(())
    }

    fn settle(&self, limit: Duration) {
        self.mount.settle(limit);
    }

    fn renamed(&self, _: &str) {}

    fn property_changed(&self) -> Result<()> {
        self.changed();
        Ok(())
    }

    fn freeze(&self) -> Result<()> {
        self.mount.freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.mount.thaw()
    }

    /// It is made anew.
    fn hold(&self) -> Result<()> {
        self.stop(false)
    }

    fn go_on(&self) {}
}
