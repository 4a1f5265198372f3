//! `zpool get`.

use std::ffi::OsString;

use protocol::pool_report::PoolReport;
use serde_json::{Map, Value};

use super::command::{CommandResult, Stop};
use super::get_rows::{ALL_FIELDS, GetOptions, fields, lines};
use super::get_vdev;
use super::json;
use super::list::PoolColumn;
use super::pools::{self, Timestamp};
use crate::getopt::{self, Long, Opt};

/// Runs the command.
pub fn run(args: &[OsString]) -> CommandResult {
    const LONG: [Long; 3] = [
        Long { name: "json", takes_value: false, code: 'j' },
        Long { name: "json-int", takes_value: false, code: '1' },
        Long { name: "json-pool-key-guid", takes_value: false, code: '3' },
    ];
    let mut options = GetOptions {
        fields: ALL_FIELDS.to_vec(),
        scripted: false,
        literal: false,
        json: false,
        json_int: false,
        json_guid_keys: false,
    };
    let parsed = getopt::parse(args, "jHpo:", &LONG);
    for opt in &parsed.opts {
        match opt {
            Opt::Flag('p') => options.literal = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('j') => options.json = true,
            Opt::Flag('1') => (options.json_int, options.literal) = (true, true),
            Opt::Flag('3') => options.json_guid_keys = true,
            Opt::Value('o', list) => options.fields = fields(list)?,
            other => return Err(Stop::bad_option(other)),
        }
    }
    if options.json_int && !options.json {
        return Err(Stop::usage("'--json-int' only works with '-j' option"));
    }
    if options.json_guid_keys && !options.json {
        return Err(Stop::usage("'json-pool-key-guid' only works with '-j' option"));
    }
    let Some((list, names)) = parsed.operands.split_first() else {
        return Err(Stop::usage("missing property argument"));
    };
    let mut failed = false;
    if !names.is_empty() {
        let imported: Vec<String> = pools::imported()?.into_iter().map(|hello| hello.pool).collect();
        if let [pool, vdevs @ ..] = names
            && !vdevs.is_empty()
            && imported.contains(pool)
            && !vdevs.iter().all(|name| imported.contains(name))
        {
            return get_vdev::run(pool, vdevs, list, &options);
        }
        for name in names {
            if !imported.contains(name) && !pools::is_imported(name)? {
                return Err(Stop::Failed(format!("Cannot get properties of {name}: no such pool available.")));
            }
        }
    }
    let columns = if list == "all" { None } else { Some(PoolColumn::parse_list(list)?) };
    let reports = pools::ask_each(names, &mut failed, |mut pool| pool.report())?;
    let columns = columns.unwrap_or_else(|| PoolColumn::all(&reports));
    match options.json {
        true if failed => {}
        true => println!("{}", all_json(&reports, &columns, &options)),
        false => print!("{}", table(&reports, &columns, &options)),
    }
    Ok(!failed)
}

fn table(reports: &[PoolReport], columns: &[PoolColumn], options: &GetOptions) -> String {
    let mut rows = Vec::new();
    for pool in reports {
        for column in columns {
            let Some((value, source)) = column.text(pool, options.literal) else { continue };
            rows.push([pool.name.clone(), column.name().to_owned(), value, source.word().to_owned()]);
        }
    }
    let value_width = columns.iter().map(|column| column.width(reports, options.literal)).max().unwrap_or(0);
    lines(&rows, value_width, options)
}

fn all_json(reports: &[PoolReport], columns: &[PoolColumn], options: &GetOptions) -> Value {
    let mut out = json::head("get", Timestamp::None, options.json_int);
    let mut pools = Map::new();
    for pool in reports {
        let mut properties = Map::new();
        for column in columns {
            if let Some((value, source)) = column.text(pool, options.literal) {
                properties.insert(column.name().to_owned(), json::property(&value, source, options.json_int));
            }
        }
        if !properties.is_empty() {
            let mut map = json::pool(pool, true, options.json_int);
            map.insert("properties".into(), properties.into());
            pools.insert(json::pool_key(pool, options.json_guid_keys), map.into());
        }
    }
    out.insert("pools".into(), pools.into());
    out.into()
}

/// `zpool get -Hp all`, for tests against other implementations.
#[cfg(test)]
pub fn scripted_all(pool: &PoolReport) -> String {
    let options = GetOptions {
        fields: ALL_FIELDS.to_vec(),
        scripted: true,
        literal: true,
        json: false,
        json_int: false,
        json_guid_keys: false,
    };
    let pools = std::slice::from_ref(pool);
    table(pools, &PoolColumn::all(pools), &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pool_report::PropertyValue;

    fn options(fields: &str) -> GetOptions {
        GetOptions {
            fields: super::fields(fields).unwrap(),
            scripted: false,
            literal: false,
            json: false,
            json_int: false,
            json_guid_keys: false,
        }
    }

    #[test]
    fn tables() {
        let pool = PoolReport {
            name: "a-pool".into(),
            stored: vec![
                ("autotrim".into(), PropertyValue::Number(1)),
                ("com.me:x".into(), PropertyValue::Text("y z".into())),
            ],
            features: vec![("org.illumos:lz4_compress".into(), true), ("org.new:thing".into(), false)],
            ..PoolReport::default()
        };
        let pools = [pool];
        let columns =
            PoolColumn::parse_list("size,autotrim,com.me:x,feature@lz4_compress,unsupported@org.new:thing").unwrap();
        assert_eq!(
            table(&pools, &columns, &options("all")),
            "NAME    PROPERTY                   VALUE                      SOURCE\n\
             a-pool  size                       0                          -\n\
             a-pool  autotrim                   on                         local\n\
             a-pool  com.me:x                   y z                        local\n\
             a-pool  feature@lz4_compress       active                     local\n\
             a-pool  unsupported@org.new:thing  inactive                   local\n"
        );
        assert_eq!(table(&pools, &columns[..1], &options("value,name")), "VALUE  NAME\n0      a-pool\n");
        let all: Vec<String> = PoolColumn::all(&pools).iter().map(|column| column.name().to_owned()).collect();
        assert_eq!((all[0].as_str(), all.last().unwrap().as_str()), ("size", "unsupported@org.new:thing"));
        assert!(all.contains(&"com.me:x".to_owned()));
    }
}
