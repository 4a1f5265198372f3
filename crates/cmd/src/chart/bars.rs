//! Bars, one below the other, each with its spread.

use super::{COLOURS, begin, rule, text};

/// Width of the picture; where bars begin, and where the longest ends.
const WIDTH: f64 = 480.0;
const PLACES: [f64; 2] = [12.0, 400.0];
/// Height of the title, of a bar with its name above, and of the bar alone.
const TITLE_HEIGHT: f64 = 36.0;
const ROW_HEIGHT: f64 = 34.0;
const BAR_HEIGHT: f64 = 12.0;

/// What is drawn.
pub struct Bars {
    pub title: String,
    pub bars: Vec<ChartBar>,
}

/// One bar, from 0 to its value; what is not positive is none.
pub struct ChartBar {
    pub name: String,
    pub value: f64,
    /// The least and the greatest of several runs.
    pub spread: [f64; 2],
    /// The value in words.
    pub said: String,
}

impl Bars {
    /// The picture.
    pub fn svg(&self) -> String {
        let mut svg = begin([WIDTH, TITLE_HEIGHT + ROW_HEIGHT * self.bars.len() as f64 + 8.0], &self.title);
        text(&mut svg, [PLACES[0], TITLE_HEIGHT / 2.0], "start", &self.title);
        let highest = self.bars.iter().map(|bar| bar.spread[1].max(bar.value)).filter(|value| value.is_finite());
        let highest = highest.fold(f64::MIN_POSITIVE, f64::max);
        let place = |value: f64| {
            let part = if value.is_finite() { (value / highest).clamp(0.0, 1.0) } else { 0.0 };
            PLACES[0] + part * (PLACES[1] - PLACES[0])
        };
        for (n, bar) in self.bars.iter().enumerate() {
            let top = TITLE_HEIGHT + n as f64 * ROW_HEIGHT;
            text(&mut svg, [PLACES[0], top + 11.0], "start", &bar.name);
            let (y, end) = (top + 16.0, place(bar.value));
            svg += &format!(
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{}\"/>\n",
                PLACES[0],
                end - PLACES[0],
                COLOURS[0]
            );
            let [low, high] = bar.spread.map(place);
            let middle = y + BAR_HEIGHT / 2.0;
            svg += &format!(
                "<path d=\"M{low:.1} {middle:.1}L{high:.1} {middle:.1}\" stroke=\"{}\" stroke-width=\"3\"/>\n",
                COLOURS[1]
            );
            text(&mut svg, [high.max(end) + 6.0, middle + 4.0], "start", &bar.said);
        }
        rule(
            &mut svg,
            [PLACES[0], TITLE_HEIGHT - 4.0],
            [PLACES[0], TITLE_HEIGHT + ROW_HEIGHT * self.bars.len() as f64],
        );
        svg + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |name: &str, value: f64| ChartBar {
            name: name.into(),
            value,
            spread: [value; 2],
            said: format!("{value}"),
        };
        let svg =
            Bars { title: "<b>".into(), bars: vec![bar("one", 50.0), bar("two", 100.0), bar("none", f64::NAN)] }.svg();
        assert!(svg.contains("width=\"194.0\"") && svg.contains("width=\"388.0\""), "{svg}");
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
        assert!(Bars { title: String::new(), bars: Vec::new() }.svg().ends_with("</svg>\n"));
    }
}
