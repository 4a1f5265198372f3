//! A chart of lines, both axes logarithmic: for rates over sizes.
//!
//! ```text
//!   title
//!   10K ┤            ─── 16 threads
//!    1K ┤ ───────────
//!   100 ┤ ─────────── ─── 1 thread
//!       └──┬───┬───┬──
//!         512  4K  32K
//! ```
//!
//! The vertical axis goes by powers of ten, the horizontal one by powers of two.

use protocol::words::nicenum::nicenum;

use super::{COLOURS, begin, rule, text};

/// Size of the picture, and what is left free around the lines: above, right of, below and left of them.
const SIZE: [f64; 2] = [860.0, 480.0];
const MARGINS: [f64; 4] = [48.0, 150.0, 56.0, 70.0];
/// The same, if names are below.
const NARROW_SIZE: [f64; 2] = [480.0, 300.0];
const NARROW_MARGINS: [f64; 4] = [48.0, 16.0, 56.0, 56.0];
/// Distance between names of lines at least.
const LABEL_HEIGHT: f64 = 15.0;
/// Marks on the horizontal axis at most.
const MARKS_MAX: u32 = 12;

/// What is drawn.
pub struct Chart {
    pub title: String,
    /// What the axes show.
    pub x_label: String,
    pub y_label: String,
    pub lines: Vec<Curve>,
    pub names: CurveNames,
}

/// Where the names of lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveNames {
    /// Beside their ends, in a wide picture.
    Beside,
    /// In a list below, so that a phone shows the picture as it is, and long names have room.
    Below,
}

/// A line through points. What is not positive cannot be shown.
pub struct Curve {
    pub name: String,
    pub points: Vec<(u64, f64)>,
}

/// From a number to its place.
struct Axis {
    /// Logarithms of the ends: to base 2 or 10.
    ends: [f64; 2],
    /// Where these are in the picture.
    places: [f64; 2],
}

impl Axis {
    fn place(&self, log: f64) -> f64 {
        let part = (log - self.ends[0]) / (self.ends[1] - self.ends[0]).max(1.0);
        self.places[0] + part * (self.places[1] - self.places[0])
    }
}

impl Chart {
    /// The picture.
    pub fn svg(&self) -> String {
        let ([width, height], margins) = self.shape();
        let (x, y) = self.axes();
        let below = if self.names == CurveNames::Below { self.lines.len() as f64 * LABEL_HEIGHT } else { 0.0 };
        let mut svg = begin([width, height + below], &self.title);
        text(&mut svg, [8.0, margins[0] / 2.0], "start", &self.title);
        text(&mut svg, [(x.places[0] + x.places[1]) / 2.0, height - 12.0], "middle", &self.x_label);
        text(&mut svg, [x.places[0], margins[0] - 8.0], "end", &self.y_label);
        let powers = |axis: &Axis| axis.ends[0] as i32..=axis.ends[1] as i32;
        let step = (powers(&x).count() as u32).div_ceil(MARKS_MAX).max(1) as usize;
        for power in powers(&x).step_by(step) {
            let at = x.place(power.into());
            rule(&mut svg, [at, y.places[0]], [at, y.places[1]]);
            text(&mut svg, [at, y.places[0] + 18.0], "middle", &nicenum(1 << power));
        }
        for power in powers(&y) {
            let at = y.place(power.into());
            rule(&mut svg, [x.places[0], at], [x.places[1], at]);
            text(&mut svg, [x.places[0] - 6.0, at + 4.0], "end", &decimal(power));
        }
        for (number, line) in self.lines.iter().enumerate() {
            self.draw(&mut svg, number, line, &x, &y);
        }
        let places: Vec<[f64; 2]> = match self.names {
            CurveNames::Beside => self.label_places(&y).into_iter().map(|at| [x.places[1] + 10.0, at]).collect(),
            CurveNames::Below => {
                (0..self.lines.len()).map(|n| [margins[3], height + 10.0 + n as f64 * LABEL_HEIGHT]).collect()
            }
        };
        for ((number, line), at) in self.lines.iter().enumerate().zip(places) {
            let colour = COLOURS[number % COLOURS.len()];
            if self.names == CurveNames::Below {
                let [x, y] = [at[0] - 14.0, at[1] - 4.0];
                svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n");
                text(&mut svg, at, "start", &line.name);
            } else {
                svg += &format!("<g fill=\"{colour}\">");
                text(&mut svg, at, "start", &line.name);
                svg += "</g>\n";
            }
        }
        svg + "</svg>\n"
    }

