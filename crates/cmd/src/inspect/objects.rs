//! `inspect mos` and `inspect objects`: dnodes and what hangs on them, as zdb prints them.

use std::io::Write;
use std::sync::Arc;

use base::Result;
use dmu::Objset;
use format::ids::ObjectId;

use super::args::ObjectArgs;
use crate::offline::{Opener, Target};
use crate::output::complain;
use crate::zdb::{self, ObjectPrinter, accounting_or_object};

/// Verbosity of a line for each object.
const LINES: u32 = 2;
/// Verbosity of one that shows contents, which follows for the first `-v`.
const CONTENTS: u32 = 4;

/// The objects asked for, or all.
pub fn print(args: &ObjectArgs, of_mos: bool, opener: &mut Opener, out: &mut dyn Write) -> Result<bool> {
    let target = Target { dataset: args.dataset.clone(), path: None };
    let (pool, name) = opener.pool_of(&target)?;
    let objset = match of_mos {
        true => pool.mos().clone(),
        false => opener.looked_into(&pool, &pool.dsl().find(&name)?)?,
    };
    let verbosity = match (args.verbose, args.objects.is_empty()) {
        (0, true) => LINES,
        // one object is asked for to be seen
        (more, empty) => CONTENTS + u32::from(more).saturating_sub(u32::from(empty)),
    };
    let style = zdb::ZdbArgs { parseable: args.parseable, ..zdb::ZdbArgs::default() };
    let mut printer = ObjectPrinter::new(&style, objset.clone(), verbosity);
    let mut well = true;
    if !args.objects.is_empty() {
        for &id in &args.objects {
            let shown =
                accounting_or_object(&objset, ObjectId::new(id as u64)).and_then(|object| printer.print(&object, out));
            well &= told(shown);
        }
        return Ok(well);
    }
    for id in [0i64, -1, -2, -3] {
        if let Ok(object) = accounting_or_object(&objset, ObjectId::new(id as u64)) {
            printer.print(&object, out)?;
        }
    }
    Ok(all(&objset, &mut printer, out) && well)
}

/// All allocated objects; what cannot be read is told, and passed over.
fn all(objset: &Arc<Objset>, printer: &mut ObjectPrinter<'_>, out: &mut dyn Write) -> bool {
    let (mut id, mut well) = (ObjectId::META_DNODE, true);
    loop {
        match objset.next_object(id) {
            Ok(Some(next)) => id = next,
            Ok(None) => return well,
            // what is behind a block of dnodes that cannot be read cannot be listed
            Err(e) => return told(Err(e)),
        }
        well &= told(objset.object(id).and_then(|object| printer.print(&object, out)));
    }
}

fn told(result: Result<()>) -> bool {
    result.map_err(|e| complain("inspect", e)).is_ok()
}
