//! The writer of SVG as text: a few shapes, escaped words.

use std::fmt::Write as _;

/// The width of a letter, as a part of its height: an average of the likely fonts.
const LETTER_WIDTH: f64 = 0.56;

/// A rectangle of a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PictureArea {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl PictureArea {
    /// Returns the area with so much less on each side: left, top, right, bottom.
    pub(crate) fn inside(self, [left, top, right, bottom]: [f64; 4]) -> Self {
        Self {
            x: self.x + left,
            y: self.y + top,
            width: self.width - left - right,
            height: self.height - top - bottom,
        }
    }

    pub(crate) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.height
    }
}

/// The alignment of a text at its point.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// The appearance of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextStyle<'a> {
    /// The height of its letters, in pixels.
    pub(crate) size: f64,
    pub(crate) colour: &'a str,
    /// The CSS weight of its font, such as `600`.
    pub(crate) weight: &'a str,
    pub(crate) anchor: TextAnchor,
    /// The width that the text is cut to, in pixels.
    pub(crate) max_width: f64,
}

/// A picture that is being drawn.
#[derive(Debug)]
pub(crate) struct SvgPicture {
    body: String,
    width: f64,
    height: f64,
}

impl SvgPicture {
    /// A white picture, with a title for screen readers.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        let body = format!(
            "<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
            escaped(title)
        );
        Self {
            body,
            width,
            height,
        }
    }

    /// Returns the content of the file.
    pub(crate) fn finish(self) -> String {
        let Self {
            body,
            width,
            height,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"Inter, Helvetica, Arial, sans-serif\">\n{body}</svg>\n"
        )
    }

    /// Draws a filled rectangle, its corners a little round.
    pub(crate) fn rectangle(&mut self, area: PictureArea, fill: &str, border: &str) {
        let PictureArea {
            x,
            y,
            width,
            height,
        } = area;
        self.line_of(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\" fill=\"{fill}\" stroke=\"{border}\"/>"
        ));
    }

    /// Draws a bar: a rectangle without a border.
    pub(crate) fn bar(&mut self, area: PictureArea, fill: &str) {
        let PictureArea {
            x,
            y,
            width,
            height,
        } = area;
        self.line_of(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ));
    }

    /// Draws a point.
    pub(crate) fn dot(&mut self, x: f64, y: f64, colour: &str) {
        self.line_of(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
        ));
    }

    /// Draws a line through these points. `dash` is `0` for a solid one.
    pub(crate) fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dash: u8) {
        let dashes = if dash == 0 {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dash}\"")
        };
        let points = joined(points);
        self.line_of(&format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dashes}/>"
        ));
    }

    /// Fills the shape of these points.
    pub(crate) fn shape(&mut self, points: &[(f64, f64)], colour: &str, opacity: f64) {
        let points = joined(points);
        self.line_of(&format!(
            "<polygon points=\"{points}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
        ));
    }

    /// Draws a text at its base line, cut to the width of its style.
    pub(crate) fn text(&mut self, x: f64, y: f64, text: &str, style: TextStyle<'_>) {
        let TextStyle {
            size,
            colour,
            weight,
            anchor,
            max_width,
        } = style;
        let anchor = match anchor {
            TextAnchor::Start => "start",
            TextAnchor::Middle => "middle",
            TextAnchor::End => "end",
        };
        let text = escaped(&cut(text, size, max_width));
        self.line_of(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\" font-weight=\"{weight}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn line_of(&mut self, element: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// Returns the approximate width of a text.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a few hundred letters at the most"
    )]
    let letters = text.chars().count() as f64;
    letters * size * LETTER_WIDTH
}

fn joined(points: &[(f64, f64)]) -> String {
    points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Cuts a text to the width.
fn cut(text: &str, size: f64, most: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few hundred letters at the most"
    )]
    let fits = (most / (size * LETTER_WIDTH)).max(1.0) as usize;
    if text.chars().count() <= fits {
        text.to_owned()
    } else {
        text.chars()
            .take(fits.saturating_sub(1))
            .chain(['…'])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut picture = SvgPicture::new(10.0, 10.0, "a & b");
        picture.text(
            1.0,
            2.0,
            "<script>\"",
            TextStyle {
                size: 10.0,
                colour: "#000000",
                weight: "400",
                anchor: TextAnchor::Start,
                max_width: 1000.0,
            },
        );
        let text = picture.finish();
        assert!(
            text.contains("<title>a &amp; b</title>")
                && text.contains(">&lt;script&gt;&quot;</text>"),
            "{text}"
        );
    }

    #[test]
    fn svg_text_is_truncated_to_its_width() {
        assert_eq!(cut("0123456789", 10.0, 1000.0), "0123456789");
        assert_eq!(cut("0123456789", 10.0, 29.0), "0123…");
    }
}
