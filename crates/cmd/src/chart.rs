//! Charts as SVG, which stand alone or within a page: its style sheet may give them other colours of text and ground.
//!
//! - [`lines`]: rates over sizes; [`bars`]: one figure of several things; [`flame`]: where time goes

mod bars;
mod flame;
mod lines;

pub use bars::{Bars, ChartBar};
pub use flame::FlameGraph;
pub use lines::{Chart, Curve, CurveNames};

/// Colours that colour-blind people can tell apart, too, on white and on black: those of Okabe and Ito.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"];

/// The beginning of a picture, with its title for those that cannot see it.
fn begin([width, height]: [f64; 2], title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escaped(title)
    )
}

fn rule(svg: &mut String, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
    *svg += &format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" class=\"rule\" stroke=\"#ddd\"/>\n");
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, words: &str) {
    *svg += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", escaped(words));
}

/// As text within XML, which has no place for control characters.
fn escaped(words: &str) -> String {
    let one = |c: char| match c {
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '&' => "&amp;".to_owned(),
        c if c.is_control() => "?".to_owned(),
        c => c.to_string(),
    };
    words.chars().map(one).collect()
}
