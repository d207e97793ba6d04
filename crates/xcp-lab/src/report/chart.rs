// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Draws charts over time as inline SVG. The page's style sets the colours of text, axes and
//! grid for light and dark pages: see style.css.

use plotters::prelude::*;

use crate::result::FLOWS_IN_FULL;

const WIDTH: u32 = 480;
const HEIGHT: u32 = 260;
/// Placeholder colours that style.css replaces; they are not used otherwise.
const AXIS: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);

/// Colours by Okabe and Ito, which colour-blind people can distinguish; one for each flow of
/// the legend.
const COLOURS: [RGBColor; FLOWS_IN_FULL] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(150, 140, 30),
    // grey instead of their black, visible on dark pages too
    RGBColor(128, 128, 128),
];

/// The colour of a flow in CSS.
pub fn colour(index: usize) -> String {
    let RGBColor(r, g, b) = COLOURS[index % COLOURS.len()];
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// One line: `(seconds, value)`.
pub struct Line {
    /// Index of the colour.
    pub colour: usize,
    pub points: Vec<(f64, f64)>,
}

/// A chart with lines over the same time.
pub struct Chart<'a> {
    pub title: &'a str,
    pub seconds: f64,
    /// The largest value of the axis; by default that of the lines.
    pub top: Option<f64>,
    /// A dashed line at this value.
    pub guide: Option<f64>,
    pub lines: Vec<Line>,
}

impl Chart<'_> {
    /// Draws the chart as inline SVG.
    pub fn svg(&self) -> Result<String, String> {
        // inline SVG needs no namespace
        self.drawn()
            .map(|svg| svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", ""))
    }

    /// Draws the chart as an SVG file.
    pub fn page(&self) -> Result<String, String> {
        let style = format!("<style>{}</style>", include_str!("style.css"));
        let svg = self.drawn()?;
        let inside = svg.find('>').map_or(0, |end| end + 1);
        Ok(format!("{}{style}{}", &svg[..inside], &svg[inside..]))
    }

    fn drawn(&self) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area())
            .map_err(|e| e.to_string())?;
        Ok(svg)
    }

    fn draw(
        &self,
        area: &DrawingArea<SVGBackend, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let seconds = positive(self.seconds);
        let values = self.lines.iter().flat_map(|l| &l.points).map(|p| p.1);
        let most = self.top.unwrap_or_else(|| values.fold(0.0, f64::max));
        let top = positive(most.max(self.guide.unwrap_or(0.0)) * 1.05);
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(14)
            .x_label_area_size(34)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..seconds, 0.0..top)
            .map_err(|e| e.to_string())?;
        let text = ("sans-serif", 16).into_font().color(&AXIS);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(6)
            .y_labels(5)
            .x_desc("seconds")
            .x_label_formatter(&short)
            .y_label_formatter(&short)
            .label_style(text.clone())
            .axis_desc_style(text)
            .axis_style(AXIS)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(|e| e.to_string())?;
        if let Some(value) = self.guide.filter(|v| v.is_finite()) {
            let ends = [(0.0, value), (seconds, value)];
            chart
                .draw_series(DashedLineSeries::new(ends, 4, 4, AXIS.stroke_width(1)))
                .map_err(|e| e.to_string())?;
        }
        let width = if self.lines.len() > COLOURS.len() {
            1
        } else {
            2
        };
        for line in &self.lines {
            let colour = COLOURS[line.colour % COLOURS.len()];
            let points = thinned(&line.points, seconds);
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(width)))
                .map_err(|e| e.to_string())?;
        }
        area.present().map_err(|e| e.to_string())?;
        Ok(())
    }
}

/// Returns a range that can be drawn.
fn positive(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 {
        value
    } else {
        1.0
    }
}

fn short(value: &f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Keeps at most the minimum and the maximum of each pixel column, so that no spike is
/// lost.
fn thinned(points: &[(f64, f64)], seconds: f64) -> Vec<(f64, f64)> {
    let column = |t: f64| (t / seconds * f64::from(WIDTH)) as i64;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut here: Option<[usize; 2]> = None;
    let finite: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|p| p.0.is_finite() && p.1.is_finite())
        .collect();
    let mut keep = |range: [usize; 2], finite: &[(f64, f64)]| {
        let [first, second] = [range[0].min(range[1]), range[0].max(range[1])];
        kept.push(finite[first]);
        if second != first {
            kept.push(finite[second]);
        }
    };
    for (i, p) in finite.iter().enumerate() {
        match &mut here {
            Some([least, most]) if column(finite[*least].0) == column(p.0) => {
                if p.1 < finite[*least].1 {
                    *least = i;
                }
                if p.1 > finite[*most].1 {
                    *most = i;
                }
            }
            _ => {
                if let Some(range) = here {
                    keep(range, &finite);
                }
                here = Some([i, i]);
            }
        }
    }
    if let Some(range) = here {
        keep(range, &finite);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_spikes_and_order() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i) / 1e3, 1.0)).collect();
        points[54_321].1 = 700.0;
        points[54_322].1 = 0.0;
        let kept = thinned(&points, 100.0);
        assert!(kept.len() <= 2 * WIDTH as usize, "{}", kept.len());
        assert!(kept.contains(&(54.321, 700.0)) && kept.contains(&(54.322, 0.0)));
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn flows_of_the_legend_differ_in_colour() {
        let mut all: Vec<String> = (0..FLOWS_IN_FULL).map(colour).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), FLOWS_IN_FULL);
    }

    #[test]
    fn line_of_many_points_is_thinned() {
        let points = (0..100_000)
            .map(|i| (f64::from(i) / 1e3, f64::from(i % 7)))
            .collect();
        let chart = Chart {
            title: "",
            seconds: 100.0,
            top: None,
            guide: None,
            lines: vec![Line { colour: 0, points }],
        };
        let svg = chart.svg().expect("draws");
        assert!(svg.len() < 30_000, "{}", svg.len());
    }

    #[test]
    fn values_that_are_not_numbers_are_skipped() {
        let odd = [(0.0, 1.0), (f64::NAN, 2.0), (1.0, f64::NAN), (2.0, 3.0)];
        assert_eq!(thinned(&odd, 2.0), [(0.0, 1.0), (2.0, 3.0)]);
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(positive(value), 1.0);
        }
    }

    #[test]
    fn labels_have_no_trailing_zeros() {
        assert_eq!(short(&2.5), "2.5");
        assert_eq!(short(&200.0), "200");
        assert_eq!(short(&0.0), "0");
    }
}
