//! `zpool get`.

use std::ffi::OsString;

use protocol::pool_report::PoolReport;
use protocol::words::one_line;
use serde_json::{Map, Value};

use super::command::{Done, Stop};
use super::json;
use super::list::Column;
use super::pools::{self, Timestamp};
use crate::getopt::{self, Long, Opt};

/// A field of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Property,
    Value,
    Source,
}

const ALL_FIELDS: [Field; 4] = [Field::Name, Field::Property, Field::Value, Field::Source];

struct Options {
    fields: Vec<Field>,
    scripted: bool,
    literal: bool,
    json: bool,
    json_int: bool,
    json_guid_keys: bool,
}

/// Runs the command.
pub fn run(args: &[OsString]) -> Done {
    const LONG: [Long; 3] = [
        Long { name: "json", takes_value: false, code: 'j' },
        Long { name: "json-int", takes_value: false, code: '1' },
        Long { name: "json-pool-key-guid", takes_value: false, code: '3' },
    ];
    let mut options = Options {
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
        let imported = pools::all(&mut failed)?;
        if let Some(name) = names.iter().find(|name| !imported.contains(name)) {
            return Err(Stop::Failed(format!("Cannot get properties of {name}: no such pool available.")));
        }
        failed = false;
    }
    let columns = if list == "all" { None } else { Some(Column::parse_list(list)?) };
    let mut reports = Vec::new();
    for mut open in pools::open(names, &mut failed)? {
        reports.push(open.report()?);
    }
    let columns = columns.unwrap_or_else(|| Column::all(&reports));
    match options.json {
        true if failed => {}
        true => println!("{}", all_json(&reports, &columns, &options)),
        false => print!("{}", table(&reports, &columns, &options)),
    }
    Ok(!failed)
}

fn fields(list: &str) -> Result<Vec<Field>, Stop> {
    let mut fields = Vec::new();
    for name in list.split(',') {
        if fields.len() == ALL_FIELDS.len() {
            return Err(Stop::usage("too many fields given to -o option"));
        }
        fields.push(match name {
            "name" => Field::Name,
            "property" => Field::Property,
            "value" => Field::Value,
            "source" => Field::Source,
            "all" if fields.is_empty() => {
                fields = ALL_FIELDS.to_vec();
                continue;
            }
            "all" => return Err(Stop::usage("\"all\" conflicts with specific fields given to -o option")),
            _ => return Err(Stop::usage(format!("invalid column name '{name}'"))),
        });
    }
    Ok(fields)
}

fn table(reports: &[PoolReport], columns: &[Column], options: &Options) -> String {
    let name_width = reports.iter().map(|pool| pool.name.len()).fold("NAME".len(), usize::max);
    let width = |field: &Field| match field {
        Field::Name => name_width,
        Field::Property => columns.iter().map(|column| column.name().len()).fold("PROPERTY".len(), usize::max),
        Field::Value => {
            columns.iter().map(|column| column.width(reports, options.literal)).fold("VALUE".len(), usize::max)
        }
        // room for the longest name that a value could be inherited from
        Field::Source if name_width > "NAME".len() => name_width + "inherited from".len(),
        Field::Source => "SOURCE".len(),
    };
    let widths: Vec<usize> = options.fields.iter().map(width).collect();
    let line = |cell: &dyn Fn(Field) -> String| {
        let last = options.fields.len() - 1;
        let cells = options.fields.iter().enumerate().map(|(i, &field)| match options.scripted || i == last {
            true => cell(field),
            false => format!("{:1$}", cell(field), widths[i]),
        });
        cells.collect::<Vec<_>>().join(if options.scripted { "\t" } else { "  " }) + "\n"
    };
    let mut text = String::new();
    for pool in reports {
        for column in columns {
            let Some((value, source)) = column.text(pool, options.literal) else { continue };
            if text.is_empty() && !options.scripted {
                text += &line(&|field| format!("{field:?}").to_ascii_uppercase());
            }
            text += &line(&|field| match field {
                Field::Name => pool.name.clone(),
                Field::Property => column.name().to_owned(),
                Field::Value if options.scripted => value.clone(),
                Field::Value => one_line(&value),
                Field::Source => source.word().to_owned(),
            });
        }
    }
    text
}

fn all_json(reports: &[PoolReport], columns: &[Column], options: &Options) -> Value {
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
    let options = Options {
        fields: ALL_FIELDS.to_vec(),
        scripted: true,
        literal: true,
        json: false,
        json_int: false,
        json_guid_keys: false,
    };
    let pools = std::slice::from_ref(pool);
    table(pools, &Column::all(pools), &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pool_report::StoredValue;

    fn options(fields: &str) -> Options {
        Options {
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
                ("autotrim".into(), StoredValue::Number(1)),
                ("com.me:x".into(), StoredValue::Text("y z".into())),
            ],
            features: vec![("org.illumos:lz4_compress".into(), true), ("org.new:thing".into(), false)],
            ..PoolReport::default()
        };
        let pools = [pool];
        let columns =
            Column::parse_list("size,autotrim,com.me:x,feature@lz4_compress,unsupported@org.new:thing").unwrap();
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
        let all: Vec<String> = Column::all(&pools).iter().map(|column| column.name().to_owned()).collect();
        assert_eq!((all[0].as_str(), all.last().unwrap().as_str()), ("size", "unsupported@org.new:thing"));
        assert!(all.contains(&"com.me:x".to_owned()));
    }

    #[test]
    fn field_lists() {
        assert_eq!(fields("value,source").unwrap(), [Field::Value, Field::Source]);
        for (list, error) in [
            ("nope", "invalid column name 'nope'"),
            ("name,all", "\"all\" conflicts with specific fields given to -o option"),
            ("name,name,name,name,name", "too many fields given to -o option"),
        ] {
            assert_eq!(fields(list), Err(Stop::usage(error)));
        }
    }
}