    fn shape(&self) -> ([f64; 2], [f64; 4]) {
        match self.names {
            CurveNames::Beside => (SIZE, MARGINS),
            CurveNames::Below => (NARROW_SIZE, NARROW_MARGINS),
        }
    }

    fn axes(&self) -> (Axis, Axis) {
        let points = || self.lines.iter().flat_map(|line| &line.points).filter(|point| is_shown(point));
        let ends = |logs: &mut dyn Iterator<Item = f64>| {
            let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
            if low > high { [0.0, 1.0] } else { [low.floor(), high.ceil().max(low.floor() + 1.0)] }
        };
        let ([width, height], margins) = self.shape();
        let x = ends(&mut points().map(|point| (point.0 as f64).log2()));
        let y = ends(&mut points().map(|point| point.1.log10()));
        (
            Axis { ends: x, places: [margins[3], width - margins[1]] },
            Axis { ends: y, places: [height - margins[2], margins[0]] },
        )
    }

    fn draw(&self, svg: &mut String, number: usize, line: &Curve, x: &Axis, y: &Axis) {
        let colour = COLOURS[number % COLOURS.len()];
        let shown = line.points.iter().filter(|point| is_shown(point));
        let places: Vec<[f64; 2]> =
            shown.map(|point| [x.place((point.0 as f64).log2()), y.place(point.1.log10())]).collect();
        let path: Vec<String> = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let path = path.join(" ");
        *svg += &format!("<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{path}\"/>\n");
        for [x, y] in &places {
            *svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n");
        }
    }

    /// Where the names of lines go: beside their ends, but not over one another.
    fn label_places(&self, y: &Axis) -> Vec<f64> {
        let mut taken: Vec<f64> = Vec::new();
        for line in &self.lines {
            let end = line.points.iter().rev().find(|point| is_shown(point));
            let mut at = end.map_or(y.places[1], |point| y.place(point.1.log10()) + 4.0);
            while taken.iter().any(|other| (other - at).abs() < LABEL_HEIGHT) {
                at += 1.0;
            }
            taken.push(at);
        }
        taken
    }
}

fn is_shown(point: &(u64, f64)) -> bool {
    point.0 > 0 && point.1.is_finite() && point.1 > 0.0
}

/// A power of ten: `0.1`, `100`, `10K`.
fn decimal(power: i32) -> String {
    match power {
        ..0 => format!("{:.*}", power.unsigned_abs() as usize, 10f64.powi(power)),
        0..3 => format!("{}", 10u64.pow(power as u32)),
        3..6 => format!("{}K", 10u64.pow(power as u32 - 3)),
        6..9 => format!("{}M", 10u64.pow(power as u32 - 6)),
        _ => format!("1e{power}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Curve>) -> String {
        Chart {
            title: "a < b & c".into(),
            x_label: "bytes".into(),
            y_label: "a second".into(),
            lines,
            names: CurveNames::Beside,
        }
        .svg()
    }

    #[test]
    fn points_are_where_the_axes_say() {
        let line = |name: &str, points: &[(u64, f64)]| Curve { name: name.into(), points: points.to_vec() };
        let svg = chart(vec![
            line("one", &[(512, 100.0), (4096, 1000.0), (8192, 0.0)]),
            line("two", &[(512, 99.0), (4096, 990.0)]),
        ]);
        // 512 is the left end, 4096 the right one; 10 is the lower end, 1000 the upper one
        assert!(svg.contains("points=\"70.0,236.0 710.0,48.0\""), "{svg}");
        for words in ["a &lt; b &amp; c", ">512<", ">4K<", ">10<", ">1K<", ">one<", ">two<"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        let label = |name: &str| -> f64 {
            let before = svg.split(&format!(">{name}<")).next().unwrap();
            before.rsplit(" y=\"").next().unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!((label("two") - label("one")).abs() >= LABEL_HEIGHT);
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(chart(Vec::new()).ends_with("</svg>\n"));
        let svg = chart(vec![Curve { name: "one".into(), points: vec![(1, 5.0)] }]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!([-2, 0, 2, 4, 6].map(decimal), ["0.01", "1", "100", "10K", "1M"]);
    }
}
