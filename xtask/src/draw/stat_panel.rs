//! Single large numbers, and tables.

use super::{GRID, INK, PALE};
use crate::draw::svg::{PictureArea, SvgPicture, TextAnchor, TextStyle};

/// A number with its name, on a ground with the colour of its state.
#[derive(Debug)]
pub(crate) struct StatPanel<'a> {
    pub(crate) title: &'a str,
    pub(crate) shown_value: String,
    /// `green`, `orange`, `red` or `blue`.
    pub(crate) colour: &'a str,
    /// Its former values, for a small line below it.
    pub(crate) before: Vec<(f64, f64)>,
}

impl StatPanel<'_> {
    /// Draws it into a frame.
    pub(crate) fn draw(&self, picture: &mut SvgPicture, frame: PictureArea) {
        let ground = match self.colour {
            "green" => "#2c8a45",
            "orange" => "#c77a00",
            "red" => "#c0392b",
            _ => "#2f5fb3",
        };
        picture.rectangle(frame, ground, ground);
        let middle = frame.x + frame.width / 2.0;
        picture.text(
            frame.x + 10.0,
            frame.y + 19.0,
            self.title,
            TextStyle {
                size: 12.0,
                colour: "#ffffff",
                weight: "600",
                anchor: TextAnchor::Start,
                max_width: frame.width - 20.0,
            },
        );
        picture.text(
            middle,
            frame.y + 66.0,
            &self.shown_value,
            TextStyle {
                size: 30.0,
                colour: "#ffffff",
                weight: "600",
                anchor: TextAnchor::Middle,
                max_width: frame.width - 16.0,
            },
        );
        let line = frame.inside([6.0, frame.height - 44.0, 6.0, 6.0]);
        let values: Vec<_> = self.before.iter().filter(|(_, y)| y.is_finite()).collect();
        let (Some(first), Some(last)) = (values.first(), values.last()) else {
            return;
        };
        let highest = values.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        if highest <= 0.0 || last.0 <= first.0 {
            return;
        }
        let place = |(x, y): (f64, f64)| {
            (
                line.x + (x - first.0) / (last.0 - first.0) * line.width,
                line.bottom() - y / highest * line.height,
            )
        };
        let edge: Vec<_> = values.iter().map(|point| place(**point)).collect();
        let closed = edge
            .iter()
            .copied()
            .chain([(line.right(), line.bottom()), (line.x, line.bottom())]);
        picture.shape(&closed.collect::<Vec<_>>(), "#ffffff", 0.22);
    }
}

/// A table of words.
#[derive(Debug)]
pub(crate) struct TablePanel<'a> {
    pub(crate) title: &'a str,
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl TablePanel<'_> {
    /// Draws it into a frame; rows beyond it are left out.
    pub(crate) fn draw(&self, picture: &mut SvgPicture, frame: PictureArea) {
        picture.rectangle(frame, "#ffffff", GRID);
        picture.text(
            frame.x + 10.0,
            frame.y + 19.0,
            self.title,
            TextStyle {
                size: 13.0,
                colour: INK,
                weight: "600",
                anchor: TextAnchor::Start,
                max_width: frame.width - 20.0,
            },
        );
        #[expect(clippy::cast_precision_loss, reason = "a few columns")]
        let width = (frame.width - 20.0) / self.heads.len().max(1) as f64;
        let mut y = frame.y + 44.0;
        let head_style = TextStyle {
            size: 11.0,
            colour: PALE,
            weight: "600",
            anchor: TextAnchor::Start,
            max_width: width - 8.0,
        };
        let row_style = TextStyle {
            colour: INK,
            weight: "400",
            ..head_style
        };
        let line = |picture: &mut SvgPicture, words: &[String], y: f64, style: TextStyle<'_>| {
            let mut x = frame.x + 10.0;
            for word in words {
                picture.text(x, y, word, style);
                x += width;
            }
        };
        line(picture, &self.heads, y, head_style);
        for row in &self.rows {
            y += 22.0;
            if y > frame.bottom() - 6.0 {
                break;
            }
            picture.path(
                &[(frame.x + 10.0, y - 15.0), (frame.right() - 10.0, y - 15.0)],
                GRID,
                1.0,
                0,
            );
            line(picture, row, y, row_style);
        }
    }
}
