//! Charts of lines over time or another ascending number: plain, steps, stacked, or bars.

use super::svg::width;
use super::{GRID, INK, PALE, PALETTE};
use crate::draw::axis::{AxisScale, ChartAxis};
use crate::draw::svg::{PictureArea, SvgPicture, TextAnchor, TextStyle};
use crate::draw::unit::ValueUnit;

/// One line and its name.
#[derive(Clone, Debug)]
pub(crate) struct ChartLine {
    pub(crate) name: String,
    /// The points, ascending. A value that is not a number is a gap.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The style of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineStyle {
    Lines,
    /// A value holds until the next.
    Steps,
    /// The lines are stacked.
    Stacked,
    Bars,
}

/// A chart.
#[derive(Debug)]
pub(crate) struct LineChart<'a> {
    pub(crate) title: &'a str,
    pub(crate) unit: ValueUnit,
    pub(crate) style: LineStyle,
    /// The labels of the horizontal axis: the number, and its text.
    pub(crate) below: Vec<(f64, String)>,
    pub(crate) scale: AxisScale,
    /// The most the vertical axis shows, if that is known.
    pub(crate) most: Option<f64>,
    /// A moment to mark, with its label.
    pub(crate) mark: Option<(f64, &'a str)>,
    pub(crate) lines: Vec<ChartLine>,
}

const ROW: f64 = 15.0;
/// The most points of a line for each to be marked.
const MAX_MARKED_POINTS: usize = 8;
/// The most rows of a legend.
const MAX_LEGEND_ROWS: usize = 5;

