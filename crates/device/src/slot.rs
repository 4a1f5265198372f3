//! A place that one device can take after another: what a leaf of an open pool keeps hold of.
//!
//! Those that were there before stay open: batches may be under way that have their descriptors, and a
//! descriptor that was closed is soon another file's.

use std::sync::Arc;

use base::{Result, RwLock};

use crate::injected::InjectedFaults;
use crate::{Device, Raw};

/// The place of a device.
#[derive(Debug)]
pub struct DeviceSlot {
    path: String,
    /// The last one is there now.
    devices: RwLock<Vec<Arc<dyn Device>>>,
    /// What goes wrong with whatever is there.
    faults: InjectedFaults,
}

impl DeviceSlot {
    /// A place with a device in it, after which it is called for ever.
    pub fn new(device: Arc<dyn Device>) -> DeviceSlot {
        DeviceSlot {
            path: device.path().to_owned(),
            devices: RwLock::new(vec![device]),
            faults: InjectedFaults::default(),
        }
    }

    /// From now on another device is there.
    pub fn replace(&self, device: Arc<dyn Device>) {
        self.devices.write().push(device);
    }

    /// What goes wrong with requests to this place.
    pub fn faults(&self) -> &InjectedFaults {
        &self.faults
    }

    /// The device that is there now.
    pub fn now(&self) -> Arc<dyn Device> {
        let devices = self.devices.read();
        devices.last().expect("there always is one").clone()
    }
}

impl Device for DeviceSlot {
    fn path(&self) -> &str {
        &self.path
    }

    fn size(&self) -> u64 {
        self.now().size()
    }

    fn look_for_growth(&self) -> u64 {
        self.now().look_for_growth()
    }

    fn grow(&self) {
        self.now().grow()
    }

    fn is_gone(&self) -> bool {
        self.now().is_gone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.faults.is_any() {
            false => self.now().read_at(offset, buf),
            true => self.faults.read_at(&*self.now(), offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        match self.faults.is_any() {
            false => self.now().write_at(offset, buf),
            true => self.faults.write_at(&*self.now(), offset, buf),
        }
    }

    fn flush(&self) -> Result<()> {
        match self.faults.is_any() {
            false => self.now().flush(),
            true => self.faults.flush(&*self.now()),
        }
    }

    fn discard(&self, offset: u64, len: u64, secure: bool) -> Result<()> {
        match self.faults.is_any() {
            false => self.now().discard(offset, len, secure),
            true => self.faults.discard(&*self.now(), offset, len, secure),
        }
    }

    fn sector_bytes(&self) -> u64 {
        self.now().sector_bytes()
    }

    fn logical_sector_bytes(&self) -> u64 {
        self.now().logical_sector_bytes()
    }

    fn may_join_reads(&self) -> bool {
        !self.faults.mean_single_requests() && self.now().may_join_reads()
    }

    fn raw(&self) -> Option<Raw> {
        if self.faults.is_any() { None } else { self.now().raw() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[test]
    fn the_last_one_is_there() {
        let device = |name: &str, byte| Arc::new(MemDevice::new(name, vec![byte; 512 * usize::from(byte)]));
        let slot = DeviceSlot::new(device("a", 1));
        let mut got = [0];
        slot.read_at(0, &mut got).unwrap();
        assert_eq!((got, slot.size(), slot.path()), ([1], 512, "a"));
        slot.replace(device("b", 2));
        slot.read_at(0, &mut got).unwrap();
        assert_eq!((got, slot.size(), slot.path()), ([2], 1024, "a"));
    }
}
