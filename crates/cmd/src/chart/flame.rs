//! Flame graphs: each box is a function, as wide as the time in it and all that it called; its callers are below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{begin, escaped, text};

const WIDTH: f64 = 1200.0;
const ROW_HEIGHT: f64 = 16.0;
const TITLE_HEIGHT: f64 = 28.0;
/// Boxes below this width are left out.
const LEAST_WIDTH: f64 = 0.4;
/// Width of a character of text.
const CHARACTER_WIDTH: f64 = 6.2;
/// Boxes at most, so that a page has at most 2 MB.
const BOXES_MAX: usize = 8000;

/// Colours of boxes: light enough for black text, and different for those that are not told apart by hue.
const COLOURS: [&str; 5] = ["#f0e442", "#e69f00", "#56b4e9", "#8fd0b8", "#e3b3cd"];

/// What is drawn.
pub struct FlameGraph<'a> {
    pub title: String,
    /// Names from the outermost to the innermost, and how often this was seen.
    pub stacks: BTreeMap<&'a [Arc<str>], u64>,
}

/// A box that is still open to the right.
struct OpenBox<'a> {
    name: &'a str,
    begin: u64,
}

/// A box as it is drawn.
struct FlameBox<'a> {
    name: &'a str,
    depth: usize,
    range: [u64; 2],
}

impl FlameGraph<'_> {
    /// The picture.
    pub fn svg(&self) -> String {
        let all: u64 = self.stacks.values().sum();
        let scale = WIDTH / all.max(1) as f64;
        let mut boxes = self.boxes();
        boxes.retain(|one| (one.range[1] - one.range[0]) as f64 * scale >= LEAST_WIDTH);
        boxes.sort_by_key(|one| (std::cmp::Reverse(one.range[1] - one.range[0]), one.depth, one.range[0]));
        boxes.truncate(BOXES_MAX);
        let depth = boxes.iter().map(|one| one.depth + 1).max().unwrap_or(0);
        let height = TITLE_HEIGHT + depth as f64 * ROW_HEIGHT + 4.0;
        let mut svg = begin([WIDTH, height], &self.title);
        text(&mut svg, [8.0, TITLE_HEIGHT / 2.0 + 4.0], "start", &self.title);
        for one in &boxes {
            let [x, end] = one.range.map(|at| at as f64 * scale);
            let y = height - 4.0 - (one.depth + 1) as f64 * ROW_HEIGHT;
            let percent = (one.range[1] - one.range[0]) as f64 * 100.0 / all.max(1) as f64;
            svg += &format!(
                "<g><title>{} {percent:.1}%</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 fill=\"{}\"/>",
                escaped(one.name),
                (end - x - 0.2).max(0.2),
                ROW_HEIGHT - 1.0,
                COLOURS[colour(one.name)]
            );
            let room = ((end - x - 4.0) / CHARACTER_WIDTH) as usize;
            if room >= 3 {
                svg += &format!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-family=\"monospace\" font-size=\"10\" fill=\"#000\">{}</text>",
                    x + 2.0,
                    y + ROW_HEIGHT - 5.0,
                    escaped(&shortened(one.name, room))
                );
            }
            svg += "</g>\n";
        }
        svg + "</svg>\n"
    }

    /// Neighbours with the same callers are one box: stacks are sorted.
    fn boxes(&self) -> Vec<FlameBox<'_>> {
        let mut open: Vec<OpenBox<'_>> = Vec::new();
        let mut boxes = Vec::new();
        let mut at = 0;
        for (stack, count) in &self.stacks {
            let same = open.iter().zip(*stack).take_while(|(open, name)| open.name == &***name).count();
            close(&mut open, same, at, &mut boxes);
            open.extend(stack[same..].iter().map(|name| OpenBox { name, begin: at }));
            at += count;
        }
        close(&mut open, 0, at, &mut boxes);
        boxes
    }
}

fn close<'a>(open: &mut Vec<OpenBox<'a>>, down_to: usize, at: u64, boxes: &mut Vec<FlameBox<'a>>) {
    while open.len() > down_to {
        let depth = open.len() - 1;
        boxes.extend(open.pop().map(|one| FlameBox { name: one.name, depth, range: [one.begin, at] }));
    }
}

/// The end of a name is what tells it from others.
fn shortened(name: &str, room: usize) -> String {
    let length = name.chars().count();
    match length > room {
        true => "…".chars().chain(name.chars().skip(length + 1 - room)).collect(),
        false => name.to_owned(),
    }
}

/// Functions of one crate have one colour.
fn colour(name: &str) -> usize {
    let family = name.split("::").next().unwrap_or(name);
    family.bytes().fold(7usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % COLOURS.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_lie_above_their_callers() {
        let names = |text: &str| text.split(' ').map(Arc::from).collect::<Vec<Arc<str>>>();
        let paths = [names("main a::b c"), names("main a::b d"), names("main e"), names("<x>")];
        let stacks = paths.iter().map(Vec::as_slice).zip([10, 20, 30, 40]).collect();
        let graph = FlameGraph { title: "t".to_owned(), stacks };
        let mut boxes: Vec<_> = graph.boxes().into_iter().map(|one| (one.name, one.depth, one.range)).collect();
        boxes.sort_by_key(|one| (one.1, one.2));
        let expected = [
            ("<x>", 0, [0, 40]),
            ("main", 0, [40, 100]),
            ("a::b", 1, [40, 70]),
            ("e", 1, [70, 100]),
            ("c", 2, [40, 50]),
            ("d", 2, [50, 70]),
        ];
        assert_eq!(boxes, expected);
        let svg = graph.svg();
        assert!(svg.contains("&lt;x&gt; 40.0%") && !svg.contains("<x>") && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!(shortened("abcdef", 4), "…def");
        assert_eq!(FlameGraph { title: String::new(), stacks: BTreeMap::new() }.svg().matches("<g>").count(), 0);
    }
}