impl LineChart<'_> {
    /// Draws it into a frame.
    pub(crate) fn draw(&self, picture: &mut SvgPicture, frame: PictureArea) {
        picture.rectangle(frame, "#ffffff", GRID);
        let width = frame.width - 20.0;
        picture.text(
            frame.x + 10.0,
            frame.y + 19.0,
            self.title,
            TextStyle {
                size: 13.0,
                colour: INK,
                weight: "600",
                anchor: TextAnchor::Start,
                max_width: width,
            },
        );
        let rows = self.lines.len().div_ceil(2).min(MAX_LEGEND_ROWS);
        #[expect(clippy::cast_precision_loss, reason = "a few rows")]
        let plot = frame.inside([66.0, 32.0, 14.0, 30.0 + ROW * rows as f64]);
        let (across, upward) = self.axes();
        self.frame(picture, plot, &across, &upward);
        let place = |(x, y): (f64, f64)| {
            (
                plot.x + across.place(x) * plot.width,
                plot.bottom() - upward.place(y) * plot.height,
            )
        };
        match self.style {
            LineStyle::Stacked => self.stack(picture, place),
            LineStyle::Bars => self.bars(picture, plot, place),
            LineStyle::Lines | LineStyle::Steps => self.strokes(picture, place),
        }
        self.legend(
            picture,
            PictureArea {
                y: plot.bottom() + 26.0,
                ..plot.inside([-56.0, 0.0, 0.0, 0.0])
            },
            rows * 2,
        );
    }

    fn axes(&self) -> (ChartAxis, ChartAxis) {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let below = self.below.iter().map(|(at, _)| *at);
        let (least, last) = all()
            .map(|(x, _)| *x)
            .chain(below)
            .fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
        let highest = if self.style == LineStyle::Stacked {
            self.sums().into_iter().map(|(_, y)| y).fold(0.0, f64::max)
        } else {
            all()
                .map(|(_, y)| *y)
                .filter(|y| y.is_finite())
                .fold(0.0, f64::max)
        };
        let most = self.most.map_or(
            highest * 1.02,
            |most| if highest > most { highest } else { most },
        );
        (
            ChartAxis::between(least, last, self.scale),
            ChartAxis::upward(most, self.unit, 4.0),
        )
    }

    fn frame(
        &self,
        picture: &mut SvgPicture,
        plot: PictureArea,
        across: &ChartAxis,
        upward: &ChartAxis,
    ) {
        for tick in upward.ticks() {
            let y = plot.bottom() - upward.place(tick) * plot.height;
            picture.path(&[(plot.x, y), (plot.right(), y)], GRID, 1.0, 0);
            picture.text(
                plot.x - 6.0,
                y + 4.0,
                &self.unit.render(tick),
                TextStyle {
                    size: 10.5,
                    colour: PALE,
                    weight: "400",
                    anchor: TextAnchor::End,
                    max_width: 62.0,
                },
            );
        }
        for (at, word) in &self.below {
            let place = across.place(*at);
            // The last label must not stick out.
            let anchor = if place > 0.99 {
                TextAnchor::End
            } else {
                TextAnchor::Middle
            };
            let x = plot.x + place * plot.width;
            picture.text(
                x,
                plot.bottom() + 14.0,
                word,
                TextStyle {
                    size: 10.5,
                    colour: PALE,
                    weight: "400",
                    anchor,
                    max_width: 120.0,
                },
            );
        }
        if let Some((at, word)) = self.mark {
            let x = plot.x + across.place(at) * plot.width;
            picture.path(&[(x, plot.y), (x, plot.bottom())], "#d44a3a", 1.0, 4);
            picture.text(
                x + 4.0,
                plot.y + 9.0,
                word,
                TextStyle {
                    size: 9.5,
                    colour: "#d44a3a",
                    weight: "400",
                    anchor: TextAnchor::Start,
                    max_width: 120.0,
                },
            );
        }
    }

    fn strokes(&self, picture: &mut SvgPicture, place: impl Fn((f64, f64)) -> (f64, f64)) {
        let few = self
            .lines
            .iter()
            .all(|line| line.points.len() <= MAX_MARKED_POINTS);
        for (line, colour) in self.lines.iter().zip(PALETTE.iter().cycle()) {
            for piece in line
                .points
                .split(|(_, y)| !y.is_finite())
                .filter(|piece| !piece.is_empty())
            {
                let mut drawn: Vec<(f64, f64)> = Vec::new();
                for point in piece.iter().map(|point| place(*point)) {
                    if let (LineStyle::Steps, Some(last)) = (self.style, drawn.last()) {
                        drawn.push((point.0, last.1));
                    }
                    drawn.push(point);
                }
                picture.path(&drawn, colour, 1.8, 0);
                // With so few points each was measured for itself.
                if few {
                    for (x, y) in drawn {
                        picture.dot(x, y, colour);
                    }
                }
            }
        }
    }

    fn bars(
        &self,
        picture: &mut SvgPicture,
        plot: PictureArea,
        place: impl Fn((f64, f64)) -> (f64, f64),
    ) {
        for (line, colour) in self.lines.iter().zip(PALETTE.iter().cycle()) {
            for (x, y) in line
                .points
                .iter()
                .filter(|(_, y)| *y > 0.0)
                .map(|point| place(*point))
            {
                picture.bar(
                    PictureArea {
                        x: x - 1.5,
                        y,
                        width: 3.0,
                        height: plot.bottom() - y,
                    },
                    colour,
                );
            }
        }
    }

    /// The sum of all lines at each point.
    fn sums(&self) -> Vec<(f64, f64)> {
        let mut sums = std::collections::BTreeMap::new();
        for (x, y) in self
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .filter(|(_, y)| y.is_finite())
        {
            *sums.entry(x.to_bits()).or_insert(0.0) += y;
        }
        // Times are positive, so the order of their bits is their order.
        sums.into_iter()
            .map(|(x, y)| (f64::from_bits(x), y))
            .collect()
    }

    fn stack(&self, picture: &mut SvgPicture, place: impl Fn((f64, f64)) -> (f64, f64)) {
        let mut below: Vec<(f64, f64)> = self.sums().into_iter().map(|(x, _)| (x, 0.0)).collect();
        for (line, colour) in self.lines.iter().zip(PALETTE.iter().cycle()) {
            let own: std::collections::BTreeMap<u64, f64> = line
                .points
                .iter()
                .filter(|(_, y)| y.is_finite())
                .map(|(x, y)| (x.to_bits(), *y))
                .collect();
            let above: Vec<(f64, f64)> = below
                .iter()
                .map(|(x, y)| (*x, y + own.get(&x.to_bits()).copied().unwrap_or(0.0)))
                .collect();
            let edge: Vec<_> = above.iter().map(|point| place(*point)).collect();
            let floor = below.iter().rev().map(|point| place(*point));
            picture.shape(
                &edge.iter().copied().chain(floor).collect::<Vec<_>>(),
                colour,
                0.65,
            );
            picture.path(&edge, colour, 1.0, 0);
            below = above;
        }
    }

    /// Draws the names in two columns, each with its last value and its highest.
    fn legend(&self, picture: &mut SvgPicture, place: PictureArea, most: usize) {
        let half = place.width / 2.0;
        for (number, (line, colour)) in self
            .lines
            .iter()
            .zip(PALETTE.iter().cycle())
            .take(most)
            .enumerate()
        {
            #[expect(clippy::cast_precision_loss, reason = "a few names")]
            let (x, y) = (
                place.x + half * (number % 2) as f64,
                place.y + ROW * (number / 2) as f64 + 8.0,
            );
            picture.bar(
                PictureArea {
                    x,
                    y: y - 7.0,
                    width: 9.0,
                    height: 7.0,
                },
                colour,
            );
            let last = line
                .points
                .iter()
                .rev()
                .map(|(_, y)| *y)
                .find(|y| y.is_finite())
                .unwrap_or(f64::NAN);
            let highest = line
                .points
                .iter()
                .map(|(_, y)| *y)
                .filter(|y| y.is_finite())
                .fold(f64::NAN, f64::max);
            let values = format!(
                "{} (max {})",
                self.unit.render(last),
                self.unit.render(highest)
            )
            .replace(" req/s", "/s");
            picture.text(
                x + half - 8.0,
                y,
                &values,
                TextStyle {
                    size: 9.5,
                    colour: PALE,
                    weight: "400",
                    anchor: TextAnchor::End,
                    max_width: 150.0,
                },
            );
            let left = half - 25.0 - width(&values, 9.5);
            picture.text(
                x + 13.0,
                y,
                &line.name,
                TextStyle {
                    size: 10.5,
                    colour: INK,
                    weight: "400",
                    anchor: TextAnchor::Start,
                    max_width: left,
                },
            );
        }
    }
}
