//! What stands in every picture around the drawing, so that it can be read by itself: its title with the unit, and its caption.

use super::bars::style;
use crate::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Room for the title above the drawing.
pub(crate) const ABOVE: i32 = 36;
const LEFT: i32 = 12;
const LINE: i32 = 19;
/// Characters of the caption that fit beside each other.
const WRAP: usize = 120;

/// A picture's words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) title: &'static str,
    /// What the numbers count, such as `pairs/s`.
    pub(crate) unit: &'static str,
    pub(crate) caption: &'static str,
}

impl Words {
    /// Room for the caption below the drawing.
    pub(crate) fn below(&self) -> i32 {
        LINE * self.lines().len() as i32 + 14
    }

    /// Writes the title at the top and the caption from `bottom` on.
    pub(crate) fn draw(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, bottom: i32) -> Result<()> {
        let title = TextStyle::from(("sans-serif", 18, FontStyle::Bold).into_font());
        let title = title.pos(Pos::new(HPos::Left, VPos::Top));
        root.draw(&Text::new(format!("{} ({})", self.title, self.unit), (LEFT, 10), title))?;
        for (number, line) in (0_i32..).zip(self.lines()) {
            let at = (LEFT, bottom + 8 + LINE * number);
            root.draw(&Text::new(line, at, style(HPos::Left, VPos::Top, 0.8)))?;
        }
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in self.caption.split_whitespace() {
            let line = lines.last_mut().expect("there is always a line");
            if line.is_empty() {
                line.push_str(word);
            } else if line.chars().count() + word.chars().count() < WRAP {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.into());
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caption_is_broken_between_words_and_has_room() {
        let words = Words { title: "", unit: "", caption: "Shorter is better. ".repeat(20).leak() };
        let lines = words.lines();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.chars().count() <= WRAP && !line.ends_with(' ')));
        assert_eq!(lines.join(" "), words.caption.trim_end());
        assert!(words.below() > 4 * LINE);
    }
}
