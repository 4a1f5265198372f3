//! Properties as rows: what of them is shown, and how wide.

use protocol::words::one_line;

use super::command::Stop;

/// A field of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolField {
    Name,
    Property,
    Value,
    Source,
}

pub(super) const ALL_FIELDS: [PoolField; 4] =
    [PoolField::Name, PoolField::Property, PoolField::Value, PoolField::Source];

/// How properties are shown.
pub(super) struct GetOptions {
    pub(super) fields: Vec<PoolField>,
    pub(super) scripted: bool,
    pub(super) literal: bool,
    pub(super) json: bool,
    pub(super) json_int: bool,
    pub(super) json_guid_keys: bool,
}

/// The fields that a list names. Errors: the usage error of an unknown one.
pub(super) fn fields(list: &str) -> Result<Vec<PoolField>, Stop> {
    let mut fields = Vec::new();
    for name in list.split(',') {
        if fields.len() == ALL_FIELDS.len() {
            return Err(Stop::usage("too many fields given to -o option"));
        }
        fields.push(match name {
            "name" => PoolField::Name,
            "property" => PoolField::Property,
            "value" => PoolField::Value,
            "source" => PoolField::Source,
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

/// Rows of name, property, value and source as lines; values take `value_width` at least.
pub(super) fn lines(rows: &[[String; 4]], value_width: usize, options: &GetOptions) -> String {
    let widest = |at: usize, heading: &str| rows.iter().map(|row| row[at].len()).fold(heading.len(), usize::max);
    let name_width = widest(0, "NAME");
    let width = |field: &PoolField| match field {
        PoolField::Name => name_width,
        PoolField::Property => widest(1, "PROPERTY"),
        PoolField::Value => widest(2, "VALUE").max(value_width),
        // room for the longest name that a value could be inherited from
        PoolField::Source if name_width > "NAME".len() => name_width + "inherited from".len(),
        PoolField::Source => "SOURCE".len(),
    };
    let widths: Vec<usize> = options.fields.iter().map(width).collect();
    let line = |cell: &dyn Fn(PoolField) -> String| {
        let last = options.fields.len() - 1;
        let cells = options.fields.iter().enumerate().map(|(i, &field)| match options.scripted || i == last {
            true => cell(field),
            false => format!("{:1$}", cell(field), widths[i]),
        });
        cells.collect::<Vec<_>>().join(if options.scripted { "\t" } else { "  " }) + "\n"
    };
    let mut text = String::new();
    if !options.scripted && !rows.is_empty() {
        text += &line(&|field| format!("{field:?}").to_ascii_uppercase());
    }
    for [name, property, value, source] in rows {
        text += &line(&|field| match field {
            PoolField::Name => name.clone(),
            PoolField::Property => property.clone(),
            PoolField::Value if options.scripted => value.clone(),
            PoolField::Value => one_line(value),
            PoolField::Source => source.clone(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_lists() {
        assert_eq!(fields("value,source").unwrap(), [PoolField::Value, PoolField::Source]);
        for (list, error) in [
            ("nope", "invalid column name 'nope'"),
            ("name,all", "\"all\" conflicts with specific fields given to -o option"),
            ("name,name,name,name,name", "too many fields given to -o option"),
        ] {
            assert_eq!(fields(list), Err(Stop::usage(error)));
        }
    }
}
